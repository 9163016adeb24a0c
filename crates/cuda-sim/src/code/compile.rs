//! From the tree of a module to kernels.
//!
//! Each kernel is compiled by itself. A call compiles the body of the function in its place, with registers of its own and with
//! the caller's `.param` variables under the names of the parameters. So there is no stack, and recursion is refused.

use std::collections::HashMap;
use std::sync::Arc;

use super::names::{
    Location, Meaning, Place, Section, Slots, bits_of_class, class_of_type, special_named, split_number,
};
use super::op::{Inst, Op};
use super::{Constant, DYNAMIC_SHARED_ALIGN, GlobalVariable, Kernel, Param, Program};
use crate::lanes::{Class, Reg, Slot};
use crate::ptx::{Function, Instruction, Module, Name, Operand, Parsed, Refusal, Space, Statement, Variable};

/// Inlined calls multiply code. This limit stops text that calls itself into gigabytes.
const MAX_INSTRUCTIONS: usize = 1 << 20;
/// The most shared memory of a block on sm_90 (CUDA C++ guide, table of compute capabilities).
pub(crate) const MAX_SHARED_BYTES: u64 = 227 << 10;
/// The most local memory of a thread (same table).
const MAX_LOCAL_BYTES: u64 = 512 << 10;

pub(super) fn program(module: &Module<'_>, text: &str) -> Parsed<Program> {
    check_target(module)?;
    let lines = Arc::new(text.lines().map(|l| l.trim().to_string()).collect::<Vec<_>>());
    let mut program = Program { kernels: Vec::new(), variables: Vec::new() };
    let mut names = HashMap::new();
    for v in &module.variables {
        let place = place_of_module(v, &mut program.variables)?;
        if names.insert(v.name, place).is_some() {
            return Err(Refusal::new(v.line, format!("`{}` is declared twice", v.name)));
        }
    }
    for f in module.functions.iter().filter(|f| f.is_entry) {
        if program.kernel(f.name).is_some() {
            return Err(Refusal::new(f.line, format!("the kernel `{}` is defined twice", f.name)));
        }
        let Some(body) = &f.body else { continue };
        let kernel = Compiler::new(module, &names).kernel(f, body, &lines)?;
        program.kernels.push(Arc::new(kernel));
    }
    Ok(program)
}

fn check_target(module: &Module<'_>) -> Parsed<()> {
    let number = module.target.strip_prefix("sm_").map(|n| n.trim_end_matches('a'));
    match number.and_then(|n| n.parse::<u32>().ok()) {
        Some(n) if n <= 90 => Ok(()),
        _ => Err(Refusal::new(1, format!("the target `{}` is not one of sm_90 and below", module.target))),
    }
}

fn place_of_module(v: &Variable<'_>, variables: &mut Vec<GlobalVariable>) -> Parsed<Place> {
    let at = match v.space {
        Space::Global | Space::Const if !v.is_extern => {
            let initial = v.initial.clone();
            variables.push(GlobalVariable { name: v.name.to_string(), bytes: v.bytes, align: v.align, initial });
            Location::Variable(variables.len() - 1)
        }
        Space::Shared if v.is_extern => {
            if v.align > DYNAMIC_SHARED_ALIGN {
                return Err(Refusal::new(
                    v.line,
                    format!("dynamic shared memory lies at multiples of {DYNAMIC_SHARED_ALIGN}"),
                ));
            }
            Location::DynamicShared
        }
        // kernels that name it give it a place
        Space::Shared => Location::Offset(u64::MAX),
        _ => return Err(Refusal::new(v.line, format!("the variable `{}` is of a kind that is not known", v.name))),
    };
    Ok(Place { space: v.space, at, bytes: v.bytes })
}

