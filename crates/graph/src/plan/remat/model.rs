//! The problem as the search sees it.
//!
//! Given storages are a constant. Operators that only continue what another one made (a view, a write over a value that
//! nobody else reads) are fused with it into one *unit*: no schedule gains from running them apart. After that one unit
//! makes each storage.
//!
//! Storages whose versions could not be fused are *fixed*: they and their writers run once. A unit that reads an
//! overwritten version may be repeated until the writer runs; these writers are the unit's `deadlines`.

use crate::plan::clock::Clock;
use crate::plan::lifetime::lifetimes;
use crate::plan::problem::{OutputKind, Problem, SpillRates};

/// Operators that always run together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) time_ns: u64,
    /// Storages that it reads or continues, made by other units.
    pub(crate) inputs: Vec<u32>,
    /// Units that make the values it reads; more than its inputs' producers where a storage is written twice.
    pub(crate) requires: Vec<u32>,
    /// Storages that it makes.
    pub(crate) outputs: Vec<u32>,
    /// One that it makes, and one of its inputs whose bytes that may have where the input dies.
    pub(crate) takes: Vec<(u32, u32)>,
    pub(crate) workspace: u64,
    pub(crate) is_repeatable: bool,
    /// Units that must not have run.
    pub(crate) deadlines: Vec<u32>,
    /// Operators of the problem, in order.
    pub(crate) parts: Vec<usize>,
}

/// A storage that is not given.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) bytes: u64,
    pub(crate) producer: u32,
    pub(crate) is_output: bool,
    /// Units that read it.
    pub(crate) readers: Vec<u32>,
    /// Index into the problem's storages.
    pub(crate) storage: usize,
    /// All its readers see the same content.
    pub(crate) has_one_version: bool,
}

/// Units and storages; both in the order of the run without a budget.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// Those of the problem, then one that fetches for each storage that may be spilled.
    pub(crate) units: Vec<Unit>,
    /// How many there are of the problem.
    pub(crate) base: usize,
    /// For each storage, the unit that fetches it.
    fetches: Vec<Option<u32>>,
    pub(crate) storages: Vec<Made>,
    pub(crate) given_bytes: u64,
    /// True if every schedule of the problem is one of units: nothing was fused or fixed.
    pub(crate) is_faithful: bool,
    /// For each unit, those whose inputs it overwrites.
    overwritten_readers: Vec<Vec<u32>>,
    /// Of the search for a schedule of these units.
    pub(crate) clock: Clock,
}

impl Model {
    /// With `in_order`, the units' parts in their order are the operators in theirs.
    pub(crate) fn new(p: &Problem, in_order: bool) -> Model {
        let fused = Fusion::new(p, if in_order { Fuse::Neighbours } else { Fuse::Any }).model(p);
        // The fusion's rules are local; this is their proof for the whole order.
        let base: Vec<u32> = (0..fused.units.len() as u32).collect();
        if lifetimes(p, &fused.expand(&base)).is_ok() { fused } else { Fusion::new(p, Fuse::None).model(p) }
    }

    /// The operators of a sequence of units.
    pub(crate) fn expand(&self, sequence: &[u32]) -> Vec<usize> {
        sequence.iter().flat_map(|&u| self.units[u as usize].parts.iter().copied()).collect()
    }

    pub(crate) fn base_time_ns(&self) -> u64 {
        self.units[..self.base].iter().map(|u| u.time_ns).sum()
    }

