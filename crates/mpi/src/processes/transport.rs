//! One group of processes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use mpi::collective::SystemOperation;
use mpi::datatype::{Partition, PartitionMut};
use mpi::request::{Request, Scope, scope};
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;
use mpi::{Count, Rank, Tag};
use remat_comm::Transport;
use remat_types::{Error, ErrorKind, Result};

use super::Process;

/// Bytes of one message, as MPI's counts have 31 bits.
const MESSAGE_BYTES: usize = 1 << 30;

/// How long a waiting rank looks without a pause: less than it takes to begin a step.
const SPIN: Duration = Duration::from_micros(20);

/// As above, of a rank whose bytes move: MPI moves them only while somebody looks.
const MOVING_SPIN: Duration = Duration::from_secs(1);

/// The longest pause between two looks: what a wait is longer than need be at most.
const LONGEST_PAUSE: Duration = Duration::from_micros(200);

/// How often a waiting rank answers others who ask for it.
const ANSWER_EVERY: Duration = Duration::from_millis(50);

/// How long a rank that gives up waits for answers.
const ROLL_CALL: Duration = Duration::from_secs(1);

const DATA: Tag = 0;
const WHO_WAITS: Tag = 1;
const I_WAIT: Tag = 2;

/// Fields are in the order in which they end: communicators before MPI.
pub(super) struct Mpi {
    ranks: SimpleCommunicator,
    process: Arc<Process>,
}

// SAFETY: a communicator is a handle. MPI was started with MPI_THREAD_MULTIPLE (`super::run` refuses another), under which every
// thread may use every handle (MPI 3.1, 12.4).
unsafe impl Send for Mpi {}
// SAFETY: as above; nothing of this type changes.
unsafe impl Sync for Mpi {}

impl Mpi {
    pub(super) fn new(ranks: SimpleCommunicator, process: Arc<Process>) -> Self {
        Mpi { ranks, process }
    }

    /// Waits for a request of several ranks; some may come later. It waits at most as long as `limit`; then all processes end.
    fn wait<'a, D: ?Sized, S: Scope<'a>>(&self, request: Request<'a, D, S>, limit: Duration) {
        self.wait_spinning(request, SPIN, limit);
    }

    /// Waits for bytes that move between ranks that have all come. It ends as [`Mpi::wait`] does if one of them stops.
    fn moved<'a, D: ?Sized, S: Scope<'a>>(&self, request: Request<'a, D, S>, limit: Duration) {
        self.wait_spinning(request, MOVING_SPIN, limit);
    }

    fn wait_spinning<'a, D: ?Sized, S: Scope<'a>>(&self, request: Request<'a, D, S>, spin: Duration, limit: Duration) {
        let start = Instant::now();
        let (mut request, mut pause, mut answered) = (request, Duration::from_micros(5), start);
        loop {
            request = match request.test() {
                Ok(_) => return,
                Err(r) => r,
            };
            let waited = start.elapsed();
            if waited > limit {
                self.give_up(limit);
            }
            if waited < spin {
                yield_now();
                continue;
            }
            if answered.elapsed() > ANSWER_EVERY {
                self.answer();
                answered = Instant::now();
            }
            sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells the ranks who ask that this one is waiting, too.
    fn answer(&self) {
        while let Some(status) = self.ranks.any_process().immediate_probe_with_tag(WHO_WAITS) {
            let other = self.ranks.process_at_rank(status.source_rank());
            other.receive_with_tag::<u8>(WHO_WAITS);
            // a byte leaves at once
            other.send_with_tag(&0u8, I_WAIT);
        }
    }

    /// Ends all processes, and says which of them did not come.
    fn give_up(&self, limit: Duration) -> ! {
        let (rank, size) = (self.rank(), self.size());
        let mut waits = vec![false; size];
        waits[rank] = true;
        for r in (0..size).filter(|r| *r != rank) {
            self.ranks.process_at_rank(r as Rank).send_with_tag(&0u8, WHO_WAITS);
        }
        let start = Instant::now();
        while start.elapsed() < ROLL_CALL && !waits.iter().all(|w| *w) {
            self.answer();
            while let Some(status) = self.ranks.any_process().immediate_probe_with_tag(I_WAIT) {
                let r = status.source_rank();
                self.ranks.process_at_rank(r).receive_with_tag::<u8>(I_WAIT);
                waits[r as usize] = true;
            }
            sleep(LONGEST_PAUSE);
        }
        let missing: Vec<String> = (0..size).filter(|r| !waits[*r]).map(|r| r.to_string()).collect();
        let who = match missing.is_empty() {
            true => "all ranks wait, but not for the same".to_owned(),
            false => format!("rank {} has not come", missing.join(" and ")),
        };
        eprintln!("error: rank {rank}: {who} within {} s, which ends all ranks", limit.as_secs_f64());
        self.ranks.abort(self.process.status)
    }

    /// Bytes between two ranks, in messages that MPI can count.
    fn send_all(&self, bytes: &[u8], to: usize, limit: Duration) {
        for part in bytes.chunks(MESSAGE_BYTES) {
            let to = self.ranks.process_at_rank(to as Rank);
            scope(|s| self.wait(to.immediate_send_with_tag(s, part, DATA), limit));
        }
    }

    fn receive_all(&self, bytes: &mut [u8], from: usize, limit: Duration) {
        for part in bytes.chunks_mut(MESSAGE_BYTES) {
            let from = self.ranks.process_at_rank(from as Rank);
            scope(|s| self.wait(from.immediate_receive_into_with_tag(s, part, DATA), limit));
        }
    }

    /// As [`Transport::all_to_all`], one pair of ranks after the other: for more bytes than MPI can count.
    fn exchange_pairs(
        &self,
        send: &[u8],
        to: &[Range<usize>],
        recv: &mut [u8],
        from: &[Range<usize>],
        limit: Duration,
    ) {
        let (rank, size) = (self.rank(), self.size());
        recv[from[rank].clone()].copy_from_slice(&send[to[rank].clone()]);
        for step in 1..size {
            let (next, last) = ((rank + step) % size, (rank + size - step) % size);
            let (out, back) = (&send[to[next].clone()], &mut recv[from[last].clone()]);
            let parts = out.len().max(back.len()).div_ceil(MESSAGE_BYTES);
            for i in 0..parts {
                let range = |len: usize| (i * MESSAGE_BYTES).min(len)..((i + 1) * MESSAGE_BYTES).min(len);
                let (sent, coming) = (range(out.len()), range(back.len()));
                let (out, back) = (&out[sent], &mut back[coming]);
                let (next, last) = (self.ranks.process_at_rank(next as Rank), self.ranks.process_at_rank(last as Rank));
                scope(|s| {
                    let coming = last.immediate_receive_into_with_tag(s, back, DATA);
                    let going = next.immediate_send_with_tag(s, out, DATA);
                    self.moved(coming, limit);
                    self.moved(going, limit);
                });
            }
        }
    }
}

/// Bytes that have an address: that of an empty slice can be 1, which is how Open MPI writes `MPI_IN_PLACE`.
fn placed(bytes: &[u8]) -> &[u8] {
    static NOWHERE: [u8; 1] = [0];
    if bytes.is_empty() { &NOWHERE[..0] } else { bytes }
}

fn placed_mut<'a>(bytes: &'a mut [u8], nowhere: &'a mut [u8; 1]) -> &'a mut [u8] {
    if bytes.is_empty() { &mut nowhere[..0] } else { bytes }
}

/// Counts and displacements of parts.
fn counted(parts: &[Range<usize>]) -> (Vec<Count>, Vec<Count>) {
    parts.iter().map(|p| (p.len() as Count, p.start as Count)).unzip()
}

/// True if MPI can count bytes of buffers of these lengths.
fn fits(lengths: &[usize]) -> bool {
    lengths.iter().all(|n| Count::try_from(*n).is_ok())
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}", self.rank(), self.size())
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.ranks.rank() as usize
    }

