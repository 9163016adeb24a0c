//! The failures of launches, without a wait of the host.
//!
//! A launch whose kernel may refuse an element, and a gate, each take a *ticket*: a number, in the order of the stream, whose words
//! lie in a ring on the device. A kernel that refuses writes its words. A gate is a kernel that looks at the words of others and
//! writes its own; a launch behind a gate looks at those. So the device decides alone, and the host finds out when it waits
//! anyway: it reads the words of all tickets that are decided, and goes through them in order.
//!
//! Each event keeps its *roots*: the tickets that its work depends on and that are not known to have passed. A gate stands for all
//! roots behind it, so there are few.

use std::collections::VecDeque;

use remat_device::Event;
use remat_ops::OpRef;
use remat_types::{CallSite, Error, ErrorKind, Result, SmallVec};
use rustc_hash::FxHashMap;

use crate::driver::{Arena, Context, Lane};
use crate::kernels::plan::Failure;

/// Tickets whose words lie on the device at a time.
pub(super) const SLOTS: u64 = 4096;
/// Words of a ticket: position, value, a lock, and whether it failed.
const WORDS: usize = 4;
/// Bytes of a ticket.
const BYTES: usize = WORDS * 8;
/// Where the word lies that is 0 unless the launch refused an element or the gate is closed.
const CLOSED: usize = 3 * 8;

/// Tickets that work depends on, in order.
pub(super) type Roots = SmallVec<[u64; 4]>;

/// A failure. All events that fail because of it share it.
struct Fault {
    error: Error,
    /// The number of the work that failed.
    seq: u64,
    is_reported: bool,
}

/// A ticket whose outcome the host does not know.
struct Ticket {
    seq: u64,
    of: Kind,
}

/// The work that has a ticket.
pub(super) enum Kind {
    /// A kernel that may refuse an element.
    Launch { op: OpRef, failure: Failure, site: CallSite },
    /// A gate, which fails if one of its roots failed, or a ticket from the second number on.
    Gate { roots: Roots, since: u64 },
}

/// See the module's note.
pub(super) struct Failures {
    ring: Arena,
    /// Reads words while the device's own stream works.
    reader: Lane,
    /// The ticket after the last one.
    next: u64,
    /// Tickets that are not known: those before are.
    unknown: VecDeque<Ticket>,
    /// Tickets that are known to have failed.
    failed: FxHashMap<u64, usize>,
    /// By the number of an event.
    roots: FxHashMap<u64, Roots>,
    faults: Vec<Fault>,
}

impl Failures {
    pub(super) fn new(context: &Context, lane: &mut Lane) -> Result<Failures> {
        let ring = Arena::whole(context, SLOTS as usize * BYTES)?;
        let empty: Vec<u8> = [u64::MAX, u64::MAX, u64::MAX, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        lane.upload(&ring, 0, &empty.repeat(SLOTS as usize))?;
        lane.stream().synchronize()?;
        Ok(Failures {
            ring,
            reader: Lane::new(context)?,
            next: 0,
            unknown: VecDeque::new(),
            failed: FxHashMap::default(),
            roots: FxHashMap::default(),
            faults: Vec::new(),
        })
    }

    /// Bytes on the device beside the arena.
    pub(super) fn bytes(&self) -> usize {
        self.ring.bytes()
    }

    /// The first ticket that is not known.
    pub(super) fn first_unknown(&self) -> u64 {
        self.next - self.unknown.len() as u64
    }

    /// The tickets that are not known.
    pub(super) fn unknown(&self) -> u64 {
        self.unknown.len() as u64
    }

    /// The address of a ticket's words.
    pub(super) fn address(&self, ticket: u64) -> u64 {
        self.ring.base() + ticket % SLOTS * BYTES as u64
    }

    /// The address of the word that says whether a gate is closed.
    pub(super) fn gate_address(&self, ticket: u64) -> u64 {
        self.address(ticket) + CLOSED as u64
    }

    /// The address of the ring.
    pub(super) fn base(&self) -> u64 {
        self.ring.base()
    }

    /// The next ticket, for work of this number. The words of a ticket that had the same place are cleared, in order with the
    /// lane's work. Errors: those of the driver; Internal if the place is still taken: see [`Failures::is_full`].
    pub(super) fn ticket(&mut self, seq: u64, of: Kind, lane: &mut Lane) -> Result<u64> {
        let ticket = self.next;
        if self.is_full() {
            return Err(Error::new(ErrorKind::Internal, "no place for the words of a launch"));
        }
        if ticket >= SLOTS {
            let at = (ticket % SLOTS) as usize * BYTES;
            lane.fill(&self.ring, at, 0xff, CLOSED)?;
            lane.fill(&self.ring, at + CLOSED, 0, BYTES - CLOSED)?;
        }
        self.next += 1;
        self.unknown.push_back(Ticket { seq, of });
        Ok(ticket)
    }

    /// True if tickets must become known before there is a place for another.
    pub(super) fn is_full(&self) -> bool {
        self.unknown() >= SLOTS
    }

    /// The first ticket of work after a number, among those that are not known.
    pub(super) fn since(&self, seq: u64) -> u64 {
        self.first_unknown() + self.unknown.partition_point(|t| t.seq <= seq) as u64
    }

    /// True if a ticket that is not known is a gate's.
    pub(super) fn is_gate(&self, ticket: u64) -> bool {
        let at = ticket.checked_sub(self.first_unknown()).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.unknown.get(at)).is_some_and(|t| matches!(t.of, Kind::Gate { .. }))
    }

