//! Programs within programs: calls, switches and loops.
//!
//! A step that runs programs says here which ones, and how often. A device runs it from this description alone, without
//! the operators that made it.

use std::sync::Arc;

use remat_types::{Error, ErrorKind, Fact, HostTensor, Result};

use super::Program;
use crate::arena::Alignment;

/// The programs that a step runs.
#[derive(Clone, Debug)]
pub enum Flow {
    /// A program, once, on the step's operands.
    Call(Arc<Program>),
    /// One of several, whose index is the first operand, on the other operands.
    Switch(Vec<Arc<Program>>),
    /// One program again and again.
    Loop(LoopProgram),
}

impl Flow {
    /// Bytes of the workspace of a step that runs it.
    pub fn workspace_bytes(&self) -> usize {
        match self {
            Flow::Call(body) => body.workspace_bytes,
            Flow::Switch(branches) => branches.iter().map(|b| b.workspace_bytes).max().unwrap_or(0),
            Flow::Loop(l) => {
                let unit = l.body.alignment;
                loop_workspace_bytes(l.body.workspace_bytes, carried_bytes(l.body.y.iter().take(l.carried), unit), unit)
            }
        }
    }

    /// Bytes of the constants of all programs that it may run.
    pub fn constant_bytes(&self) -> usize {
        match self {
            Flow::Call(body) => body.constant_bytes(),
            Flow::Switch(branches) => branches.iter().map(|b| b.constant_bytes()).sum(),
            Flow::Loop(l) => l.body.constant_bytes(),
        }
    }

    /// Those constants in one block, as [`Program::constant_block`] has them. Errors: those of [`HostTensor::zeros`].
    pub fn constant_block(&self) -> Result<HostTensor> {
        super::block_of(self.constant_bytes(), |block| self.write_constants(block))
    }

    pub(super) fn write_constants(&self, block: &mut [u8]) {
        match self {
            Flow::Call(body) => body.write_constants(block),
            Flow::Loop(l) => l.body.write_constants(block),
            Flow::Switch(branches) => {
                let mut at = 0;
                for b in branches {
                    b.write_constants(&mut block[at..]);
                    at += b.constant_bytes();
                }
            }
        }
    }
}

/// The index of the branch that a choice names. Errors (Index): there is none.
pub fn branch(choice: i64, branches: usize) -> Result<usize> {
    let found = usize::try_from(choice).ok().filter(|i| *i < branches);
    found.ok_or_else(|| Error::new(ErrorKind::Index, format!("branch {choice} of {branches}")))
}

/// A program that runs again and again, each time on its last outputs. The operator `loop` describes the operands.
#[derive(Clone, Debug)]
pub struct LoopProgram {
    /// The program that each step of the loop runs.
    pub body: Arc<Program>,
    /// The number of steps, or the most of them.
    pub trips: usize,
    /// The number of carried values.
    pub carried: usize,
    /// The number of operands that are read row by row.
    pub sliced: usize,
    /// True if steps go from the last to the first.
    pub reverse: bool,
    /// True if the last operand is the number of steps.
    pub counted: bool,
    /// True if the last output of the body says whether another step follows. The last output of the loop is then the
    /// number of steps.
    pub conditional: bool,
}

/// Bytes of a loop's workspace for the step's number and the body's condition.
pub const FLAGS_BYTES: usize = 64;

/// The workspace of a loop: the body's, the flags, and two sets of carried values.
pub fn loop_workspace_bytes(body_bytes: usize, carried_bytes: usize, alignment: Alignment) -> usize {
    alignment.pad(body_bytes) + alignment.pad(FLAGS_BYTES) + 2 * carried_bytes
}

/// Bytes of one set of carried values.
pub fn carried_bytes<'f>(carried: impl Iterator<Item = &'f Fact>, alignment: Alignment) -> usize {
    carried.map(|f| alignment.pad(f.bytes())).sum()
}

impl LoopProgram {
    /// The number of the body's outputs that are stacked.
    pub fn stacked(&self) -> usize {
        self.body.y.len().saturating_sub(self.carried + usize::from(self.conditional))
    }
}
