//! Recording of what happened when, in the Chrome trace event format that Perfetto opens.

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
}

/// Events after which a recording stops growing: about a quarter of a gigabyte of them.
const MAX_EVENTS: usize = 2_000_000;

impl Trace {
    pub(crate) fn span(&mut self, span: Span) {
        if self.spans.len() < MAX_EVENTS {
            self.spans.push(span);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn memory(&mut self, at_ns: u64, in_use: usize) {
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

    /// The trace in Chrome's trace event format (JSON object form): times in microseconds, one lane each for
    /// dispatch, execution, recomputation, evictions and the collectives that ran beside, and a counter of the bytes in use.
    pub fn to_chrome_json(&self) -> Value {
        let us = |ns: u64| ns as f64 / 1e3;
        let lanes = [Lane::Dispatch, Lane::Execution, Lane::Recomputation, Lane::Memory, Lane::Communication];
        let mut events: Vec<Value> = lanes
            .iter()
            .map(|&l| {
                json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": l as u32,
                        "args": { "name": format!("{l:?}").to_lowercase() } })
            })
            .collect();
        events.extend(self.spans.iter().map(|s| {
            json!({ "ph": "X", "name": s.name, "cat": format!("{:?}", s.lane).to_lowercase(), "pid": 1,
                    "tid": s.lane as u32, "ts": us(s.start_ns), "dur": us(s.duration_ns),
                    "args": { "bytes": s.bytes, "scope": s.scope.as_deref().unwrap_or("") } })
        }));
        events.extend(self.memory.iter().map(
            |&(at, bytes)| json!({ "ph": "C", "name": "memory", "pid": 1, "ts": us(at), "args": { "in use": bytes } }),
        ));
        json!({ "traceEvents": events, "displayTimeUnit": "ms",
                "otherData": { "budget_bytes": self.budget, "dropped_events": self.dropped } })
    }
}
