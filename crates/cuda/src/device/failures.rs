//! The failures of launches, without a wait of the host.
//!
//! A launch whose kernel may refuse an element, and a gate, each take a *ticket*: a number, in the order of the stream, whose words
//! lie in a ring on the device. A kernel that refuses writes its words. A gate is a kernel that looks at the words of others and
//! writes its own; a launch behind a gate looks at those. So the device decides alone, and the host finds out when it waits
//! anyway: it reads the words of all tickets that are decided, and goes through them in order.
//!
//! Each event keeps its *roots*: the tickets that its work depends on and that are not known yet. A gate stands for all roots
//! behind it, so there are few. An event whose work is known to have failed keeps the fault instead.

use std::collections::{BTreeMap, VecDeque};

use remat_device::Event;
use remat_ops::OpRef;
use remat_types::{CallSite, Error, ErrorKind, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::gates;
use crate::driver::{Arena, Context, Lane};
use crate::kernels::plan::Failure;

/// Tickets whose words lie on the device at a time, a power of two.
pub(super) const SLOTS: u64 = 4096;
/// Tickets whose words are cleared at once. So many less than there are slots may be unknown.
const CLEARED: u64 = 1024;
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

/// Work from which a ticket inherits a failure: some tickets, and all those from a number on up to its own.
#[derive(Clone)]
pub(super) struct Before {
    pub(super) roots: Roots,
    pub(super) since: u64,
}

impl Before {
    /// Some tickets and no others.
    pub(super) fn roots(roots: &[u64]) -> Before {
        Before { roots: roots.into(), since: u64::MAX }
    }
}

/// The work that has a ticket.
pub(super) enum Kind {
    /// A kernel that may refuse an element. Unless a gate holds it back, it runs on whatever work that failed has left, so what it
    /// refuses then is that work's failure and not its own.
    Launch { op: OpRef, failure: Failure, site: CallSite, before: Before },
    /// A gate, which fails if work before it did.
    Gate(Before),
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
    /// The tickets up to the one that was the last when a failure was found. One of them may have inherited it.
    in_doubt: u64,
    /// By the number of an event, where its outcome is not known.
    roots: BTreeMap<u64, Roots>,
    /// The events that are known to have failed, by number.
    events: BTreeMap<u64, usize>,
    faults: Vec<Fault>,
}

impl Failures {
    pub(super) fn new(context: &Context, lane: &mut Lane) -> Result<Failures> {
        // words that stay empty lie behind the ring, for those that are cleared
        let slots = (SLOTS + CLEARED) as usize;
        let ring = Arena::whole(context, slots * BYTES)?;
        let empty: Vec<u8> = [u64::MAX, u64::MAX, u64::MAX, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        lane.upload(&ring, 0, &empty.repeat(slots))?;
        lane.stream().synchronize()?;
        Ok(Failures {
            ring,
            reader: Lane::new(context)?,
            next: 0,
            unknown: VecDeque::new(),
            failed: FxHashMap::default(),
            in_doubt: 0,
            roots: BTreeMap::new(),
            events: BTreeMap::new(),
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

    /// The next ticket, for work of this number. The words of tickets that had its place and some next to it are cleared, in order
    /// with the lane's work. Errors: those of the driver; Internal if the place is still taken: see [`Failures::is_full`].
    pub(super) fn ticket(&mut self, seq: u64, of: Kind, lane: &mut Lane) -> Result<u64> {
        let ticket = self.next;
        if self.is_full() {
            return Err(Error::new(ErrorKind::Internal, "no place for the words of a launch"));
        }
        if ticket >= SLOTS && ticket.is_multiple_of(CLEARED) {
            let at = (ticket % SLOTS) as usize * BYTES;
            lane.copy(&self.ring, SLOTS as usize * BYTES, at, CLEARED as usize * BYTES)?;
        }
        self.next += 1;
        self.unknown.push_back(Ticket { seq, of });
        Ok(ticket)
    }

    /// True if tickets must become known before there is a place for another.
    fn is_full(&self) -> bool {
        self.unknown() >= SLOTS - CLEARED
    }

    /// True if there is a place for the words of a launch, and of the gates over so many roots before it.
    pub(super) fn has_room(&self, roots: usize) -> bool {
        let gates = roots / (gates::MOST_ROOTS - 1) + 1;
        self.unknown() + (gates as u64) < SLOTS - CLEARED
    }

    /// The ticket after the last one.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// True if a ticket that is not known may have inherited a failure that is.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.first_unknown() < self.in_doubt
    }

    /// The first ticket of work after a number, among those that are not known.
    pub(super) fn since(&self, seq: u64) -> u64 {
        self.first_unknown() + self.unknown.partition_point(|t| t.seq <= seq) as u64
    }

    /// The work that a ticket inherits from, if it is not known and a gate's.
    fn gate(&self, ticket: u64) -> Option<&Before> {
        let at = usize::try_from(ticket.checked_sub(self.first_unknown())?).ok()?;
        match &self.unknown.get(at)?.of {
            Kind::Gate(before) => Some(before),
            Kind::Launch { .. } => None,
        }
    }

    /// The last of some tickets that is a gate's and not known.
    pub(super) fn last_gate(&self, roots: &[u64]) -> Option<u64> {
        roots.iter().rev().find(|t| self.gate(**t).is_some()).copied()
    }

    /// The tickets that events depend on and that are not known.
    pub(super) fn roots_of(&self, events: &[Event]) -> Roots {
        self.least(events.iter().filter_map(|e| self.roots.get(&e.seq)).flatten().copied().collect())
    }

    /// Those of some events, and those from before ticket `since` of all work after a number.
    pub(super) fn roots_of_all(&self, events: &[Event], seq: u64, since: u64) -> Roots {
        let mut roots = self.roots_of(events);
        let after = self.roots.range(seq.saturating_add(1)..);
        roots.extend(after.flat_map(|(_, roots)| roots).copied().filter(|t| *t < since));
        self.least(roots)
    }

    /// Each ticket once, in order, and none for which a gate among them stands.
    fn least(&self, mut roots: Roots) -> Roots {
        roots.sort_unstable();
        roots.dedup();
        roots.retain(|t| *t >= self.first_unknown());
        for at in roots.clone() {
            if let Some(Before { roots: behind, since }) = self.gate(at) {
                roots.retain(|t| !behind.contains(t) && !(*since..at).contains(t));
            }
        }
        roots
    }

    /// Leaves the tickets that are not known. `None` if one is known to have failed.
    pub(super) fn still_unknown(&self, roots: &mut Roots) -> Option<()> {
        let known = self.first_unknown();
        if self.fault_of(roots).is_some() {
            return None;
        }
        roots.retain(|t| *t >= known);
        Some(())
    }

    /// The fault of the first ticket that is known to have failed.
    pub(super) fn fault_of(&self, roots: &[u64]) -> Option<usize> {
        roots.iter().find_map(|t| self.failed.get(t).copied())
    }

    /// The fault of the first event that is known to have failed.
    pub(super) fn fault_of_events(&self, events: &[Event]) -> Option<usize> {
        events.iter().find_map(|e| self.fault_at(*e))
    }

    /// The first fault that nobody was told of, of work after a number or by which such work failed.
    pub(super) fn unreported_since(&self, seq: u64) -> Option<usize> {
        let is_new = |fault: &usize| !self.faults[*fault].is_reported;
        let own = (0..self.faults.len()).find(|fault| self.faults[*fault].seq > seq && is_new(fault));
        let inherited = self.events.range(seq.saturating_add(1)..).map(|(_, fault)| *fault).filter(is_new).min();
        own.into_iter().chain(inherited).min()
    }

    /// Notes what the work of a number depends on.
    pub(super) fn note_roots(&mut self, seq: u64, roots: Roots) {
        match self.fault_of(&roots) {
            Some(fault) => self.note_failed(seq, fault),
            None if roots.is_empty() => {}
            None => drop(self.roots.insert(seq, roots)),
        }
    }

    /// Notes that the work of a number failed, as the host knows already. `fault` is that of work before it.
    pub(super) fn note_failed(&mut self, seq: u64, fault: usize) {
        self.events.insert(seq, fault);
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

    /// The fault by which an event failed, if that is known.
    pub(super) fn fault_at(&self, event: Event) -> Option<usize> {
        self.events.get(&event.seq).copied()
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
        let (known, failed, events) = (self.first_unknown(), &self.failed, &mut self.events);
        self.roots.retain(|seq, roots| {
            let fault = roots.iter().find_map(|t| failed.get(t).copied());
            events.extend(fault.map(|fault| (*seq, fault)));
            roots.retain(|t| *t >= known);
            fault.is_none() && !roots.is_empty()
        });
        Ok(())
    }

    fn decide(&mut self, ticket: u64, t: Ticket, position: u64, value: i64) {
        let fault = match t.of {
            Kind::Launch { .. } if position == u64::MAX => None,
            Kind::Launch { op, failure, site, before } => Some(self.inherited(ticket, &before).unwrap_or_else(|| {
                let error = failure(position, value).with_op(op.label()).with_call_site(site);
                self.fault(t.seq, error)
            })),
            Kind::Gate(before) => self.inherited(ticket, &before),
        };
        if let Some(fault) = fault {
            self.failed.insert(ticket, fault);
            self.in_doubt = self.next;
        }
    }

    /// The fault of work before a ticket.
    fn inherited(&self, ticket: u64, before: &Before) -> Option<usize> {
        let within = || (before.since..ticket).find_map(|t| self.failed.get(&t).copied());
        self.fault_of(&before.roots).or_else(within)
    }
}
