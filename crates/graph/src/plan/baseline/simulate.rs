//! Eviction on demand: run the units in order, make room by a score, recompute missing values.

use super::{Patience, Policy};
use crate::plan::remat::model::Model;

/// The state of a run under a policy.
pub(super) struct Run<'m> {
    pub(super) m: &'m Model,
    policy: Policy,
    budget: u64,
    patience: Patience,
    load: u64,
    pub(super) is_resident: Vec<bool>,
    was_made: Vec<bool>,
    pub(super) pins: Vec<u32>,
    last_used_ns: Vec<u64>,
    /// For each storage, how many of its readers have had their turn in the order.
    readers_done: Vec<usize>,
    /// Start of each unit in a run without recomputation.
    base_start_ns: Vec<u64>,
    clock_ns: u64,
    /// The unit whose turn it is.
    now: u32,
    sequence: Vec<u32>,
    seen: Vec<u32>,
    stamp: u32,
    todo: Vec<u32>,
}

/// A unit that is being made ready.
struct Frame {
    unit: u32,
    next_input: usize,
}

/// Makes room for a unit's outputs and workspace. `None` if there is no way.
pub(super) trait Memory {
    fn make_room(&mut self, run: &mut Run, unit: u32) -> Option<()>;
    fn release(&mut self, storage: u32);
}

/// Counts bytes.
struct Bytes;

impl Memory for Bytes {
    fn make_room(&mut self, run: &mut Run, unit: u32) -> Option<()> {
        let u = &run.m.units[unit as usize];
        let missing = u.outputs.iter().filter(|&&s| !run.is_resident[s as usize]);
        let need = missing.map(|&s| run.m.storages[s as usize].bytes).sum::<u64>() + u.workspace;
        while run.load + need > run.budget {
            let victim = run.victim()?;
            run.evict(victim);
        }
        Some(())
    }

    fn release(&mut self, _storage: u32) {}
}

/// The sequence of a run under a scoring policy.
pub(super) fn run(m: &Model, budget: u64, patience: Patience, policy: Policy) -> Option<Vec<u32>> {
    Run::new(m, budget, patience, policy).all(&mut Bytes)
}

/// Sequences beyond this many executions for each unit are thrashing.
const MOST_RUNS: usize = 60;

