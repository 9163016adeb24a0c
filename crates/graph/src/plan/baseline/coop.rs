//! Coop: an allocation takes the cheapest window of neighbouring blocks and free ranges that is large enough.
//!
//! Addresses are real here, so its figures include fragmentation.

use super::simulate::{Memory, Run};
use super::{Patience, Policy};
use crate::plan::remat::model::Model;

/// The arena behind the given values, in address order; `None` is free.
struct Addresses {
    blocks: Vec<(u64, Option<u32>)>,
}

/// Stands for the workspace of the running unit.
const WORKSPACE: u32 = u32::MAX;

pub(super) fn run(m: &Model, budget: u64, patience: Patience) -> Option<Vec<u32>> {
    let room = budget.checked_sub(m.given_bytes)?;
    // Bytes are counted by the addresses alone.
    Run::new(m, u64::MAX, patience, Policy::Coop).all(&mut Addresses { blocks: vec![(room, None)] })
}

impl Memory for Addresses {
    fn make_room(&mut self, run: &mut Run, unit: u32) -> Option<()> {
        let u = &run.m.units[unit as usize];
        let mut wanted: Vec<(u64, u32)> = u
            .outputs
            .iter()
            .filter(|&&s| !run.is_resident[s as usize])
            .map(|&s| (run.m.storages[s as usize].bytes, s))
            .collect();
        wanted.push((u.workspace, WORKSPACE));
        for (bytes, owner) in wanted.into_iter().filter(|w| w.0 > 0) {
            self.allocate(run, bytes, owner)?;
        }
        self.release(WORKSPACE);
        Some(())
    }

    fn release(&mut self, storage: u32) {
        if let Some(i) = self.blocks.iter().position(|b| b.1 == Some(storage)) {
            self.blocks[i].1 = None;
            self.join(i);
        }
    }
}

impl Addresses {
    fn allocate(&mut self, run: &mut Run, bytes: u64, owner: u32) -> Option<()> {
        let tightest = (0..self.blocks.len()).filter(|&i| self.blocks[i].1.is_none() && self.blocks[i].0 >= bytes);
        let free = match tightest.min_by_key(|&i| self.blocks[i].0) {
            Some(i) => i,
            None => self.clear_window(run, bytes)?,
        };
        let rest = self.blocks[free].0 - bytes;
        self.blocks[free] = (bytes, Some(owner));
        if rest > 0 {
            self.blocks.insert(free + 1, (rest, None));
        }
        Some(())
    }

    /// Evicts the cheapest window of at least `bytes`; gives the index of the free range that it leaves.
    fn clear_window(&mut self, run: &mut Run, bytes: u64) -> Option<usize> {
        let costs: Vec<Option<f64>> = self
            .blocks
            .iter()
            .map(|b| match b.1 {
                None => Some(0.0),
                Some(s) if s != WORKSPACE && run.is_evictable(s) => Some(run.score(s).max(0.0)),
                Some(_) => None,
            })
            .collect();
        let mut best: Option<(f64, usize, usize)> = None;
        for from in 0..costs.len() {
            run.m.clock.spend(4);
            let (mut sum, mut size) = (0.0, 0);
            for (to, cost) in costs.iter().enumerate().skip(from) {
                let Some(cost) = cost else { break };
                sum += cost;
                size += self.blocks[to].0;
                if size >= bytes {
                    if best.is_none_or(|b| sum < b.0) {
                        best = Some((sum, from, to));
                    }
                    break;
                }
            }
        }
        let (_, from, to) = best?;
        for i in from..=to {
            if let Some(s) = self.blocks[i].1.take() {
                run.evict(s);
            }
        }
        let size = self.blocks[from..=to].iter().map(|b| b.0).sum();
        self.blocks.splice(from..=to, [(size, None)]);
        Some(self.join(from))
    }

    /// Joins free range `i` with free neighbours; gives its index then.
    fn join(&mut self, i: usize) -> usize {
        if self.blocks.get(i + 1).is_some_and(|b| b.1.is_none()) {
            self.blocks[i].0 += self.blocks.remove(i + 1).0;
        }
        if i > 0 && self.blocks[i - 1].1.is_none() {
            self.blocks[i - 1].0 += self.blocks.remove(i).0;
            return i - 1;
        }
        i
    }
}
