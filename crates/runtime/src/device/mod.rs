//! What the runtime asks of a device: memory by offset, launches on ordered streams, events between them.
//!
//! Nothing above this trait dereferences device memory. Offsets are into the device's one arena, whose bookkeeping
//! belongs to the worker; a backend only backs it with memory and moves bytes.

mod cpu;
mod dry;
mod emulated;
mod execute;
mod kernel_set;
pub(crate) mod program;
mod region;

pub(crate) use cpu::Cpu;
pub(crate) use dry::Dry;
pub(crate) use emulated::Emulated;
pub use emulated::{EmulatedOptions, RaceLog};
pub(crate) use kernel_set::check_supported;
pub use kernel_set::{HostKernels, KernelSet};
pub use program::ProgramLaunch;
pub(crate) use region::{HUGE_PAGE_BYTES, HUGE_PAGE_MIN_BYTES, Region};

use std::sync::Arc;

use remat_graph::plan::problem::SpillRates;
use remat_ops::OpRef;
use remat_types::{CallSite, DType, Error, ErrorKind, HostTensor, Layout, Result, Shape};

pub use crate::program::comm_thread::{CommSpan, Communication};
use crate::spill::SpillTo;

/// An ordered queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct StreamId(pub u16);

/// A point in a stream's order. It is reached when all that was queued before it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The stream it was recorded on.
    pub stream: StreamId,
    /// Its position there, from 1; 0 is an event that is always reached.
    pub seq: u64,
}

impl Event {
    /// An event that is reached already.
    pub const REACHED: Event = Event { stream: StreamId(0), seq: 0 };
}

/// A tensor's bytes on the device.
#[derive(Clone, Debug)]
pub struct Buffer<'a> {
    /// Element type.
    pub dtype: DType,
    /// Layout of the elements within the storage.
    pub layout: &'a Layout,
    /// Offset of the storage in the arena.
    pub at: usize,
    /// Bytes of the storage.
    pub bytes: usize,
}

/// An output's bytes on the device; contiguous.
#[derive(Clone, Debug)]
pub struct OutBuffer<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: &'a Shape,
    /// Offset of the storage in the arena.
    pub at: usize,
    /// Bytes of the storage.
    pub bytes: usize,
    /// The input whose storage this output took.
    pub donated_from: Option<usize>,
}

/// One kernel call, borrowed from who asks for it: a device that queues it copies it. Outputs and workspace overlap
/// nothing else, but for `donated_from`.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// What to compute.
    pub op: &'a OpRef,
    /// Where it is queued.
    pub stream: StreamId,
    /// Inputs, in order.
    pub x: remat_types::SmallVec<[Buffer<'a>; 4]>,
    /// Outputs, in order.
    pub y: remat_types::SmallVec<[OutBuffer<'a>; 2]>,
    /// Offset and bytes of the workspace.
    pub workspace: (usize, usize),
    /// Events of the writes that made the inputs; if one of them failed, so does this launch.
    pub after: remat_types::SmallVec<[Event; 4]>,
    /// Where the user's program asked for it, for errors.
    pub site: CallSite,
}

/// What a device knows of the time that a launch took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchTime {
    /// It has not run yet.
    Pending,
    /// The device does not measure, or the launch failed.
    Unknown,
    /// Nanoseconds of the kernel alone, without what it waited for.
    Measured(u64),
}

/// A copy between the arena and the spill file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCopy {
    /// By which it is waited for; a number is used again only after that.
    pub number: usize,
    /// Offset in the arena.
    pub at: usize,
    /// Its length.
    pub bytes: usize,
    /// Offset in the file.
    pub file_at: u64,
}

/// A device. Calls come from one thread, the worker that owns it.
pub trait Backend: Send {
    /// A name for reports: `cpu`.
    fn name(&self) -> &str;

    /// Number of streams.
    fn streams(&self) -> usize {
        1
    }

    /// True if launches return before they have run; false lets the worker skip all event bookkeeping.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// True if nothing is computed: a value cannot be read back.
    fn is_dry(&self) -> bool {
        false
    }

    /// Threads a kernel may use.
    fn threads(&self) -> usize;

