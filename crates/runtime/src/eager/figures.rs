//! Counters, reports and the check of the invariants.

use remat_types::{Error, ErrorKind, Result};
use rustc_hash::FxHashMap;

use super::worker::Worker;
use crate::profile::{Lane, Span, Trace, TraceSink};
use crate::report::{HolderBytes, Kind, MemoryReport, OpTime, Stats};
use remat_device::CommSpan;

impl Worker {
    pub(super) fn figures(&mut self) -> Stats {
        self.learn_times();
        self.stats.set_arena(self.memory.figures());
        self.stats.budget_bytes = self.budget;
        let fixed = self.table.storages().filter(|(_, s)| s.recipe.is_none());
        self.stats.fixed_bytes = fixed.filter_map(|(_, s)| s.block.as_ref()).map(|b| b.bytes()).sum();
        self.stats.tensors = self.table.tensor_count();
        self.stats.storages = self.table.storage_count();
        self.stats.recipes = self.table.recipe_count();
        self.stats.pinned_host = self.pinned_host;
        self.stats.spill_file = self.spills.used();
        self.stats.host_waits = self.launcher.host_waits();
        self.stats.spill_failure = self.spills.failure().map(Error::to_string);
        let communication = self.launcher.device().communication();
        self.stats.communication_ns = communication.busy_ns - self.reset_communication.busy_ns;
        self.stats.exposed_communication_ns = communication.exposed_ns - self.reset_communication.exposed_ns;
        self.stats.clone()
    }

    pub(super) fn start_trace(&mut self, sink: Option<TraceSink>) {
        let mut trace = sink.map_or_else(Trace::default, Trace::to_sink);
        trace.budget = self.budget;
        self.trace = Some(trace);
        self.launcher.device().record_communication();
    }

    pub(super) fn take_trace(&mut self) -> Trace {
        let mut trace = self.trace.take().unwrap_or_default();
        for CommSpan { label, start_ns, duration_ns, bytes } in self.launcher.device().take_communication() {
            trace.span(Span { lane: Lane::Communication, name: label, scope: None, start_ns, duration_ns, bytes });
        }
        trace
    }

    pub(super) fn report(&mut self) -> MemoryReport {
        let stats = self.figures();
        let sorted = |mut v: Vec<HolderBytes>| {
            v.retain(|h| h.bytes > 0);
            v.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
            v
        };
        let holder = |(name, bytes): (&str, usize)| HolderBytes { name: name.to_owned(), bytes };
        let (by_kind, by_op) = self.memory.at_peak();
        MemoryReport {
            stats,
            peak_by_kind: sorted(Kind::ALL.iter().map(|k| k.name()).zip(by_kind).map(holder).collect()),
            peak_by_op: sorted(by_op.into_iter().map(holder).collect()),
            recomputed: by_time(&self.recomputed),
            on_host: self.launcher.on_host(),
        }
    }

    pub(super) fn verify(&self) -> Result<()> {
        let blocks = self.table.storages().filter_map(|(_, s)| s.block.as_ref());
        let held: usize = blocks.map(|b| b.bytes()).sum();
        let checked =
            self.table.verify(self.eviction.has_evicted()).and_then(|()| self.memory.arena().verify()).and_then(|()| {
                if held == self.memory.arena().in_use() {
                    return self.verify_copies();
                }
                Err(format!("storages hold {held} bytes, the arena counts {}", self.memory.arena().in_use()))
            });
        checked.map_err(|text| Error::new(ErrorKind::Internal, text))
    }

    pub(super) fn reset_peak(&mut self) {
        self.memory.reset_peak();
        self.stats = Stats::default();
        self.recomputed.clear();
        self.pinned_host.iter_mut().for_each(|used| used.peak_bytes = used.in_use_bytes);
        self.reset_communication = self.launcher.device().communication();
        self.launcher.reset_figures();
    }
}

/// Runs of ops, most time first.
pub(super) fn by_time(runs: &FxHashMap<&'static str, (u64, u64)>) -> Vec<OpTime> {
    let mut all: Vec<OpTime> =
        runs.iter().map(|(op, &(count, time_ns))| OpTime { op: (*op).to_owned(), count, time_ns }).collect();
    all.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.op.cmp(&b.op)));
    all
}