    /// The order of the units, but for those that let go of more bytes than they make: they run as soon as they can.
    ///
    /// Updates of parameters are such: at the end of a step all gradients wait for them.
    pub(crate) fn early_order(&self) -> Vec<u32> {
        let made = |u: &Unit| u.outputs.iter().map(|&s| self.storages[s as usize].bytes).sum::<u64>();
        let is_last_reader = |u: u32, s: u32| {
            let storage = &self.storages[s as usize];
            !storage.is_output && storage.readers.last() == Some(&u)
        };
        let freed = |u: u32| {
            let inputs = self.units[u as usize].inputs.iter().filter(|&&s| is_last_reader(u, s));
            inputs.map(|&s| self.storages[s as usize].bytes).sum::<u64>()
        };
        // For each unit, those that run right after it. Moved units keep their order among themselves.
        let mut followers: Vec<Vec<u32>> = vec![Vec::new(); self.base];
        let mut anchor: Vec<u32> = (0..self.base as u32).collect();
        let mut first = Vec::new();
        for u in 0..self.base as u32 {
            let unit = &self.units[u as usize];
            if freed(u) <= made(unit) {
                continue;
            }
            let latest = unit
                .requires
                .iter()
                .copied()
                .chain(self.overwritten_readers(u).iter().copied())
                .map(|q| anchor[q as usize])
                .max();
            match latest {
                Some(q) => followers[q as usize].push(u),
                None => first.push(u),
            }
            anchor[u as usize] = latest.unwrap_or(0);
        }
        let is_moved = |u: u32| first.contains(&u) || anchor[u as usize] != u;
        let stay = (0..self.base as u32).filter(|&u| !is_moved(u));
        let rest = stay.flat_map(|u| std::iter::once(u).chain(followers[u as usize].iter().copied()));
        first.iter().copied().chain(rest).collect()
    }

    /// The same with a unit for each storage that may be fetched, which takes no time; for those of units that run once
    /// only if they need not be kept.
    pub(crate) fn with_fetches(mut self, keeps_leaves: bool) -> Model {
        for s in 0..self.storages.len() {
            let storage = &self.storages[s];
            let is_kept = keeps_leaves && !self.units[storage.producer as usize].is_repeatable;
            if storage.bytes == 0 || !storage.has_one_version || is_kept {
                continue;
            }
            let fetch = Unit {
                requires: vec![storage.producer],
                outputs: vec![s as u32],
                is_repeatable: true,
                ..Unit::default()
            };
            self.fetches[s] = Some(self.units.len() as u32);
            self.units.push(fetch);
            self.overwritten_readers.push(Vec::new());
        }
        // A copy out may still read what would be taken over.
        self.units.iter_mut().for_each(|u| u.takes.clear());
        self.is_faithful = false;
        self
    }

    /// The same with fetches that take `price` of the time to copy out and in.
    pub(crate) fn priced(&self, rates: SpillRates, price: f64) -> Model {
        let mut priced = self.clone();
        for unit in &mut priced.units[self.base..] {
            let bytes = self.storages[unit.outputs[0] as usize].bytes;
            unit.time_ns = (rates.write_ns(bytes).saturating_add(rates.read_ns(bytes)) as f64 * price) as u64;
        }
        priced
    }

    /// The unit that fetches a storage.
    pub(crate) fn fetch_of(&self, storage: u32) -> Option<u32> {
        self.fetches[storage as usize]
    }

    /// True for units that fetch.
    pub(crate) fn is_fetch(&self, unit: u32) -> bool {
        unit as usize >= self.base
    }

    /// Units that must have run before `u` because it overwrites what they read.
    pub(crate) fn overwritten_readers(&self, u: u32) -> &[u32] {
        &self.overwritten_readers[u as usize]
    }
}

/// Which operators are fused into which.
struct Fusion {
    /// For each operator, the operator whose unit it is in.
    leader: Vec<usize>,
    /// For each leader, its place in the order.
    place: Vec<usize>,
    /// For each storage that is not given, whether its versions are apart.
    is_fixed: Vec<bool>,
}

/// The kinds of operators that may become one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fuse {
    None,
    /// Operators between which no other runs.
    Neighbours,
    Any,
}

impl Fusion {
    fn new(p: &Problem, fuse: Fuse) -> Fusion {
        let n = p.ops().len();
        let is_fixed = vec![false; p.storages().len()];
        let mut f = Fusion { leader: (0..n).collect(), place: (0..n).collect(), is_fixed };
        let readers = readers(p);
        for (s, storage) in p.storages().iter().enumerate() {
            let Some(root) = storage.producer else { continue };
            for k in 1..storage.values.len() {
                let op = p.values()[storage.values[k]].producer.expect("a later value has a producer");
                if f.leader[op] == f.leader[root] {
                    continue;
                }
                let leader = f.leader[root];
                let may_fuse = match fuse {
                    Fuse::None => false,
                    Fuse::Neighbours => op.checked_sub(1).is_some_and(|before| f.leader[before] == leader),
                    Fuse::Any => true,
                };
                if !(may_fuse && f.can_join(p, &readers, s, k, op) && f.join(p, &readers, leader, op)) {
                    f.is_fixed[s] = true;
                    break;
                }
            }
        }
        f
    }