impl<'m> Run<'m> {
    pub(super) fn new(m: &'m Model, budget: u64, patience: Patience, policy: Policy) -> Run<'m> {
        let (count, mut clock) = (m.storages.len(), 0);
        let start = |u: &crate::plan::remat::model::Unit| {
            clock += u.time_ns;
            clock - u.time_ns
        };
        Run {
            m,
            policy,
            budget,
            patience,
            load: m.given_bytes,
            is_resident: vec![false; count],
            was_made: vec![false; count],
            pins: vec![0; count],
            last_used_ns: vec![0; count],
            readers_done: vec![0; count],
            base_start_ns: m.units[..m.base].iter().map(start).collect(),
            clock_ns: 0,
            now: 0,
            sequence: Vec::new(),
            seen: vec![0; count],
            stamp: 0,
            todo: Vec::new(),
        }
    }

    pub(super) fn all(mut self, memory: &mut dyn Memory) -> Option<Vec<u32>> {
        for unit in 0..self.m.base as u32 {
            self.now = unit;
            self.make(unit, memory)?;
            for &s in &self.m.units[unit as usize].inputs {
                self.readers_done[s as usize] += 1;
            }
            let u = &self.m.units[unit as usize];
            for &s in u.inputs.iter().chain(&u.outputs) {
                if self.is_resident[s as usize]
                    && self.next_reader(s).is_none()
                    && !self.m.storages[s as usize].is_output
                {
                    self.evict(s);
                    memory.release(s);
                }
            }
        }
        let wanted: Vec<u32> =
            (0..self.m.storages.len() as u32).filter(|&s| self.m.storages[s as usize].is_output).collect();
        // Every writer has run by then.
        self.now = self.m.base as u32;
        for s in wanted {
            if !self.is_resident[s as usize] {
                self.make(self.m.storages[s as usize].producer, memory)?;
            }
            self.pins[s as usize] += 1;
        }
        Some(self.sequence)
    }

    /// Runs `unit`, and first whatever makes its missing inputs.
    fn make(&mut self, unit: u32, memory: &mut dyn Memory) -> Option<()> {
        let mut frames = vec![Frame { unit, next_input: 0 }];
        while let Some(frame) = frames.last_mut() {
            let u = frame.unit;
            match self.m.units[u as usize].inputs.get(frame.next_input) {
                Some(&s) if self.is_resident[s as usize] => {
                    frame.next_input += 1;
                    self.pins[s as usize] += 1;
                    self.last_used_ns[s as usize] = self.clock_ns;
                }
                Some(&s) => {
                    let producer = self.m.storages[s as usize].producer;
                    if !self.can_repeat(producer) {
                        return None;
                    }
                    frames.push(Frame { unit: producer, next_input: 0 });
                }
                None => {
                    self.execute(u, memory)?;
                    frames.pop();
                }
            }
        }
        Some(())
    }

    fn execute(&mut self, unit: u32, memory: &mut dyn Memory) -> Option<()> {
        let u = &self.m.units[unit as usize];
        let is_long = self.patience.longest_ns.is_some_and(|ns| self.clock_ns > ns);
        let is_late = self.patience.until.is_some_and(|until| self.m.clock.now() >= until);
        if is_long || is_late || self.sequence.len() > MOST_RUNS * self.m.base {
            return None;
        }
        u.outputs.iter().for_each(|&s| self.pins[s as usize] += 1);
        memory.make_room(self, unit)?;
        for &s in &u.outputs {
            if !std::mem::replace(&mut self.is_resident[s as usize], true) {
                self.load += self.m.storages[s as usize].bytes;
            }
            self.was_made[s as usize] = true;
        }
        self.clock_ns += u.time_ns;
        for &s in u.inputs.iter().chain(&u.outputs) {
            self.pins[s as usize] -= 1;
            self.last_used_ns[s as usize] = self.clock_ns;
        }
        self.sequence.push(unit);
        self.m.clock.spend(1 + u.inputs.len() + u.outputs.len());
        Some(())
    }

    fn can_repeat(&self, unit: u32) -> bool {
        let u = &self.m.units[unit as usize];
        u.is_repeatable && u.deadlines.iter().all(|&w| self.now <= w)
    }

    /// The next unit of the order that reads the storage.
    pub(super) fn next_reader(&self, s: u32) -> Option<u32> {
        self.m.storages[s as usize].readers.get(self.readers_done[s as usize]).copied()
    }

    /// True if the storage may go: it is not in use, and can be made again when it is used next.
    pub(super) fn is_evictable(&self, s: u32) -> bool {
        let storage = &self.m.storages[s as usize];
        if !self.is_resident[s as usize] || self.pins[s as usize] > 0 || storage.bytes == 0 {
            return false;
        }
        let u = &self.m.units[storage.producer as usize];
        let until = if storage.is_output { Some(self.m.base as u32) } else { self.next_reader(s) };
        until.is_none_or(|next| u.is_repeatable && u.deadlines.iter().all(|&w| next <= w))
    }

    fn victim(&mut self) -> Option<u32> {
        let mut best: Option<(f64, u32)> = None;
        self.m.clock.spend(self.m.storages.len());
        for s in 0..self.m.storages.len() as u32 {
            if self.is_evictable(s) {
                let score = self.score(s);
                if best.is_none_or(|b| score < b.0) {
                    best = Some((score, s));
                }
            }
        }
        best.map(|b| b.1)
    }

    pub(super) fn evict(&mut self, s: u32) {
        self.is_resident[s as usize] = false;
        self.load -= self.m.storages[s as usize].bytes;
    }

    /// Less goes first.
    pub(super) fn score(&mut self, s: u32) -> f64 {
        let storage = &self.m.storages[s as usize];
        let bytes = storage.bytes as f64;
        if self.next_reader(s).is_none() && !storage.is_output {
            return -bytes;
        }
        let own = self.m.units[storage.producer as usize].time_ns as f64;
        let next = self.next_reader(s).map_or(self.m.base as u32, |u| u);
        let at = |u: u32| self.base_start_ns.get(u as usize).copied().unwrap_or(self.m.base_time_ns());
        let until_next = (at(next).saturating_sub(at(self.now)) + 1) as f64;
        let distance = f64::from(next.saturating_sub(self.now)) + 1.0;
        match self.policy {
            Policy::DtrPaper | Policy::Coop | Policy::SqrtN | Policy::Sublinear => {
                let stale = (self.clock_ns - self.last_used_ns[s as usize] + 1) as f64;
                let around = self.evicted_above(s).0 + self.evicted_below(s).0;
                let of_bytes = if self.policy == Policy::Coop { 1.0 } else { bytes };
                (own + around) / (of_bytes * stale)
            }
            Policy::DtrStatic => {
                let (above, lost) = self.evicted_above(s);
                let below = self.evicted_below(s).1 as f64;
                (own + above) * (1.0 + below) * (lost + bytes) / bytes / distance
            }
            Policy::Farsighted => (own + self.evicted_above(s).0) / (bytes * until_next),
        }
    }

    /// Time and bytes of the evicted storages that making `s` again would need first.
    fn evicted_above(&mut self, s: u32) -> (f64, f64) {
        self.stamp += 1;
        self.todo.push(s);
        let (mut time, mut bytes) = (0.0, 0.0);
        while let Some(s) = self.todo.pop() {
            self.m.clock.spend(2);
            for &i in &self.m.units[self.m.storages[s as usize].producer as usize].inputs {
                if !self.is_resident[i as usize] && self.seen[i as usize] != self.stamp {
                    self.seen[i as usize] = self.stamp;
                    time += self.m.units[self.m.storages[i as usize].producer as usize].time_ns as f64;
                    bytes += self.m.storages[i as usize].bytes as f64;
                    self.todo.push(i);
                }
            }
        }
        (time, bytes)
    }

    /// Time and number of the evicted storages that would wait for `s`.
    fn evicted_below(&mut self, s: u32) -> (f64, usize) {
        self.stamp += 1;
        self.todo.push(s);
        let (mut time, mut count) = (0.0, 0);
        while let Some(s) = self.todo.pop() {
            self.m.clock.spend(2);
            for &r in &self.m.storages[s as usize].readers {
                for &o in &self.m.units[r as usize].outputs {
                    let is_gone = self.was_made[o as usize] && !self.is_resident[o as usize];
                    let is_wanted = self.next_reader(o).is_some() || self.m.storages[o as usize].is_output;
                    if is_gone && is_wanted && self.seen[o as usize] != self.stamp {
                        self.seen[o as usize] = self.stamp;
                        time += self.m.units[r as usize].time_ns as f64;
                        count += 1;
                        self.todo.push(o);
                    }
                }
            }
        }
        (time, count)
    }
}