    fn size(&self) -> usize {
        self.ranks.size() as usize
    }

    fn agree(&self, words: &mut [u64; 3], limit: Duration) -> Result<()> {
        let mine = *words;
        scope(|s| {
            let all = self.ranks.immediate_all_reduce_into(s, &mine[..], &mut words[..], SystemOperation::max());
            self.wait(all, limit);
        });
        Ok(())
    }

    fn all_to_all(
        &self,
        send: &[u8],
        to: &[Range<usize>],
        recv: &mut [u8],
        from: &[Range<usize>],
        limit: Duration,
    ) -> Result<()> {
        // every rank must decide alike, and ranks may differ in what they send
        let most = to.iter().chain(from).map(Range::len).max().unwrap_or(0);
        if most.saturating_mul(self.size()) > MESSAGE_BYTES || !fits(&[send.len(), recv.len()]) {
            self.exchange_pairs(send, to, recv, from, limit);
            return Ok(());
        }
        let mut nowhere = [0];
        let (send, recv) = (placed(send), placed_mut(recv, &mut nowhere));
        let ((counts, starts), (back_counts, back_starts)) = (counted(to), counted(from));
        let send = Partition::new(send, counts, starts);
        let mut recv = PartitionMut::new(recv, back_counts, back_starts);
        scope(|s| self.moved(self.ranks.immediate_all_to_all_varcount_into(s, &send, &mut recv), limit));
        Ok(())
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8], from: &[Range<usize>], limit: Duration) -> Result<()> {
        if !fits(&[all.len()]) {
            for (root, part) in from.iter().enumerate() {
                let bytes = &mut all[part.clone()];
                if root == self.rank() {
                    bytes.copy_from_slice(mine);
                }
                self.broadcast(bytes, root, limit)?;
            }
            return Ok(());
        }
        let mut nowhere = [0];
        let (counts, starts) = counted(from);
        let mut all = PartitionMut::new(placed_mut(all, &mut nowhere), counts, starts);
        scope(|s| self.moved(self.ranks.immediate_all_gather_varcount_into(s, placed(mine), &mut all), limit));
        Ok(())
    }

    fn broadcast(&self, bytes: &mut [u8], root: usize, limit: Duration) -> Result<()> {
        for part in bytes.chunks_mut(MESSAGE_BYTES) {
            let root = self.ranks.process_at_rank(root as Rank);
            scope(|s| self.moved(root.immediate_broadcast_into(s, part), limit));
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8], to: usize, limit: Duration) -> Result<()> {
        self.send_all(bytes, to, limit);
        Ok(())
    }

    fn receive(&self, bytes: &mut [u8], from: usize, limit: Duration) -> Result<()> {
        self.receive_all(bytes, from, limit);
        Ok(())
    }

    fn split(&self, color: Option<usize>, key: usize) -> Result<Option<Box<dyn Transport>>> {
        let number = |n: usize| {
            i32::try_from(n)
                .map_err(|_| Error::new(ErrorKind::Value, format!("a color or a key of {n} is too large for MPI")))
        };
        let color = color.map_or(Ok(Color::undefined()), |c| number(c).map(Color::with_value))?;
        let group = self.ranks.split_by_color_with_key(color, number(key)?);
        Ok(group.map(|g| Box::new(Mpi::new(g, self.process.clone())) as Box<dyn Transport>))
    }
}
