//! Modules: directives, variables and the heads of functions (PTX ISA 8.7, section 11).

use super::lex::{self, Token};
use super::tree::{Function, Module, Space, Statement, Ty, Variable};
use super::{LoadError, Parsed, Refusal};

/// The largest variable that a module may declare. A hostile text must not take all memory.
const MAX_VARIABLE_BYTES: u64 = 1 << 30;
/// Sections nest (`{`), and so do operands. Hostile text must not overflow the stack.
pub(super) const MAX_NESTING: usize = 64;

/// Reads a module. Errors: the first line that is not PTX, or that is a directive which this reader does not know.
pub fn parse(text: &str) -> Result<Module<'_>, LoadError> {
    let read = || {
        let tokens = lex::tokens(text)?;
        let last_line = text.lines().count() as u32;
        Parser { tokens, at: 0, last_line }.module()
    };
    read().map_err(|refusal: Refusal| refusal.in_text(text))
}

pub(super) struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
    last_line: u32,
}

impl<'a> Parser<'a> {
    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).map_or(self.last_line, |t| t.1)
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|t| t.0)
    }

    pub(super) fn peek_second(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at + 1).map(|t| t.0)
    }

    pub(super) fn step(&mut self) {
        self.at += 1;
    }

    pub(super) fn refuse<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(Refusal::new(self.line(), message))
    }

    /// Takes a sign if it is next.
    pub(super) fn takes(&mut self, sign: char) -> bool {
        let is_next = self.peek() == Some(Token::Sign(sign));
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn expect(&mut self, sign: char) -> Parsed<()> {
        if self.takes(sign) { Ok(()) } else { self.refuse(format!("`{sign}` is missing")) }
    }

    pub(super) fn word(&mut self, role: &str) -> Parsed<&'a str> {
        match self.peek() {
            Some(Token::Word(w)) => {
                self.at += 1;
                Ok(w)
            }
            _ => self.refuse(format!("{role} is missing")),
        }
    }

    /// An integer with an optional sign, as 64 bits.
    pub(super) fn integer(&mut self) -> Parsed<u64> {
        let is_negative = self.takes('-');
        match self.peek() {
            Some(Token::Number(digits)) => match lex::integer(digits) {
                Some(value) => {
                    self.at += 1;
                    Ok(if is_negative { value.wrapping_neg() } else { value })
                }
                None => self.refuse(format!("`{digits}` is not an integer of 64 bits")),
            },
            _ => self.refuse("a number is missing"),
        }
    }

    fn small(&mut self) -> Parsed<u32> {
        let value = self.integer()?;
        u32::try_from(value).or_else(|_| self.refuse("the number is too large"))
    }

    fn module(mut self) -> Parsed<Module<'a>> {
        let mut module = Module::default();
        while let Some(token) = self.peek() {
            match token {
                Token::Word(".version") => {
                    self.step();
                    self.version(&mut module)?;
                }
                Token::Word(".target") => {
                    self.step();
                    module.target = self.word("the target")?;
                    if self.takes(',') {
                        let option = self.word("an option of the target")?;
                        return self.refuse(format!("the target option `{option}` is unknown"));
                    }
                }
                Token::Word(".address_size") => {
                    self.step();
                    if self.integer()? != 64 {
                        self.at -= 1;
                        return self.refuse("only addresses of 64 bits are known");
                    }
                }
                Token::Word(".file") => self.skip_line(),
                Token::Word(_) => self.declaration(&mut module)?,
                _ => return self.refuse("a directive is expected here"),
            }
        }
        if module.version == (0, 0) || module.target.is_empty() {
            return self.refuse("the module has no .version or no .target");
        }
        Ok(module)
    }

    fn version(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let parts = match (self.peek(), self.peek_second()) {
            (Some(Token::Number(major)), Some(Token::Word(minor))) => {
                major.parse().ok().zip(minor.strip_prefix('.').and_then(|m| m.parse().ok()))
            }
            _ => None,
        };
        let Some(version) = parts else { return self.refuse("the version is not two numbers") };
        self.at += 2;
        module.version = version;
        Ok(())
    }

    /// Skips what is left of the line: a directive for debuggers.
    pub(super) fn skip_line(&mut self) {
        let line = self.line();
        while self.at < self.tokens.len() && self.line() == line {
            self.at += 1;
        }
    }

    fn declaration(&mut self, module: &mut Module<'a>) -> Parsed<()> {
        let mut is_extern = false;
        loop {
            match self.peek() {
                Some(Token::Word(".visible" | ".weak")) => self.step(),
                Some(Token::Word(".extern")) => {
                    is_extern = true;
                    self.step();
                }
                Some(Token::Word(".entry")) => {
                    self.step();
                    let function = self.function(true)?;
                    module.functions.push(function);
                    return Ok(());
                }
                Some(Token::Word(".func")) => {
                    self.step();
                    let function = self.function(false)?;
                    module.functions.push(function);
                    return Ok(());
                }
                Some(Token::Word(word)) => {
                    let Some(space) = space_named(word) else {
                        return self.refuse(format!("the directive `{word}` is unknown"));
                    };
                    self.step();
                    self.variables(space, is_extern, &mut module.variables)?;
                    return Ok(());
                }
                _ => return self.refuse("a declaration is cut off"),
            }
        }
    }

    /// The variables of one declaration, up to its `;`.
    pub(super) fn variables(&mut self, space: Space, is_extern: bool, out: &mut Vec<Variable<'a>>) -> Parsed<()> {
        let (align, ty) = self.align_and_type()?;
        loop {
            let mut variable = self.variable(space, align, ty)?;
            variable.is_extern = is_extern;
            if self.takes('=') {
                self.initial(&mut variable)?;
            }
            out.push(variable);
            if !self.takes(',') {
                return self.expect(';');
            }
        }
    }

    fn align_and_type(&mut self) -> Parsed<(Option<u32>, Ty)> {
        let mut align = None;
        loop {
            let word = self.word("a type")?;
            if word == ".align" {
                let value = self.small()?;
                if !value.is_power_of_two() || value > 4096 {
                    return self.refuse(format!("{value} is not an alignment"));
                }
                align = Some(value);
            } else {
                return match word.strip_prefix('.').and_then(Ty::named) {
                    Some(ty) if ty != Ty::Pred => Ok((align, ty)),
                    _ => self.refuse(format!("`{word}` is not a type of variables")),
                };
            }
        }
    }

    fn variable(&mut self, space: Space, align: Option<u32>, ty: Ty) -> Parsed<Variable<'a>> {
        if self.peek() == Some(Token::Word(".ptr")) {
            self.skip_pointer_attributes()?;
        }
        let line = self.line();
        let name = self.word("a name")?;
        let mut bytes = u64::from(ty.bytes());
        while self.takes('[') {
            let count = if self.peek() == Some(Token::Sign(']')) { 0 } else { self.integer()? };
            self.expect(']')?;
            match bytes.checked_mul(count) {
                Some(product) if product <= MAX_VARIABLE_BYTES => bytes = product,
                _ => return self.refuse("the variable is too large"),
            }
        }
        let align = align.unwrap_or(ty.bytes());
        Ok(Variable { space, align, ty, bytes, name, initial: Vec::new(), is_extern: false, line })
    }

    /// `.ptr .global .align 4` after the type of a parameter: promises for compilers.
    fn skip_pointer_attributes(&mut self) -> Parsed<()> {
        self.step();
        loop {
            match self.peek() {
                Some(Token::Word(".global" | ".shared" | ".local" | ".const")) => self.step(),
                Some(Token::Word(".align")) => {
                    self.step();
                    self.small()?;
                }
                _ => return Ok(()),
            }
        }
    }

    fn initial(&mut self, variable: &mut Variable<'a>) -> Parsed<()> {
        let is_list = self.takes('{');
        loop {
            let element = self.element(variable.ty)?;
            variable.initial.extend_from_slice(&element.to_le_bytes()[..variable.ty.bytes() as usize]);
            if !is_list || !self.takes(',') {
                break;
            }
        }
        if is_list {
            self.expect('}')?;
        }
        if variable.initial.len() as u64 > variable.bytes {
            return self.refuse("there are more initial values than elements");
        }
        Ok(())
    }

    fn element(&mut self, ty: Ty) -> Parsed<u64> {
        if let Some(Token::Number(digits)) = self.peek()
            && let Some((is_double, bits)) = lex::float_bits(digits)
        {
            if ty != if is_double { Ty::F64 } else { Ty::F32 } {
                return self.refuse("the value has another type than the variable");
            }
            self.step();
            return Ok(bits);
        }
        if ty.is_float() {
            return self.refuse("the initial value of a float is not known in this form");
        }
        self.integer()
    }

    fn function(&mut self, is_entry: bool) -> Parsed<Function<'a>> {
        let mut results = Vec::new();
        if !is_entry && self.peek() == Some(Token::Sign('(')) {
            results = self.params()?;
        }
        let line = self.line();
        let name = self.word("the name of a function")?;
        let params = if self.peek() == Some(Token::Sign('(')) { self.params()? } else { Vec::new() };
        let (most_threads, required_threads) = (None, None);
        let mut f = Function { name, is_entry, params, results, most_threads, required_threads, body: None, line };
        loop {
            match self.peek() {
                Some(Token::Sign('{')) => {
                    self.step();
                    f.body = Some(self.body()?);
                    return Ok(f);
                }
                Some(Token::Sign(';')) => {
                    self.step();
                    return Ok(f);
                }
                Some(Token::Word(".maxntid")) => f.most_threads = Some(self.extents()?),
                Some(Token::Word(".reqntid")) => f.required_threads = Some(self.extents()?),
                Some(Token::Word(".minnctapersm" | ".maxnctapersm" | ".maxnreg")) => {
                    self.step();
                    self.small()?;
                }
                Some(Token::Word(".noreturn")) => self.step(),
                Some(Token::Word(".pragma")) => self.pragma()?,
                _ => return self.refuse("the body of the function is missing"),
            }
        }
    }

    pub(super) fn pragma(&mut self) -> Parsed<()> {
        self.step();
        if self.peek() != Some(Token::Text) {
            return self.refuse("the pragma has no text");
        }
        self.step();
        self.expect(';')
    }

    fn extents(&mut self) -> Parsed<[u32; 3]> {
        self.step();
        let mut extents = [1; 3];
        for extent in &mut extents {
            *extent = self.small()?;
            if !self.takes(',') {
                break;
            }
        }
        Ok(extents)
    }

    fn params(&mut self) -> Parsed<Vec<Variable<'a>>> {
        self.expect('(')?;
        let mut out = Vec::new();
        while !self.takes(')') {
            if self.word(".param")? != ".param" {
                return self.refuse("only parameters in .param are known");
            }
            let (align, ty) = self.align_and_type()?;
            out.push(self.variable(Space::Param, align, ty)?);
            if !self.takes(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(out)
    }

    fn body(&mut self) -> Parsed<Vec<Statement<'a>>> {
        let mut out = Vec::new();
        let mut depth = 0;
        loop {
            if self.takes('}') {
                if depth == 0 {
                    return Ok(out);
                }
                depth -= 1;
                out.push(Statement::Close);
            } else if self.takes('{') {
                depth += 1;
                if depth > MAX_NESTING {
                    return self.refuse("the sections nest too deeply");
                }
                out.push(Statement::Open);
            } else {
                self.statement(&mut out)?;
            }
        }
    }
}

/// The space that a directive such as `.global` names.
pub(super) fn space_named(word: &str) -> Option<Space> {
    Some(match word {
        ".global" => Space::Global,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".const" => Space::Const,
        ".param" => Space::Param,
        _ => return None,
    })
}