    /// True if nothing but the unit and `op` cares whether value `k` of storage `s` is there at once.
    fn can_join(&self, p: &Problem, readers: &[Vec<usize>], s: usize, k: usize, op: usize) -> bool {
        let storage = &p.storages()[s];
        let leader = self.leader[storage.producer.expect("not given")];
        let kind = |v: usize| p.ops()[op].outputs.iter().find(|o| o.0 == v).map(|o| o.1);
        if self.leader[op] != op {
            return false;
        }
        if kind(storage.values[k]) == Some(OutputKind::Alias) {
            return p.ops()[op].outputs.iter().all(|&(v, _)| p.values()[v].storage == s);
        }
        let inside = |r: &usize| *r == op || self.leader[*r] == leader;
        storage.values[..k].iter().all(|&v| readers[v].iter().all(inside) && !p.outputs().contains(&v))
    }

    /// Fuses `op` into the unit of `leader` if an order allows it.
    fn join(&mut self, p: &Problem, readers: &[Vec<usize>], leader: usize, op: usize) -> bool {
        let place = self.place[leader];
        let is_ready = |v: &usize| match p.values()[*v].producer {
            None => true,
            Some(q) => self.leader[q] == leader || self.place[self.leader[q]] < place,
        };
        if !p.ops()[op].inputs.iter().all(is_ready) && !self.delay(p, readers, leader, op) {
            return false;
        }
        self.leader[op] = leader;
        true
    }

    /// Moves the unit to the place of `op`, if nothing in between reads its outputs or overwrites its inputs.
    fn delay(&mut self, p: &Problem, readers: &[Vec<usize>], leader: usize, op: usize) -> bool {
        let (from, to) = (self.place[leader], self.place[op]);
        let between =
            |q: usize| q != op && self.leader[q] != leader && (from..=to).contains(&self.place[self.leader[q]]);
        let parts: Vec<usize> = (0..p.ops().len()).filter(|&q| self.leader[q] == leader).collect();
        let made = parts.iter().flat_map(|&q| p.ops()[q].outputs.iter().map(|o| o.0));
        let reads: Vec<usize> =
            parts.iter().flat_map(|&q| p.ops()[q].inputs.iter().map(|&v| p.values()[v].storage)).collect();
        let is_overwritten = (0..p.ops().len()).filter(|&q| between(q)).any(|q| {
            p.ops()[q].outputs.iter().any(|&(v, k)| k == OutputKind::Writes && reads.contains(&p.values()[v].storage))
        });
        if is_overwritten || made.into_iter().any(|v| readers[v].iter().any(|&r| between(r))) {
            return false;
        }
        self.place[leader] = to;
        true
    }

    fn model(&self, p: &Problem) -> Model {
        let mut leaders: Vec<usize> = (0..p.ops().len()).filter(|&o| self.leader[o] == o).collect();
        leaders.sort_by_key(|&o| (self.place[o], o));
        let mut unit_of = vec![0u32; p.ops().len()];
        for (u, &leader) in leaders.iter().enumerate() {
            unit_of[leader] = u as u32;
        }
        let unit_of: Vec<u32> = (0..p.ops().len()).map(|o| unit_of[self.leader[o]]).collect();
        let (storages, index) = self.made(p, &unit_of);
        let mut units = vec![Unit { is_repeatable: true, ..Unit::default() }; leaders.len()];
        for (o, &u) in unit_of.iter().enumerate() {
            self.add_part(p, o, &mut units[u as usize], &index, &unit_of);
        }
        for u in &mut units {
            add_takes(p, u, &index);
        }
        let mut overwritten_readers = vec![Vec::new(); units.len()];
        for (u, unit) in units.iter().enumerate() {
            unit.deadlines.iter().for_each(|&w| overwritten_readers[w as usize].push(u as u32));
        }
        let is_faithful = units.len() == p.ops().len() && !self.is_fixed.contains(&true);
        let (base, fetches) = (units.len(), vec![None; storages.len()]);
        let given_bytes = p.given_bytes();
        let mut m = Model {
            units,
            base,
            fetches,
            storages,
            given_bytes,
            is_faithful,
            overwritten_readers,
            clock: Clock::default(),
        };
        for (u, unit) in m.units.iter().enumerate() {
            unit.inputs.iter().for_each(|&s| m.storages[s as usize].readers.push(u as u32));
        }
        m
    }

