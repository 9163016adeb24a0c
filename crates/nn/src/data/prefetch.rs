//! Threads that prepare batches ahead, in any order, for one consumer that takes them in order.
//!
//! What waits is charged on the device's budget. A charge belongs to a batch while that waits and then to the next one, for
//! the whole epoch, so what staging takes hardly depends on how the threads happen to run. All charges together take no
//! more than a share of the budget, and they give way: where the device has no other room, a charge ends, its batch is let
//! go and prepared again in its turn, and for the rest of the epoch fewer are prepared ahead. With no charge left a batch is
//! prepared when the consumer waits for it, as without threads. So prefetching makes no run infeasible.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use remat_runtime::{Channel, HostReservation, interrupt};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use super::Dataset;
use super::order::Order;

/// Batches ahead take at most the budget divided by this.
const BUDGET_SHARE: usize = 4;

/// A batch, or why there is none.
pub(super) type Prepared = Result<Vec<HostTensor>>;

/// A batch to prepare.
pub(super) struct Job {
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) order: Order,
    /// Batches before this one are skipped.
    pub(super) first: usize,
    pub(super) channel: Channel,
}

/// A charge, and whether the device has ended it.
struct Held {
    charge: HostReservation,
    id: u64,
}

struct Waiting {
    batch: Prepared,
    held: Option<Held>,
    /// There was no room for a charge.
    is_refused: bool,
}

#[derive(Default)]
struct Ring {
    ready: BTreeMap<usize, Waiting>,
    /// Charges of no batch.
    idle: Vec<Held>,
    /// Charges that live, by number, with their bytes.
    charged: BTreeMap<u64, usize>,
    charges_made: u64,
    /// Batches that were let go and are to be prepared again.
    again: BTreeSet<usize>,
    next: usize,
    taken: usize,
    /// Batches that may be begun before the consumer waits for them.
    ahead: usize,
    is_awaited: bool,
    stop: bool,
}

impl Ring {
    /// True once every batch that may be begun before the consumer waits for it is there.
    fn is_full(&self, batches: usize) -> bool {
        (self.taken..batches.min(self.taken.saturating_add(self.ahead))).all(|i| self.ready.contains_key(&i))
    }

    /// The next batch that may be begun.
    fn begin(&mut self, batches: usize) -> Option<usize> {
        let i = self.again.first().copied().unwrap_or(self.next);
        let is_due = i == self.taken && self.is_awaited;
        if i >= batches || (i - self.taken >= self.ahead && !is_due) {
            return None;
        }
        if !self.again.remove(&i) {
            self.next += 1;
        }
        Some(i)
    }

    /// As many as are charged may be prepared ahead from now on.
    fn shrink(&mut self) {
        self.ahead = self.ahead.min(self.charged.len());
    }

    /// The device has ended a charge: releases the batch that it was for.
    fn end(&mut self, id: u64) {
        self.charged.remove(&id);
        self.idle.retain(|h| h.id != id);
        let of = |w: &Waiting| w.held.as_ref().is_some_and(|h| h.id == id);
        if let Some(i) = self.ready.iter().find(|(_, w)| of(w)).map(|(i, _)| *i) {
            self.ready.remove(&i);
            self.again.insert(i);
        }
        self.shrink();
    }
}

/// The state that the threads, the consumer and the device share. The device holds a weak reference, since the state holds
/// charges on the device.
#[derive(Default)]
struct State {
    ring: Mutex<Ring>,
    changed: Condvar,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change. Errors: that with which this thread's waits are to end.
    fn wait<'s>(&'s self, ring: MutexGuard<'s, Ring>) -> Result<MutexGuard<'s, Ring>> {
        let (ring, is_due) = interrupt::wait(&self.changed, ring);
        if !is_due {
            return Ok(ring);
        }
        drop(ring);
        interrupt::ask()?;
        Ok(self.lock())
    }
}

struct Shared {
    job: Job,
    state: Arc<State>,
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
        let ahead = depth.min(job.order.batches().saturating_sub(job.first));
        let ring = Ring { next: job.first, taken: job.first, ahead, ..Ring::default() };
        let state = Arc::new(State { ring: Mutex::new(ring), changed: Condvar::new() });
        let mut p = Prefetch { shared: Arc::new(Shared { job, state }), threads: Vec::new() };
        for i in 0..workers.min(ahead) {
            let shared = p.shared.clone();
            let thread = std::thread::Builder::new().name(format!("remat-data-{i}")).spawn(move || shared.work());
            p.threads.push(thread.map_err(|e| Error::from(e).context("cannot start a data worker"))?);
        }
        Ok(p)
    }

    /// The next batch, and whether the budget had no room for it ahead; waits for it. Not to be called past the last one.
    ///
    /// Errors: that with which this thread's waits are to end; the batch is then still to come.
    pub(super) fn take(&self) -> Result<(Prepared, bool)> {
        let state = &self.shared.state;
        let mut ring = state.lock();
        loop {
            let i = ring.taken;
            if let Some(w) = ring.ready.remove(&i) {
                ring.taken += 1;
                ring.is_awaited = false;
                ring.idle.extend(w.held);
                drop(ring);
                state.changed.notify_all();
                return Ok((w.batch, w.is_refused));
            }
            if !ring.is_awaited {
                ring.is_awaited = true;
                state.changed.notify_all();
            }
            ring = state.wait(ring)?;
        }
    }

    /// Waits until every batch that may be prepared ahead is there. Errors: as of [`Prefetch::take`].
    pub(super) fn fill(&self) -> Result<()> {
        let (state, batches) = (&self.shared.state, self.shared.job.order.batches());
        let mut ring = state.lock();
        while !ring.is_full(batches) {
            ring = state.wait(ring)?;
        }
        Ok(())
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.state.changed.notify_all();
        let threads = &mut self.threads;
        // a worker catches panics of its dataset, so there is no error to read here
        interrupt::aside(|| threads.drain(..).for_each(|t| drop(t.join())));
    }
}

