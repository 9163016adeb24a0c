//! Vector clocks over streams and the host. They tell which accesses events order.

use std::fmt;

use remat_device::{Event, Launch, StreamId, Uses};
use remat_types::SmallVec;

/// Byte ranges that a piece of work reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    reads: SmallVec<[(usize, usize); 4]>,
    writes: SmallVec<[(usize, usize); 2]>,
    /// `None` for the host: its accesses have ended when its call returns.
    event: Option<Event>,
    what: &'static str,
}

/// The byte ranges that a launch reads and writes. A donated input lies in its output, and is not read by itself.
pub(super) fn uses(l: &Launch<'_>) -> Uses {
    let y = l.y.iter().map(|b| (b.at, b.at + b.bytes));
    // A donated input lies in its output.
    let is_read = |i: usize| l.y.iter().all(|y| y.donated_from != Some(i));
    let x = l.x.iter().enumerate().filter(|(i, _)| is_read(*i));
    Uses {
        reads: x.map(|(_, b)| (b.at, b.at + b.bytes)).collect(),
        writes: y.chain(std::iter::once((l.workspace.0, l.workspace.0 + l.workspace.1))).collect(),
    }
}

impl Access {
    pub(super) fn launch(l: &Launch<'_>, event: Event) -> Self {
        let Uses { reads, writes } = uses(l);
        Access { reads, writes, event: Some(event), what: l.op.label() }
    }

    pub(super) fn of_event(
        reads: SmallVec<[(usize, usize); 4]>,
        writes: SmallVec<[(usize, usize); 2]>,
        event: Event,
        what: &'static str,
    ) -> Self {
        Access { reads, writes, event: Some(event), what }
    }

    /// A point in the order without reads and writes.
    pub(super) fn none(event: Event, what: &'static str) -> Self {
        Access::of_event(SmallVec::new(), SmallVec::new(), event, what)
    }

    pub(super) fn restore(from: usize, to: usize, bytes: usize, event: Event) -> Self {
        let range = |at: usize| (at, at + bytes);
        Access::of_event(SmallVec::from_iter([range(from)]), SmallVec::from_iter([range(to)]), event, "restore")
    }

    /// A move within the device. It writes both ranges, as one if they overlap.
    pub(super) fn shift(from: usize, to: usize, bytes: usize, event: Event) -> Self {
        let range = (from.min(to), from.max(to) + bytes);
        Access::of_event(SmallVec::new(), SmallVec::from_iter([range]), event, "shift")
    }

    pub(super) fn upload(at: usize, bytes: usize, event: Event) -> Self {
        Access { event: Some(event), what: "upload", ..Access::by_host(at, bytes, true) }
    }

    pub(super) fn by_host(at: usize, bytes: usize, write: bool) -> Self {
        let range = (at, at + bytes);
        let (reads, writes) = if write {
            (SmallVec::new(), SmallVec::from_iter([range]))
        } else {
            (SmallVec::from_iter([range]), SmallVec::new())
        };
        Access { reads, writes, event: None, what: "host" }
    }

    /// True if one writes bytes that the other uses.
    pub(super) fn conflicts(&self, o: &Access) -> bool {
        let meet = |a: &[(usize, usize)], b: &[(usize, usize)]| {
            a.iter().any(|a| a.0 < a.1 && b.iter().any(|b| b.0 < b.1 && a.0 < b.1 && b.0 < a.1))
        };
        meet(&self.writes, &o.writes) || meet(&self.writes, &o.reads) || meet(&self.reads, &o.writes)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (reads {:?}, writes {:?}", self.what, self.reads, self.writes)?;
        match self.event {
            Some(e) => write!(f, ", stream {} number {})", e.stream.0, e.seq),
            None => write!(f, ", on the host)"),
        }
    }
}

type Clock = SmallVec<[u64; 4]>;

/// For each stream and for the host, the events that precede its next piece of work.
pub(super) struct Clocks {
    next: Vec<Clock>,
    host: Clock,
    /// The clock of each event, by stream.
    at_event: Vec<Vec<Clock>>,
    /// Accesses of streams that later work on some stream may not be ordered after.
    open: Vec<Access>,
    /// Accesses of streams for which the host has not waited, and some for which it has.
    unseen: Vec<Access>,
    /// The length of `unseen` at which those for which the host has waited are taken out.
    sweep_at: usize,
}

/// A list that is shorter is not swept.
const SWEEP_FROM: usize = 256;

fn join(a: &mut Clock, b: &Clock) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
}

impl Clocks {
    pub(super) fn new(streams: usize) -> Self {
        let zero: Clock = SmallVec::from_elem(0, streams);
        Clocks {
            next: vec![zero.clone(); streams],
            host: zero,
            at_event: vec![Vec::new(); streams],
            open: Vec::new(),
            unseen: Vec::new(),
            sweep_at: SWEEP_FROM,
        }
    }

    /// Notes an access. Returns a text if it conflicts with an earlier access after which no event orders it.
    pub(super) fn access(&mut self, a: Access) -> Option<String> {
        let clock = match a.event {
            None => self.host.clone(),
            Some(e) => {
                let s = usize::from(e.stream.0);
                // Work for which the host has waited has ended before anything that it queues now.
                let mut clock = self.next[s].clone();
                join(&mut clock, &self.host);
                let before = clock.clone();
                clock[s] = e.seq;
                self.next[s].clone_from(&clock);
                debug_assert_eq!(self.at_event[s].len() as u64 + 1, e.seq);
                self.at_event[s].push(clock);
                before
            }
        };
        let is_after = |clock: &Clock, o: &Access| o.event.is_none_or(|e| clock[usize::from(e.stream.0)] >= e.seq);
        let (host, next) = (&self.host, &self.next);
        // Only an access of the host looks at these. A step that waits for nothing would have each of its accesses go through
        // those of all steps before.
        if a.event.is_none() || self.unseen.len() >= self.sweep_at {
            self.unseen.retain(|o| !is_after(host, o));
            self.sweep_at = SWEEP_FROM.max(2 * self.unseen.len());
        }
        self.open.retain(|o| !is_after(host, o) && next.iter().any(|clock| !is_after(clock, o)));
        let earlier = if a.event.is_none() { &self.unseen } else { &self.open };
        let race = earlier.iter().find(|o| !is_after(&clock, o) && o.conflicts(&a));
        let race = race.map(|o| format!("nothing orders {a} after {o}"));
        if a.event.is_some() {
            self.open.push(a.clone());
            self.unseen.push(a);
        }
        race
    }

    /// Orders all later work on `stream` after `event`.
    pub(super) fn wait(&mut self, stream: StreamId, event: Event) {
        let clock = self.of(event);
        join(&mut self.next[usize::from(stream.0)], &clock);
    }

    /// Notes that the host has waited for `event`.
    pub(super) fn host_saw(&mut self, event: Event) {
        if event.seq > 0 {
            let clock = self.of(event);
            join(&mut self.host, &clock);
        }
    }

    fn of(&self, e: Event) -> Clock {
        let i = e.seq.saturating_sub(1) as usize;
        self.at_event[usize::from(e.stream.0)].get(i).cloned().unwrap_or_else(|| self.host.clone())
    }
}
