//! Threads that prepare batches ahead, in any order, for one consumer that takes them in order.
//!
//! A ring of `depth` places holds what is being prepared or waits to be taken: batch `i` belongs to place `i % depth`, and
//! is begun when its place is free. A place owns a charge on the device's budget, as large as its largest batch so far and
//! for the whole epoch: what staging takes does not depend on how the threads happen to run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use remat_runtime::{Channel, Charge};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use super::Dataset;

/// A batch, or why there is none.
pub(super) type Prepared = Result<Vec<HostTensor>>;

/// What is to be prepared.
pub(super) struct Job {
    pub(super) dataset: Arc<dyn Dataset>,
    /// The examples of each batch, in order.
    pub(super) batches: Vec<Vec<usize>>,
    /// Batches before this one are skipped.
    pub(super) first: usize,
    pub(super) channel: Channel,
}

struct Ring {
    ready: Vec<Option<Prepared>>,
    charges: Vec<Option<Charge>>,
    next: usize,
    taken: usize,
    stop: bool,
}

struct Shared {
    job: Job,
    depth: usize,
    ring: Mutex<Ring>,
    changed: Condvar,
}

/// The threads of one epoch; dropping it stops and joins them.
pub(super) struct Prefetch {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Prefetch {
    /// Starts `workers` threads that are at most `depth` batches ahead, both at least 1. Errors: Io if a thread cannot be
    /// started.
    pub(super) fn start(job: Job, workers: usize, depth: usize) -> Result<Self> {
        let ring = Ring {
            ready: (0..depth).map(|_| None).collect(),
            charges: (0..depth).map(|_| None).collect(),
            next: job.first,
            taken: job.first,
            stop: false,
        };
        let shared = Arc::new(Shared { job, depth, ring: Mutex::new(ring), changed: Condvar::new() });
        let mut p = Prefetch { shared, threads: Vec::new() };
        for i in 0..workers.min(depth) {
            let shared = p.shared.clone();
            let thread = std::thread::Builder::new().name(format!("remat-data-{i}")).spawn(move || shared.work());
            p.threads.push(thread.map_err(|e| Error::from(e).context("cannot start a data worker"))?);
        }
        Ok(p)
    }

    /// The next batch; waits for it. Not to be called past the last one.
    pub(super) fn take(&self) -> Prepared {
        let s = &self.shared;
        let mut ring = s.lock();
        loop {
            let place = ring.taken % s.depth;
            if let Some(batch) = ring.ready[place].take() {
                ring.taken += 1;
                s.changed.notify_all();
                return batch;
            }
            ring = s.changed.wait(ring).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        for t in self.threads.drain(..) {
            // a worker catches what its dataset panics with, so there is nothing to learn here
            let _ = t.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some((i, charge)) = self.begin() {
            let (batch, charge) = self.prepare(i, charge);
            let mut ring = self.lock();
            ring.ready[i % self.depth] = Some(batch);
            ring.charges[i % self.depth] = charge;
            drop(ring);
            self.changed.notify_all();
        }
    }

    /// The next batch whose place is free, with the place's charge; nothing when all is done or stopped.
    fn begin(&self) -> Option<(usize, Option<Charge>)> {
        let mut ring = self.lock();
        loop {
            if ring.stop || ring.next >= self.job.batches.len() {
                return None;
            }
            if ring.next < ring.taken + self.depth {
                let i = ring.next;
                ring.next += 1;
                let charge = ring.charges[i % self.depth].take();
                return Some((i, charge));
            }
            ring = self.changed.wait(ring).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn prepare(&self, i: usize, charge: Option<Charge>) -> (Prepared, Option<Charge>) {
        let batch = read(&*self.job.dataset, &self.job.batches[i]).map_err(|e| e.context(format_args!("batch {i}")));
        let Ok(tensors) = &batch else { return (batch, charge) };
        let bytes: usize = tensors.iter().map(|t| t.bytes().len()).sum();
        if bytes == 0 || charge.as_ref().is_some_and(|c| c.bytes() >= bytes) {
            return (batch, charge);
        }
        drop(charge);
        match self.job.channel.charge(bytes, "prefetched data") {
            Ok(charge) => (batch, Some(charge)),
            Err(e) => (Err(e), None),
        }
    }
}

/// A batch of `dataset`; a panic becomes an error.
pub(super) fn read(dataset: &dyn Dataset, indices: &[usize]) -> Prepared {
    catch_unwind(AssertUnwindSafe(|| dataset.batch(indices))).unwrap_or_else(|panic| {
        let text = format!("the dataset panicked: {}", message(&*panic));
        Err(Error::new(ErrorKind::Value, text))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