pub(super) struct Compiler<'m, 'a> {
    module: &'m Module<'a>,
    module_names: &'m HashMap<Name<'a>, Place>,
    sections: Vec<Section<'a>>,
    pub(super) slots: Slots,
    code: Vec<Inst>,
    /// Labels of the function that is compiled, and branches that wait for them.
    labels: HashMap<Name<'a>, usize>,
    pending: Vec<(usize, Name<'a>)>,
    /// Branches to the end of the function that is compiled.
    returns: Vec<usize>,
    shared_at: HashMap<Name<'a>, u64>,
    shared_bytes: u64,
    local_bytes: u64,
    /// Functions that are being inlined, the kernel first.
    callers: Vec<Name<'a>>,
}

impl<'m, 'a> Compiler<'m, 'a> {
    fn new(module: &'m Module<'a>, module_names: &'m HashMap<Name<'a>, Place>) -> Self {
        Compiler {
            module,
            module_names,
            sections: Vec::new(),
            slots: Slots::default(),
            code: Vec::new(),
            labels: HashMap::new(),
            pending: Vec::new(),
            returns: Vec::new(),
            shared_at: HashMap::new(),
            shared_bytes: 0,
            local_bytes: 0,
            callers: Vec::new(),
        }
    }

    fn kernel(mut self, f: &Function<'a>, body: &[Statement<'a>], lines: &Arc<Vec<String>>) -> Parsed<Kernel> {
        let mut params = Vec::new();
        let mut section = Section::default();
        let mut end = 0u64;
        for p in &f.params {
            let offset = end.next_multiple_of(u64::from(p.align));
            end = offset + p.bytes;
            if end > MAX_PARAM_BYTES {
                return Err(Refusal::new(p.line, "the parameters take more than 32,764 bytes"));
            }
            params.push(Param { offset: offset as u32, bytes: p.bytes as u32 });
            let place = Place { space: Space::Param, at: Location::Offset(offset), bytes: p.bytes };
            section.meanings.insert(p.name, Meaning::Place(place));
        }
        self.callers.push(f.name);
        self.function(body, section, f.line)?;
        self.push(Op::Exit, None, f.line)?;
        let (constants, specials) = self.slots.filled();
        Ok(Kernel {
            name: f.name.to_string(),
            params,
            param_bytes: end as u32,
            most_threads: f.most_threads,
            required_threads: f.required_threads,
            shared_bytes: self.shared_bytes as u32,
            local_bytes: self.local_bytes as u32,
            code: self.code,
            words: self.slots.words,
            doubles: self.slots.doubles,
            predicates: self.slots.predicates,
            constants,
            specials,
            lines: Arc::clone(lines),
        })
    }

    /// Compiles a body. It ends at the next instruction, to which its `ret`s go.
    fn function(&mut self, body: &[Statement<'a>], section: Section<'a>, line: u32) -> Parsed<()> {
        let outer_sections = std::mem::replace(&mut self.sections, vec![section, Section::default()]);
        let outer_labels = std::mem::take(&mut self.labels);
        let outer_pending = std::mem::take(&mut self.pending);
        let outer_returns = std::mem::take(&mut self.returns);
        for statement in body {
            self.statement(statement)?;
        }
        for (at, name) in std::mem::replace(&mut self.pending, outer_pending) {
            let line = self.code[at].line;
            let Some(&to) = self.labels.get(name) else {
                return Err(Refusal::new(line, format!("the label `{name}` is missing")));
            };
            self.code[at].op = Op::Branch(to);
        }
        let end = self.code.len();
        for at in std::mem::replace(&mut self.returns, outer_returns) {
            self.code[at].op = Op::Branch(end);
        }
        self.labels = outer_labels;
        if self.sections.len() != 2 {
            return Err(Refusal::new(line, "a section of the function does not end"));
        }
        self.sections = outer_sections;
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        match statement {
            Statement::Open => self.sections.push(Section::default()),
            Statement::Close => {
                self.sections.pop();
            }
            Statement::Label(name, line) => {
                if self.labels.insert(name, self.code.len()).is_some() {
                    return Err(Refusal::new(*line, format!("the label `{name}` is defined twice")));
                }
            }
            Statement::Registers { ty, name, count, line } => {
                let Some(class) = class_of_type(*ty) else {
                    return Err(Refusal::new(*line, "registers of 8 bits are not known"));
                };
                match count {
                    Some(count) => {
                        self.section().ranges.insert(name, (class, *count));
                    }
                    None => {
                        let slot = self.slots.fresh(class);
                        self.section().meanings.insert(name, Meaning::Register(class, slot));
                    }
                }
            }
            Statement::Variable(v) => self.variable(v)?,
            Statement::Instruction(i) => self.instruction(i)?,
        }
        Ok(())
    }

    fn section(&mut self) -> &mut Section<'a> {
        if self.sections.is_empty() {
            self.sections.push(Section::default());
        }
        let last = self.sections.len() - 1;
        &mut self.sections[last]
    }

