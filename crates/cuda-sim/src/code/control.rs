//! From instructions to operations: the families, and control flow (PTX ISA 8.7, section 9.7.12).

use super::compile::Compiler;
use super::names::{Meaning, class_of_type};
use super::op::{Barrier, BarrierResult, Op};
use super::{Constant, arithmetic, bits, compare, convert, float, half, memory, moves, warp};
use crate::lanes::{Class, Reg, Slot, lift1, lift2, lift3, lift4};
use crate::ptx::{Instruction, Name, Operand, Parsed, Refusal, Ty};

/// The answer of a family: the operation, or `None` if the instruction is not one of its own.
pub(super) type Answer = Parsed<Option<Op>>;

type Family = for<'m, 'a> fn(&mut Compiler<'m, 'a>, &Instruction<'a>, &[&'a str]) -> Answer;

const FAMILIES: [Family; 10] = [
    moves::family,
    memory::family,
    arithmetic::family,
    float::family,
    convert::family,
    compare::family,
    bits::family,
    half::family,
    warp::family,
    control,
];

impl<'m, 'a> Compiler<'m, 'a> {
    pub(super) fn instruction(&mut self, i: &Instruction<'a>) -> Parsed<()> {
        let words = &i.opcode[..];
        if let Some(word) = words.iter().find(|w| matches!(**w, "approx" | "ftz" | "full")) {
            return Err(Refusal::new(i.line, format!("`.{word}` does not fix the bits of the result")));
        }
        if words[0] == "call" {
            return self.call(i);
        }
        let guard = match i.guard {
            Some(g) => Some((self.register(g.predicate, Class::Predicate, i.line)?, g.is_negated)),
            None => None,
        };
        for family in FAMILIES {
            if let Some(op) = family(self, i, words)? {
                return self.push(op, guard, i.line);
            }
        }
        Err(Refusal::new(i.line, format!("the instruction `{}` is unknown", words.join("."))))
    }

