//! A sequence of units with what it holds when.

use super::model::Model;

const NONE: u32 = u32::MAX;

/// A storage from the step that makes it to the last step that reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    pub(crate) storage: u32,
    pub(crate) start: u32,
    /// The sequence's length if it is an output of the problem.
    pub(crate) end: u32,
    first_use: u32,
    last_use: u32,
    /// The one before of the same storage.
    previous: u32,
    /// Its bytes go over to another instance at its end.
    is_taken: bool,
}

impl Instance {
    /// The first step at which it would have to be held longer to be there later.
    pub(crate) fn gone_from(&self) -> u32 {
        self.end + u32::from(!self.is_taken)
    }
}

#[derive(Clone, Copy, Debug)]
struct Use {
    step: u32,
    next: u32,
}

/// A sequence, evaluated.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) sequence: Vec<u32>,
    pub(crate) time_ns: u64,
    /// Bytes held at each step.
    pub(crate) load: Vec<u64>,
    pub(crate) instances: Vec<Instance>,
    /// For each unit, the step of its first execution.
    pub(crate) first_step: Vec<u32>,
    uses: Vec<Use>,
    /// For each storage, its latest instance.
    latest: Vec<u32>,
    deltas: Vec<i64>,
    /// (the instance that may be taken over, the one that may do so)
    takes: Vec<(u32, u32)>,
    /// Largest loads of [`BLOCK`] steps each.
    block_loads: Vec<u64>,
}

/// Looks that the evaluation of a sequence takes for each of its steps.
const EVALUATION_LOOKS: usize = 12;

/// Steps whose largest load is kept.
const BLOCK: usize = 32;

impl State {
    pub(crate) fn new(m: &Model, sequence: Vec<u32>) -> State {
        let mut s = State {
            sequence,
            time_ns: 0,
            load: Vec::new(),
            instances: Vec::new(),
            first_step: Vec::new(),
            uses: Vec::new(),
            latest: Vec::new(),
            deltas: Vec::new(),
            takes: Vec::new(),
            block_loads: Vec::new(),
        };
        s.evaluate(m);
        s
    }

    /// Computes everything else from the sequence.
    pub(crate) fn evaluate(&mut self, m: &Model) {
        let n = self.sequence.len();
        m.clock.spend(EVALUATION_LOOKS * n);
        self.instances.clear();
        self.uses.clear();
        self.takes.clear();
        self.latest.clear();
        self.latest.resize(m.storages.len(), NONE);
        self.deltas.clear();
        self.deltas.resize(n + 2, 0);
        self.time_ns = 0;
        self.first_step.clear();
        self.first_step.resize(m.units.len(), NONE);
        for step in 0..n {
            let u = self.sequence[step] as usize;
            let unit = &m.units[u];
            self.first_step[u] = self.first_step[u].min(step as u32);
            self.time_ns += unit.time_ns;
            self.deltas[step] += unit.workspace as i64;
            self.deltas[step + 1] -= unit.workspace as i64;
            for &s in &unit.inputs {
                self.note_use(s, step as u32);
            }
            for &s in &unit.outputs {
                let instance = Instance {
                    storage: s,
                    start: step as u32,
                    end: step as u32,
                    first_use: NONE,
                    last_use: NONE,
                    previous: self.latest[s as usize],
                    is_taken: false,
                };
                self.latest[s as usize] = self.instances.len() as u32;
                self.instances.push(instance);
            }
            for &(y, x) in &unit.takes {
                self.takes.push((self.latest[x as usize], self.latest[y as usize]));
            }
        }
        for (s, storage) in m.storages.iter().enumerate() {
            if storage.is_output {
                self.note_use(s as u32, n as u32);
            }
        }
        self.sum_load(m, n);
    }

    fn note_use(&mut self, storage: u32, step: u32) {
        let i = &mut self.instances[self.latest[storage as usize] as usize];
        i.end = step;
        let slot = self.uses.len() as u32;
        self.uses.push(Use { step, next: NONE });
        if i.first_use == NONE {
            i.first_use = slot;
        } else {
            self.uses[i.last_use as usize].next = slot;
        }
        i.last_use = slot;
    }

    fn sum_load(&mut self, m: &Model, n: usize) {
        for i in &self.instances {
            let bytes = m.storages[i.storage as usize].bytes as i64;
            self.deltas[i.start as usize] += bytes;
            self.deltas[(i.end as usize + 1).min(n + 1)] -= bytes;
        }
        self.take_over(m);
        self.load.clear();
        let mut now = m.given_bytes as i64;
        for d in &self.deltas[..n] {
            now += d;
            self.load.push(now as u64);
        }
        self.block_loads.clear();
        self.block_loads.extend(self.load.chunks(BLOCK).map(|c| c.iter().copied().max().unwrap_or(0)));
    }

    /// Does not count twice what one instance takes over from another.
    fn take_over(&mut self, m: &Model) {
        let mut has_taken = NONE;
        for k in 0..self.takes.len() {
            let (x, y) = self.takes[k];
            let step = self.instances[y as usize].start as usize;
            let x = &mut self.instances[x as usize];
            if x.end as usize == step && !x.is_taken && has_taken != y {
                (x.is_taken, has_taken) = (true, y);
                let bytes = m.storages[x.storage as usize].bytes as i64;
                self.deltas[step] -= bytes;
                self.deltas[step + 1] += bytes;
            }
        }
    }

    /// The step of the largest load, the first among equals, and that load.
    pub(crate) fn peak(&self) -> (usize, u64) {
        let mut best = (0, 0);
        for (step, &load) in self.load.iter().enumerate() {
            if load > best.1 {
                best = (step, load);
            }
        }
        best
    }

    /// The instance of `storage` that a step inserted before `step` would read.
    pub(crate) fn instance_at(&self, storage: u32, step: u32) -> Option<&Instance> {
        let mut i = self.latest[storage as usize];
        while i != NONE {
            let instance = &self.instances[i as usize];
            if instance.start < step {
                return Some(instance);
            }
            i = instance.previous;
        }
        None
    }

    /// The first instance of `storage` that starts at `step` or later.
    pub(crate) fn instance_after(&self, storage: u32, step: u32) -> Option<&Instance> {
        let (mut i, mut found) = (self.latest[storage as usize], None);
        while i != NONE && self.instances[i as usize].start >= step {
            found = Some(&self.instances[i as usize]);
            i = self.instances[i as usize].previous;
        }
        found
    }

    /// The last step before `step` and the first after it at which the instance is made or read; `None` if it is so at
    /// `step`, or not alive then.
    pub(crate) fn gap_around(&self, i: &Instance, step: u32) -> Option<(u32, u32)> {
        if i.start >= step || i.end <= step {
            return None;
        }
        let (mut before, mut slot) = (i.start, i.first_use);
        loop {
            let u = self.uses[slot as usize];
            if u.step >= step {
                return (u.step > step).then_some((before, u.step));
            }
            before = u.step;
            slot = u.next;
        }
    }

    /// The largest load of the steps from `from` up to, not with, `to`.
    pub(crate) fn largest_load(&self, from: u32, to: u32) -> u64 {
        let (from, to) = (from as usize, (to as usize).min(self.load.len()));
        if from >= to {
            return 0;
        }
        let most = |range: &[u64]| range.iter().copied().max().unwrap_or(0);
        let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
        if first >= last {
            return most(&self.load[from..to]);
        }
        let ends = most(&self.load[from..first * BLOCK]).max(most(&self.load[last * BLOCK..to]));
        ends.max(most(&self.block_loads[first..last]))
    }
}