    /// What its kernels can do and what they need; asked once. Default: those of the host.
    fn kernels(&self) -> Arc<dyn KernelSet> {
        Arc::new(HostKernels::new(self.name(), self.threads()))
    }

    /// Makes offsets `0..bytes` usable. Errors: Io or Budget if the device has not that much.
    fn reserve(&mut self, bytes: usize) -> Result<()>;

    /// Tells that offsets `from..to` hold nothing any more, so that their pages can go back to the system.
    fn release(&mut self, from: usize, to: usize);

    /// Queues a kernel. A synchronous device has run it on return, and errors are the kernel's.
    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event>;

    /// Queues a program, as [`Backend::launch`] does a kernel; what fails within it is the failure of its event, and leaves its
    /// states as they were. Default: its op is launched, which is the way of a device whose kernels are the host's.
    fn run(&mut self, program: &ProgramLaunch<'_, '_>) -> Result<Event> {
        self.launch(program.launch)
    }

    /// The time of the launch or run that `event` ends. The worker asks about each launch of an asynchronous device until the answer
    /// is another than [`LaunchTime::Pending`], and then no more.
    fn launch_time(&mut self, _event: Event) -> LaunchTime {
        LaunchTime::Unknown
    }

    /// Queues a copy of host bytes to offset `at`.
    fn upload(&mut self, stream: StreamId, at: usize, data: &HostTensor) -> Result<Event>;

    /// Waits for `after` and copies a tensor's elements out. Errors as [`Backend::synchronize`].
    fn download(&mut self, x: &Buffer<'_>, after: Event) -> Result<HostTensor>;

    /// Moves bytes within the device after everything queued so far; ranges may overlap. Has run on return.
    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<()>;

    /// Opens a file that bytes can be copied to, and back from, beside launches. False if this device has no such
    /// copies. Errors (Io): the file cannot be made.
    fn open_spill(&mut self, _to: &SpillTo) -> Result<bool> {
        Ok(false)
    }

    /// Begins to copy bytes to the spill file. Until the copy was waited for they must not be written. Errors: Internal
    /// without a file.
    fn copy_out(&mut self, _copy: FileCopy) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "this device copies to no file"))
    }

    /// Begins to copy bytes back that a copy out, waited for, has written. Until this one was waited for they must be
    /// neither read nor written. Errors: Internal without a file.
    fn copy_in(&mut self, _copy: FileCopy) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "this device copies from no file"))
    }

    /// Waits for the copy of this number. Errors (Io): it failed, or one before it.
    fn wait_copy(&mut self, _number: usize) -> Result<()> {
        Ok(())
    }

    /// Bytes per second of all copies until now; `None` before there were some both ways.
    fn spill_rates(&self) -> Option<SpillRates> {
        None
    }

    /// What is queued on `stream` from now on runs after `event`.
    fn wait(&mut self, stream: StreamId, event: Event);

    /// Waits until `event` is reached. Errors: what failed there, the first time, and Poisoned after that.
    fn synchronize(&mut self, event: Event) -> Result<()>;

    /// Waits for all streams. Errors: the first failure that no call has reported yet.
    fn synchronize_all(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits for all streams; the first failure of the work queued after `marks` that no call has reported, which counts as
    /// reported now. There is at most one mark a stream, and a stream without one counts as a whole.
    fn failed_after(&mut self, _marks: &[Event]) -> Option<Error> {
        None
    }

    /// Waits for what a device that is not asynchronous runs beside its kernels and that writes these bytes. Errors: it failed.
    fn settle(&mut self, _at: usize, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// What collectives took that ran beside kernels.
    fn communication(&self) -> Communication {
        Communication::default()
    }

    /// Begins to record when collectives run beside kernels.
    fn record_communication(&mut self) {}

    /// Waits for them, and ends the recording.
    fn take_communication(&mut self) -> Vec<CommSpan> {
        Vec::new()
    }

    /// Waits for all streams and leaves failures to be reported by others: for whoever moves memory.
    fn wait_idle(&mut self) {}

    /// Nanoseconds on the device's clock.
    fn now_ns(&self) -> u64;
}