    fn call(&mut self, i: &Instruction<'a>) -> Parsed<()> {
        let is_known = matches!(i.opcode[..], ["call"] | ["call", "uni"]) && i.guard.is_none();
        let (results, name, params): (&[_], _, &[_]) = match &i.operands[..] {
            [Operand::List(results), Operand::Name(name), Operand::List(params)] => (results, name, params),
            [Operand::List(results), Operand::Name(name)] => (results, name, &[]),
            [Operand::Name(name), Operand::List(params)] => (&[], name, params),
            [Operand::Name(name)] => (&[], name, &[]),
            _ => return Err(Refusal::new(i.line, "a call of this form is not known")),
        };
        if !is_known {
            return Err(Refusal::new(i.line, "a call of this form is not known"));
        }
        let names = |list: &[Operand<'a>]| -> Parsed<Vec<Name<'a>>> {
            list.iter()
                .map(|operand| match operand {
                    Operand::Name(name) => Ok(*name),
                    _ => Err(Refusal::new(i.line, "a parameter of a call is not a variable")),
                })
                .collect()
        };
        let (results, params) = (names(results)?, names(params)?);
        self.inline(name, &results, &params, i)
    }

    fn count<T>(&self, i: &Instruction<'a>, takes: usize) -> Parsed<T> {
        let message = format!("the instruction has {} operands and takes {takes}", i.operands.len());
        Err(Refusal::new(i.line, message))
    }

    pub(super) fn map1<A: Reg, O: Reg>(
        &mut self,
        i: &Instruction<'a>,
        f: impl Fn(A) -> O + Send + Sync + 'static,
    ) -> Answer {
        let [d, a] = &i.operands[..] else { return self.count(i, 2) };
        Ok(Some(Op::Alu(lift1(self.to::<O>(d, i.line)?, self.from::<A>(a, i.line)?, f))))
    }

    pub(super) fn map2<A: Reg, B: Reg, O: Reg>(
        &mut self,
        i: &Instruction<'a>,
        f: impl Fn(A, B) -> O + Send + Sync + 'static,
    ) -> Answer {
        let [d, a, b] = &i.operands[..] else { return self.count(i, 3) };
        let from = (self.from::<A>(a, i.line)?, self.from::<B>(b, i.line)?);
        Ok(Some(Op::Alu(lift2(self.to::<O>(d, i.line)?, from, f))))
    }

    pub(super) fn map3<A: Reg, B: Reg, C: Reg, O: Reg>(
        &mut self,
        i: &Instruction<'a>,
        f: impl Fn(A, B, C) -> O + Send + Sync + 'static,
    ) -> Answer {
        let [d, a, b, c] = &i.operands[..] else { return self.count(i, 4) };
        let from = (self.from::<A>(a, i.line)?, self.from::<B>(b, i.line)?, self.from::<C>(c, i.line)?);
        Ok(Some(Op::Alu(lift3(self.to::<O>(d, i.line)?, from, f))))
    }

    pub(super) fn map4<A: Reg, B: Reg, C: Reg, D: Reg, O: Reg>(
        &mut self,
        i: &Instruction<'a>,
        f: impl Fn(A, B, C, D) -> O + Send + Sync + 'static,
    ) -> Answer {
        let [d, a, b, c, e] = &i.operands[..] else { return self.count(i, 5) };
        let (a, b) = (self.from::<A>(a, i.line)?, self.from::<B>(b, i.line)?);
        let (c, e) = (self.from::<C>(c, i.line)?, self.from::<D>(e, i.line)?);
        Ok(Some(Op::Alu(lift4(self.to::<O>(d, i.line)?, (a, b, c, e), f))))
    }

    /// A predicate as a source, with `!` or without.
    pub(super) fn condition(&mut self, operand: &Operand<'a>, line: u32) -> Parsed<(Slot, bool)> {
        match operand {
            Operand::Not(name) => Ok((self.register(name, Class::Predicate, line)?, true)),
            other => Ok((self.from::<bool>(other, line)?, false)),
        }
    }

    /// The class and the slot of any register, or of an integer as wide as `ty`.
    pub(super) fn any_from(&mut self, operand: &Operand<'a>, ty: Ty, line: u32) -> Parsed<(Class, Slot)> {
        if let Operand::Name(name) = operand
            && let Some(Meaning::Register(class, slot)) = self.meaning(name)
        {
            return Ok((class, slot));
        }
        let class = class_of_type(ty).unwrap_or(Class::Half);
        let slot = match class {
            Class::Predicate => self.from::<bool>(operand, line),
            Class::Half => self.from::<u16>(operand, line),
            Class::Word if ty == Ty::F32 => self.from::<f32>(operand, line),
            Class::Word => self.from::<u32>(operand, line),
            Class::Double if ty == Ty::F64 => self.from::<f64>(operand, line),
            Class::Double => self.from::<u64>(operand, line),
        }?;
        Ok((class, slot))
    }
}

fn control<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    Ok(Some(match (words, &i.operands[..]) {
        (["bra"] | ["bra", "uni"], [Operand::Name(label)]) => {
            c.branch_to(label);
            Op::Branch(usize::MAX)
        }
        (["ret"] | ["ret", "uni"], []) => {
            c.branch_to_end();
            Op::Branch(usize::MAX)
        }
        (["exit"], []) => Op::Exit,
        (["trap"], []) => Op::Trap,
        (["membar", "cta" | "gl" | "sys"], [])
        | (["fence", "sc" | "acq_rel", "cta" | "cluster" | "gpu" | "sys"], [])
        | (["nanosleep", "u32"], [_]) => Op::Fence,
        (["bar" | "barrier", rest @ ..], operands) => return barrier(c, i, rest, operands),
        _ => return Ok(None),
    }))
}

/// Barriers of all threads of a block (PTX ISA 8.7, section 9.7.13.1).
fn barrier<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str], operands: &[Operand<'a>]) -> Answer {
    let line = i.line;
    let words = if let ["cta", rest @ ..] = words { rest } else { words };
    let (red, operands) = match (words, operands) {
        (["sync"] | ["sync", "aligned"], operands) => (None, operands),
        (["red", "popc", "u32"] | ["red", "popc", "aligned", "u32"], [to, rest @ .., from]) => {
            let ((from, is_negated), to) = (c.condition(from, line)?, c.to::<u32>(to, line)?);
            (Some(BarrierResult::Count { to, from, is_negated }), rest)
        }
        (
            ["red", kind @ ("and" | "or"), "pred"] | ["red", kind @ ("and" | "or"), "aligned", "pred"],
            [to, rest @ .., from],
        ) => {
            let ((from, is_negated), to) = (c.condition(from, line)?, c.to::<bool>(to, line)?);
            let result = match *kind {
                "and" => BarrierResult::All { to, from, is_negated },
                _ => BarrierResult::Any { to, from, is_negated },
            };
            (Some(result), rest)
        }
        _ => return Ok(None),
    };
    let (id, threads) = match operands {
        [id] => (c.from::<u32>(id, line)?, None),
        [id, threads] => (c.from::<u32>(id, line)?, Some(c.from::<u32>(threads, line)?)),
        [] if words == ["sync"] => (c.slots.constant(Class::Word, Constant::Bits(0)), None),
        _ => return Ok(None),
    };
    Ok(Some(Op::Barrier(Barrier { id, threads, result: red })))
}
