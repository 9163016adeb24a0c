//! PTX text as data.
//!
//! The reader knows the grammar of modules: directives, functions, variables, registers, labels, and instructions as opcode
//! words and operands. It does not know instructions; `code` refuses those that it does not know. The reader never panics:
//! text that is cut off or hostile gives a [`LoadError`] with the line.

use std::fmt;

mod body;
mod lex;
mod module;
mod tree;

pub use module::parse;
pub use tree::{Function, Guard, Instruction, Module, Name, Operand, Space, Statement, Ty, Variable};

/// Why a module could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// Line of the text, from 1.
    pub line: u32,
    /// The text of that line, without surrounding blanks.
    pub text: String,
    /// The reason.
    pub message: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: `{}`: {}", self.line, self.text, self.message)
    }
}

impl std::error::Error for LoadError {}

/// A reason and its line, before the text of the line is added.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) line: u32,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        Refusal { line, message: message.into() }
    }

    /// Adds the text of the line.
    pub(crate) fn in_text(self, text: &str) -> LoadError {
        let line = text.lines().nth(self.line.saturating_sub(1) as usize).unwrap_or("").trim();
        LoadError { line: self.line, text: line.chars().take(MAX_QUOTED_CHARS).collect(), message: self.message }
    }
}

/// A line of hostile text can be long. An error quotes its beginning.
const MAX_QUOTED_CHARS: usize = 200;

pub(crate) type Parsed<T> = std::result::Result<T, Refusal>;
