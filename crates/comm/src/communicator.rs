//! A group of ranks as one of them sees it: calls that all ranks agree on first, and collectives over elements.

mod messages;
mod reductions;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use remat_types::{DType, Error, ErrorKind, Result, Shape};

pub(crate) use self::reductions::{CHUNK_BYTES, GATHERED_BYTES};
use crate::statistics::Counters;
use crate::{Statistics, Transport};

/// How long a rank waits for the others unless it says otherwise: longer than steps take, shorter than a person's patience.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(300);

/// As good as no limit, for a rank that has nothing more to do; a clock can add it.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The serial form of a group of one rank.
const ALONE: &str = "alone";

/// Text that ranks tell one another of a call or a failure.
const TEXT_BYTES: usize = 1024;

/// The description of a call, which must be equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call(String);

impl Call {
    /// A call of this name on elements that all ranks have in equal number.
    pub fn new(name: &str, detail: impl fmt::Display, dtype: DType, shape: &Shape) -> Self {
        Call(format!("{name}({detail}) of {dtype} {shape}"))
    }

    /// One that says no more than its name.
    pub fn named(name: impl Into<String>) -> Self {
        Call(name.into())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The outcome of comparing all ranks' calls.
enum Agreed {
    /// They are the same.
    All,
    /// This rank has failed, and maybe others behind it.
    Failed(usize),
    /// They differ.
    Otherwise,
}

/// See the [crate]. Clones are the same communicator. Its calls are made by one thread at a time, in an order that is the same on all
/// ranks; what must not depend on the order of another thread's calls has a [duplicate](Communicator::duplicate) of its own.
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

struct Inner {
    id: u64,
    transport: Box<dyn Transport>,
    limit: Duration,
    counters: Counters,
}

impl Communicator {
    /// The ranks of a transport, which wait for each other at most as long as `limit`.
    pub fn new(transport: Box<dyn Transport>, limit: Duration) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // all groups of one rank are one
        let id = if transport.size() == 1 { 0 } else { NEXT.fetch_add(1, Ordering::Relaxed) };
        Communicator(Arc::new(Inner { id, transport, limit, counters: Counters::default() }))
    }

    /// A group of this rank alone, whose collectives are copies.
    pub fn alone() -> Self {
        Communicator::new(Box::new(crate::transport::Alone), DEFAULT_LIMIT)
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.0.transport.rank()
    }

    /// The number of ranks, at least 1.
    pub fn size(&self) -> usize {
        self.0.transport.size()
    }

    /// How long a rank waits for the others.
    pub fn limit(&self) -> Duration {
        self.0.limit
    }

    /// The time and bytes of its calls so far.
    pub fn statistics(&self) -> Statistics {
        self.0.counters.read()
    }

    /// The ranks with the same `color`, in the order of `key` and then of rank; `None` for a rank that gives no color. All ranks
    /// call it. Errors (Peer): a rank failed, or does not come.
    pub fn split(&self, color: Option<usize>, key: usize) -> Result<Option<Communicator>> {
        self.enter(&Call::named("split"), 0)?;
        let transport = self.0.transport.split(color, key)?;
        Ok(transport.map(|t| Communicator::new(t, self.0.limit)))
    }

    /// The same ranks, whose calls have an order of their own. All ranks call it. Errors: as [`Communicator::split`].
    pub fn duplicate(&self) -> Result<Communicator> {
        let all = self.split(Some(0), self.rank())?;
        all.ok_or_else(|| Error::new(ErrorKind::Internal, "a group without this rank"))
    }

    /// True if there is no clone of this, so that nothing else on this rank can still make a call. Communicators from
    /// [`Communicator::split`] and [`Communicator::duplicate`] are no clones.
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Waits until all ranks are here. Errors (Peer): a rank failed, does not come, or makes another call.
    pub fn barrier(&self) -> Result<()> {
        self.enter(&Call::named("barrier"), 0)
    }

    /// Tells the others that this rank cannot make the call that comes next, which gives each of them an error with this text, and
    /// is then over for all of them. Errors (Peer): a rank does not come.
    pub fn fail(&self, call: &Call, why: &Error) -> Result<()> {
        self.arrive(call, 0, Some(why))
    }

    /// Whether all ranks came through something: an error on each of them if one has failed, its own on that one. Errors (Peer): of
    /// another rank, the first that failed.
    pub fn agree(&self, call: &Call, mine: Result<()>) -> Result<()> {
        match mine {
            Ok(()) => self.enter(call, 0),
            Err(e) => self.fail(call, &e).and(Err(e)),
        }
    }

    /// Waits until all ranks call this: after an error, for which each may have left out another number of calls. Any call that a
    /// rank still makes before this one fails with an error of kind Peer, and no rank waits for the others in it.
    ///
    /// Errors (Peer): a rank is gone, or does not come within the limit.
    pub fn meet_again(&self) -> Result<()> {
        self.wait_for_all(&Call::named("what follows after an error"), self.0.limit)
    }

    /// This rank makes no call any more: whatever call another still makes fails with an error of kind Peer that says so, at once. Waits, for
    /// as long as it takes, until all ranks are here.
    ///
    /// Errors (Peer): a rank is gone.
    pub fn end(&self) -> Result<()> {
        self.wait_for_all(&Call::named("nothing any more, as its program has ended"), FOREVER)
    }

    /// Waits until all ranks make this call, and fails every other.
    fn wait_for_all(&self, call: &Call, limit: Duration) -> Result<()> {
        let number = self.0.counters.call(0);
        while self.size() > 1 {
            match self.agree_within(call, None, limit)? {
                Agreed::All => break,
                Agreed::Failed(first) => drop(self.hear_failure(first, call, None)?),
                Agreed::Otherwise => drop(self.tell_mismatch(call, number)?),
            }
        }
        Ok(())
    }

    /// Every collective begins here. Errors (Peer): a rank failed, does not come, or makes another call.
    fn enter(&self, call: &Call, bytes: usize) -> Result<()> {
        self.arrive(call, bytes, None)
    }

    /// Waits for all ranks with this one's failure or none. Errors: as [`Communicator::enter`]; what others failed with is no error
    /// for one that failed itself.
    fn arrive(&self, call: &Call, bytes: usize, failure: Option<&Error>) -> Result<()> {
        let number = self.0.counters.call(bytes);
        if self.size() == 1 {
            return Ok(());
        }
        let start = Instant::now();
        let result = self.arrive_timed(call, number, failure);
        self.0.counters.waited(start.elapsed().as_nanos());
        result
    }

    fn arrive_timed(&self, call: &Call, number: u64, failure: Option<&Error>) -> Result<()> {
        let agreed = self.agree_on(call, failure).map_err(|e| e.context(format!("{call}, call {number}")))?;
        match agreed {
            Agreed::All => Ok(()),
            Agreed::Failed(first) => self.hear_failure(first, call, failure)?.map_or(Ok(()), Err),
            Agreed::Otherwise => Err(self.tell_mismatch(call, number)?),
        }
    }

    /// Compares the calls of all ranks. Errors (Peer): a rank is gone, or does not come.
    fn agree_on(&self, call: &Call, failure: Option<&Error>) -> Result<Agreed> {
        self.agree_within(call, failure, self.0.limit)
    }

    fn agree_within(&self, call: &Call, failure: Option<&Error>, limit: Duration) -> Result<Agreed> {
        let mut hash = DefaultHasher::new();
        call.0.hash(&mut hash);
        let hash = hash.finish();
        // the greatest is the first rank that failed
        let status = if failure.is_some() { u64::MAX - self.rank() as u64 } else { 0 };
        let mut words = [status, hash, !hash];
        self.0.transport.agree(&mut words, limit)?;
        Ok(match words {
            [0, hash, other] if hash == !other => Agreed::All,
            [0, ..] => Agreed::Otherwise,
            [status, ..] => Agreed::Failed(usize::try_from(u64::MAX - status).unwrap_or(usize::MAX)),
        })
    }

    /// The failure of rank `first`; none for a rank that failed itself. Errors (Peer): a rank is gone.
    fn hear_failure(&self, first: usize, call: &Call, failure: Option<&Error>) -> Result<Option<Error>> {
        let mut text = [0; TEXT_BYTES];
        if let Some(e) = failure {
            put_text(&mut text, &e.to_string());
        }
        self.0.transport.broadcast(&mut text, first, self.0.limit)?;
        Ok(failure.is_none().then(|| {
            let text = format!("rank {first} has no part in {call}: {}", text_of(&text));
            Error::new(ErrorKind::Peer, text)
        }))
    }

    /// The error that names the calls of other ranks. Errors (Peer): a rank is gone.
    fn tell_mismatch(&self, call: &Call, number: u64) -> Result<Error> {
        let mut mine = [0; TEXT_BYTES];
        put_text(&mut mine, &format!("{call}, its call {number}"));
        let parts = blocks(TEXT_BYTES, self.size());
        let mut all = vec![0; parts.len() * TEXT_BYTES];
        self.0.transport.all_gather(&mine, &mut all, &parts, self.0.limit)?;
        let told: Vec<String> = parts.into_iter().map(|p| text_of(&all[p])).collect();
        let mine = &told[self.rank()];
        let other = told.iter().position(|t| t != mine).unwrap_or(0);
        let text = format!("rank {} calls {mine}, while rank {other} calls {}", self.rank(), told[other]);
        Ok(Error::new(ErrorKind::Peer, text))
    }

    fn move_bytes(&self, f: impl FnOnce(&dyn Transport, Duration) -> Result<()>) -> Result<()> {
        let start = Instant::now();
        let result = f(&*self.0.transport, self.0.limit);
        self.0.counters.moved(start.elapsed().as_nanos());
        result
    }

    /// `y` becomes all ranks' `x`, one behind the other. Errors: Peer.
    pub fn all_gather(&self, call: &Call, x: &[u8], y: &mut [u8]) -> Result<()> {
        self.all_gather_parts(call, x, y, &blocks(x.len(), self.size()))
    }

    /// Copies each rank's `x` to its range of `y`, on all ranks. Errors: Peer.
    pub fn all_gather_parts(&self, call: &Call, x: &[u8], y: &mut [u8], parts: &[Range<usize>]) -> Result<()> {
        self.enter(call, x.len())?;
        self.move_bytes(|t, limit| t.all_gather(x, y, parts, limit))
    }

    /// `bytes` become those of rank `root`. Errors: Value for a root that does not exist, Peer.
    pub fn broadcast(&self, call: &Call, root: usize, bytes: &mut [u8]) -> Result<()> {
        self.check_rank(root, "root")?;
        self.enter(call, bytes.len())?;
        self.move_bytes(|t, limit| t.broadcast(bytes, root, limit))
    }

    /// `y` becomes all ranks' `x`, one behind the other, on rank `root`; on others it may be empty. Errors: Value for a root that does
    /// not exist, Peer.
    pub fn gather(&self, call: &Call, root: usize, x: &[u8], y: &mut [u8]) -> Result<()> {
        self.check_rank(root, "root")?;
        self.enter(call, x.len())?;
        let none = vec![0..0; self.size()];
        let mut to = none.clone();
        to[root] = 0..x.len();
        self.move_bytes(|t, limit| match self.rank() == root {
            true => t.all_to_all(x, &to, y, &blocks(x.len(), self.size()), limit),
            false => t.all_to_all(x, &to, &mut [], &none, limit),
        })
    }

    /// `y` becomes this rank's block of as many equal blocks of `x` as there are ranks, of rank `root`; on others `x` may be empty.
    /// Errors: Value for a root that does not exist, Peer.
    pub fn scatter(&self, call: &Call, root: usize, x: &[u8], y: &mut [u8]) -> Result<()> {
        self.check_rank(root, "root")?;
        self.enter(call, y.len())?;
        let mut from = vec![0..0; self.size()];
        from[root] = 0..y.len();
        let to = match self.rank() == root {
            true => blocks(y.len(), self.size()),
            false => vec![0..0; self.size()],
        };
        let x = if self.rank() == root { x } else { &[] };
        self.move_bytes(|t, limit| t.all_to_all(x, &to, y, &from, limit))
    }

    /// `x` consists of one equal block per rank; block `r` goes to rank `r`. `y` has the received blocks in the order of ranks.
    /// Errors: Peer.
    pub fn all_to_all(&self, call: &Call, x: &[u8], y: &mut [u8]) -> Result<()> {
        self.enter(call, x.len())?;
        let parts = blocks(x.len() / self.size(), self.size());
        self.move_bytes(|t, limit| t.all_to_all(x, &parts, y, &parts, limit))
    }

    /// Errors (Value) unless there is such a rank; `what` names it in the error.
    pub fn check_rank(&self, rank: usize, what: &str) -> Result<()> {
        match rank < self.size() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Value, format!("{what} is rank {rank}; there are {}", self.size()))),
        }
    }

    /// Errors (Value) unless there is such a rank, and it is another one.
    pub fn check_peer(&self, peer: usize) -> Result<()> {
        self.check_rank(peer, "the peer")?;
        match peer == self.rank() {
            true => Err(Error::new(ErrorKind::Value, format!("rank {peer} is the caller itself"))),
            false => Ok(()),
        }
    }
}

/// The ranges of as many blocks of so many bytes as there are ranks, one behind the other.
fn blocks(bytes: usize, size: usize) -> Vec<Range<usize>> {
    (0..size).map(|r| r * bytes..(r + 1) * bytes).collect()
}

/// Text, cut at its end if it is too long, and zeros.
fn put_text(to: &mut [u8], text: &str) {
    let end = (0..=text.len().min(to.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    to[..end].copy_from_slice(&text.as_bytes()[..end]);
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A group of one rank is `"alone"`. A group of several is a value of a program that runs: its text is for people, and is not read.
impl Serialize for Communicator {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self.size() {
            1 => to.serialize_str(ALONE),
            _ => to.collect_str(&format_args!("{self:?}")),
        }
    }
}
impl<'de> Deserialize<'de> for Communicator {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match text.as_str() {
            ALONE => Ok(Communicator::alone()),
            _ => Err(D::Error::custom(format!(
                "a group of ranks, `{text}`, is no part of a file: trace the graph where they run"
            ))),
        }
    }
}

impl PartialEq for Communicator {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}
impl Eq for Communicator {}
impl Hash for Communicator {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}
impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}
