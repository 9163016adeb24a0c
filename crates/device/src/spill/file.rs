//! The file and its two threads.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use remat_graph::plan::problem::SpillRates;
use remat_types::{Error, Result};
use rustc_hash::FxHashMap;

use super::disk::{Bounce, Disk};
use super::{dependable, failed};

/// A range of the file that holds one storage. It begins at a multiple of [`super::BLOCK_BYTES`]. The bytes from its
/// end to the next multiple belong to no other slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Offset in the file.
    pub at: u64,
    /// Length.
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

/// A copy between `slot` and the memory at an address.
#[derive(Clone, Copy, Debug)]
struct Job {
    index: usize,
    slot: Slot,
    memory: *mut u8,
}

// SAFETY: the pointer is followed only while the copy is under way, and whoever began the copy keeps the memory valid
// and unused until it is waited for.
unsafe impl Send for Job {}

#[derive(Debug, Default)]
struct State {
    /// One queue for each direction.
    queues: [VecDeque<Job>; 2],
    /// For each slot, the copies that have not ended.
    pending: Vec<u32>,
    /// The first failure of this flight. Copies after it are skipped.
    failure: Option<Error>,
    is_closed: bool,
    /// By offset in the file, the length and checksum of the bytes written there.
    sums: FxHashMap<u64, (usize, u32)>,
    /// Bytes and time of all copies in each direction.
    copied: [(u64, Duration); 2],
}

#[derive(Debug)]
struct Shared {
    disk: Disk,
    folder: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

/// A file without a name, and the threads that copy to and from it. Dropping it waits for all copies.
#[derive(Debug)]
pub struct SpillFile {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl SpillFile {
    /// Another handle to the file itself, for tests that damage it. Errors (Io): no more descriptors.
    pub fn file(&self) -> Result<File> {
        Ok(self.shared.disk.file().try_clone()?)
    }

    pub(super) fn over(file: File, folder: PathBuf) -> Result<SpillFile> {
        let shared =
            Arc::new(Shared { disk: Disk::new(file), folder, state: Mutex::default(), changed: Condvar::new() });
        let mut own = SpillFile { shared, threads: Vec::new() };
        for (way, name) in [(Way::Out, "remat-spill-out"), (Way::In, "remat-spill-in")] {
            let shared = own.shared.clone();
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || shared.work(way));
            own.threads.push(thread.map_err(|e| failed("serve", &own.shared.folder, &e))?);
        }
        Ok(own)
    }

    /// The bytes per second on which plans may count, from all copies until now. `None` until there were copies in both
    /// directions.
    pub fn rates(&self) -> Option<SpillRates> {
        let [out, back] = self.shared.lock().copied;
        let rate = |(bytes, time): (u64, Duration)| (bytes > 0).then(|| dependable(bytes, time));
        Some(SpillRates { write_bytes_per_s: rate(out)?, read_bytes_per_s: rate(back)? })
    }

    /// Begins a run that uses `slots` slots, with room for `jobs` queued copies in each direction.
    pub fn begin(&mut self, slots: usize, jobs: usize) -> Flight<'_> {
        let mut s = self.shared.lock();
        s.pending.clear();
        s.pending.resize(slots, 0);
        s.queues.iter_mut().for_each(|q| q.reserve(jobs));
        s.failure = None;
        drop(s);
        Flight { file: self, waited: Duration::ZERO }
    }

    /// Begins to copy `memory` to slot `index`; any number will do.
    ///
    /// # Safety
    /// The memory stays valid and is not written until [`SpillFile::wait`] for the slot.
    pub unsafe fn copy_out(&self, index: usize, slot: Slot, memory: *const u8) {
        self.shared.begin(Way::Out, Job { index, slot, memory: memory.cast_mut() });
    }

    /// Begins to copy slot `index` to `memory`. The copy out has ended: it was waited for.
    ///
    /// # Safety
    /// The memory stays valid and is neither read nor written until [`SpillFile::wait`] for the slot.
    pub unsafe fn copy_in(&self, index: usize, slot: Slot, memory: *mut u8) {
        self.shared.begin(Way::In, Job { index, slot, memory });
    }

    /// Waits until no copy of slot `index` is under way; returns the time of the wait. Errors (Io): a copy failed since
    /// the last flight began, or at any time if there was no flight.
    pub fn wait(&self, index: usize) -> (Duration, Result<()>) {
        let mut s = self.shared.lock();
        let mut waited = Duration::ZERO;
        let is_pending = |s: &State| s.pending.get(index).is_some_and(|p| *p > 0);
        if is_pending(&s) {
            let begin = Instant::now();
            s = self.shared.wait_while(s, |s| is_pending(s));
            waited = begin.elapsed();
        }
        (waited, s.failure.clone().map_or(Ok(()), Err))
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        for t in self.threads.drain(..) {
            // the thread ends by itself, and returns nothing
            let _ = t.join();
        }
    }
}

