//! A run as data: the order of kernel calls, the places of their operands, the copies, and the programs that run within
//! it.
//!
//! A [`Program`] has no pointer and no memory. Places are inputs and outputs of the run, constants, and offsets into a
//! workspace; whoever runs the program binds them to memory. One walk runs the steps in order on any device
//! (`walk.rs`); a device implements the operations of a step ([`Machine`]), the host in `host/machine.rs`.
//! [`Program::new`] checks a program when it is made: that check makes it sound to follow the offsets.
//!
//! Programs are made from graphs by the runtime, whose `Executable` has the figures, times and observers of its runs.

mod copies;
mod flow;
#[cfg(test)]
mod tests;
mod times;
mod view;
mod walk;

pub use copies::{Copies, CopyStep, beyond};
pub use flow::{FLAGS_BYTES, Flow, LoopProgram, branch, carried_bytes, loop_workspace_bytes};
pub use times::StepTimes;
pub use view::ValueView;
pub use walk::{Frame, Given, Machine, Span, Watch, hold_states, run_steps};

use std::ops::Deref;
use std::sync::Arc;

use remat_graph::ir::NodeId;
use remat_ops::OpRef;
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, Facts, HostTensor, Layout, Result, Shape, SmallVec};

use crate::arena::Alignment;

/// Where an operand's storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// An input of the run.
    Input(usize),
    /// An output of the run.
    Output(usize),
    /// The workspace, from this offset.
    Arena(usize),
    /// A constant.
    Constant(usize),
}

/// An input of a call.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Where its storage is.
    pub place: Place,
    /// Bytes of the storage.
    pub bytes: usize,
    /// Element type.
    pub dtype: DType,
    /// Layout of the elements within the storage.
    pub layout: Layout,
}

/// An output of a call.
#[derive(Clone, Debug)]
pub struct OutputSlot {
    /// Where its storage is. The elements are contiguous.
    pub place: Place,
    /// Bytes of the storage.
    pub bytes: usize,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
    /// The operand whose storage this output takes over.
    pub donated_from: Option<usize>,
}

/// One kernel call.
#[derive(Clone, Debug)]
pub struct Step {
    /// The op that the step computes.
    pub op: OpRef,
    /// The programs that run instead of the op's kernel, if the op contains some.
    pub flow: Option<Flow>,
    /// Inputs, in order.
    pub x: SmallVec<[Operand; 4]>,
    /// Outputs, in order.
    pub y: SmallVec<[OutputSlot; 2]>,
    /// Offset and bytes within the run's workspace.
    pub workspace: (usize, usize),
    /// The node it runs; `None` for a copy.
    pub node: Option<NodeId>,
    /// Where the node comes from in the user's program.
    pub site: Option<CallSite>,
    /// The scope of the user's program that it comes from.
    pub scope: Option<Arc<str>>,
}

/// The fields of a [`Program`].
#[derive(Debug, Default)]
pub struct ProgramParts {
    /// The multiple at which places in its workspace and its block of constants lie.
    pub alignment: Alignment,
    /// The number of threads that its kernels use. Sizes of workspaces depend on it.
    pub threads: usize,
    /// The calls, in order.
    pub steps: Vec<Step>,
    /// Values that no run changes.
    pub constants: Vec<Arc<HostTensor>>,
    /// Inputs and states.
    pub x: Vec<Fact>,
    /// Outputs, and the next versions of states.
    pub y: Facts,
    /// (input, output) of each state with a next version.
    pub updates: Vec<(usize, usize)>,
    /// Bytes of the workspace. They suffice wherever it begins.
    pub workspace_bytes: usize,
    /// The number of steps up to the end of each part. There is one part unless the program was cut.
    pub ends: Vec<usize>,
    /// Copies between the workspace and a file, if there are some. Boxed, because optimised code reads a field of an
    /// `Option` before it tests whether the value is there, and memory checkers report that read.
    pub copies: Option<Box<Copies>>,
}

/// A checked program: see the module's note.
#[derive(Debug)]
pub struct Program {
    parts: ProgramParts,
    constants: ConstantBlock,
}

/// Offsets in the block of constants: the program's own constants, then those of the programs that each step runs.
#[derive(Debug, Default)]
struct ConstantBlock {
    bytes: usize,
    /// By constant.
    own: Vec<usize>,
    /// By step.
    flows: Vec<usize>,
}

impl ConstantBlock {
    fn of(parts: &ProgramParts) -> ConstantBlock {
        let mut block = ConstantBlock::default();
        for c in &parts.constants {
            block.own.push(block.bytes);
            block.bytes += parts.alignment.pad(c.bytes().len());
        }
        for s in &parts.steps {
            block.flows.push(block.bytes);
            block.bytes += s.flow.as_ref().map_or(0, Flow::constant_bytes);
        }
        block
    }
}

impl Deref for Program {
    type Target = ProgramParts;

    fn deref(&self) -> &ProgramParts {
        &self.parts
    }
}

/// Where a step comes from, for errors.
#[derive(Clone, Debug)]
pub struct Origin {
    label: &'static str,
    is_copy: bool,
    site: Option<CallSite>,
    scope: Option<Arc<str>>,
}

impl Origin {
    /// An error with the op and the line of the program that it came from.
    pub fn located(&self, e: Error) -> Error {
        let e = e.with_op(self.label);
        if self.is_copy {
            return e;
        }
        let e = match self.site {
            Some(site) => e.with_call_site(site),
            None => e,
        };
        e.with_scope(self.scope.clone())
    }
}

