//! The interface between the runtime and a device: memory by offset, launches on ordered streams, events between them.
//!
//! Nothing above this trait dereferences device memory. Offsets are into the device's one arena. The worker keeps the
//! arena's books; a backend backs it with memory and moves bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use remat_graph::plan::problem::SpillRates;
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::host::{CommSpan, Communication};
use crate::kernels::{HostKernels, KernelSet};
use crate::launch::{Buffer, Event, FileCopy, Launch, LaunchTime, Progress, StreamId};
use crate::run::ProgramLaunch;
use crate::spill::SpillTo;

/// Operators that a device ran on the host, since the device was opened.
#[derive(Clone, Debug, Default)]
pub struct HostCalls {
    /// By the operator's label: number and nanoseconds.
    pub by_op: BTreeMap<&'static str, (u64, u64)>,
    /// Bytes that were copied between the host and the device for them.
    pub bytes: u64,
}

static NO_HOST_CALLS: HostCalls = HostCalls { by_op: BTreeMap::new(), bytes: 0 };

impl HostCalls {
    /// Notes a call.
    pub fn add(&mut self, op: &'static str, time: Duration, bytes: usize) {
        let (count, ns) = self.by_op.entry(op).or_default();
        *count += 1;
        *ns += time.as_nanos() as u64;
        self.bytes += bytes as u64;
    }
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

    /// True if the device computes nothing, so that no value can be read back.
    fn is_dry(&self) -> bool {
        false
    }

    /// True if its memory is the host's. Staging buffers then count against the device's budget, else against the
    /// host's.
    fn shares_host_memory(&self) -> bool {
        true
    }

    /// Threads a kernel may use.
    fn threads(&self) -> usize;

    /// The device's kernels: which ops they compute, and what they need. The runtime asks once. Default: the host's
    /// kernels.
    fn kernels(&self) -> Arc<dyn KernelSet> {
        Arc::new(HostKernels::new(self.name().to_owned(), self.threads()))
    }

    /// Makes offsets `0..bytes` usable. Errors: Io or Budget if the device has less memory.
    fn reserve(&mut self, bytes: usize) -> Result<()>;

    /// Tells the device that offsets `from..to` are unused, so that it can give their pages back to the system.
    fn release(&mut self, from: usize, to: usize);

    /// Queues a kernel. A synchronous device has run it on return, and returns the kernel's errors.
    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event>;

    /// Queues a program, as [`Backend::launch`] does a kernel. If a step fails, the event of the program fails, and its
    /// states stay as they were. Default: launches the program's op, as a device with the host's kernels does.
    fn run(&mut self, program: &ProgramLaunch<'_, '_>) -> Result<Event> {
        self.launch(program.launch)
    }

    /// The time of the launch or run that `event` ends. The worker asks about each launch of an asynchronous device
    /// until the answer is not [`LaunchTime::Pending`].
    fn launch_time(&mut self, _event: Event) -> LaunchTime {
        LaunchTime::Unknown
    }

    /// Queues a copy of host bytes to offset `at`.
    fn upload(&mut self, stream: StreamId, at: usize, data: &HostTensor) -> Result<Event>;

    /// Waits for all of `after` and copies a tensor's elements out. Errors as [`Backend::synchronize`] of the first that failed.
    fn download(&mut self, x: &Buffer<'_>, after: &[Event]) -> Result<HostTensor>;

    /// Moves bytes within the device, after all work queued so far and before all work queued later. Ranges may
    /// overlap. A synchronous device has moved them on return.
    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<Event>;

    /// Opens a file to which the device can copy bytes, and from which it can copy them back, while launches run. False
    /// if this device has no such copies. Errors (Io): the file cannot be made.
    fn open_spill(&mut self, _to: &SpillTo) -> Result<bool> {
        Ok(false)
    }

    /// Begins to copy bytes to the spill file. Nobody may write the bytes until [`Backend::wait_copy`] has returned for
    /// this copy. Errors: Internal without a file.
    fn copy_out(&mut self, _copy: FileCopy) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "this device copies to no file"))
    }

    /// Begins to copy bytes back from the spill file; the copy out that wrote them must have been waited for. Nobody
    /// may read or write the bytes until [`Backend::wait_copy`] has returned for this copy. Errors: Internal without a
    /// file.
    fn copy_in(&mut self, _copy: FileCopy) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "this device copies from no file"))
    }

    /// Waits for the copy of this number. Errors (Io): that copy or an earlier one failed.
    fn wait_copy(&mut self, _number: usize) -> Result<()> {
        Ok(())
    }

    /// Bytes per second of all copies until now; `None` until there were copies in both directions.
    fn spill_rates(&self) -> Option<SpillRates> {
        None
    }

    /// Makes all work queued on `stream` from now on run after `event`.
    fn wait(&mut self, stream: StreamId, event: Event);

    /// Queues a point on `stream`, a gate, and returns its event. The gate fails if one of `after` failed. It also
    /// fails if any work failed that was queued after `marks` and before this call, unless an earlier call has reported
    /// that failure. Launches that have the gate among their events do not run if it failed. So a step makes all of its
    /// updates or none, and the host does not wait to know which. There is at most one mark per stream; on a stream
    /// without a mark all work counts. The caller has made `stream` wait for the last event of every other stream. The
    /// worker calls this on asynchronous devices only.
    fn gate(&mut self, _stream: StreamId, _after: &[Event], _marks: &[Event]) -> Result<Event> {
        Err(Error::new(ErrorKind::Internal, "this device has no gates"))
    }

    /// Queues a copy of `bytes` bytes from offset `from` to offset `to` that is made only if `event` failed. It brings
    /// back the old version of a value that a launch could not replace. The ranges do not overlap, and `event` lies on
    /// `stream` or `stream` waits for it. The worker calls this on asynchronous devices only.
    fn restore(&mut self, _stream: StreamId, _event: Event, _from: usize, _to: usize, _bytes: usize) -> Result<Event> {
        Err(Error::new(ErrorKind::Internal, "this device restores nothing"))
    }

    /// The progress of `event`. The call does not wait, and a failure that it shows still counts as unreported.
    /// Default: reached.
    fn poll(&mut self, _event: Event) -> Progress {
        Progress::Reached
    }

    /// Waits until `event` is reached. Errors: the failure of its work the first time it is reported, and Poisoned
    /// after that.
    fn synchronize(&mut self, event: Event) -> Result<()>;

    /// Waits for all streams. Errors: the first failure that no call has reported yet.
    fn synchronize_all(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits for all streams. Returns the first failure of work queued after `marks` that no call has reported, and
    /// counts it as reported. There is at most one mark per stream; on a stream without a mark all work counts.
    fn failed_after(&mut self, _marks: &[Event]) -> Option<Error> {
        None
    }

    /// Waits for collectives that a synchronous device runs beside its kernels and that write these bytes. Errors: one
    /// of them failed.
    fn settle(&mut self, _at: usize, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// The steps of programs for which the device has no kernel and which it ran on the host.
    fn host_calls(&self) -> &HostCalls {
        &NO_HOST_CALLS
    }

    /// The time that collectives took beside kernels.
    fn communication(&self) -> Communication {
        Communication::default()
    }

    /// Begins to record the collectives that run beside kernels.
    fn record_communication(&mut self) {}

    /// Waits for all collectives, ends the recording, and returns it.
    fn take_communication(&mut self) -> Vec<CommSpan> {
        Vec::new()
    }

    /// Waits for all streams, and leaves failures for later calls to report. For callers that move memory.
    fn wait_idle(&mut self) {}

    /// Nanoseconds on the device's clock.
    fn now_ns(&self) -> u64;
}
