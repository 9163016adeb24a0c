//! Ranks as threads of this process: for tests, and for programs that want the behaviour of several processes without them.
//!
//! A hub holds what the ranks of a group have put down for the others. Everything but messages between two ranks is one exchange:
//! each rank puts down its bytes, and when all have, each takes what it needs from the others'. Bytes are copied once more than
//! over MPI.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use remat_types::{Error, ErrorKind, Result};

use crate::{Communicator, DEFAULT_LIMIT, Transport};

/// Runs `f` once for each of `size` ranks, on a thread of its own, and gives what the ranks gave, in their order.
///
/// Errors: that of the first rank that failed by itself, with its rank; a panic is one (Internal). The others' errors are about it.
/// Value for no rank.
pub fn run<T: Send>(size: usize, f: impl Fn(Communicator) -> Result<T> + Sync) -> Result<Vec<T>> {
    run_within(size, DEFAULT_LIMIT, f)
}

/// As [`run`], for ranks that wait for each other at most as long as `limit`.
pub fn run_within<T: Send>(
    size: usize,
    limit: Duration,
    f: impl Fn(Communicator) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    run_watched(size, limit, || Ok(()), f)
}

/// The caller of [`run_watched`] asks so often; a person takes no notice of it.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// As [`run_within`], while `ask` tells twenty times a second whether the ranks are to end, and with which error: they do so at their
/// next collective, or in the one that they wait in.
///
/// Errors: also that of `ask`, whatever the ranks came to.
pub fn run_watched<T: Send>(
    size: usize,
    limit: Duration,
    mut ask: impl FnMut() -> Result<()>,
    f: impl Fn(Communicator) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if size == 0 {
        return Err(Error::new(ErrorKind::Value, "there must be at least one rank"));
    }
    let hub = Arc::new(Hub::new(size));
    let mut asked = Ok(());
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let (to, ended) = channel::<()>();
        let start = |rank| {
            let (hub, f, to) = (hub.clone(), &f, to.clone());
            scope.spawn(move || {
                // dropped in the end, also of a panic
                let _to = to;
                run_rank(&hub, rank, limit, f)
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        drop(to);
        // nobody sends: the channel ends with the last rank
        while asked.is_ok() && ended.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
            asked = ask();
            if let Err(e) = &asked {
                hub.end(&format!("the ranks were asked to end: {e}"));
            }
        }
        let join = |(rank, t): (usize, std::thread::ScopedJoinHandle<'_, Result<T>>)| {
            t.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, format!("rank {rank} panicked"))))
        };
        ranks.into_iter().enumerate().map(join).collect()
    });
    asked?;
    let failed = |own: bool| {
        let of = |r: &Result<T>| r.as_ref().err().filter(|e| (e.kind() != ErrorKind::Peer) == own).cloned();
        results.iter().enumerate().find_map(|(rank, r)| of(r).map(|e| e.context(format!("rank {rank}"))))
    };
    match failed(true).or_else(|| failed(false)) {
        Some(e) => Err(e),
        None => results.into_iter().collect(),
    }
}

/// Runs one rank. A thread that waits for it learns how it ended.
fn run_rank<T>(
    hub: &Arc<Hub>,
    rank: usize,
    limit: Duration,
    f: &(impl Fn(Communicator) -> Result<T> + Sync),
) -> Result<T> {
    let transport = Threads { hub: hub.clone(), rank };
    let result = catch_unwind(AssertUnwindSafe(|| f(Communicator::new(Box::new(transport), limit))));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Error::new(ErrorKind::Internal, format!("panicked: {}", text.unwrap_or("without a text"))))
    });
    hub.leave(rank, result.as_ref().map_or_else(|e| format!("failed: {e}"), |_| "has ended".into()));
    result
}

type Bytes = Arc<Vec<u8>>;

/// Where the ranks of a group meet.
struct Hub {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The bytes that ranks put down for this exchange.
    put: Vec<Option<Bytes>>,
    /// How many have put something down, and how many have taken all of it.
    put_count: usize,
    taken_count: usize,
    /// Messages under way, by sender and receiver.
    messages: BTreeMap<(usize, usize), VecDeque<Bytes>>,
    /// Ranks that will not come any more, and why.
    left: BTreeMap<usize, String>,
    /// The reason why this group ended for all: a rank gave up waiting.
    broken: Option<String>,
    /// Groups that were split off, by the split's number and color, until all their ranks have them.
    groups: BTreeMap<(u64, usize), Arc<Hub>>,
    /// Every group that was split off, which hears of ranks that leave.
    children: Vec<(Vec<usize>, Arc<Hub>)>,
    exchanges: u64,
}