/// Bytes of a workspace with constants behind it.
pub fn with_constants(workspace_bytes: usize, constant_bytes: usize, alignment: Alignment) -> usize {
    if constant_bytes == 0 { workspace_bytes } else { alignment.pad(workspace_bytes) + constant_bytes }
}

impl Program {
    /// Checks a program. Errors (Internal): a step's outputs or workspace overlap another operand of the step, an
    /// offset lies outside the workspace, or a step conflicts with a copy.
    pub fn new(parts: ProgramParts) -> Result<Program> {
        let aligned = parts.copies.as_ref().map_or(0, |c| beyond(c.align, parts.alignment));
        let arena_bytes = parts.workspace_bytes.saturating_sub(aligned);
        parts.steps.iter().try_for_each(|s| s.check(arena_bytes))?;
        if let Some(copies) = &parts.copies {
            let states: Vec<usize> = parts.updates.iter().map(|u| u.1).collect();
            copies.check(&parts.steps, arena_bytes, &states)?;
        }
        let constants = ConstantBlock::of(&parts);
        Ok(Program { parts, constants })
    }

    /// Bytes of the block of constants: its own, and those of the programs that its steps run.
    pub fn constant_bytes(&self) -> usize {
        self.constants.bytes
    }

    /// The block of constants, for a device whose kernels do not read the host's memory. Errors: those of
    /// [`HostTensor::zeros`].
    pub fn constant_block(&self) -> Result<HostTensor> {
        block_of(self.constant_bytes(), |block| self.write_constants(block))
    }

    fn write_constants(&self, block: &mut [u8]) {
        for (c, at) in self.parts.constants.iter().zip(&self.constants.own) {
            block[*at..*at + c.bytes().len()].copy_from_slice(c.bytes());
        }
        for (s, at) in self.parts.steps.iter().zip(&self.constants.flows) {
            s.flow.iter().for_each(|f| f.write_constants(&mut block[*at..]));
        }
    }

    /// True if one of its own steps is a collective of several ranks.
    pub fn has_collectives(&self) -> bool {
        self.steps.iter().any(|s| s.op.ranks().is_some_and(|ranks| ranks.size() > 1))
    }
}

/// A tensor of bytes. Errors: those of [`HostTensor::zeros`].
fn block_of(bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<HostTensor> {
    let mut block = HostTensor::zeros(DType::U8, [bytes])?;
    write(block.bytes_mut());
    Ok(block)
}

impl Step {
    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        let (site, scope) = (self.site, self.scope.clone());
        Origin { label: self.op.label(), is_copy: self.node.is_none(), site, scope }
    }

    /// An error with the op and the line of the program that it came from.
    pub fn located(&self, e: Error) -> Error {
        self.origin().located(e)
    }

    /// True if the step writes the next version of a state.
    pub fn updates_state(&self, program: &Program) -> bool {
        let is_state = |p: Place| matches!(p, Place::Output(j) if program.updates.iter().any(|u| u.1 == j));
        self.y.iter().any(|t| is_state(t.place))
    }

    /// Errors (Internal) unless four things hold. Outputs and workspace of the step overlap no other operand. No output
    /// lies in an input or a constant. All offsets lie within the workspace. The step's own workspace has room for the
    /// programs that it runs.
    fn check(&self, arena_bytes: usize) -> Result<()> {
        let bad = |what: String| {
            Err(Error::new(ErrorKind::Internal, format!("compiled step: {what}")).with_op(self.op.label()))
        };
        let overlap = |a: (Place, usize), b: (Place, usize)| match (a.0, b.0) {
            (Place::Arena(p), Place::Arena(q)) => a.1 > 0 && b.1 > 0 && p < q + b.1 && q < p + a.1,
            (p, q) => p == q && a.1 > 0 && b.1 > 0,
        };
        let workspace = (Place::Arena(self.workspace.0), self.workspace.1);
        let writes: Vec<(Place, usize)> =
            self.y.iter().map(|t| (t.place, t.bytes)).chain(std::iter::once(workspace)).collect();
        for (k, w) in writes.iter().enumerate() {
            if writes[..k].iter().any(|o| overlap(*w, *o)) {
                return bad(format!("output {k} overlaps another"));
            }
            if matches!(w.0, Place::Input(_) | Place::Constant(_)) && w.1 > 0 {
                return bad(format!("output {k} is written to {:?}", w.0));
            }
            for (i, x) in self.x.iter().enumerate() {
                let taken = self.y.get(k).is_some_and(|t| t.donated_from == Some(i));
                if taken && x.place != w.0 || !taken && overlap((x.place, x.bytes), *w) {
                    return bad(format!("input {i} and output {k} do not share memory as they should"));
                }
            }
        }
        let ends = writes.iter().copied().chain(self.x.iter().map(|x| (x.place, x.bytes)));
        for (place, bytes) in ends {
            if matches!(place, Place::Arena(at) if bytes > 0 && at + bytes > arena_bytes) {
                return bad("an operand leaves the workspace".to_owned());
            }
        }
        if let Some(i) = self.x.iter().position(|x| !x.layout.fits(x.bytes / x.dtype.size_bytes())) {
            return bad(format!("input {i} leaves its storage"));
        }
        match &self.flow {
            Some(_) if self.y.iter().any(|t| t.donated_from.is_some()) => bad("programs take nothing over".to_owned()),
            Some(flow) if flow.workspace_bytes() > self.workspace.1 => {
                bad(format!("{} bytes of workspace for {}", self.workspace.1, flow.workspace_bytes()))
            }
            _ => Ok(()),
        }
    }
}
