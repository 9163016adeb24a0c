//! From a sequence of operators to the intervals in which storages live.
//!
//! An execution of a storage's producer starts a new *instance* of it; the instance ends with the last step that reads
//! or writes it before the next instance, or with the last step of all if an output lies in it. Times are positions in
//! the sequence and both ends belong to the interval.
//!
//! An instance that may take over another one that ends with the step does: both are one interval then.

use super::problem::{OutputKind, Problem};

/// A range of steps in which bytes are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Index into the problem's storages, the first of those that have these bytes one after the other; `None` for the
    /// workspace of the operator at `start`.
    pub storage: Option<usize>,
    /// First step.
    pub start: usize,
    /// Last step.
    pub end: usize,
    /// A multiple of the problem's alignment.
    pub bytes: u64,
}

/// Where an interval goes over from one storage to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The step whose operator reads one and makes the other.
    pub step: usize,
    /// Index of the interval.
    pub interval: usize,
    /// The storage that is gone.
    pub from: usize,
    /// The storage that is made.
    pub to: usize,
}

/// The intervals of storages in a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// Given storages first, then in order of their starts.
    pub intervals: Vec<Interval>,
    /// Bytes held at each step.
    pub load: Vec<u64>,
    /// In order of their steps.
    pub taken: Vec<Taken>,
}

impl Lifetimes {
    /// The lifetimes of these intervals, all within `steps`.
    pub fn of(intervals: Vec<Interval>, steps: usize) -> Lifetimes {
        let mut change = vec![0i128; steps + 1];
        for i in &intervals {
            change[i.start] += i128::from(i.bytes);
            change[i.end + 1] -= i128::from(i.bytes);
        }
        let mut now = 0;
        let load = change[..steps].iter().map(|d| {
            now += d;
            now as u64
        });
        Lifetimes { load: load.collect(), intervals, taken: Vec::new() }
    }

    /// The largest load: no arena of this sequence is smaller.
    pub fn peak(&self) -> u64 {
        self.load.iter().copied().max().unwrap_or(0)
    }
}

/// A step that reads a missing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Position in the sequence; its length for an output of the problem.
    pub step: usize,
    /// The value.
    pub value: usize,
}

/// The lifetimes of a sequence.
///
/// # Errors
/// The first step that reads a value which was not made, or overwritten, or that runs what may run once again.
pub fn lifetimes(p: &Problem, sequence: &[usize]) -> Result<Lifetimes, Unreadable> {
    let mut w = Walk::new(p, sequence.len());
    for (step, &op) in sequence.iter().enumerate() {
        w.run(p, step, op)?;
    }
    for &value in p.outputs() {
        w.read(p, sequence.len(), value)?;
    }
    let last = sequence.len().max(1) - 1;
    let taken = w.take_over();
    w.close(last);
    Ok(Lifetimes { taken, ..Lifetimes::of(w.intervals, last + 1) })
}

/// State of a walk over a sequence. A value can be read if it was made from the present content of its storage.
struct Walk {
    intervals: Vec<Interval>,
    /// For each storage, its open interval.
    open: Vec<Option<usize>>,
    /// For each storage, a number that changes with its content.
    content: Vec<u32>,
    /// For each value, the content it was made from; 0 before.
    made_from: Vec<u32>,
    next_content: u32,
    has_run: Vec<bool>,
    /// Step, the instance that may be taken over, the one that may do so.
    takes: Vec<(usize, usize, usize)>,
}

impl Walk {
    fn new(p: &Problem, steps: usize) -> Walk {
        let mut w = Walk {
            intervals: Vec::with_capacity(p.storages().len()),
            open: vec![None; p.storages().len()],
            content: vec![0; p.storages().len()],
            made_from: vec![0; p.values().len()],
            next_content: 1,
            has_run: vec![false; p.ops().len()],
            takes: Vec::new(),
        };
        for (s, storage) in p.storages().iter().enumerate().filter(|(_, s)| s.producer.is_none()) {
            w.open[s] = Some(w.intervals.len());
            w.intervals.push(Interval { storage: Some(s), start: 0, end: steps.max(1) - 1, bytes: storage.padded });
            w.make(storage.root, s);
        }
        w
    }

    /// New content of storage `s`; `value` is the only value made in it so far.
    fn make(&mut self, value: usize, s: usize) {
        self.content[s] = self.next_content;
        self.made_from[value] = self.next_content;
        self.next_content += 1;
    }

    fn read(&mut self, p: &Problem, step: usize, value: usize) -> Result<(), Unreadable> {
        let s = p.values()[value].storage;
        match self.open[s] {
            Some(i) if self.made_from[value] == self.content[s] => {
                self.intervals[i].end = self.intervals[i].end.max(step);
                Ok(())
            }
            _ => Err(Unreadable { step, value }),
        }
    }

