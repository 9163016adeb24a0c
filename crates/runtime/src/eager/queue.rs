//! The bounded queue between callers and the worker, and the replies to callers.
//!
//! Producers append to one batch under a mutex. The worker takes the whole batch at once and leaves its own empty one.
//! So the two sides meet once a batch, not once a command, and a command allocates nothing. An idle worker spins
//! briefly before it parks, since waking a parked thread costs the caller tens of microseconds. Deletes never wait for
//! room, so dropping a handle cannot block. A producer that holds a host language's lock appends at once, and waits for
//! room after its call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::command::{Apply, Command};
use super::eviction::Use;
use super::handle::TensorId;
use crate::interrupt;

/// How long an idle worker, or a waiter for a reply, spins before it parks.
const SPIN: Duration = Duration::from_micros(50);

/// Turns of a spin between two yields of the core.
const TURNS: u32 = 64;

/// Spins until `holds` is true, for [`SPIN`] at most. The thread that would make it true may wait for this core. So the
/// spin yields the core regularly, and on a machine with one core in every turn.
fn spin_until(holds: impl Fn() -> bool) {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let turns = if cores > 1 { TURNS } else { 1 };
    let end = Instant::now() + SPIN;
    loop {
        for _ in 0..turns {
            if holds() {
                return;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= end {
            return;
        }
        std::thread::yield_now();
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its data consistent at each point where it could unwind.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commands in order. Applications are large, and most commands are applications. They lie in a vector of their own,
/// run in place, and are dropped together.
#[derive(Default)]
pub(crate) struct Batch {
    /// `None` stands for the next of `applies`.
    order: Vec<Option<Command>>,
    applies: Vec<Apply>,
    /// How many of each kind have been handed out.
    passed: usize,
    applies_passed: usize,
}

/// The next entry of a batch.
pub(crate) enum Next<'a> {
    Apply(&'a mut Apply),
    Command(Command),
}

impl Batch {
    /// Commands that have not been handed out.
    pub(crate) fn len(&self) -> usize {
        self.order.len() - self.passed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, command: Command) {
        self.order.push(Some(command));
    }

    #[inline]
    fn push_apply(&mut self, a: Apply) {
        self.order.push(None);
        self.applies.push(a);
    }

    /// Hands out the next command. After the last one the batch can be filled anew.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Next<'_>> {
        let Some(next) = self.order.get_mut(self.passed) else {
            self.order.clear();
            self.applies.clear();
            (self.passed, self.applies_passed) = (0, 0);
            return None;
        };
        self.passed += 1;
        if let Some(c) = next.take() {
            return Some(Next::Command(c));
        }
        self.applies_passed += 1;
        self.applies.get_mut(self.applies_passed - 1).map(Next::Apply)
    }

    /// Appends a batch that has handed out nothing.
    pub(crate) fn append(&mut self, other: &mut Batch) {
        self.order.append(&mut other.order);
        self.applies.append(&mut other.applies);
    }

    /// Tells the tensors that each command uses, and whether they end with it. The batch must have handed out nothing.
    pub(crate) fn uses(&self, mut tell: impl FnMut(&[(TensorId, Use)])) {
        let mut applies = self.applies.iter();
        for c in &self.order {
            match c {
                None => {
                    let x = applies.next().into_iter().flat_map(|a| &a.x);
                    let of = |dies| if dies { Use::Last } else { Use::Read };
                    tell(&x.map(|&(id, dies)| (id, of(dies))).collect::<SmallVec<[(TensorId, Use); 4]>>());
                }
                Some(Command::Fetch { id, .. } | Command::CopyOut { id, .. } | Command::Await { id, .. }) => {
                    tell(&[(*id, Use::Read)])
                }
                Some(Command::Delete { id }) => tell(&[(*id, Use::End)]),
                Some(Command::Group(group)) => tell(&group.uses()),
                Some(_) => tell(&[]),
            }
        }
    }

    /// Refuses all commands: callers that wait for them get this error.
    pub(crate) fn refuse(self, e: impl Fn() -> Error) {
        self.order.into_iter().flatten().for_each(|c| c.refuse(&e));
        self.applies.into_iter().filter_map(|a| a.done).for_each(|(reply, _)| reply.send(Err(e())));
    }
}

struct Inner {
    batch: Batch,
    /// Bytes of queued data, including the data that the worker took and has not put yet.
    put_bytes: usize,
    worker_parked: bool,
    producers_parked: usize,
    closed: Option<String>,
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    capacity: usize,
    /// The most bytes of queued data. A single larger piece may still enter alone.
    most_put_bytes: usize,
    /// Mirrors `batch.len()`, so that the worker can spin without the lock.
    len: AtomicUsize,
    for_worker: Condvar,
    for_producers: Condvar,
    fork_generation: usize,
    /// For a wait that is postponed.
    own: Weak<Queue>,
}

impl Queue {
    pub(crate) fn new(capacity: usize, most_put_bytes: usize) -> Arc<Self> {
        Arc::new_cyclic(|own| Queue {
            own: own.clone(),
            most_put_bytes,
            inner: Mutex::new(Inner {
                batch: Batch::default(),
                put_bytes: 0,
                worker_parked: false,
                producers_parked: 0,
                closed: None,
            }),
            capacity,
            len: AtomicUsize::new(0),
            for_worker: Condvar::new(),
            for_producers: Condvar::new(),
            fork_generation: fork::generation(),
        })
    }

    /// Appends a command. Waits while the queue is full. Errors: Closed after close, or in a forked child.
    pub(crate) fn push(&self, command: Command) -> Result<()> {
        let mut q = self.room()?;
        q.batch.push(command);
        self.appended(q);
        Ok(())
    }

    /// As [`Queue::push`].
    #[inline]
    pub(crate) fn push_apply(&self, a: Apply) -> Result<()> {
        let mut q = self.room()?;
        q.batch.push_apply(a);
        self.appended(q);
        Ok(())
    }

    /// As [`Queue::push`], for a command with data of so many bytes. The bytes count until [`Queue::end_put`]. Waits
    /// while too many bytes count.
    pub(crate) fn push_put(&self, command: Command, bytes: usize) -> Result<()> {
        let mut q = self.room_for(bytes)?;
        q.put_bytes += bytes;
        q.batch.push(command);
        self.appended(q);
        Ok(())
    }

    /// The worker has put data of so many bytes.
    pub(crate) fn end_put(&self, bytes: usize) {
        let mut q = lock(&self.inner);
        q.put_bytes = q.put_bytes.saturating_sub(bytes);
        if q.producers_parked > 0 {
            self.for_producers.notify_all();
        }
    }

    /// Waits until a command may be appended.
    fn room(&self) -> Result<MutexGuard<'_, Inner>> {
        self.room_for(0)
    }

    /// As [`Queue::room`], for a command with data of so many bytes.
    fn room_for(&self, bytes: usize) -> Result<MutexGuard<'_, Inner>> {
        if self.fork_generation != fork::generation() {
            return Err(forked());
        }
        let mut q = lock(&self.inner);
        if self.is_full(&q, bytes) {
            let own = self.own.clone();
            let for_room = move || {
                if let Some(queue) = own.upgrade() {
                    let has_too_much = |q: &Inner| queue.is_full(q, 0) || q.put_bytes > queue.most_put_bytes;
                    drop(queue.park_producer(lock(&queue.inner), has_too_much));
                }
            };
            if !interrupt::put_off(for_room) {
                q = self.park_producer(q, |q| self.is_full(q, bytes));
            }
        }
        if let Some(why) = &q.closed {
            return Err(Error::new(ErrorKind::Closed, why.clone()));
        }
        Ok(q)
    }

    /// True if a command with so many bytes of data has to wait.
    fn is_full(&self, q: &Inner, bytes: usize) -> bool {
        let has_too_much = bytes > 0 && q.put_bytes > 0 && q.put_bytes.saturating_add(bytes) > self.most_put_bytes;
        q.batch.len() >= self.capacity || has_too_much
    }

    fn park_producer<'q>(
        &self,
        mut q: MutexGuard<'q, Inner>,
        is_full: impl Fn(&Inner) -> bool,
    ) -> MutexGuard<'q, Inner> {
        while is_full(&q) && q.closed.is_none() {
            q.producers_parked += 1;
            q = self.for_producers.wait(q).unwrap_or_else(PoisonError::into_inner);
            q.producers_parked -= 1;
        }
        q
    }

    /// Appends a delete without waiting for room. Does nothing after close and in a forked child.
    pub(crate) fn push_delete(&self, command: Command) {
        if self.fork_generation == fork::generation() {
            let mut q = lock(&self.inner);
            if q.closed.is_none() {
                q.batch.push(command);
                self.appended(q);
            }
        }
    }

    /// Wakes the worker after an append.
    fn appended(&self, mut q: MutexGuard<'_, Inner>) {
        self.len.store(q.batch.len(), Ordering::Release);
        let wake = std::mem::take(&mut q.worker_parked);
        drop(q);
        if wake {
            self.for_worker.notify_one();
        }
    }

    /// Takes all commands, and waits for at least one. `batch` must be empty. After close the remaining commands come
    /// once.
    pub(crate) fn take(&self, batch: &mut Batch) {
        spin_until(|| self.len.load(Ordering::Acquire) > 0);
        let mut q = lock(&self.inner);
        while q.batch.is_empty() {
            q.worker_parked = true;
            q = self.for_worker.wait(q).unwrap_or_else(PoisonError::into_inner);
            q.worker_parked = false;
        }
        self.swap(q, batch);
    }

    /// As [`Queue::take`], without waiting.
    pub(crate) fn try_take(&self, batch: &mut Batch) {
        if self.len.load(Ordering::Acquire) > 0 {
            self.swap(lock(&self.inner), batch);
        }
    }

    fn swap(&self, mut q: MutexGuard<'_, Inner>, batch: &mut Batch) {
        std::mem::swap(&mut q.batch, batch);
        self.len.store(0, Ordering::Release);
        if q.producers_parked > 0 {
            self.for_producers.notify_all();
        }
    }

    /// Refuses commands from now on, and returns those that still wait.
    pub(crate) fn close(&self, why: &str) -> Batch {
        let mut q = lock(&self.inner);
        q.closed.get_or_insert_with(|| why.to_owned());
        self.len.store(0, Ordering::Release);
        let rest = std::mem::take(&mut q.batch);
        self.for_producers.notify_all();
        rest
    }

    /// Errors (Closed) after close or in a forked child.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.fork_generation != fork::generation() {
            return Err(forked());
        }
        match &lock(&self.inner).closed {
            Some(why) => Err(Error::new(ErrorKind::Closed, why.clone())),
            None => Ok(()),
        }
    }
}

