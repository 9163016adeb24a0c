//! The intra-op thread pool: fork-join over numbered parts.
//!
//! One [`Pool`] belongs to one device. `run(parts, f)` calls `f(0) .. f(parts - 1)`, each once, on the calling thread
//! and the pool's workers, and returns when all have ended. Each thread claims parts from a run of its own first, so that
//! the same part of neighbouring kernels tends to be one thread's (module `claims`).
//!
//! * A job is a *gate*: the caller opens it, workers that are awake join, and the caller closes it when no part is left
//!   to claim and waits only for those that joined. A sleeping worker that wakes too late finds the gate closed. So a
//!   small job never waits for a wake-up, which costs 40 to 50 us in a virtual machine.
//! * Workers spin for [`SPIN`] after a job, since kernels come in bursts, then sleep on a condition variable.
//! * Who runs a part is a matter of timing; what a part computes must not be. Helpers here hand out disjoint `&mut`
//!   chunks by index, and a reduction must be cut by sizes only, so that its bits do not depend on the thread count.
//! * `run` inside a part runs inline: a second level of fork-join would only deadlock or oversubscribe.
//!
//! Rejected: rayon (6 us back to back and about 50 us after a pause for a 20 us task, against 0.5 us here; work stealing
//! buys nothing for kernels that know their sizes).

use claims::{Claims, MAX_PARTS};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

mod claims;

/// How long a worker without work (or a caller that waits for the last part) spins before it sleeps. About the cost of
/// one futex wake in a virtual machine: spinning longer than a wake costs cannot pay.
pub const SPIN: Duration = Duration::from_micros(50);

/// After this time of spinning a thread yields its core at each look, so that others on a busy machine get it.
const SPIN_BEFORE_YIELD: Duration = Duration::from_micros(10);

/// Looks at the condition between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 32;

/// Parts per thread that [`Pool::split`] aims at: enough to even out a slow core, few enough to claim cheaply.
const PARTS_PER_THREAD: usize = 4;

/// Set in `Gate` while a job may be joined; the lower bits count the workers inside.
const OPEN: usize = 1 << (usize::BITS - 1);

thread_local! {
    /// Whether this thread is inside a part of some pool.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A fork-join pool of `threads` threads, the calling thread being one of them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One job at a time: concurrent callers queue here.
    turn: Mutex<()>,
}

/// A job, as the workers see it. Only touched under the rules of [`Shared::job`].
struct Job {
    f: *const (dyn Fn(usize) + Sync),
    caller: Thread,
}

struct Shared {
    /// Written by the caller that holds `turn` while the gate is closed and empty; read only by workers that joined.
    job: UnsafeCell<Option<Job>>,
    /// `OPEN` or not, plus the number of workers inside.
    gate: AtomicUsize,
    claims: Claims,
    /// Counts jobs, so that a worker knows whether it has seen the latest.
    epoch: AtomicU64,
    quit: AtomicBool,
    /// Number of workers in, or on their way into, `wake.wait`.
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    /// First panic of the current job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: everything but `job` is `Sync` by itself. `job` is written only by the holder of `Pool::turn` while the gate is
// closed and no worker is inside, and read only between a successful `join` and the matching `leave`; `join` acquires
// what opening the gate released, and the caller acquires each `leave`. `Job::f` points to a `Sync` closure that
// outlives the job, because `run` returns (also by unwinding) only after the gate is closed and empty.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer in `job` is dereferenced only while its closure is alive, on any thread.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("jobs", &self.epoch).field("sleepers", &self.sleepers).finish_non_exhaustive()
    }
}

impl Pool {
    /// Makes a pool of `threads` threads: the caller of [`run`](Pool::run) and `threads - 1` workers.
    ///
    /// # Panics
    /// If `threads` is 0, or the system cannot start a thread.
    #[must_use]
    pub fn new(threads: usize) -> Pool {
        Pool::try_new(threads).expect("the system can start the worker threads")
    }

