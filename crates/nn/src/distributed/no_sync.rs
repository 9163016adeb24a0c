//! Passes of one rank alone, whose gradients wait for the next pass of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use remat_runtime::tracing;

/// How many [`NoSync`] are there, and how many of them a running trace has begun: a compiled function depends on the others alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Alone {
    outside: Arc<AtomicUsize>,
    of_trace: Arc<AtomicUsize>,
}

impl Alone {
    pub(super) fn begin(&self) -> NoSync {
        let of = if tracing::is_tracing() { &self.of_trace } else { &self.outside };
        of.fetch_add(1, Ordering::Relaxed);
        NoSync { of: of.clone() }
    }

    pub(super) fn is_on(&self) -> bool {
        let is_outside = self.outside.load(Ordering::Relaxed) > 0;
        if tracing::is_tracing() {
            let outside = self.outside.clone();
            tracing::guard(move || (outside.load(Ordering::Relaxed) > 0) == is_outside);
        }
        is_outside || self.of_trace.load(Ordering::Relaxed) > 0
    }
}

/// While it lives, backward passes are of one rank alone; see [`DataParallel::no_sync`](super::DataParallel::no_sync).
#[must_use = "passes are of all ranks again when it is dropped"]
#[derive(Debug)]
pub struct NoSync {
    of: Arc<AtomicUsize>,
}

impl Drop for NoSync {
    fn drop(&mut self) {
        self.of.fetch_sub(1, Ordering::Relaxed);
    }
}