fn forked() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the process has forked: a device belongs to the process that opened it; open one here",
    )
}

struct Slot<T> {
    value: Mutex<Option<Result<T>>>,
    ready: AtomicBool,
    changed: Condvar,
}

/// The worker's end of an answer. Dropping it unsent answers with an error, so that no caller waits forever.
pub(crate) struct Reply<T>(Option<Arc<Slot<T>>>);

/// The caller's end of an answer.
pub(crate) struct Answer<T>(Arc<Slot<T>>);

impl<T> Reply<T> {
    pub(crate) fn new() -> (Reply<T>, Answer<T>) {
        let slot = Arc::new(Slot { value: Mutex::new(None), ready: AtomicBool::new(false), changed: Condvar::new() });
        (Reply(Some(slot.clone())), Answer(slot))
    }

    pub(crate) fn send(mut self, value: Result<T>) {
        if let Some(slot) = self.0.take() {
            Self::fill(&slot, value);
        }
    }

    fn fill(slot: &Slot<T>, value: Result<T>) {
        *lock(&slot.value) = Some(value);
        slot.ready.store(true, Ordering::Release);
        slot.changed.notify_all();
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            Self::fill(&slot, Err(Error::new(ErrorKind::Closed, "the device was closed before it answered")));
        }
    }
}

impl<T: Send> Answer<T> {
    /// Waits for the answer. Errors: the answer's; the error of an interrupted wait, see [`interrupt`].
    pub(crate) fn wait(self) -> Result<T> {
        if self.0.ready.load(Ordering::Acquire) { self.value() } else { interrupt::aside(|| self.value()) }
    }

    fn value(self) -> Result<T> {
        spin_until(|| self.0.ready.load(Ordering::Acquire));
        let mut v = lock(&self.0.value);
        loop {
            if let Some(value) = v.take() {
                return value;
            }
            let (guard, is_time) = interrupt::wait(&self.0.changed, v);
            v = guard;
            if is_time && v.is_none() {
                drop(v);
                interrupt::ask()?;
                v = lock(&self.0.value);
            }
        }
    }
}

/// Counts forks of this process. A worker thread does not survive a fork, so its channels must not be used after one.
mod fork {
    use std::sync::Once;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static GENERATION: AtomicUsize = AtomicUsize::new(0);
    static INSTALL: Once = Once::new();

    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn generation() -> usize {
        INSTALL.call_once(|| {
            // SAFETY: the handler only increments an atomic, which is safe in a forked child.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        GENERATION.load(Ordering::Relaxed)
    }
}