    /// As [`Pool::new`]. Errors: the system cannot start so many threads; those it started have ended then.
    ///
    /// # Panics
    /// If `threads` is 0.
    pub fn try_new(threads: usize) -> std::io::Result<Pool> {
        assert!(threads >= 1, "a pool has at least the calling thread");
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            gate: AtomicUsize::new(0),
            claims: Claims::new(threads),
            epoch: AtomicU64::new(0),
            quit: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut pool = Pool { shared, workers: Vec::new(), turn: Mutex::new(()) };
        for i in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let name = format!("remat-intra-op-{i}");
            pool.workers.push(std::thread::Builder::new().name(name).spawn(move || shared.work(i))?);
        }
        Ok(pool)
    }

    /// Number of threads that can run parts at the same time, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(i)` once for each `i` in `0..parts` and returns when all calls have ended.
    ///
    /// Calls run at the same time on up to [`threads`](Pool::threads) threads, in no particular order. With one thread,
    /// one part, or from inside a part of any pool, they run inline in order. Concurrent callers take turns.
    ///
    /// # Panics
    /// If a call of `f` panics, the parts not yet begun are dropped and the first panic is carried on to the caller.
    /// The pool stays usable.
    pub fn run(&self, parts: usize, f: &(dyn Fn(usize) + Sync)) {
        if parts <= 1 || self.workers.is_empty() || INSIDE.get() {
            (0..parts).for_each(f);
            return;
        }
        if parts > MAX_PARTS {
            self.run(MAX_PARTS, f);
            return self.run(parts - MAX_PARTS, &|i| f(MAX_PARTS + i));
        }
        let turn = lock(&self.turn);
        self.shared.open(f, parts);
        self.shared.run_parts(f, 0);
        self.shared.close();
        let panic = lock(&self.shared.panic).take();
        drop(turn);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Number of parts to cut `n` items into, so that each has at least `min_grain` items and every thread gets a few:
    /// at least 1, at most `4 * threads`.
    ///
    /// The answer depends on the thread count: use it where items are independent, never to cut a reduction.
    #[must_use]
    pub fn split(&self, n: usize, min_grain: usize) -> usize {
        if self.workers.is_empty() {
            return 1;
        }
        (n / min_grain.max(1)).clamp(1, PARTS_PER_THREAD * self.threads())
    }

    /// Calls `f` with consecutive ranges that cover `0..n`, in parallel; ranges have at least `min_grain` items (or all).
    pub fn ranges(&self, n: usize, min_grain: usize, f: impl Fn(Range<usize>) + Sync) {
        if n == 0 {
            return;
        }
        let parts = self.split(n, min_grain);
        self.run(parts, &|i| f(part_range(n, parts, i)));
    }

    /// Calls `f(i, chunk)` for each chunk of `chunk_len` items of `data` (the last may be shorter), in parallel.
    ///
    /// # Panics
    /// If `chunk_len` is 0 and `data` is not empty; and as [`run`](Pool::run).
    pub fn chunks_mut<T: Send>(&self, data: &mut [T], chunk_len: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        if data.is_empty() {
            return;
        }
        let chunks = Chunks::new(data, chunk_len);
        self.run(chunks.count(), &|i| {
            // SAFETY: `run` calls each `i` once, so no chunk is handed out twice.
            f(i, unsafe { chunks.get(i) })
        });
    }

    /// Calls `f(i, a_chunk, b_chunk)` for the `i`-th chunks of `a` and `b`, in parallel; last chunks may be shorter.
    ///
    /// # Panics
    /// If the two slices do not give the same number of chunks, or a length is 0; and as [`run`](Pool::run).
    pub fn chunks2_mut<A: Send, B: Send>(
        &self,
        a: &mut [A],
        a_chunk_len: usize,
        b: &mut [B],
        b_chunk_len: usize,
        f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        if a.is_empty() && b.is_empty() {
            return;
        }
        let a = Chunks::new(a, a_chunk_len);
        let b = Chunks::new(b, b_chunk_len);
        assert_eq!(a.count(), b.count(), "both slices give the same number of chunks");
        self.run(a.count(), &|i| {
            // SAFETY: `run` calls each `i` once, so no chunk of either slice is handed out twice.
            f(i, unsafe { a.get(i) }, unsafe { b.get(i) });
        });
    }

    /// Calls `f(i, a_chunk, b_chunk, slot)` for the `i`-th chunks of `a` and `b`, each given with the length of one, in parallel;
    /// `slot` is a piece of the workspace as in [`with_slots`](Pool::with_slots), which is given with its length.
    ///
    /// # Panics
    /// As [`chunks2_mut`](Pool::chunks2_mut) and [`with_slots`](Pool::with_slots).
    pub fn chunks2_with_slots<A: Send, B: Send, W: Send>(
        &self,
        (a, a_chunk_len): (&mut [A], usize),
        (b, b_chunk_len): (&mut [B], usize),
        (workspace, slot_len): (&mut [W], usize),
        f: impl Fn(usize, &mut [A], &mut [B], &mut [W]) + Sync,
    ) {
        if a.is_empty() && b.is_empty() {
            return;
        }
        let a = Chunks::new(a, a_chunk_len);
        let b = Chunks::new(b, b_chunk_len);
        assert_eq!(a.count(), b.count(), "both slices give the same number of chunks");
        self.with_slots(a.count(), workspace, slot_len, |i, slot| {
            // SAFETY: `with_slots` calls each task once, so no chunk of either slice is handed out twice.
            f(i, unsafe { a.get(i) }, unsafe { b.get(i) }, slot);
        });
    }

    /// Calls `f(task, slot)` for each task in `0..tasks`, in parallel, where `slot` is a piece of `workspace` of
    /// `slot_len` items that no other running task holds. Its content is whatever the last task left there.
    ///
    /// As many tasks run at the same time as there are whole slots in `workspace`, up to the thread count.
    ///
    /// # Panics
    /// If `workspace` holds not even one slot and there is a task; and as [`run`](Pool::run).
    pub fn with_slots<T: Send>(
        &self,
        tasks: usize,
        workspace: &mut [T],
        slot_len: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if tasks == 0 {
            return;
        }
        if slot_len == 0 {
            self.run(tasks, &|task| f(task, &mut []));
            return;
        }
        let most = if INSIDE.get() { 1 } else { self.threads() };
        let slots = (workspace.len() / slot_len).min(most).min(tasks);
        assert!(slots >= 1, "the workspace has {} items, a slot needs {slot_len}", workspace.len());
        let claims = Claims::new(slots);
        claims.deal(tasks);
        self.chunks_mut(&mut workspace[..slots * slot_len], slot_len, |i, slot| {
            while let Some(task) = claims.claim(i) {
                f(task, slot);
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        drop(lock(&self.shared.sleep));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of the closures it runs, so it ends by itself.
            let _ = worker.join();
        }
    }
}

/// The `i`-th of `parts` nearly equal, consecutive ranges that cover `0..n`.
#[must_use]
pub fn part_range(n: usize, parts: usize, i: usize) -> Range<usize> {
    Parts::new(n, parts).get(i)
}

/// Nearly equal, consecutive ranges: those of [`part_range`], without a division for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    size: usize,
    rest: usize,
}

impl Parts {
    #[inline]
    pub(crate) fn new(n: usize, parts: usize) -> Parts {
        Parts { size: n / parts, rest: n % parts }
    }

    /// The `i`-th range.
    #[inline]
    pub(crate) fn get(self, i: usize) -> Range<usize> {
        let start = i * self.size + i.min(self.rest);
        start..start + self.size + usize::from(i < self.rest)
    }
}

impl Shared {
    /// Publishes a job and wakes as many sleepers as it has use for. The caller holds `turn`.
    fn open(&self, f: &(dyn Fn(usize) + Sync), parts: usize) {
        // SAFETY: only the lifetime changes. `run` keeps `f` borrowed until the gate is closed and empty.
        let f = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(f)
        };
        // SAFETY: the caller holds `turn` and the gate is closed and empty (the state `close` leaves), so nobody else
        // touches `job`.
        unsafe { *self.job.get() = Some(Job { f, caller: std::thread::current() }) };
        self.claims.deal(parts);
        self.gate.store(OPEN, Ordering::Release);
        // `epoch` and `sleepers` are both SeqCst: either a worker that falls asleep sees this epoch, or we see it sleep.
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 {
            drop(lock(&self.sleep));
            for _ in 0..sleepers.min(parts - 1) {
                self.wake.notify_one();
            }
        }
    }

    /// Ends a job: nobody may join any more, and those inside have left when this returns.
    fn close(&self) {
        self.gate.fetch_and(!OPEN, Ordering::AcqRel);
        if !spin_until(|| self.gate.load(Ordering::Acquire) == 0) {
            // The last worker to leave a closed gate unparks us; a stray token only costs one more look.
            while self.gate.load(Ordering::Acquire) != 0 {
                std::thread::park();
            }
        }
    }

    /// Claims and runs parts as thread `i`, until none is left. Keeps the first panic and drops the parts not yet begun.
    fn run_parts(&self, f: &(dyn Fn(usize) + Sync), i: usize) {
        INSIDE.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            while let Some(part) = self.claims.claim(i) {
                f(part);
            }
        }));
        INSIDE.set(false);
        if let Err(payload) = result {
            self.claims.drop_rest();
            match &mut *lock(&self.panic) {
                first @ None => *first = Some(payload),
                // It may panic when it is dropped.
                Some(_) => std::mem::forget(payload),
            }
        }
    }

    /// Enters the open gate, if it is open.
    fn join(&self) -> bool {
        self.gate
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |gate| (gate & OPEN != 0).then_some(gate + 1))
            .is_ok()
    }

    /// The life of worker `i`: wait for an epoch it has not seen, join, run, leave.
    fn work(&self, i: usize) {
        let mut seen = 0;
        loop {
            self.wait_for_epoch_after(seen);
            // In this order: a pool that ends between the two would otherwise count as seen, and never be left.
            seen = self.epoch.load(Ordering::SeqCst);
            if self.quit.load(Ordering::SeqCst) {
                return;
            }
            if self.join() {
                self.run_joined(i);
            }
        }
    }

    fn run_joined(&self, i: usize) {
        // SAFETY: we are inside the gate, so the caller that wrote `job` waits for us and nobody writes it.
        let job = unsafe { (*self.job.get()).as_ref() }.expect("an open gate has a job");
        let caller = job.caller.clone();
        // SAFETY: `run` borrows the closure until the gate is empty, and we are inside.
        self.run_parts(unsafe { &*job.f }, i);
        // From here on `job` may be overwritten; `caller` is our own handle.
        if self.gate.fetch_sub(1, Ordering::Release) == 1 {
            caller.unpark();
        }
    }

    fn wait_for_epoch_after(&self, seen: u64) {
        let is_new = || self.epoch.load(Ordering::SeqCst) != seen;
        if spin_until(is_new) {
            return;
        }
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !is_new() {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Looks at `done` until it holds (true) or [`SPIN`] has passed (false).
fn spin_until(done: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        let waited = start.get_or_insert_with(Instant::now).elapsed();
        if waited > SPIN {
            return false;
        }
        if waited > SPIN_BEFORE_YIELD {
            std::thread::yield_now();
        }
    }
}

/// Locks, also after a panic elsewhere: no state behind these locks can be left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slice cut into chunks that different threads may take, each once.
struct Chunks<'a, T> {
    data: *mut T,
    len: usize,
    chunk_len: usize,
    life: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: sharing `Chunks` lets other threads take `&mut` to disjoint items, which is what `T: Send` allows.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

impl<'a, T> Chunks<'a, T> {
    fn new(data: &'a mut [T], chunk_len: usize) -> Self {
        assert!(chunk_len > 0, "a chunk has at least one item");
        Chunks { data: data.as_mut_ptr(), len: data.len(), chunk_len, life: std::marker::PhantomData }
    }

    fn count(&self) -> usize {
        self.len.div_ceil(self.chunk_len)
    }

    /// The `i`-th chunk.
    ///
    /// # Safety
    /// Each `i` is taken at most once while `self` lives.
    #[allow(clippy::mut_from_ref, reason = "the slice is borrowed mutably by `self`, and each chunk is taken once")]
    unsafe fn get(&self, i: usize) -> &'a mut [T] {
        assert!(i < self.count());
        let start = i * self.chunk_len;
        // SAFETY: `start < len` by the assert and the length is cut to what is left, so the chunk lies within the slice
        // that `self` borrows mutably; chunks of different `i` do not overlap, and no `i` comes twice.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), self.chunk_len.min(self.len - start)) }
    }
}

#[cfg(test)]
mod tests;
