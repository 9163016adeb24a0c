//! What the runtime asks of a device: memory by offset, launches on ordered streams, events between them.
//!
//! Nothing above this trait dereferences device memory. Offsets are into the device's one arena, whose bookkeeping
//! belongs to the worker; a backend only backs it with memory and moves bytes.

use std::sync::Arc;

use remat_graph::plan::problem::SpillRates;
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::host::{CommSpan, Communication};
use crate::kernels::{HostKernels, KernelSet};
use crate::launch::{Buffer, Event, FileCopy, Launch, LaunchTime, Progress, StreamId};
use crate::run::ProgramLaunch;
use crate::spill::SpillTo;

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

    /// True if its memory is the host's: staging buffers count against its budget then, else against the host's.
    fn shares_host_memory(&self) -> bool {
        true
    }

    /// Threads a kernel may use.
    fn threads(&self) -> usize;

    /// What its kernels can do and what they need; asked once. Default: those of the host.
    fn kernels(&self) -> Arc<dyn KernelSet> {
        Arc::new(HostKernels::new(self.name().to_owned(), self.threads()))
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

    /// Waits for all of `after` and copies a tensor's elements out. Errors as [`Backend::synchronize`] of the first that failed.
    fn download(&mut self, x: &Buffer<'_>, after: &[Event]) -> Result<HostTensor>;

    /// Moves bytes within the device after everything queued so far, and before everything queued from now on; ranges may
    /// overlap. A synchronous device has done it on return.
    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<Event>;

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

    /// Queues a point on `stream` that fails if one of `after` failed, or any work that was queued after `marks` and before this
    /// call, unless a call told of that failure before this one. Launches that have the point among their events do not run
    /// then: so all updates of a step are made or none, and the host does not wait to know which. There is at most one mark a
    /// stream, and a stream without one counts as a whole; the caller has made `stream` wait for the last event of the others.
    /// Only asynchronous devices are asked.
    fn gate(&mut self, _stream: StreamId, _after: &[Event], _marks: &[Event]) -> Result<Event> {
        Err(Error::new(ErrorKind::Internal, "this device has no gates"))
    }

    /// Queues a copy of `bytes` bytes from offset `from` to offset `to` that is made only if `event` failed: the old version of a
    /// value comes back that a launch could not replace. The ranges do not overlap, and `event` lies on `stream` or `stream`
    /// waits for it. Only asynchronous devices are asked.
    fn restore(&mut self, _stream: StreamId, _event: Event, _from: usize, _to: usize, _bytes: usize) -> Result<Event> {
        Err(Error::new(ErrorKind::Internal, "this device restores nothing"))
    }

    /// How far `event` is, without waiting and without telling of a failure. Default: reached.
    fn poll(&mut self, _event: Event) -> Progress {
        Progress::Reached
    }

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