impl Shared {
    fn work(&self) {
        while let Some(i) = self.begin() {
            let waiting = self.prepare(i);
            let mut ring = self.state.lock();
            let has_ended = waiting.held.as_ref().is_some_and(|h| !ring.charged.contains_key(&h.id));
            if has_ended || waiting.is_refused {
                ring.shrink();
            }
            // a batch that cannot be charged waits only for the consumer
            if i == ring.taken || !(has_ended || waiting.is_refused) {
                let held = waiting.held.filter(|_| !has_ended);
                let is_refused = waiting.is_refused || has_ended;
                ring.ready.insert(i, Waiting { batch: waiting.batch, held, is_refused });
            } else {
                ring.again.insert(i);
            }
            drop(ring);
            self.state.changed.notify_all();
        }
    }

    /// The next batch that may be begun; nothing when all were taken or it is to stop.
    fn begin(&self) -> Option<usize> {
        let batches = self.job.order.batches();
        let mut ring = self.state.lock();
        loop {
            if ring.stop || ring.taken >= batches {
                return None;
            }
            if let Some(i) = ring.begin(batches) {
                return Some(i);
            }
            ring = self.state.changed.wait(ring).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn prepare(&self, i: usize) -> Waiting {
        let batch = read(&*self.job.dataset, &self.job.order.batch(i));
        let batch = batch.map_err(|e| e.context(format_args!("batch {i}")));
        let bytes = batch.as_ref().map_or(0, |b| b.iter().map(|t| t.bytes().len()).sum());
        match self.charged(bytes) {
            Ok(held) => Waiting { batch, held, is_refused: false },
            Err(e) if e.kind() == ErrorKind::Budget => Waiting { batch, held: None, is_refused: true },
            Err(e) => Waiting { batch: Err(e), held: None, is_refused: false },
        }
    }

    /// A charge of at least so many bytes: an idle one, or a new one within the share. Errors: Budget; Closed.
    fn charged(&self, bytes: usize) -> Result<Option<Held>> {
        if bytes == 0 {
            return Ok(None);
        }
        let mut ring = self.state.lock();
        if let Some(place) = ring.idle.iter().position(|h| h.charge.bytes() >= bytes) {
            return Ok(Some(ring.idle.swap_remove(place)));
        }
        // one that is too small makes way for a larger one
        if let Some(small) = ring.idle.pop() {
            ring.charged.remove(&small.id);
        }
        let others: usize = ring.charged.values().sum();
        ring.charges_made += 1;
        let id = ring.charges_made;
        ring.charged.insert(id, bytes);
        drop(ring);
        let charge = self.charge(bytes, others, id);
        if charge.is_err() {
            self.state.lock().charged.remove(&id);
        }
        Ok(Some(Held { charge: charge?, id }))
    }

    fn charge(&self, bytes: usize, others: usize, id: u64) -> Result<HostReservation> {
        if let Some(budget) = self.job.channel.stats()?.budget_bytes
            && others.saturating_add(bytes) > budget / BUDGET_SHARE
        {
            return Err(Error::new(ErrorKind::Budget, "batches ahead have their share of the budget"));
        }
        let state: Weak<State> = Arc::downgrade(&self.state);
        let give_way = Arc::new(move || {
            if let Some(state) = state.upgrade() {
                state.lock().end(id);
                state.changed.notify_all();
            }
        });
        self.job.channel.charge_giving_way(bytes, "prefetched data", give_way)
    }
}

/// A batch of `dataset`; a panic becomes an error, and so does a batch of nothing.
pub(super) fn read(dataset: &dyn Dataset, indices: &[usize]) -> Prepared {
    let batch = catch_unwind(AssertUnwindSafe(|| dataset.batch(indices))).unwrap_or_else(|panic| {
        let text = format!("the dataset panicked: {}", message(&*panic));
        // It may panic when it is dropped.
        std::mem::forget(panic);
        Err(Error::new(ErrorKind::Value, text))
    })?;
    if batch.is_empty() {
        return Err(Error::new(ErrorKind::Arity, "the dataset gave a batch without parts"));
    }
    Ok(batch)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