    fn run(&mut self, p: &Problem, step: usize, op: usize) -> Result<(), Unreadable> {
        let o = &p.ops()[op];
        for &value in &o.inputs {
            self.read(p, step, value)?;
        }
        if self.has_run[op] && !o.repeatable {
            let value = o.outputs.first().map_or(usize::MAX, |out| out.0);
            return Err(Unreadable { step, value });
        }
        self.has_run[op] = true;
        for &(value, kind) in &o.outputs {
            let s = p.values()[value].storage;
            match kind {
                OutputKind::Own => {
                    self.open[s] = Some(self.intervals.len());
                    let bytes = p.storages()[s].padded;
                    self.intervals.push(Interval { storage: Some(s), start: step, end: step, bytes });
                    self.make(value, s);
                }
                OutputKind::Writes => self.make(value, s),
                OutputKind::Alias => self.made_from[value] = self.content[s],
            }
        }
        for &(to, from) in &o.takes {
            if let (Some(to), Some(from)) = (self.open[to], self.open[from]) {
                self.takes.push((step, from, to));
            }
        }
        if o.workspace > 0 {
            self.intervals.push(Interval { storage: None, start: step, end: step, bytes: o.workspace });
        }
        Ok(())
    }

    /// Merges the intervals of two instances if one takes over the other. An interval that is read at the end of the run
    /// ends beyond the last step, so it is never taken.
    fn take_over(&mut self) -> Vec<Taken> {
        let count = self.intervals.len();
        // for each instance the first of those whose bytes it has
        let mut first: Vec<usize> = (0..count).collect();
        let ends: Vec<usize> = self.intervals.iter().map(|i| i.end).collect();
        let mut is_taken = vec![false; count];
        let mut taken = Vec::new();
        for &(step, from, to) in &self.takes {
            let (Some(old), Some(new)) = (self.intervals[from].storage, self.intervals[to].storage) else { continue };
            if ends[from] == step && !is_taken[from] && first[to] == to {
                (is_taken[from], first[to]) = (true, first[from]);
                self.intervals[first[from]].end = ends[to];
                taken.push(Taken { step, interval: first[from], from: old, to: new });
            }
        }
        let number = |kept: &mut usize, i: usize| {
            let at = *kept;
            *kept += usize::from(first[i] == i);
            Some(at)
        };
        let place: Vec<usize> = (0..count).scan(0, number).collect();
        taken.iter_mut().for_each(|t| t.interval = place[t.interval]);
        let mut i = 0..count;
        self.intervals.retain(|_| i.next().is_some_and(|i| first[i] == i));
        taken
    }

    /// Reads by the end of all are reads by the last step.
    fn close(&mut self, last: usize) {
        for i in &mut self.intervals {
            i.end = i.end.min(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Problem {
        let text = r#"{ "version": 1, "values": [ { "name": "x", "bytes": 1 } ], "ops": [
          { "name": "f", "time_ns": 1, "inputs": ["x"], "outputs": [ { "name": "a", "bytes": 10 } ] },
          { "name": "g", "time_ns": 1, "inputs": ["a"], "outputs": [ { "name": "b", "bytes": 20 } ], "workspace": 5 },
          { "name": "r", "time_ns": 1, "inputs": ["b"], "outputs": [ { "name": "c", "writes": "b" } ] },
          { "name": "h", "time_ns": 1, "inputs": ["a", "c"], "outputs": [ { "name": "d", "bytes": 3 } ] } ],
          "outputs": ["d"] }"#;
        Problem::from_json(text).expect("valid")
    }

    #[test]
    fn instances_end_with_their_last_reader() {
        let l = lifetimes(&chain(), &[0, 1, 2, 3]).expect("valid");
        assert_eq!(l.load, [11, 36, 31, 34]);
        let l = lifetimes(&chain(), &[0, 1, 2, 0, 3]).expect("valid");
        assert_eq!(l.load, [11, 36, 21, 31, 34], "a is gone while r runs");
        assert_eq!(l.peak(), 36);
    }

    #[test]
    fn an_instance_takes_over_one_that_dies_there_and_no_other() {
        let text = r#"{ "version": 1, "values": [], "ops": [
          { "name": "f", "time_ns": 1, "inputs": [], "outputs": [ { "name": "a", "bytes": 10 } ] },
          { "name": "g", "time_ns": 1, "inputs": ["a"], "outputs": [ { "name": "b", "bytes": 10, "may_take": ["a"] } ] },
          { "name": "h", "time_ns": 1, "inputs": ["b", "a"], "outputs": [ { "name": "c", "bytes": 10, "may_take": ["b"] } ] }
          ], "outputs": ["c"] }"#;
        let p = Problem::from_json(text).expect("valid");
        let l = lifetimes(&p, &[0, 1, 2]).expect("valid");
        assert_eq!((l.load, l.taken.len()), (vec![10, 20, 20], 1), "a is read again, b is not");
        let l = lifetimes(&p, &[0, 1, 0, 2]).expect("valid");
        assert_eq!((l.load, l.taken.len()), (vec![10, 10, 20, 20], 2), "a is made again");
        assert_eq!(l.intervals.len(), 2, "a, b and c have the same bytes one after the other");
    }

    #[test]
    fn what_was_not_made_or_was_overwritten_cannot_be_read() {
        let b = chain().value_named("b").expect("known");
        assert_eq!(lifetimes(&chain(), &[0, 2]), Err(Unreadable { step: 1, value: b }));
        assert_eq!(lifetimes(&chain(), &[0, 1, 2, 2, 3]), Err(Unreadable { step: 3, value: b }));
        assert!(lifetimes(&chain(), &[0, 1, 2, 1, 2, 3]).is_ok(), "remade, then overwritten again");
        assert!(lifetimes(&chain(), &[0, 1, 2]).is_err(), "an output is missing");
    }
}