/// The copies of one run. Dropping it waits for all of them.
#[derive(Debug)]
pub struct Flight<'f> {
    file: &'f SpillFile,
    waited: Duration,
}

impl Flight<'_> {
    /// Begins to copy `memory` to slot `index`.
    ///
    /// # Safety
    /// The memory stays valid and is not written until [`Flight::wait`] for the slot, or the flight is dropped.
    pub unsafe fn copy_out(&mut self, index: usize, slot: Slot, memory: *const u8) {
        // SAFETY: the same promise; a flight that is dropped waits.
        unsafe { self.file.copy_out(index, slot, memory) };
    }

    /// Begins to copy slot `index` to `memory`. The copy out has ended: it was waited for.
    ///
    /// # Safety
    /// The memory stays valid and is neither read nor written until [`Flight::wait`] for the slot, or the flight is dropped.
    pub unsafe fn copy_in(&mut self, index: usize, slot: Slot, memory: *mut u8) {
        // SAFETY: the same promise; a flight that is dropped waits.
        unsafe { self.file.copy_in(index, slot, memory) };
    }

    /// Waits until no copy of slot `index` is under way. Errors (Io): one of this run failed.
    pub fn wait(&mut self, index: usize) -> Result<()> {
        let (waited, result) = self.file.wait(index);
        self.waited += waited;
        result
    }

    /// How long the run has waited.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let shared = &self.file.shared;
        drop(shared.wait_while(shared.lock(), |s| s.pending.iter().any(|p| *p > 0)));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'s>(&self, s: MutexGuard<'s, State>, f: impl FnMut(&mut State) -> bool) -> MutexGuard<'s, State> {
        self.changed.wait_while(s, f).unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, way: Way, job: Job) {
        let mut s = self.lock();
        if s.pending.len() <= job.index {
            s.pending.resize(job.index + 1, 0);
        }
        s.pending[job.index] += 1;
        s.queues[way as usize].push_back(job);
        drop(s);
        self.changed.notify_all();
    }

    fn work(&self, way: Way) {
        let mut bounce = Bounce::default();
        loop {
            let mut s = self.wait_while(self.lock(), |s| s.queues[way as usize].is_empty() && !s.is_closed);
            let Some(job) = s.queues[way as usize].pop_front() else { return };
            let skip = s.failure.is_some();
            drop(s);
            let begin = Instant::now();
            let result = if skip { Ok(()) } else { self.copy(way, job, &mut bounce) };
            let mut s = self.lock();
            match result {
                Ok(()) if !skip => {
                    let (bytes, time) = &mut s.copied[way as usize];
                    *bytes += job.slot.bytes as u64;
                    *time += begin.elapsed();
                }
                Ok(()) => {}
                Err(e) => {
                    let what = if way == Way::Out { "write to" } else { "read from" };
                    s.failure.get_or_insert(failed(what, &self.folder, &e));
                }
            }
            s.pending[job.index] -= 1;
            drop(s);
            self.changed.notify_all();
        }
    }

    fn copy(&self, way: Way, job: Job, bounce: &mut Bounce) -> io::Result<()> {
        let Slot { at, bytes } = job.slot;
        match way {
            Way::Out => {
                // SAFETY: `begin` of the file: nobody writes these bytes until the copy has been waited for.
                let memory = unsafe { std::slice::from_raw_parts(job.memory, bytes) };
                let sum = crc32fast::hash(memory);
                self.lock().sums.insert(at, (bytes, sum));
                self.disk.write(memory, at, bounce)
            }
            Way::In => {
                // SAFETY: as above: nobody reads or writes them.
                let memory = unsafe { std::slice::from_raw_parts_mut(job.memory, bytes) };
                self.disk.read(memory, at, bounce)?;
                let sum = crc32fast::hash(memory);
                let is_whole = self.lock().sums.get(&at) == Some(&(bytes, sum));
                // A disk that reports a write which it did not make must not change a value.
                let lied = || {
                    io::Error::new(io::ErrorKind::InvalidData, format!("{bytes} bytes at {at} are not those written"))
                };
                if is_whole { Ok(()) } else { Err(lied()) }
            }
        }
    }
}
