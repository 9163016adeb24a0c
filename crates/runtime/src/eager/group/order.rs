//! The order in which a group's updates need the least memory.

use remat_types::SmallVec;
use rustc_hash::FxHashMap;

use super::{CommandGroup, Item};
use crate::eager::command::Command;
use crate::eager::handle::TensorId;
use crate::eager::worker::Worker;

/// Commands that must stay together: those of one parameter.
#[derive(Default)]
struct Part {
    items: Vec<usize>,
    /// The longest chain of recipes behind one of its inputs.
    depth: u32,
}

impl Worker {
    /// Puts the parameter first whose gradient was made first: later gradients then no longer need its old value.
    /// Commands that use a result of the group stay together and in order. Deletes come last.
    pub(super) fn order_for_memory(&self, g: &mut CommandGroup) {
        let mut part_of: FxHashMap<TensorId, usize> = FxHashMap::default();
        let mut parts: Vec<Part> = Vec::new();
        let mut last: Vec<usize> = Vec::new();
        for (at, item) in g.items.iter().enumerate() {
            let ids: SmallVec<[TensorId; 8]> = match item {
                Item::Apply(a) => a.x.iter().map(|x| x.0).chain(a.y.iter().copied()).collect(),
                Item::Command(Command::Commit { id, .. } | Command::Tag { id, .. }) => SmallVec::from_iter([*id]),
                Item::Command(_) => {
                    last.push(at);
                    continue;
                }
            };
            let mut found: SmallVec<[usize; 4]> = ids.iter().filter_map(|id| part_of.get(id).copied()).collect();
            found.sort_unstable();
            found.dedup();
            let part = found.first().copied().unwrap_or_else(|| {
                parts.push(Part::default());
                parts.len() - 1
            });
            for other in found.into_iter().skip(1) {
                let merged = std::mem::take(&mut parts[other]);
                parts[part].items.extend(merged.items);
                parts[part].depth = parts[part].depth.max(merged.depth);
                part_of.values_mut().filter(|p| **p == other).for_each(|p| *p = part);
            }
            parts[part].items.push(at);
            if let Item::Apply(a) = item {
                parts[part].depth = parts[part].depth.max(self.depth_of_inputs(a.x.iter().map(|x| x.0)));
                // Commands are tied by tensors that the group makes and by tensors that an update replaces. A shared
                // learning rate ties none.
                let replaced = a.fallback.iter().filter_map(|i| i.and_then(|i| a.x.get(usize::from(i)))).map(|x| x.0);
                for id in a.y.iter().copied().chain(replaced) {
                    part_of.insert(id, part);
                }
            }
        }
        parts.iter_mut().for_each(|p| p.items.sort_unstable());
        parts.sort_by_key(|p| p.depth);
        let order: Vec<usize> = parts.into_iter().flat_map(|p| p.items).chain(last).collect();
        let mut items: Vec<Option<Item>> = std::mem::take(&mut g.items).into_iter().map(Some).collect();
        g.items = order.into_iter().filter_map(|at| items[at].take()).collect();
    }

    fn depth_of_inputs(&self, x: impl Iterator<Item = TensorId>) -> u32 {
        let storage = |id: TensorId| self.table.kept(&id).map(|s| s.storage);
        x.filter_map(storage).map(|s| self.table.depth_of(s)).max().unwrap_or(0)
    }
}
