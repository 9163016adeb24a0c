//! Statements of a body: registers, variables, labels and instructions.

use super::lex::{self, Token};
use super::module::{MAX_NESTING, Parser, space_named};
use super::tree::{Guard, Instruction, Operand, Statement, Ty};
use super::{Parsed, Refusal};

impl<'a> Parser<'a> {
    pub(super) fn statement(&mut self, out: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let line = self.line();
        match self.peek() {
            Some(Token::Word(".reg")) => {
                self.step();
                self.registers(out)
            }
            Some(Token::Word(".loc" | ".file")) => {
                self.skip_line();
                Ok(())
            }
            Some(Token::Word(".pragma")) => self.pragma(),
            Some(Token::Word(word)) if self.peek_second() == Some(Token::Sign(':')) => {
                self.step();
                self.step();
                out.push(Statement::Label(word, line));
                Ok(())
            }
            Some(Token::Word(word)) if word.starts_with('.') => {
                let Some(space) = space_named(word) else {
                    return self.refuse(format!("the directive `{word}` is unknown"));
                };
                self.step();
                let mut variables = Vec::new();
                self.variables(space, false, &mut variables)?;
                out.extend(variables.into_iter().map(Statement::Variable));
                Ok(())
            }
            Some(Token::Word(_) | Token::Sign('@')) => {
                let instruction = self.instruction()?;
                out.push(Statement::Instruction(instruction));
                Ok(())
            }
            Some(_) => self.refuse("a statement is expected here"),
            None => self.refuse("the body does not end"),
        }
    }

    fn registers(&mut self, out: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let word = self.word("the type of registers")?;
        let Some(ty) = word.strip_prefix('.').and_then(Ty::named) else {
            return self.refuse(format!("`{word}` is not a type of registers"));
        };
        loop {
            let line = self.line();
            let name = self.word("the name of registers")?;
            let mut count = None;
            if self.takes('<') {
                let number = self.integer()?;
                let Ok(number) = u32::try_from(number) else { return self.refuse("there are too many registers") };
                count = Some(number);
                self.expect('>')?;
            }
            out.push(Statement::Registers { ty, name, count, line });
            if !self.takes(',') {
                return self.expect(';');
            }
        }
    }

    fn instruction(&mut self) -> Parsed<Instruction<'a>> {
        let guard = if self.takes('@') {
            let is_negated = self.takes('!');
            Some(Guard { predicate: self.word("the predicate")?, is_negated })
        } else {
            None
        };
        let line = self.line();
        let opcode = self.word("the opcode")?.split('.').collect();
        let mut operands = Vec::new();
        while !self.takes(';') {
            operands.push(self.operand(0)?);
            if !self.takes(',') {
                // the line of the instruction, not of the piece behind it
                if !self.takes(';') {
                    return Err(Refusal::new(line, "the instruction does not end with `;`"));
                }
                break;
            }
        }
        Ok(Instruction { line, guard, opcode, operands })
    }

    fn operand(&mut self, depth: usize) -> Parsed<Operand<'a>> {
        if depth > MAX_NESTING {
            return self.refuse("the operands nest too deeply");
        }
        match self.peek() {
            Some(Token::Sign('{')) => Ok(Operand::Vector(self.operands('{', '}', depth)?)),
            Some(Token::Sign('(')) => Ok(Operand::List(self.operands('(', ')', depth)?)),
            Some(Token::Sign('[')) => self.address(),
            Some(Token::Sign('!')) => {
                self.step();
                Ok(Operand::Not(self.word("the predicate")?))
            }
            Some(Token::Word(name)) => {
                self.step();
                if self.takes('|') {
                    return Ok(Operand::Pair(name, self.word("the second result")?));
                }
                if self.peek() == Some(Token::Sign('+')) {
                    return self.refuse("a sum as an operand is not known");
                }
                Ok(Operand::Name(name))
            }
            Some(Token::Number(digits)) => match lex::float_bits(digits) {
                Some((is_double, bits)) => {
                    self.step();
                    Ok(if is_double { Operand::F64(bits) } else { Operand::F32(bits as u32) })
                }
                None => Ok(Operand::Integer(self.integer()?)),
            },
            Some(Token::Sign('-')) => Ok(Operand::Integer(self.integer()?)),
            _ => self.refuse("an operand is expected here"),
        }
    }

    fn operands(&mut self, open: char, close: char, depth: usize) -> Parsed<Vec<Operand<'a>>> {
        self.expect(open)?;
        let mut out = Vec::new();
        while !self.takes(close) {
            out.push(self.operand(depth + 1)?);
            if !self.takes(',') {
                self.expect(close)?;
                break;
            }
        }
        Ok(out)
    }

    fn address(&mut self) -> Parsed<Operand<'a>> {
        self.expect('[')?;
        let base = match self.peek() {
            Some(Token::Word(name)) => {
                self.step();
                Some(name)
            }
            _ => None,
        };
        let mut offset = 0;
        let has_sign = matches!(self.peek(), Some(Token::Sign('+' | '-')));
        if base.is_none() || has_sign {
            self.takes('+');
            offset = self.integer()? as i64;
        }
        self.expect(']')?;
        Ok(Operand::Address(base, offset))
    }
}
