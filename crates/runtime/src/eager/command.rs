//! The commands that callers send to the worker.

use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{CallSite, Fact, Facts, HostTensor, SmallVec};

use super::device::GiveWay;
use super::failure::{Caller, Failure};
use super::group::CommandGroup;
use super::handle::TensorId;
use super::queue::{Answer, Reply};
use super::simulation::CommandStream;
use crate::profile::{Trace, TraceSink};
use crate::report::{Kind, MemoryReport, Stats};
use remat_device::StreamId;

/// One application of an op.
pub(crate) struct Apply {
    pub(crate) op: OpRef,
    /// The inputs, and whether the caller's last handle on each ended with this command.
    pub(crate) x: SmallVec<[(TensorId, bool); 4]>,
    pub(crate) y: SmallVec<[TensorId; 2]>,
    pub(crate) facts: Facts,
    /// Scratch memory that the op needs.
    pub(crate) workspace_bytes: usize,
    /// For an update, the input to which each output falls back on failure. Otherwise empty.
    pub(crate) fallback: SmallVec<[Option<u16>; 2]>,
    pub(crate) stream: StreamId,
    pub(crate) site: CallSite,
    pub(crate) caller: Caller,
    pub(crate) scope: Option<Arc<str>>,
    /// Set if the caller waits for the launch or the end of this command.
    pub(crate) done: Option<(Reply<()>, Until)>,
}

/// How long a caller of `apply` waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Launched,
    Finished,
}

/// Data for a new tensor.
pub(crate) struct Put {
    pub(crate) id: TensorId,
    pub(crate) data: HostTensor,
    pub(crate) kind: Kind,
    pub(crate) stream: StreamId,
    pub(crate) site: CallSite,
    pub(crate) caller: Caller,
}

/// A value for another device, or the failure that it depends on. A read of the copy reports that failure.
pub(crate) type Copied = std::result::Result<HostTensor, Arc<Failure>>;

/// A copy of another device's tensor. The value was requested before this command was queued, so two devices that copy
/// from each other never wait in a circle.
pub(crate) struct PutFrom {
    pub(crate) id: TensorId,
    pub(crate) value: Answer<Copied>,
    pub(crate) fact: Fact,
    pub(crate) stream: StreamId,
    pub(crate) site: CallSite,
    pub(crate) caller: Caller,
}

/// Every command except [`Apply`]. An application is far larger than any of these, so the queue stores it separately.
pub(crate) enum Command {
    Put(Box<Put>),
    PutFrom(Box<PutFrom>),
    /// The last handle is gone.
    Delete {
        id: TensorId,
    },
    /// Frees the bytes now if they can be recomputed. The handle stays valid.
    DropValue {
        id: TensorId,
    },
    /// The tensor is state: from now on it has no recipe, and counts as `kind`.
    Commit {
        id: TensorId,
        kind: Kind,
        caller: Caller,
    },
    /// Gradients end at the tensor: from now on it is read as state, whatever its recipe.
    NoteLeaf {
        id: TensorId,
    },
    /// If the tensor failed, its name stands for the tensor that it was to replace.
    FallBack {
        id: TensorId,
        old: TensorId,
        caller: Caller,
    },
    /// Counts as `kind` in reports.
    Tag {
        id: TensorId,
        kind: Kind,
    },
    Fetch {
        id: TensorId,
        reply: Reply<HostTensor>,
    },
    /// As `Fetch`, for a copy on another device.
    CopyOut {
        id: TensorId,
        reply: Reply<Copied>,
    },
    /// Wait until the tensor's bytes exist, without reading them.
    Await {
        id: TensorId,
        reply: Reply<()>,
    },
    Sync {
        reply: Reply<()>,
    },
    /// Waits until all ranks have given their step up.
    MeetAgain {
        reply: Reply<()>,
    },
    /// The caller's step ends.
    StepMark {
        caller: Caller,
        /// No call reports further failures of the step.
        is_given_up: bool,
        done: Option<Reply<()>>,
    },
    /// Commands that run as a whole or not at all.
    Group(Box<CommandGroup>),
    SetBudget {
        bytes: Option<usize>,
        reply: Reply<()>,
    },
    Charge {
        bytes: usize,
        what: Box<str>,
        give_way: Option<GiveWay>,
        reply: Reply<u32>,
    },
    Uncharge {
        charge: u32,
    },
    Stats {
        reply: Reply<Stats>,
    },
    /// The bytes of these tensors, and of all that cannot be recomputed.
    Held {
        ids: Vec<TensorId>,
        reply: Reply<usize>,
    },
    Report {
        reply: Reply<MemoryReport>,
    },
    /// Check the invariants; for tests.
    Verify {
        reply: Reply<()>,
    },
    ResetPeak,
    EvictAll {
        reply: Reply<usize>,
    },
    /// Holds the worker until the other side of the channel hangs up; for tests.
    Pause {
        until: std::sync::mpsc::Receiver<()>,
    },
    StartTrace {
        /// The trace is written there while it is recorded.
        sink: Option<TraceSink>,
    },
    StopTrace {
        reply: Reply<Trace>,
    },
    StartRecording,
    StopRecording {
        reply: Reply<CommandStream>,
    },
    Close {
        reply: Reply<()>,
    },
}

impl Command {
    /// Refuses the command: a caller that waits for it gets this error.
    pub(crate) fn refuse(self, e: impl Fn() -> remat_types::Error) {
        fn no<T>(reply: Reply<T>, e: impl Fn() -> remat_types::Error) {
            reply.send(Err(e()));
        }
        match self {
            Command::Fetch { reply, .. } => no(reply, e),
            Command::CopyOut { reply, .. } => no(reply, e),
            Command::Await { reply, .. }
            | Command::Sync { reply }
            | Command::MeetAgain { reply }
            | Command::Verify { reply }
            | Command::SetBudget { reply, .. }
            | Command::Close { reply } => no(reply, e),
            Command::StepMark { done, .. } => done.into_iter().for_each(|done| no(done, &e)),
            Command::Group(group) => group.done.into_iter().for_each(|(reply, _)| no(reply, &e)),
            Command::Charge { reply, .. } => no(reply, e),
            Command::Stats { reply } => no(reply, e),
            Command::Report { reply } => no(reply, e),
            Command::EvictAll { reply } | Command::Held { reply, .. } => no(reply, e),
            Command::StopTrace { reply } => no(reply, e),
            Command::StopRecording { reply } => no(reply, e),
            Command::Put(_)
            | Command::PutFrom(_)
            | Command::Delete { .. }
            | Command::DropValue { .. }
            | Command::Commit { .. }
            | Command::NoteLeaf { .. }
            | Command::FallBack { .. }
            | Command::Tag { .. }
            | Command::Uncharge { .. }
            | Command::ResetPeak
            | Command::Pause { .. }
            | Command::StartTrace { .. }
            | Command::StartRecording => {}
        }
    }
}
