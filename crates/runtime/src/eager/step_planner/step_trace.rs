//! A step as data, for comparison with the next.

use std::hash::{Hash, Hasher};

use remat_device::Alignment;
use remat_ops::OpRef;
use remat_types::{DType, Shape, SmallVec};
use rustc_hash::FxHasher;

/// A tensor of a step, numbered by its first appearance.
pub(crate) type Name = u32;

/// A storage of a step, numbered in the same way.
pub(crate) type Local = u32;

/// A storage that is not of the step.
pub(crate) const NO_LOCAL: Local = Local::MAX;

/// The kind of a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CommandKind {
    Put,
    Apply(OpRef),
    Commit,
    Fetch,
}

/// A command of a step. Two are equal if they request the same of the same tensors. Their outcomes do not count.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) what: CommandKind,
    pub(crate) x: SmallVec<[Name; 4]>,
    /// Types of the tensors that first appear with this command: inputs from before the step, then its outputs.
    pub(crate) types: SmallVec<[(DType, Shape); 2]>,
    pub(crate) done: Outcome,
}

/// The outcome of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Storages of the inputs and of the outputs.
    pub(crate) x: SmallVec<[Local; 4]>,
    pub(crate) y: SmallVec<[Local; 2]>,
    /// For each output, the input whose bytes it took.
    pub(crate) donated_from: SmallVec<[Option<u8>; 2]>,
    /// The inputs whose bytes its only output could take, if they died.
    pub(crate) may_take: SmallVec<[u8; 2]>,
    pub(crate) cost_ns: u64,
    /// Workspace and copies of strided inputs.
    pub(crate) scratch_bytes: usize,
    /// Its outputs can be made again.
    pub(crate) has_recipe: bool,
}

impl Outcome {
    /// Inputs whose bytes an output took.
    pub(crate) fn overwritten(&self) -> impl Iterator<Item = Local> + '_ {
        self.donated_from.iter().flatten().map(|&h| self.x[usize::from(h)])
    }
}

impl PartialEq for Event {
    fn eq(&self, o: &Event) -> bool {
        self.x == o.x && self.types == o.types && self.what == o.what
    }
}

impl Hash for Event {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.x.hash(h);
        self.types.hash(h);
        self.what.hash(h);
    }
}

/// The properties of a storage of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalBytes {
    /// Padded.
    pub(crate) bytes: usize,
    /// It existed before the step.
    pub(crate) is_carried: bool,
    /// A tensor names it when the step ends.
    pub(crate) outlives: bool,
    /// It lost its recipe, so it had to stay while anything needed it.
    pub(crate) lost_recipe: bool,
    /// The event before which it was removed, if that happened in the step.
    pub(crate) gone_at: Option<u32>,
}

/// A step.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepTrace {
    pub(crate) events: Vec<Event>,
    pub(crate) locals: Vec<LocalBytes>,
    /// Bytes of named storages when the step began, and the most staging bytes during it.
    pub(crate) fixed_bytes: usize,
    pub(crate) staging_bytes: usize,
    /// The multiple at which storages lie.
    pub(crate) alignment: Alignment,
}

impl StepTrace {
    /// The hash finds candidates, and equality decides.
    pub(crate) fn hash(&self) -> u64 {
        let mut h = FxHasher::default();
        self.events.hash(&mut h);
        h.finish()
    }

    /// Time of all commands, each once.
    pub(crate) fn cost_ns(&self) -> u64 {
        self.events.iter().map(|e| e.done.cost_ns).sum()
    }
}