    fn variable(&mut self, v: &Variable<'a>) -> Parsed<()> {
        if !v.initial.is_empty() || v.is_extern {
            return Err(Refusal::new(v.line, "a variable of a body has no initial value"));
        }
        let place = match v.space {
            Space::Shared => self.shared_place(v.name, v)?,
            Space::Local | Space::Param => {
                let offset = self.local_bytes.next_multiple_of(u64::from(v.align));
                self.local_bytes = offset + v.bytes;
                if self.local_bytes > MAX_LOCAL_BYTES {
                    return Err(Refusal::new(v.line, "local memory takes more than 512 KiB"));
                }
                Place { space: Space::Local, at: Location::Offset(offset), bytes: v.bytes }
            }
            _ => return Err(Refusal::new(v.line, "a variable of this space is not known in a body")),
        };
        self.section().meanings.insert(v.name, Meaning::Place(place));
        Ok(())
    }

    /// The place of a shared variable. A function that is inlined twice has its variables once.
    fn shared_place(&mut self, name: Name<'a>, v: &Variable<'a>) -> Parsed<Place> {
        let offset = match self.shared_at.get(name) {
            Some(&offset) => offset,
            None => {
                let offset = self.shared_bytes.next_multiple_of(u64::from(v.align));
                self.shared_bytes = offset + v.bytes;
                self.shared_at.insert(name, offset);
                offset
            }
        };
        if self.shared_bytes > MAX_SHARED_BYTES {
            return Err(Refusal::new(v.line, "shared memory takes more than 227 KiB"));
        }
        Ok(Place { space: Space::Shared, at: Location::Offset(offset), bytes: v.bytes })
    }

    pub(super) fn push(&mut self, op: Op, guard: Option<(Slot, bool)>, line: u32) -> Parsed<()> {
        if self.code.len() >= MAX_INSTRUCTIONS {
            return Err(Refusal::new(line, "with its calls inlined, the kernel has more than 1,048,576 instructions"));
        }
        self.code.push(Inst { op, guard, line });
        Ok(())
    }

    /// True within the body of a called function.
    pub(super) fn is_inlined(&self) -> bool {
        self.callers.len() > 1
    }

    /// Notes that the branch that is pushed next goes to a label.
    pub(super) fn branch_to(&mut self, label: Name<'a>) {
        self.pending.push((self.code.len(), label));
    }

    /// Notes that the branch that is pushed next goes to the end of the function.
    pub(super) fn branch_to_end(&mut self) {
        self.returns.push(self.code.len());
    }

    pub(super) fn meaning(&mut self, name: Name<'a>) -> Option<Meaning> {
        for section in self.sections.iter_mut().rev() {
            if let Some(&meaning) = section.meanings.get(name) {
                return Some(meaning);
            }
            if let Some((prefix, number)) = split_number(name)
                && let Some(&(class, count)) = section.ranges.get(prefix)
                && number < count
            {
                let meaning = Meaning::Register(class, self.slots.fresh(class));
                section.meanings.insert(name, meaning);
                return Some(meaning);
            }
        }
        let place = *self.module_names.get(name)?;
        if matches!(place.at, Location::Offset(_)) {
            let module = self.module;
            let v = module.variables.iter().find(|v| v.name == name)?;
            return self.shared_place(name, v).ok().map(Meaning::Place);
        }
        Some(Meaning::Place(place))
    }

