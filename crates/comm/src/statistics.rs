use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of a communicator so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Bytes of tensors that calls were given.
    pub bytes: u64,
    /// Nanoseconds until all ranks had come.
    pub waiting_ns: u64,
    /// Nanoseconds in which bytes moved and were reduced.
    pub moving_ns: u64,
}

/// Counters that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    calls: AtomicU64,
    bytes: AtomicU64,
    waiting_ns: AtomicU64,
    moving_ns: AtomicU64,
}

impl Counters {
    /// Counts a call; its number, from 1.
    pub(crate) fn call(&self, bytes: usize) -> u64 {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn waited(&self, ns: u128) {
        self.waiting_ns.fetch_add(ns as u64, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self, ns: u128) {
        self.moving_ns.fetch_add(ns as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Statistics {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Statistics {
            calls: of(&self.calls),
            bytes: of(&self.bytes),
            waiting_ns: of(&self.waiting_ns),
            moving_ns: of(&self.moving_ns),
        }
    }
}
