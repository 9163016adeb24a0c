//! The time of day for measuring ops: a few nanoseconds a reading, where the system's clock takes some thirty, and two
//! readings are made for every op.
//!
//! On x86-64 processors whose time stamp counter runs at a constant rate it is read directly, and scaled by what the
//! system's clock says of its rate. A wrong time makes a worse choice of what to evict, and never a wrong result.

use std::cell::Cell;
use std::time::Instant;

/// A span of this length tells the counter's rate to some parts in a million; until then the system's clock serves.
const CALIBRATION_NS: u64 = 10_000_000;

/// Nanoseconds since it was made.
pub(crate) struct Clock {
    start: Instant,
    /// The counter then, if there is one.
    ticks: Option<u64>,
    /// Nanoseconds a tick, once they are known.
    scale: Cell<Option<f64>>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock { ticks: counter::is_steady().then(counter::read), start: Instant::now(), scale: Cell::new(None) }
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match (self.ticks, self.scale.get()) {
            (Some(first), Some(scale)) => (counter::read().saturating_sub(first) as f64 * scale) as u64,
            (first, _) => self.calibrate(first),
        }
    }

    #[cold]
    fn calibrate(&self, first: Option<u64>) -> u64 {
        let ns = self.start.elapsed().as_nanos() as u64;
        if let Some(first) = first.filter(|_| ns >= CALIBRATION_NS) {
            let ticks = counter::read().saturating_sub(first);
            // A counter that stands still is none.
            self.scale.set((ticks > 0).then(|| ns as f64 / ticks as f64));
        }
        ns
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// The leaf of CPUID whose EDX bit 8 says that the counter's rate is constant (AMD64 manual volume 3, E.4.8).
    const POWER_LEAF: u32 = 0x8000_0007;

    #[allow(unused_unsafe, reason = "safe from some version of the standard library on")]
    pub(super) fn is_steady() -> bool {
        // SAFETY: every x86-64 processor has CPUID; leaf 0x80000000 tells the highest one that may be asked for.
        unsafe { __cpuid(0x8000_0000).eax >= POWER_LEAF && __cpuid(POWER_LEAF).edx & (1 << 8) != 0 }
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the counter; where a system forbids reading it, the first reading, as the
        // device opens, already ends the process, and no system that Rust's standard library supports does.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod counter {
    pub(super) fn is_steady() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{CALIBRATION_NS, Clock};

    #[test]
    fn it_agrees_with_the_systems_clock_and_never_runs_back() {
        let (clock, start) = (Clock::new(), Instant::now());
        let mut last = 0;
        while start.elapsed() < 5 * Duration::from_nanos(CALIBRATION_NS) {
            let (before, now, after) = (start.elapsed(), clock.now_ns(), start.elapsed());
            // The counter's rate is known to parts in a million; a tenth of a millisecond is one in five hundred.
            let slack = 100_000;
            assert!(now >= last, "{now} after {last}");
            assert!(now + slack >= before.as_nanos() as u64, "{now} is behind {before:?}");
            assert!(now <= after.as_nanos() as u64 + slack, "{now} is ahead of {after:?}");
            last = now;
        }
    }
}
