//! Measured times of ops, by op and by the dtypes and shapes of its inputs.

use std::hash::{Hash, Hasher};

use remat_ops::OpRef;
use remat_types::{DType, Fact, Shape, SmallVec};
use rustc_hash::{FxHashMap, FxHasher};

use crate::eager::memory::table::Input;

/// Weight of the newest measurement in an op's average time.
const DECAY: f64 = 0.25;

/// An entry of [`OpCosts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::eager) struct CostId(u32);

#[derive(Clone)]
struct Entry {
    op: OpRef,
    x: SmallVec<[(DType, Shape); 4]>,
    ns: f64,
    /// The device measured the time. Otherwise it is a guess.
    is_measured: bool,
}

/// See the module's note.
#[derive(Clone, Default)]
pub(in crate::eager) struct OpCosts {
    entries: Vec<Entry>,
    /// Entries by hash. The key is looked up for every op, and cloned only for new ones.
    by_hash: FxHashMap<u64, SmallVec<[CostId; 2]>>,
}

/// The result of a lookup of an op's time, which may not exist yet.
pub(in crate::eager) struct Found {
    hash: u64,
    pub(in crate::eager) id: Option<CostId>,
}

impl OpCosts {
    pub(in crate::eager) fn find(&self, op: &OpRef, x: &[Input]) -> Found {
        let mut hasher = FxHasher::default();
        op.hash(&mut hasher);
        for s in x {
            s.dtype.hash(&mut hasher);
            s.layout.shape().hash(&mut hasher);
        }
        let hash = hasher.finish();
        let same = |id: &CostId| {
            let e = &self.entries[id.0 as usize];
            let equal = |(a, b): (&(DType, Shape), &Input)| a.0 == b.dtype && a.1 == *b.layout.shape();
            e.op == *op && e.x.len() == x.len() && e.x.iter().zip(x).all(equal)
        };
        let id = self.by_hash.get(&hash).and_then(|ids| ids.iter().copied().find(same));
        Found { hash, id }
    }

    /// The average time.
    pub(in crate::eager) fn ns(&self, id: CostId) -> f64 {
        self.entries[id.0 as usize].ns
    }

    /// Folds a measurement into the average and returns it.
    pub(in crate::eager) fn learn(&mut self, id: CostId, ns: u64) -> f64 {
        let cost = &mut self.entries[id.0 as usize].ns;
        *cost += DECAY * (ns as f64 - *cost);
        *cost
    }

    /// As [`OpCosts::learn`], for a time that replaces a guess.
    pub(in crate::eager) fn learn_measured(&mut self, id: CostId, ns: u64) -> f64 {
        let entry = &mut self.entries[id.0 as usize];
        if !std::mem::replace(&mut entry.is_measured, true) {
            entry.ns = ns as f64;
        }
        self.learn(id, ns)
    }

    /// As [`OpCosts::learn`], for a result of [`OpCosts::find`].
    pub(in crate::eager) fn learn_found(&mut self, found: &Found, op: &OpRef, x: &[Input], ns: u64) -> (CostId, f64) {
        let id = found.id.unwrap_or_else(|| {
            let x = x.iter().map(|s| (s.dtype, s.layout.shape().clone())).collect();
            self.entries.push(Entry { op: op.clone(), x, ns: ns as f64, is_measured: false });
            let id = CostId(self.entries.len() as u32 - 1);
            self.by_hash.entry(found.hash).or_default().push(id);
            id
        });
        (id, self.learn(id, ns))
    }
}

/// The facts of an op's inputs, without values.
pub(in crate::eager) fn facts(x: &[Input]) -> SmallVec<[Fact; 4]> {
    x.iter().map(|s| Fact::new(s.dtype, s.layout.shape().clone())).collect()
}
