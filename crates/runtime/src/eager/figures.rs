//! Counters, reports and the check of the invariants.

use remat_types::{Error, ErrorKind, Result};
use rustc_hash::FxHashMap;

use super::simulation::CommandStream;
use super::worker::Worker;
use crate::profile::{Lane, Span, Trace, TraceSink};
use crate::report::{HolderBytes, Kind, MemoryReport, MemoryUse, OpTime, Stats};
use remat_device::{CommSpan, Communication, HostCalls};

/// The figures that the worker keeps of its work.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) stats: Stats,
    /// For each op, the number of its recomputations and their time in nanoseconds.
    pub(super) recomputed: FxHashMap<&'static str, (u64, u64)>,
    /// Host memory of staging buffers, on a device whose memory is not the host's.
    pub(super) pinned_host: Option<MemoryUse>,
    pub(super) trace: Option<Trace>,
    pub(super) recording: Option<CommandStream>,
    /// The communication times at the last reset of the counters.
    pub(super) reset_communication: Communication,
    /// The calls of the device's own that are counted already.
    pub(super) host_calls: HostCalls,
}

impl Worker {
    pub(super) fn stats(&mut self) -> Stats {
        self.learn_times();
        self.figures.stats.set_arena(self.memory.figures());
        self.figures.stats.budget_bytes = self.budget;
        let fixed = self.table.storages().filter(|(_, s)| s.recipe.is_none());
        self.figures.stats.fixed_bytes = fixed.filter_map(|(_, s)| s.block.as_ref()).map(|b| b.bytes()).sum();
        self.figures.stats.tensors = self.table.tensor_count();
        self.figures.stats.storages = self.table.storage_count();
        self.figures.stats.recipes = self.table.recipe_count();
        self.figures.stats.pinned_host = self.figures.pinned_host;
        self.figures.stats.spill_file = self.spills.used();
        self.figures.stats.host_waits = self.launcher.host_waits();
        self.figures.stats.spill_failure = self.spills.failure().map(Error::to_string);
        self.count_host_calls();
        let communication = self.launcher.device().communication();
        self.figures.stats.communication_ns = communication.busy_ns - self.figures.reset_communication.busy_ns;
        self.figures.stats.exposed_communication_ns =
            communication.exposed_ns - self.figures.reset_communication.exposed_ns;
        self.figures.stats.clone()
    }

    /// Adds the calls that the device ran on the host since the last time.
    fn count_host_calls(&mut self) {
        let all = self.launcher.device().host_calls().clone();
        let seen = std::mem::replace(&mut self.figures.host_calls, all.clone());
        self.figures.stats.host_fallback_bytes += all.bytes - seen.bytes;
        for (op, (count, ns)) in all.by_op {
            let (seen_count, seen_ns) = seen.by_op.get(op).copied().unwrap_or_default();
            let (count, ns) = (count - seen_count, ns - seen_ns);
            self.figures.stats.host_fallback_ops += count;
            self.figures.stats.host_fallback_ns += ns;
            self.launcher.note_host_runs(op, count, ns);
        }
    }

    pub(super) fn start_trace(&mut self, sink: Option<TraceSink>) {
        let mut trace = sink.map_or_else(Trace::default, Trace::to_sink);
        trace.budget = self.budget;
        self.figures.trace = Some(trace);
        self.launcher.device().record_communication();
    }

    pub(super) fn take_trace(&mut self) -> Trace {
        let mut trace = self.figures.trace.take().unwrap_or_default();
        for CommSpan { label, start_ns, duration_ns, bytes } in self.launcher.device().take_communication() {
            trace.span(Span { lane: Lane::Communication, name: label, scope: None, start_ns, duration_ns, bytes });
        }
        trace
    }

    pub(super) fn report(&mut self) -> MemoryReport {
        let stats = self.stats();
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
            recomputed: by_time(&self.figures.recomputed),
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
        self.figures.host_calls = self.launcher.device().host_calls().clone();
        self.memory.reset_peak();
        self.figures.stats = Stats::default();
        self.figures.recomputed.clear();
        self.figures.pinned_host.iter_mut().for_each(|used| used.peak_bytes = used.in_use_bytes);
        self.figures.reset_communication = self.launcher.device().communication();
        self.launcher.reset_figures();
    }
}

/// Runs of ops, the most time first.
pub(super) fn by_time(runs: &FxHashMap<&'static str, (u64, u64)>) -> Vec<OpTime> {
    let mut all: Vec<OpTime> =
        runs.iter().map(|(op, &(count, time_ns))| OpTime { op: (*op).to_owned(), count, time_ns }).collect();
    all.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.op.cmp(&b.op)));
    all
}
