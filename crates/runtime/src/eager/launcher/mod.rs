//! The device and its work in flight. Only this part of the worker talks to a backend's streams.
//!
//! This module owns the backend and its kernels, events, freed ranges that work in flight may still use, and times that
//! are not known yet. Every kernel runs through [`Worker::run`](super::worker::Worker) in `run.rs`, at first and in
//! recomputation.

mod host_runs;
pub(super) mod op_costs;
pub(super) mod programs;
mod run;
mod timings;

use std::sync::Arc;

use remat_ops::{OpRef, shape::Contiguous};
use remat_types::Error;

use self::host_runs::HostRuns;
use self::timings::Timings;
use super::memory::table::RecipeId;
use crate::report::OpTime;
use remat_device::{Backend, Event, InFlight, KernelSet, StreamId, Uses};

use op_costs::CostId;
pub(super) use run::Call;

/// Freed ranges with uses in flight that are remembered before all streams wait for each other.
const HAZARDS_MAX: usize = 512;

/// See the module's note.
pub(super) struct Launcher {
    device: Box<dyn Backend>,
    kernels: Arc<dyn KernelSet>,
    /// The device's own answers, asked once.
    is_asynchronous: bool,
    holds_constants: bool,
    contiguous: OpRef,
    timings: Timings,
    host_runs: HostRuns,
    /// Freed ranges that work in flight may still use, with their last uses.
    hazards: InFlight<Event>,
    /// On asynchronous devices, the last event of each stream, now and at the last step mark.
    last_events: Vec<Event>,
    step_marks: Vec<Event>,
    host_waits: u64,
}

impl Launcher {
    pub(super) fn new(device: Box<dyn Backend>) -> Self {
        let kernels = device.kernels();
        Launcher {
            holds_constants: kernels.holds_constants(),
            kernels,
            is_asynchronous: device.is_asynchronous(),
            device,
            contiguous: OpRef::new(Contiguous),
            timings: Timings::default(),
            host_runs: HostRuns::default(),
            hazards: InFlight::default(),
            last_events: Vec::new(),
            step_marks: Vec::new(),
            host_waits: 0,
        }
    }

    /// Counts launches of an op that ran on the host.
    pub(super) fn note_host_runs(&mut self, op: &'static str, count: u64, ns: u64) {
        if count > 0 {
            self.host_runs.note(op, count, ns);
        }
    }

    /// The backend, for its memory and its files.
    pub(super) fn device(&mut self) -> &mut dyn Backend {
        &mut *self.device
    }

    pub(super) fn kernels(&self) -> &Arc<dyn KernelSet> {
        &self.kernels
    }

    pub(super) fn threads(&self) -> usize {
        self.device.threads()
    }

    /// True if launches return before they have run.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.is_asynchronous
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.device.now_ns()
    }

    /// Bytes per second of copies to a file and back, as [`Backend::spill_rates`].
    pub(super) fn spill_rates(&self) -> Option<remat_graph::plan::problem::SpillRates> {
        self.device.spill_rates()
    }

    /// Waits until nothing is in flight. Failures stay to be reported.
    pub(super) fn wait_idle(&mut self) {
        self.host_waits += u64::from(self.is_asynchronous);
        self.device.wait_idle();
        self.hazards.clear();
    }

    /// As [`Launcher::wait_idle`]. Errors: the first failure that no call has reported.
    pub(super) fn synchronize_all(&mut self) -> remat_types::Result<()> {
        let result = self.device.synchronize_all();
        self.hazards.clear();
        result
    }

    /// Notes a freed range. Queued work may still use it.
    pub(super) fn free_range(&mut self, start: usize, end: usize, touched: &[Event]) {
        touched.iter().for_each(|&e| self.hazards.push(e, Uses::of_range((start, end), true)));
        if self.hazards.len() > HAZARDS_MAX {
            self.order_streams();
        }
    }

    /// Orders all later work, on any stream, behind all work that is queued now.
    pub(super) fn order_streams(&mut self) {
        for stream in (0..self.device.streams()).map(|s| StreamId(s as u16)) {
            self.wait_for_others(stream);
        }
        self.hazards.clear();
    }

    /// Makes `stream` wait for all work that was queued on other streams.
    fn wait_for_others(&mut self, stream: StreamId) {
        for &e in self.last_events.iter().filter(|e| e.stream != stream) {
            self.device.wait(stream, e);
        }
    }

    /// Waits on the host for an event that no program asked for. Errors: as [`Backend::synchronize`].
    pub(super) fn synchronize(&mut self, event: Event) -> remat_types::Result<()> {
        self.host_waits += u64::from(self.is_asynchronous);
        self.device.synchronize(event)
    }

    /// Queues a gate for the updates of the present step, as [`Backend::gate`].
    pub(super) fn gate(&mut self, after: &[Event]) -> remat_types::Result<Event> {
        let stream = StreamId::default();
        self.wait_for_others(stream);
        let event = self.device.gate(stream, after, &self.step_marks)?;
        self.note_event(event);
        Ok(event)
    }

    /// Queues a copy of bytes (from, to, how many) on `stream`, after `after`. The device makes it if `event` failed.
    pub(super) fn restore(
        &mut self,
        stream: StreamId,
        after: &[Event],
        event: Event,
        (from, to, bytes): (usize, usize, usize),
    ) -> remat_types::Result<Event> {
        after.iter().filter(|e| e.stream != stream).for_each(|&e| self.device.wait(stream, e));
        let done = self.device.restore(stream, event, from, to, bytes)?;
        self.note_event(done);
        Ok(done)
    }

    /// How often the host waited for an asynchronous device without a request for a value. `None` on other devices.
    pub(super) fn host_waits(&self) -> Option<u64> {
        self.is_asynchronous.then_some(self.host_waits)
    }

    /// Makes `stream` wait for earlier uses, on other streams, of a freed range.
    pub(super) fn wait_for_range(&mut self, start: usize, end: usize, stream: StreamId) {
        for (_, &event) in self.hazards.before(&Uses::of_range((start, end), true)) {
            if event.stream != stream {
                self.device.wait(stream, event);
            }
        }
    }

    /// Work was queued.
    pub(super) fn note_event(&mut self, event: Event) {
        note_last(&mut self.last_events, event);
    }

    /// A step ends: work that is queued from now on belongs to the next step.
    pub(super) fn mark_step(&mut self) {
        self.step_marks.clone_from(&self.last_events);
    }

    /// Waits for the device. Gives the failure of work that was queued in this step, if no call has reported it.
    pub(super) fn failure_of_step(&mut self) -> Option<Error> {
        self.device.failed_after(&self.step_marks)
    }

    /// Sets the owner of the last launch's time, if that time is not known yet.
    pub(super) fn is_cost_of(&mut self, cost: CostId, recipe: Option<RecipeId>) {
        self.timings.is_cost_of(cost, recipe);
    }

    /// The ops that ran on the host for want of a kernel, the most time first.
    pub(super) fn on_host(&self) -> Vec<OpTime> {
        super::figures::by_time(self.host_runs.by_op())
    }

    pub(super) fn reset_figures(&mut self) {
        self.host_runs.reset();
        self.host_waits = 0;
    }
}

/// Keeps the last event of each stream.
pub(super) fn note_last(events: &mut Vec<Event>, event: Event) {
    match events.iter_mut().find(|e| e.stream == event.stream) {
        Some(e) => *e = event,
        None => events.push(event),
    }
}
