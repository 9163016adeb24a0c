//! The times of a program's steps.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds of each step: in the last run, and the least of all.
#[derive(Debug)]
pub struct StepTimes {
    last: Vec<AtomicU64>,
    /// `u64::MAX` before the first run.
    fastest: Vec<AtomicU64>,
}

impl StepTimes {
    /// The times of `steps` steps before the first run.
    pub fn new(steps: usize) -> StepTimes {
        let all = |ns: u64| (0..steps).map(|_| AtomicU64::new(ns)).collect();
        StepTimes { last: all(0), fastest: all(u64::MAX) }
    }

    /// Notes the time of step `i`.
    pub fn record(&self, i: usize, ns: u64) {
        self.last[i].store(ns, Ordering::Relaxed);
        self.fastest[i].fetch_min(ns, Ordering::Relaxed);
    }

    /// True once a run has ended.
    pub fn is_complete(&self) -> bool {
        self.fastest.last().is_some_and(|t| t.load(Ordering::Relaxed) < u64::MAX)
    }

    /// Nanoseconds of each step in the last run; 0 before the first run.
    pub fn last(&self) -> impl Iterator<Item = u64> {
        self.last.iter().map(|t| t.load(Ordering::Relaxed))
    }

    /// The least nanoseconds of each step in all runs; `None` before the first run.
    pub fn fastest(&self) -> impl Iterator<Item = Option<u64>> {
        self.fastest.iter().map(|t| Some(t.load(Ordering::Relaxed)).filter(|ns| *ns < u64::MAX))
    }
}
