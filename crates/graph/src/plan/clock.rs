//! The time of a search, counted in looks instead of seconds: a plan is the same on every machine, however busy.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time that the clock adds for one look. A look is one step, one instance of a storage or one pair of intervals that the search
/// reads. A core of a common processor takes about as long.
const LOOK_NS: u64 = 3;

/// Counts looks; clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn spend(&self, looks: usize) {
        self.0.fetch_add(looks as u64 * LOOK_NS, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Tick {
        Tick(self.0.load(Ordering::Relaxed))
    }
}

/// A moment of a [`Clock`], in ns since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u64);

impl Tick {
    /// The time since an earlier moment; 0 if that is later.
    pub(crate) fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, d: Duration) -> Tick {
        Tick(self.0.saturating_add(ns(d)))
    }
}

impl Sub<Duration> for Tick {
    type Output = Tick;

    fn sub(self, d: Duration) -> Tick {
        Tick(self.0.saturating_sub(ns(d)))
    }
}
