//! Calls for the whole device: its budget, charges, figures, traces, and its end.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use remat_types::Result;

use super::channel::Channel;
use super::command::Command;
use super::device::{GiveWay, HostReservation};
use super::handle::TensorId;
use super::simulation::CommandStream;
use crate::profile::{Trace, TraceSink};
use crate::report::{MemoryReport, Stats};

impl Channel {
    /// Changes the budget. Earlier failures are not reported here but by the next call that reports failures. Errors,
    /// after which the old budget stays in force: Budget if the bytes that cannot be evicted exceed it.
    pub fn set_budget(&self, bytes: Option<usize>) -> Result<()> {
        self.ask(|reply| Command::SetBudget { bytes, reply })?;
        self.shared.note_budget(bytes);
        Ok(())
    }

    /// Charges host bytes against the budget while the returned value lives. Errors: Budget.
    pub fn charge(&self, bytes: usize, what: &str) -> Result<HostReservation> {
        self.charge_until(bytes, what, None)
    }

    /// As [`Channel::charge`], but the charge ends early if the device has no other room. The device's thread then
    /// calls `give_way`. That function must release the bytes, and must neither wait nor call the device.
    pub fn charge_giving_way(&self, bytes: usize, what: &str, give_way: GiveWay) -> Result<HostReservation> {
        self.charge_until(bytes, what, Some(give_way))
    }

    fn charge_until(&self, bytes: usize, what: &str, give_way: Option<GiveWay>) -> Result<HostReservation> {
        let charge = self.ask(|reply| Command::Charge { bytes, what: what.into(), give_way, reply })?;
        Ok(HostReservation { queue: self.shared.queue.clone(), charge, bytes })
    }

    /// The device's counters, after everything queued so far.
    pub fn stats(&self) -> Result<Stats> {
        self.ask(|reply| Command::Stats { reply })
    }

    /// The bytes of these tensors together with all that cannot be recomputed, after everything queued so far.
    pub(crate) fn held_bytes(&self, ids: Vec<TensorId>) -> Result<usize> {
        self.ask(|reply| Command::Held { ids, reply })
    }

    /// The report of bytes and times, after everything queued so far.
    pub fn report(&self) -> Result<MemoryReport> {
        self.ask(|reply| Command::Report { reply })
    }

    /// Resets the counters and the peak.
    pub fn reset_peak(&self) -> Result<()> {
        self.shared.queue.push(Command::ResetPeak)
    }

    /// Evicts every storage that can be recomputed, and returns their number.
    pub fn evict_all(&self) -> Result<usize> {
        self.ask(|reply| Command::EvictAll { reply })
    }

    /// Starts recording a trace. It is kept in memory, up to some millions of events.
    pub fn start_trace(&self) -> Result<()> {
        self.trace_into(None)
    }

    /// Starts recording a trace that is written to `out` during the recording, in the form of
    /// [`Trace::to_chrome_json`], without a limit of events. [`Channel::stop_trace`] then gives an empty trace, and
    /// reports a failed write.
    pub fn start_trace_to(&self, out: Box<dyn std::io::Write + Send>) -> Result<()> {
        self.trace_into(Some(TraceSink::new(out)))
    }

    fn trace_into(&self, sink: Option<TraceSink>) -> Result<()> {
        let dispatch = sink.clone().map_or_else(Trace::default, Trace::to_sink);
        *self.shared.dispatch_trace.lock().unwrap_or_else(PoisonError::into_inner) = dispatch;
        self.shared.tracing.store(true, Ordering::Relaxed);
        self.shared.queue.push(Command::StartTrace { sink })
    }

    /// Ends the recording, after everything queued so far. Errors: Closed; Io if the trace could not be written.
    pub fn stop_trace(&self) -> Result<Trace> {
        self.shared.tracing.store(false, Ordering::Relaxed);
        let mut trace = self.ask(|reply| Command::StopTrace { reply })?;
        let dispatch = std::mem::take(&mut *self.shared.dispatch_trace.lock().unwrap_or_else(PoisonError::into_inner));
        trace.append(dispatch);
        trace.finish()?;
        Ok(trace)
    }

    /// Starts recording the command stream for [`simulate`](crate::simulate). Tensors that exist now are recorded as
    /// data.
    pub fn start_recording(&self) -> Result<()> {
        self.shared.queue.push(Command::StartRecording)
    }

    /// Ends the recording, after everything queued so far.
    pub fn stop_recording(&self) -> Result<CommandStream> {
        self.ask(|reply| Command::StopRecording { reply })
    }

    /// Runs the queued commands, then ends the worker. Later calls are errors of kind Closed. Errors: the first failure
    /// that no call has reported.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    /// Checks the worker's invariants, after everything queued so far; for tests. Errors: Internal.
    #[doc(hidden)]
    pub fn verify(&self) -> Result<()> {
        self.ask(|reply| Command::Verify { reply })
    }

    /// Holds the worker until the returned sender is dropped, for tests that need an idle worker.
    #[doc(hidden)]
    pub fn pause(&self) -> Result<std::sync::mpsc::Sender<()>> {
        let (hold, until) = std::sync::mpsc::channel();
        self.shared.queue.push(Command::Pause { until })?;
        Ok(hold)
    }
}