    /// Compiles the function in the place of a call.
    pub(super) fn inline(
        &mut self,
        name: Name<'a>,
        results: &[Name<'a>],
        params: &[Name<'a>],
        i: &Instruction<'a>,
    ) -> Parsed<()> {
        let module = self.module;
        let function = module.functions.iter().find(|f| f.name == name && !f.is_entry && f.body.is_some());
        let Some((f, body)) = function.and_then(|f| Some((f, f.body.as_ref()?))) else {
            return Err(Refusal::new(i.line, format!("the function `{name}` has no body here")));
        };
        if self.callers.contains(&name) {
            return Err(Refusal::new(i.line, format!("`{name}` is recursive")));
        }
        if f.params.len() != params.len() || f.results.len() != results.len() {
            return Err(Refusal::new(i.line, format!("`{name}` has another number of parameters or results")));
        }
        let mut section = Section::default();
        for (formal, actual) in f.params.iter().zip(params).chain(f.results.iter().zip(results)) {
            match self.meaning(actual) {
                Some(Meaning::Place(place)) if place.space == Space::Local && place.bytes == formal.bytes => {
                    section.meanings.insert(formal.name, Meaning::Place(place));
                }
                _ => {
                    return Err(Refusal::new(i.line, format!("`{actual}` does not fit `{}` of `{name}`", formal.name)));
                }
            }
        }
        self.callers.push(name);
        self.function(body, section, f.line)?;
        self.callers.pop();
        Ok(())
    }

    /// The register of a result. `_` gets a register that nobody reads.
    pub(super) fn to<R: Reg>(&mut self, operand: &Operand<'a>, line: u32) -> Parsed<Slot> {
        match operand {
            Operand::Name("_") => Ok(self.slots.fresh(R::CLASS)),
            Operand::Name(name) => self.register(name, R::CLASS, line),
            _ => Err(Refusal::new(line, "the result is not a register")),
        }
    }

    pub(super) fn register(&mut self, name: Name<'a>, class: Class, line: u32) -> Parsed<Slot> {
        match self.meaning(name) {
            Some(Meaning::Register(found, slot)) if found == class => Ok(slot),
            Some(Meaning::Register(found, _)) => {
                let (has, wants) = (bits_of_class(found), bits_of_class(class));
                Err(Refusal::new(
                    line,
                    format!("the register `{name}` has {has} bits and the instruction takes {wants}"),
                ))
            }
            _ => Err(Refusal::new(line, format!("`{name}` is not a register"))),
        }
    }

    /// The register that holds an operand. Immediate operands have registers that are filled before the kernel runs.
    pub(super) fn from<R: Reg>(&mut self, operand: &Operand<'a>, line: u32) -> Parsed<Slot> {
        let bits = match *operand {
            Operand::Name(name) => {
                if let Some(special) = special_named(name) {
                    if R::CLASS != Class::Word {
                        return Err(Refusal::new(line, format!("`{name}` has 32 bits")));
                    }
                    return Ok(self.slots.special(special));
                }
                if name == "WARP_SZ" && R::CLASS == Class::Word {
                    return Ok(self.slots.constant(Class::Word, Constant::Bits(32)));
                }
                return self.register(name, R::CLASS, line);
            }
            Operand::Integer(bits) if !R::IS_FLOAT => match R::CLASS {
                Class::Predicate => u64::from(bits != 0),
                Class::Half => bits & 0xffff,
                Class::Word => bits & 0xffff_ffff,
                Class::Double => bits,
            },
            Operand::F32(bits) if R::CLASS == Class::Word => u64::from(bits),
            Operand::F64(bits) if R::CLASS == Class::Double => bits,
            _ => return Err(Refusal::new(line, "an operand is of a kind that the instruction does not take")),
        };
        Ok(self.slots.constant(R::CLASS, Constant::Bits(bits)))
    }
}

/// The most bytes of parameters on sm_90 (PTX ISA 8.7, section 5.1.6).
const MAX_PARAM_BYTES: u64 = 32_764;
