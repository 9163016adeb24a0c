//! A step as data, so that it can be compared with the next.

use std::hash::{Hash, Hasher};

use remat_device::Alignment;
use remat_ops::OpRef;
use remat_types::{DType, Shape, SmallVec};
use rustc_hash::FxHasher;

/// A tensor of a step: the how-manieth that appears in it.
pub(crate) type Name = u32;

/// A storage of a step, numbered likewise.
pub(crate) type Local = u32;

/// No storage of the step.
pub(crate) const NO_LOCAL: Local = Local::MAX;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CommandKind {
    Put,
    Apply(OpRef),
    Commit,
    Fetch,
}

/// A command of a step. Two are equal if they ask for the same of the same tensors; what they came to does not count.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) what: CommandKind,
    pub(crate) x: SmallVec<[Name; 4]>,
    /// Types of the tensors that appear with this command: those from before the step, and then what it makes.
    pub(crate) types: SmallVec<[(DType, Shape); 2]>,
    pub(crate) done: Outcome,
}

/// What a command came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Storages of the inputs and of the outputs.
    pub(crate) x: SmallVec<[Local; 4]>,
    pub(crate) y: SmallVec<[Local; 2]>,
    /// For each output, the input whose bytes it took.
    pub(crate) donated_from: SmallVec<[Option<u8>; 2]>,
    /// The inputs whose bytes its one output could take, if they went.
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

/// What is known of a storage of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalBytes {
    /// Padded.
    pub(crate) bytes: usize,
    /// It was there before the step.
    pub(crate) is_carried: bool,
    /// A tensor names it when the step ends.
    pub(crate) outlives: bool,
    /// It lost its recipe, so that it had to stay while anything needed it.
    pub(crate) lost_recipe: bool,
    /// The event before which it was gone, if the step outlived it.
    pub(crate) gone_at: Option<u32>,
}

/// A step.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepTrace {
    pub(crate) events: Vec<Event>,
    pub(crate) locals: Vec<LocalBytes>,
    /// Bytes that tensors named when the step began, and the most of staging meanwhile.
    pub(crate) fixed_bytes: usize,
    pub(crate) staging_bytes: usize,
    /// The multiple at which storages lie.
    pub(crate) alignment: Alignment,
}

impl StepTrace {
    /// Finds candidates; equality decides.
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