impl Hub {
    fn new(size: usize) -> Self {
        let state = State { put: vec![None; size], ..State::default() };
        Hub { size, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // no panic happens while it is held
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No rank of this group, and of those that were split off, waits for others from now on.
    fn end(&self, why: &str) {
        let mut state = self.lock();
        for (_, hub) in &state.children {
            hub.end(why);
        }
        state.broken.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// Rank `rank` of this group makes no call any more.
    fn leave(&self, rank: usize, why: String) {
        let mut state = self.lock();
        for (members, hub) in &state.children {
            if let Some(within) = members.iter().position(|m| *m == rank) {
                hub.leave(within, why.clone());
            }
        }
        state.left.insert(rank, why);
        self.changed.notify_all();
    }

    /// Waits until `done` gives something. `missing` are ranks that are waited for. Errors (Peer): one of them has left, nothing came
    /// within the limit, or another rank gave up.
    fn wait<R>(
        &self,
        limit: Duration,
        mut done: impl FnMut(&mut State) -> Option<R>,
        missing: impl Fn(&State) -> Vec<usize>,
    ) -> Result<R> {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.broken {
                return Err(Error::new(ErrorKind::Peer, why.clone()));
            }
            if let Some(result) = done(&mut state) {
                self.changed.notify_all();
                return Ok(result);
            }
            let missing = missing(&state);
            let gone = missing.iter().find_map(|r| state.left.get(r).map(|why| format!("rank {r} {why}")));
            let now = Instant::now();
            if gone.is_some() || now >= end {
                let ranks: Vec<String> = missing.iter().map(ToString::to_string).collect();
                let why = gone.unwrap_or_else(|| format!("rank {} has not come within {limit:?}", ranks.join(" and ")));
                state.broken = Some(why.clone());
                self.changed.notify_all();
                return Err(Error::new(ErrorKind::Peer, why));
            }
            let (s, _) = self.changed.wait_timeout(state, end - now).unwrap_or_else(PoisonError::into_inner);
            state = s;
        }
    }

    /// Puts bytes down for all, and gives what all ranks put down, with the number of the exchange.
    fn exchange(&self, rank: usize, bytes: Vec<u8>, limit: Duration) -> Result<(Vec<Bytes>, u64)> {
        let mut bytes = Some(Arc::new(bytes));
        // what was put down last time may not have been taken by all yet
        self.wait(
            limit,
            |s| {
                let is_free = s.put[rank].is_none();
                is_free.then(|| {
                    s.put[rank] = bytes.take();
                    s.put_count += 1;
                })
            },
            |_| Vec::new(),
        )?;
        self.wait(
            limit,
            |s| {
                (s.put_count == self.size).then(|| {
                    let all = (s.put.iter().flatten().cloned().collect(), s.exchanges);
                    s.taken_count += 1;
                    if s.taken_count == self.size {
                        s.put.fill(None);
                        (s.put_count, s.taken_count) = (0, 0);
                        s.exchanges += 1;
                    }
                    all
                })
            },
            |s| (0..self.size).filter(|r| s.put[*r].is_none()).collect(),
        )
    }
}

/// A rank's end.
struct Threads {
    hub: Arc<Hub>,
    rank: usize,
}

impl Threads {
    /// Within calls that all ranks have agreed on nobody is late but for the machine's load, whatever the limit: a thread does not stop.
    fn exchange(&self, bytes: Vec<u8>) -> Result<Vec<Bytes>> {
        self.hub.exchange(self.rank, bytes, DEFAULT_LIMIT).map(|x| x.0)
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of {}", self.rank, self.hub.size)
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.hub.size
    }

    fn agree(&self, words: &mut [u64; 3], limit: Duration) -> Result<()> {
        let (all, _) = self.hub.exchange(self.rank, bytemuck::cast_slice(&words[..]).to_vec(), limit)?;
        for other in all {
            let other: Vec<u64> = bytemuck::pod_collect_to_vec(&other[..]);
            words.iter_mut().zip(other).for_each(|(w, o)| *w = (*w).max(o));
        }
        Ok(())
    }

    fn all_to_all(
        &self,
        send: &[u8],
        to: &[Range<usize>],
        recv: &mut [u8],
        from: &[Range<usize>],
        _limit: Duration,
    ) -> Result<()> {
        // the parts behind one another, after where each begins
        let mut bytes: Vec<u8> = Vec::new();
        let mut start = (self.size() * size_of::<u64>()) as u64;
        for part in to {
            bytes.extend(start.to_le_bytes());
            start += part.len() as u64;
        }
        to.iter().for_each(|part| bytes.extend_from_slice(&send[part.clone()]));
        let all = self.exchange(bytes)?;
        for (other, part) in all.iter().zip(from) {
            let at = self.rank * size_of::<u64>();
            let start =
                other.get(at..at + size_of::<u64>()).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
            let start = usize::try_from(start).unwrap_or(usize::MAX);
            recv[part.clone()].copy_from_slice(other.get(start..start + part.len()).ok_or_else(short)?);
        }
        Ok(())
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8], from: &[Range<usize>], _limit: Duration) -> Result<()> {
        for (other, part) in self.exchange(mine.to_vec())?.iter().zip(from) {
            all[part.clone()].copy_from_slice(other.get(..part.len()).ok_or_else(short)?);
        }
        Ok(())
    }

    fn broadcast(&self, bytes: &mut [u8], root: usize, _limit: Duration) -> Result<()> {
        let mine = if self.rank == root { bytes.to_vec() } else { Vec::new() };
        let all = self.exchange(mine)?;
        bytes.copy_from_slice(all[root].get(..bytes.len()).ok_or_else(short)?);
        Ok(())
    }

    fn send(&self, bytes: &[u8], to: usize, limit: Duration) -> Result<()> {
        let key = (self.rank, to);
        let bytes = Arc::new(bytes.to_vec());
        let put = |s: &mut State| {
            s.messages.entry(key).or_default().push_back(bytes.clone());
            Some(())
        };
        self.hub.wait(limit, put, |_| Vec::new())
    }

    fn receive(&self, bytes: &mut [u8], from: usize, limit: Duration) -> Result<()> {
        let key = (from, self.rank);
        let taken = |s: &mut State| s.messages.get_mut(&key).and_then(VecDeque::pop_front);
        let message = self.hub.wait(limit, taken, |_| vec![from])?;
        bytes.copy_from_slice(message.get(..bytes.len()).ok_or_else(short)?);
        Ok(())
    }

    fn split(&self, color: Option<usize>, key: usize) -> Result<Option<Box<dyn Transport>>> {
        let word = |n: Option<usize>| n.map_or(0, |n| n as u64 + 1);
        let mine = [word(color), key as u64];
        let (all, number) = self.hub.exchange(self.rank, bytemuck::cast_slice(&mine).to_vec(), DEFAULT_LIMIT)?;
        let Some(color) = color else { return Ok(None) };
        let told = all.iter().map(|b| bytemuck::pod_collect_to_vec::<u8, u64>(&b[..]));
        let mut members: Vec<(u64, usize)> =
            told.enumerate().filter(|(_, w)| w[0] == word(Some(color))).map(|(r, w)| (w[1], r)).collect();
        members.sort_unstable();
        let rank = members.iter().position(|m| m.1 == self.rank).ok_or_else(short)?;
        let mut state = self.hub.lock();
        let made = || Arc::new(Hub::new(members.len()));
        let hub = state.groups.entry((number, color)).or_insert_with(made).clone();
        if rank == 0 {
            let members: Vec<usize> = members.iter().map(|m| m.1).collect();
            for (within, of_parent) in members.iter().enumerate() {
                if let Some(why) = state.left.get(of_parent) {
                    hub.leave(within, why.clone());
                }
            }
            state.children.push((members, hub.clone()));
        }
        // older splits are over: their ranks have all been in this one
        state.groups.retain(|k, _| k.0 >= number);
        Ok(Some(Box::new(Threads { hub, rank })))
    }
}

fn short() -> Error {
    Error::new(ErrorKind::Internal, "a rank gave fewer bytes than it agreed to")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_asked_to_end_do_so_in_their_collective() {
        let begun = Instant::now();
        let mut asked = 0;
        let ask = || {
            asked += 1;
            if asked < 2 { Ok(()) } else { Err(Error::new(ErrorKind::Value, "enough")) }
        };
        let e = run_watched(3, DEFAULT_LIMIT, ask, |ranks| -> Result<()> {
            // rank 2 is alone, and the others wait for each other in a group of their own
            let part = ranks.split(Some(usize::from(ranks.rank() == 2)), 0)?.expect("a color was given");
            loop {
                part.barrier()?;
                if part.size() == 1 {
                    ranks.barrier()?;
                }
            }
        });
        let e = e.expect_err("they were asked");
        assert!(e.kind() == ErrorKind::Value && e.message() == "enough", "{e}");
        assert!(asked == 2 && begun.elapsed() < DEFAULT_LIMIT / 2);
    }

    #[test]
    fn ranks_that_are_not_asked_to_end_give_what_they_gave() {
        let ranks = run_watched(2, DEFAULT_LIMIT, || Ok(()), |ranks| Ok(ranks.rank()));
        assert_eq!(ranks.expect("both"), [0, 1]);
    }
}