    /// Storages that are not given, and for each of the problem's the index among them.
    fn made(&self, p: &Problem, unit_of: &[u32]) -> (Vec<Made>, Vec<Option<u32>>) {
        let (mut list, mut index) = (Vec::new(), vec![None; p.storages().len()]);
        for (s, storage) in p.storages().iter().enumerate() {
            let Some(producer) = storage.producer else { continue };
            index[s] = Some(list.len() as u32);
            let is_output = p.outputs().iter().any(|&v| p.values()[v].storage == s);
            list.push(Made {
                bytes: storage.padded,
                producer: unit_of[producer],
                is_output,
                readers: Vec::new(),
                storage: s,
                has_one_version: !self.is_fixed[s],
            });
        }
        (list, index)
    }

    fn add_part(&self, p: &Problem, o: usize, unit: &mut Unit, index: &[Option<u32>], unit_of: &[u32]) {
        let op = &p.ops()[o];
        unit.parts.push(o);
        unit.time_ns += op.time_ns;
        unit.workspace = unit.workspace.max(op.workspace);
        unit.is_repeatable &= op.repeatable;
        for &v in &op.inputs {
            let s = p.values()[v].storage;
            let is_own = p.storages()[s].producer.is_some_and(|q| unit_of[q] == unit_of[o]);
            if let (false, Some(s)) = (is_own, index[s]) {
                push_new(&mut unit.inputs, s);
            }
            if let Some(producer) = p.values()[v].producer.filter(|&q| unit_of[q] != unit_of[o]) {
                push_new(&mut unit.requires, unit_of[producer]);
            }
            if let Some(writer) = self.overwriter(p, v).filter(|&w| unit_of[w] != unit_of[o]) {
                push_new(&mut unit.deadlines, unit_of[writer]);
            }
        }
        for &(v, kind) in &op.outputs {
            let s = p.values()[v].storage;
            match (kind, index[s]) {
                (OutputKind::Own, Some(made)) => {
                    unit.outputs.push(made);
                    unit.is_repeatable &= !self.is_fixed[s];
                }
                (OutputKind::Writes, _) => {
                    let is_given = p.storages()[s].producer.is_none();
                    unit.is_repeatable &= !(is_given || self.is_fixed[s]);
                }
                _ => {}
            }
        }
    }

    /// The operator that makes value `v` unreadable.
    fn overwriter(&self, p: &Problem, v: usize) -> Option<usize> {
        let values = &p.storages()[p.values()[v].storage].values;
        let later = values.iter().skip_while(|&&x| x != v).skip(1);
        let writers = later.filter_map(|&x| {
            let q = p.values()[x].producer?;
            p.ops()[q].outputs.contains(&(x, OutputKind::Writes)).then_some(q)
        });
        writers.min()
    }
}

/// Adds the inputs that a unit may take over: those that no other part of the unit reads.
fn add_takes(p: &Problem, unit: &mut Unit, index: &[Option<u32>]) {
    for &o in &unit.parts {
        let reads = |part: &&usize, s: usize| p.ops()[**part].inputs.iter().any(|&v| p.values()[v].storage == s);
        for &(to, from) in &p.ops()[o].takes {
            let (Some(y), Some(x)) = (index[to], index[from]) else { continue };
            let is_alone = unit.parts.iter().filter(|part| reads(part, from)).count() == 1;
            if is_alone && unit.inputs.contains(&x) && unit.outputs.contains(&y) {
                unit.takes.push((y, x));
            }
        }
    }
}

fn push_new(list: &mut Vec<u32>, item: u32) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// For each value, the operators that read it.
fn readers(p: &Problem) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); p.values().len()];
    for (o, op) in p.ops().iter().enumerate() {
        op.inputs.iter().for_each(|&v| readers[v].push(o));
    }
    readers
}