    /// The tickets that events depend on and that are not known to have passed.
    pub(super) fn roots_of(&self, events: &[Event]) -> Roots {
        let mut roots: Roots = events.iter().filter_map(|e| self.roots.get(&e.seq)).flatten().copied().collect();
        roots.sort_unstable();
        roots.dedup();
        roots.retain(|t| *t >= self.first_unknown() || self.failed.contains_key(t));
        roots
    }

    /// The fault of the first root that is known to have failed.
    pub(super) fn fault_of(&self, roots: &[u64]) -> Option<usize> {
        roots.iter().find_map(|t| self.failed.get(t).copied())
    }

    /// The first fault of work after a number that nobody was told of.
    pub(super) fn unreported_since(&self, seq: u64) -> Option<usize> {
        self.faults.iter().position(|f| !f.is_reported && f.seq > seq)
    }

    /// Notes what the work of a number depends on.
    pub(super) fn note_roots(&mut self, seq: u64, roots: Roots) {
        if !roots.is_empty() {
            self.roots.insert(seq, roots);
        }
    }

    /// Notes that the work of a number failed, as the host knows already. `fault` is that of work before it.
    pub(super) fn note_failed(&mut self, seq: u64, fault: usize) {
        // a ticket that no kernel knows of
        let ticket = u64::MAX - seq;
        self.failed.insert(ticket, fault);
        self.roots.insert(seq, SmallVec::from_iter([ticket]));
    }

    /// A new fault of the work of a number.
    pub(super) fn fault(&mut self, seq: u64, error: Error) -> usize {
        self.faults.push(Fault { error, seq, is_reported: false });
        self.faults.len() - 1
    }

    /// The error of a fault: itself for the first caller, and Poisoned after that.
    pub(super) fn report(&mut self, fault: usize) -> Error {
        let f = &mut self.faults[fault];
        match std::mem::replace(&mut f.is_reported, true) {
            false => f.error.clone(),
            true => Error::new(ErrorKind::Poisoned, format!("depends on an operation that failed: {}", f.error)),
        }
    }

    /// The fault by which an event failed, if its tickets are known.
    pub(super) fn fault_at(&self, event: Event) -> Option<usize> {
        self.fault_of(self.roots.get(&event.seq)?)
    }

    /// Reads the words of all tickets up to the work of a number, which is done. Errors: those of the driver.
    pub(super) fn read_to(&mut self, seq: u64) -> Result<()> {
        let count = self.unknown.partition_point(|t| t.seq <= seq);
        if count == 0 {
            return Ok(());
        }
        let first = self.first_unknown();
        let at = (first % SLOTS) as usize;
        let before_end = count.min(SLOTS as usize - at);
        let mut words = self.reader.download(&self.ring, at * BYTES, before_end * BYTES)?;
        words.extend(self.reader.download(&self.ring, 0, (count - before_end) * BYTES)?);
        let (words, _) = words.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
        for (k, words) in words.chunks_exact(WORDS).enumerate() {
            let Some(t) = self.unknown.pop_front() else { break };
            self.decide(first + k as u64, t, words[0], words[1] as i64);
        }
        let known = self.first_unknown();
        let failed = &self.failed;
        self.roots.retain(|_, roots| {
            roots.retain(|t| *t >= known || failed.contains_key(t));
            !roots.is_empty()
        });
        Ok(())
    }

    fn decide(&mut self, ticket: u64, t: Ticket, position: u64, value: i64) {
        let fault = match t.of {
            Kind::Launch { .. } if position == u64::MAX => None,
            Kind::Launch { op, failure, site } => {
                let error = failure(position, value).with_op(op.label()).with_call_site(site);
                Some(self.fault(t.seq, error))
            }
            Kind::Gate { roots, since } => {
                let within = || (since..ticket).find_map(|t| self.failed.get(&t).copied());
                self.fault_of(&roots).or_else(within)
            }
        };
        if let Some(fault) = fault {
            self.failed.insert(ticket, fault);
        }
    }
}
