//! A run as data: which kernels are called in which order, where their operands lie, what is copied when, and which
//! programs run within it.
//!
//! A [`Program`] has no pointer and no memory. Places are inputs and outputs of the run, constants, and offsets into a
//! workspace; whoever runs it binds them. How steps follow each other is written once (`walk.rs`), over what a device does
//! for each; the CPU does it in `cpu.rs`. What is checked when a program is made (`Step::check`, `Copies::check`) is what
//! makes it sound to follow its offsets.
//!
//! Programs are made from graphs (`executable/layout.rs`); what a run of one is to a device, its figures, times and
//! observers, is the [`Executable`](crate::Executable)'s.

pub(crate) mod comm_thread;
pub(crate) mod copies;
pub(crate) mod cpu;
pub(crate) mod flow;
pub(crate) mod operands;
#[cfg(test)]
mod tests;
pub(crate) mod times;
mod view;
pub(crate) mod walk;

pub use view::ValueView;

use std::sync::Arc;

use remat_graph::ir::NodeId;
use remat_ops::OpRef;
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, Facts, HostTensor, Layout, Result, Shape, SmallVec};

use crate::arena::padded;
use copies::Copies;
use flow::Flow;

/// Where an operand's storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// An input of the run.
    Input(usize),
    /// An output of the run.
    Output(usize),
    /// The workspace, from this offset.
    Arena(usize),
    /// A constant.
    Constant(usize),
}

/// What a call reads.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) place: Place,
    pub(crate) bytes: usize,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
}

/// What a call writes.
#[derive(Clone, Debug)]
pub(crate) struct OutputSlot {
    pub(crate) place: Place,
    pub(crate) bytes: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The operand whose storage this output takes over.
    pub(crate) donated_from: Option<usize>,
}

/// One kernel call.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: OpRef,
    /// What runs instead of the op's kernel, if the op runs programs.
    pub(crate) flow: Option<Flow>,
    pub(crate) x: SmallVec<[Operand; 4]>,
    pub(crate) y: SmallVec<[OutputSlot; 2]>,
    /// Offset and bytes within the run's workspace.
    pub(crate) workspace: (usize, usize),
    /// The node it runs; `None` for a copy.
    pub(crate) node: Option<NodeId>,
    /// Where the node comes from in the user's program.
    pub(crate) site: Option<CallSite>,
    pub(crate) scope: Option<Arc<str>>,
}

/// See the module's note.
#[derive(Debug)]
pub(crate) struct Program {
    /// The threads that its kernels use: workspaces depend on them.
    pub(crate) threads: usize,
    /// The calls, in order.
    pub(crate) steps: Vec<Step>,
    pub(crate) constants: Vec<Arc<HostTensor>>,
    /// Inputs and states.
    pub(crate) x: Vec<Fact>,
    /// Outputs, and the next versions of states.
    pub(crate) y: Facts,
    /// (input, output) of each state with a next version.
    pub(crate) updates: Vec<(usize, usize)>,
    /// Bytes of the workspace, wherever it begins.
    pub(crate) workspace_bytes: usize,
    /// Bytes of constants, also of the programs within, each in a place of its own.
    pub(crate) constant_bytes: usize,
    /// The number of steps at the end of each part; one part unless it was cut.
    pub(crate) parts: Vec<usize>,
    /// Copies between the workspace and a file, if it makes some.
    pub(crate) copies: Option<Copies>,
}

/// Where a step comes from, for errors.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    label: &'static str,
    is_copy: bool,
    site: Option<CallSite>,
    scope: Option<Arc<str>>,
}

impl Origin {
    /// An error with the op and the line of the program that it came from.
    pub(crate) fn located(&self, e: Error) -> Error {
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
pub(crate) fn with_constants(workspace_bytes: usize, constant_bytes: usize) -> usize {
    if constant_bytes == 0 { workspace_bytes } else { padded(workspace_bytes) + constant_bytes }
}

impl Program {
    /// True if one of its own steps is a collective of several ranks.
    pub(crate) fn has_collectives(&self) -> bool {
        self.steps.iter().any(|s| s.op.ranks().is_some_and(|ranks| ranks.size() > 1))
    }

    /// Bytes of its constants, and of those of the programs that its steps run.
    pub(crate) fn count_constant_bytes(steps: &[Step], constants: &[Arc<HostTensor>]) -> usize {
        let own: usize = constants.iter().map(|c| padded(c.bytes().len())).sum();
        own + steps.iter().filter_map(|s| s.flow.as_ref()).map(Flow::constant_bytes).sum::<usize>()
    }
}

impl Step {
    pub(crate) fn origin(&self) -> Origin {
        let (site, scope) = (self.site, self.scope.clone());
        Origin { label: self.op.label(), is_copy: self.node.is_none(), site, scope }
    }

    /// An error with the op and the line of the program that it came from.
    pub(crate) fn located(&self, e: Error) -> Error {
        self.origin().located(e)
    }

    /// True if it writes the next version of a state to its place.
    pub(crate) fn updates_state(&self, program: &Program) -> bool {
        let is_state = |p: Place| matches!(p, Place::Output(j) if program.updates.iter().any(|u| u.1 == j));
        self.y.iter().any(|t| is_state(t.place))
    }

    /// Errors (Internal) unless a step's outputs and workspace overlap nothing else of it, inputs are only read, all lies
    /// within the workspace, and what it runs has a workspace of its own there.
    pub(crate) fn check(&self, arena_bytes: usize) -> Result<()> {
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
