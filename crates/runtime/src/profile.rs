//! Recording of events with their times, in the Chrome trace event format, which Perfetto opens.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_types::{Error, Result};
use serde::Serialize;
use serde_json::{Value, json};

/// The lanes of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Lane {
    Dispatch,
    Execution,
    Recomputation,
    Memory,
    Communication,
}

#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) lane: Lane,
    pub(crate) name: &'static str,
    pub(crate) scope: Option<std::sync::Arc<str>>,
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) bytes: usize,
}

/// A recording.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub(crate) spans: Vec<Span>,
    /// (time, bytes in use)
    pub(crate) memory: Vec<(u64, usize)>,
    pub(crate) budget: Option<usize>,
    pub(crate) dropped: u64,
    /// The writer that takes events as soon as there are enough of them.
    sink: Option<TraceSink>,
}

/// The number of events at which a recording in memory stops growing: they take about a quarter of a gigabyte.
const MAX_EVENTS: usize = 2_000_000;

/// Events that are written at once.
const WRITTEN_AT_ONCE: usize = 1 << 13;

impl Trace {
    /// A recording that goes to `sink` while it is made.
    pub(crate) fn to_sink(sink: TraceSink) -> Trace {
        Trace { sink: Some(sink), ..Trace::default() }
    }

    /// Writes the events to the sink, if there is one.
    fn write(&mut self) {
        if let Some(sink) = &self.sink {
            sink.write(self.spans.iter().map(span_event).chain(self.memory.iter().map(memory_event)));
            self.spans.clear();
            self.memory.clear();
        }
    }

    fn write_if_many(&mut self) {
        if self.sink.is_some() && self.spans.len().max(self.memory.len()) >= WRITTEN_AT_ONCE {
            self.write();
        }
    }

    /// Writes the remaining events and the end. Errors (Io): a failed write.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.write();
        self.sink.take().map_or(Ok(()), |sink| sink.finish(self.budget, self.dropped))
    }

    pub(crate) fn span(&mut self, span: Span) {
        self.write_if_many();
        if self.spans.len() < MAX_EVENTS {
            self.spans.push(span);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn memory(&mut self, at_ns: u64, in_use: usize) {
        self.write_if_many();
        if self.memory.len() < MAX_EVENTS && self.memory.last().is_none_or(|m| m.1 != in_use) {
            self.memory.push((at_ns, in_use));
        }
    }

    pub(crate) fn append(&mut self, other: Trace) {
        self.spans.extend(other.spans);
        self.dropped += other.dropped;
    }

    /// Number of recorded spans.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The trace in Chrome's trace event format (JSON object form). Times are in microseconds. Dispatch, execution,
    /// recomputation, evictions and collectives have a lane each, and a counter shows the bytes in use.
    pub fn to_chrome_json(&self) -> Value {
        let spans = self.spans.iter().map(span_event);
        let events: Vec<Value> = lane_events().chain(spans).chain(self.memory.iter().map(memory_event)).collect();
        json!({ "traceEvents": events, "displayTimeUnit": "ms",
                "otherData": { "budget_bytes": self.budget, "dropped_events": self.dropped } })
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The names of the lanes.
fn lane_events() -> impl Iterator<Item = Value> {
    let lanes = [Lane::Dispatch, Lane::Execution, Lane::Recomputation, Lane::Memory, Lane::Communication];
    lanes.into_iter().map(|l| {
        json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": l as u32,
                "args": { "name": format!("{l:?}").to_lowercase() } })
    })
}

fn span_event(s: &Span) -> Value {
    json!({ "ph": "X", "name": s.name, "cat": format!("{:?}", s.lane).to_lowercase(), "pid": 1,
            "tid": s.lane as u32, "ts": us(s.start_ns), "dur": us(s.duration_ns),
            "args": { "bytes": s.bytes, "scope": s.scope.as_deref().unwrap_or("") } })
}

fn memory_event(&(at, bytes): &(u64, usize)) -> Value {
    json!({ "ph": "C", "name": "memory", "pid": 1, "ts": us(at), "args": { "in use": bytes } })
}

/// A trace that is written while it is recorded, in the form of [`Trace::to_chrome_json`]. Its memory does not grow. If
/// the program ends in the middle, the events until then are in the file, and readers of traces accept that.
#[derive(Clone)]
pub(crate) struct TraceSink(Arc<Mutex<Sink>>);

struct Sink {
    out: Box<dyn Write + Send>,
    is_first: bool,
    /// The reason that nothing more is written.
    failed: Option<io::Error>,
}

impl TraceSink {
    pub(crate) fn new(out: Box<dyn Write + Send>) -> TraceSink {
        let sink = TraceSink(Arc::new(Mutex::new(Sink { out, is_first: true, failed: None })));
        sink.lock().attempt(|out| out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
        sink.write(lane_events());
        sink
    }

    fn lock(&self) -> MutexGuard<'_, Sink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, events: impl Iterator<Item = Value>) {
        let mut sink = self.lock();
        for event in events {
            let between: &[u8] = if std::mem::take(&mut sink.is_first) { b"\n" } else { b",\n" };
            sink.attempt(|out| {
                out.write_all(between)?;
                Ok(serde_json::to_writer(out, &event)?)
            });
        }
    }

    fn finish(&self, budget: Option<usize>, dropped: u64) -> Result<()> {
        let mut sink = self.lock();
        let about = json!({ "budget_bytes": budget, "dropped_events": dropped });
        sink.attempt(|out| {
            write!(out, "\n],\"otherData\":{about}}}\n")?;
            out.flush()
        });
        sink.failed.take().map_or(Ok(()), |e| Err(Error::from(e).context("the trace")))
    }
}

impl Sink {
    fn attempt(&mut self, f: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.failed.is_none() {
            self.failed = f(&mut *self.out).err();
        }
    }
}

impl std::fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceSink").finish_non_exhaustive()
    }
}
