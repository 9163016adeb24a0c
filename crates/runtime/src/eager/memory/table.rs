//! The worker's tables: tensors, the storages that hold their bytes, and the recipes that recompute them.
//!
//! The unit of memory is the storage: views share one. A storage with a recipe is evictable. One without is a *leaf*
//! (data, committed state), and stays while a handle or a recipe needs it. References point from value to input only: a
//! recipe holds its inputs. A storage merely names the recipes that read it, so that an in-place update finds them.
//!
//! Invariants: a recipe lives while any of its outputs does. `readers` of a storage lists each living recipe that has
//! it as an input, once. A storage with neither handles nor readers is removed. `fixed_bytes` is the sum of the bytes
//! of resident leaves.

use std::ops::{Index, IndexMut};
use std::rc::Rc;
use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{CallSite, DType, Facts, Layout, SmallVec};
use rustc_hash::FxHashMap;

use crate::eager::failure::Failure;
use crate::eager::handle::TensorId;
use crate::eager::launcher::op_costs::CostId;
use crate::eager::memory::ledger::Label;
use crate::eager::spill::Copied;
use crate::eager::step_planner::{Local, NO_LOCAL};
use crate::report::Kind;
use crate::slab::{Key, Slab};
use remat_device::Block;
use remat_device::{Event, StreamId};

pub(in crate::eager) type StorageId = Key<Storage>;
pub(in crate::eager) type RecipeId = Key<Recipe>;

/// A view of a storage.
#[derive(Clone, Debug)]
pub(in crate::eager) struct StorageView {
    pub(in crate::eager) storage: StorageId,
    pub(in crate::eager) layout: Layout,
    pub(in crate::eager) dtype: DType,
}

/// A view that a tensor, commands and recipes share.
pub(in crate::eager) type Input = Rc<StorageView>;

/// The meaning of a tensor's name.
#[derive(Clone)]
pub(in crate::eager) enum Slot {
    Ready(Input),
    /// A failed update should have made the tensor, and the name stands for the old version. Until the failure is
    /// reported, a read of the name depends on it. Afterwards a read gives the old version, and the program continues
    /// with that.
    Stale {
        old: Input,
        failure: Arc<Failure>,
    },
    Failed(Arc<Failure>),
}

impl Slot {
    /// The view that a read of the name gives. Errors: the failure that it depends on.
    pub(in crate::eager) fn read(&self) -> Result<&Input, &Arc<Failure>> {
        match self {
            Slot::Ready(s) => Ok(s),
            Slot::Stale { old, failure } if failure.is_reported() => Ok(old),
            Slot::Stale { failure, .. } | Slot::Failed(failure) => Err(failure),
        }
    }

    /// The bytes that the name keeps, whether or not a read may give them.
    pub(in crate::eager) fn kept(&self) -> Option<&Input> {
        match self {
            Slot::Ready(s) | Slot::Stale { old: s, .. } => Some(s),
            Slot::Failed(_) => None,
        }
    }
}

pub(in crate::eager) struct Storage {
    pub(in crate::eager) bytes: usize,
    /// Counts storages in the order in which commands make them. Recomputation changes the place in the table, but not
    /// this number.
    pub(in crate::eager) number: u64,
    /// `None` while evicted.
    pub(in crate::eager) block: Option<Block>,
    /// A copy of the bytes in the spill file.
    pub(in crate::eager) copied: Option<Copied>,
    /// The recipe, and the index of the output that this storage is.
    pub(in crate::eager) recipe: Option<(RecipeId, usize)>,
    pub(in crate::eager) readers: SmallVec<[RecipeId; 4]>,
    /// The number of tensors that are views of this storage.
    pub(in crate::eager) handles: u32,
    /// Those tensors.
    pub(in crate::eager) tensors: SmallVec<[TensorId; 2]>,
    /// The storage must stay: a running op uses it.
    pub(in crate::eager) pins: u32,
    /// The storage should stay: a recomputation in progress will need it.
    pub(in crate::eager) wanted: u32,
    /// The storage stays until the plan that is followed frees it.
    pub(in crate::eager) pinned_by_plan: bool,
    /// Its number in the present step.
    pub(in crate::eager) local: Local,
    pub(in crate::eager) kind: Kind,
    /// The op that made it.
    pub(in crate::eager) label: Label,
    pub(in crate::eager) last_use_ns: u64,
    /// The event of its version. If that failed, reads fail.
    pub(in crate::eager) written: Event,
    /// The event of the last move of that version: a compaction, or a copy back after a failed update.
    pub(in crate::eager) settled: Event,
    /// On asynchronous devices, the last use on each stream.
    pub(in crate::eager) touched: Vec<Event>,
}

impl Storage {
    pub(in crate::eager) fn new(bytes: usize, kind: Kind, label: Label) -> Self {
        Storage {
            bytes,
            number: 0,
            block: None,
            copied: None,
            recipe: None,
            readers: SmallVec::new(),
            handles: 0,
            tensors: SmallVec::new(),
            pins: 0,
            wanted: 0,
            pinned_by_plan: false,
            local: NO_LOCAL,
            kind,
            label,
            last_use_ns: 0,
            written: Event::REACHED,
            settled: Event::REACHED,
            touched: Vec::new(),
        }
    }

    /// The same storage in a copy of the table. The copy of the arena owns its block there.
    fn duplicate(&self) -> Storage {
        Storage {
            block: self.block.as_ref().map(Block::duplicate),
            copied: None,
            readers: self.readers.clone(),
            tensors: self.tensors.clone(),
            local: NO_LOCAL,
            written: Event::REACHED,
            settled: Event::REACHED,
            touched: Vec::new(),
            ..*self
        }
    }

    #[inline]
    pub(in crate::eager) fn is_resident(&self) -> bool {
        self.block.is_some()
    }

    /// Offset of its bytes in the arena.
    pub(in crate::eager) fn start(&self) -> usize {
        self.block.as_ref().map_or(0, Block::start)
    }

    /// Whether names, running commands or recomputations use it.
    pub(in crate::eager) fn held_by(&self) -> HeldBy {
        match (self.handles, self.pins, self.wanted) {
            (0, 0, 0) => HeldBy::Nobody,
            _ => HeldBy::Others,
        }
    }

    /// True if nothing holds its bytes in place and they can be recomputed.
    pub(in crate::eager) fn is_evictable(&self) -> bool {
        self.block.is_some() && self.recipe.is_some() && self.pins == 0
    }
}

/// The users of a storage, apart from recipes that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::eager) enum HeldBy {
    Nobody,
    Others,
}

#[derive(Clone)]
pub(in crate::eager) struct Recipe {
    pub(in crate::eager) op: OpRef,
    pub(in crate::eager) x: SmallVec<[Input; 4]>,
    /// `None` for an output that no longer exists.
    pub(in crate::eager) y: SmallVec<[Option<StorageId>; 2]>,
    /// The number of the first storage that it made, which may be removed. No other recipe has this number.
    pub(in crate::eager) number: u64,
    pub(in crate::eager) facts: Facts,
    pub(in crate::eager) workspace_bytes: usize,
    /// The entry that its measurements update.
    pub(in crate::eager) cost: CostId,
    /// Measured time of one run.
    pub(in crate::eager) cost_ns: f64,
    /// Longest chain of recipes down to leaves.
    pub(in crate::eager) depth: u32,
    /// Bytes beside leaves that suffice to recompute its outputs from leaves alone (`turns.rs`). If an ancestor becomes
    /// a leaf later, fewer suffice.
    pub(in crate::eager) from_nothing_bytes: usize,
    /// The input that is recomputed first then, if that is not the deepest.
    pub(in crate::eager) first: Option<StorageId>,
    /// An upper bound of the bytes beside leaves that any recipe of that chain needs.
    pub(in crate::eager) most_bytes: usize,
    pub(in crate::eager) stream: StreamId,
    pub(in crate::eager) scope: Option<Arc<str>>,
    pub(in crate::eager) site: CallSite,
    /// Set if a recomputation failed for a reason other than the budget. The recipe is not run again.
    pub(in crate::eager) failed: Option<Arc<Failure>>,
}

pub(in crate::eager) struct Table {
    tensors: FxHashMap<TensorId, Slot>,
    storages: Slab<Storage>,
    recipes: Slab<Recipe>,
    /// Bytes of resident storages without a recipe, padding included.
    fixed_bytes: usize,
    /// Storages that were ever made.
    made: u64,
}

impl Table {
    pub(in crate::eager) fn new() -> Self {
        Table { tensors: FxHashMap::default(), storages: Slab::new(), recipes: Slab::new(), fixed_bytes: 0, made: 0 }
    }

    /// A copy for a rehearsal. Keys name the same entries in it.
    pub(in crate::eager) fn duplicate(&self) -> Table {
        Table {
            tensors: self.tensors.clone(),
            storages: self.storages.map(Storage::duplicate),
            recipes: self.recipes.map(Recipe::clone),
            fixed_bytes: self.fixed_bytes,
            made: self.made,
        }
    }

    /// Bytes of resident leaves, padding included.
    pub(in crate::eager) fn fixed_bytes(&self) -> usize {
        self.fixed_bytes
    }

    /// A storage, if it exists.
    pub(in crate::eager) fn storage(&self, id: StorageId) -> Option<&Storage> {
        self.storages.get(id)
    }

    pub(in crate::eager) fn storages(&self) -> impl Iterator<Item = (StorageId, &Storage)> {
        self.storages.iter()
    }

    pub(in crate::eager) fn storage_count(&self) -> usize {
        self.storages.len()
    }

    /// One more than the largest place of a storage, for lists by place.
    pub(in crate::eager) fn storage_slots(&self) -> usize {
        self.storages.slots()
    }

    /// Removes a storage that nothing names or reads.
    pub(in crate::eager) fn remove(&mut self, id: StorageId) {
        self.storages.remove(id);
    }

    /// A recipe, if it exists.
    pub(in crate::eager) fn recipe(&self, id: RecipeId) -> Option<&Recipe> {
        self.recipes.get(id)
    }

    /// A recipe, if it exists, for changes.
    pub(in crate::eager) fn recipe_mut(&mut self, id: RecipeId) -> Option<&mut Recipe> {
        self.recipes.get_mut(id)
    }

    pub(in crate::eager) fn recipes(&self) -> impl Iterator<Item = (RecipeId, &Recipe)> {
        self.recipes.iter()
    }

    /// The outputs of the recipes that read a storage.
    pub(in crate::eager) fn made_of(&self, id: StorageId) -> impl Iterator<Item = StorageId> + '_ {
        self[id].readers.iter().flat_map(|r| self[*r].y.iter().flatten().copied())
    }

    pub(in crate::eager) fn recipe_count(&self) -> usize {
        self.recipes.len()
    }

    /// One more than the largest place of a recipe, for lists by place.
    pub(in crate::eager) fn recipe_slots(&self) -> usize {
        self.recipes.slots()
    }

    /// The meaning of a tensor's name.
    pub(in crate::eager) fn tensor(&self, id: &TensorId) -> Option<&Slot> {
        self.tensors.get(id)
    }

    /// The bytes that a tensor's name keeps.
    pub(in crate::eager) fn kept(&self, id: &TensorId) -> Option<&Input> {
        self.tensors.get(id)?.kept()
    }

    /// The view that a read of a tensor's name gives, if there is such a tensor. Errors: the failure that it depends
    /// on.
    pub(in crate::eager) fn read(&self, id: &TensorId) -> Option<Result<&Input, &Arc<Failure>>> {
        self.tensors.get(id).map(Slot::read)
    }

    /// Lets a name stand for its present version as an old one: an update of it, or a later update of its group,
    /// failed.
    pub(in crate::eager) fn set_stale(&mut self, id: TensorId, failure: &Arc<Failure>) {
        if let Some(slot) = self.tensors.get_mut(&id)
            && let Ok(old) = slot.read()
        {
            *slot = Slot::Stale { old: old.clone(), failure: failure.clone() };
        }
    }

    pub(in crate::eager) fn tensors(&self) -> impl Iterator<Item = &TensorId> {
        self.tensors.keys()
    }

    pub(in crate::eager) fn tensor_count(&self) -> usize {
        self.tensors.len()
    }

    /// Binds a name. The caller counts the handle.
    pub(in crate::eager) fn bind(&mut self, id: TensorId, slot: Slot) {
        self.tensors.insert(id, slot);
    }

    /// Removes a name. The caller counts the handle.
    pub(in crate::eager) fn unbind(&mut self, id: &TensorId) -> Option<Slot> {
        self.tensors.remove(id)
    }

    /// Adds a storage, and numbers it.
    pub(in crate::eager) fn add(&mut self, s: Storage) -> StorageId {
        self.made += 1;
        self.storages.insert(Storage { number: self.made, ..s })
    }

    /// Gives a storage a block.
    pub(in crate::eager) fn set_block(&mut self, id: StorageId, block: Block) {
        let s = &mut self.storages[id];
        if s.recipe.is_none() {
            self.fixed_bytes += block.bytes();
        }
        s.block = Some(block);
    }

    /// Takes the block of a storage.
    pub(in crate::eager) fn take_block(&mut self, id: StorageId) -> Option<Block> {
        let s = &mut self.storages[id];
        let block = s.block.take()?;
        if s.recipe.is_none() {
            self.fixed_bytes -= block.bytes();
        }
        Some(block)
    }

    /// Adds the recipe of `y`. Every storage of `y` gets it.
    pub(in crate::eager) fn attach(&mut self, mut recipe: Recipe, y: &[StorageId]) -> RecipeId {
        recipe.number = y.iter().map(|y| self.storages[*y].number).min().unwrap_or(0);
        let x: SmallVec<[StorageId; 4]> = recipe.x.iter().map(|s| s.storage).collect();
        let id = self.recipes.insert(recipe);
        for (k, &y) in y.iter().enumerate() {
            let s = &mut self.storages[y];
            s.recipe = Some((id, k));
            self.fixed_bytes -= s.block.as_ref().map_or(0, Block::bytes);
        }
        for x in x {
            let readers = &mut self.storages[x].readers;
            if !readers.contains(&id) {
                readers.push(id);
            }
        }
        id
    }

    /// Makes a storage a leaf. Returns storages that nothing needs any more. The caller destroys them.
    #[must_use]
    pub(in crate::eager) fn detach(&mut self, id: StorageId) -> SmallVec<[StorageId; 4]> {
        let s = &mut self.storages[id];
        let Some((recipe, k)) = s.recipe.take() else { return SmallVec::new() };
        self.fixed_bytes += s.block.as_ref().map_or(0, Block::bytes);
        let r = &mut self.recipes[recipe];
        r.y[k] = None;
        if r.y.iter().any(Option::is_some) {
            return SmallVec::new();
        }
        let x = std::mem::take(&mut r.x);
        self.recipes.remove(recipe);
        let mut orphans = SmallVec::new();
        for x in x {
            let Some(s) = self.storages.get_mut(x.storage) else { continue };
            let Some(at) = s.readers.iter().position(|r| *r == recipe) else { continue };
            s.readers.remove(at);
            if s.readers.is_empty() && s.held_by() == HeldBy::Nobody {
                orphans.push(x.storage);
            }
        }
        orphans
    }

    /// Longest chain of recipes below any of `x`.
    pub(in crate::eager) fn depth(&self, x: &[Input]) -> u32 {
        x.iter().map(|s| self.depth_of(s.storage)).max().unwrap_or(0)
    }

    /// Longest chain of recipes that ends in a storage.
    pub(in crate::eager) fn depth_of(&self, id: StorageId) -> u32 {
        self.storages[id].recipe.map_or(0, |(r, _)| self.recipes[r].depth)
    }

    #[inline]
    pub(in crate::eager) fn is_resident(&self, id: StorageId) -> bool {
        self.storages[id].is_resident()
    }

    /// Checks the invariants of the module's note, for tests. Once a storage was evicted, bytes that lead to it may
    /// stay although nothing else reads them.
    pub(in crate::eager) fn verify(&self, has_evicted: bool) -> Result<(), String> {
        let mut fixed = 0;
        for (id, s) in self.storages.iter() {
            fixed += if s.recipe.is_none() { s.block.as_ref().map_or(0, Block::bytes) } else { 0 };
            if s.wanted > 0 || (s.pins > 0 && s.kind != Kind::Staging) {
                return Err(format!("{id:?} ({}) is pinned or wanted between commands", s.label.text));
            }
            if s.handles == 0 && !s.pinned_by_plan && s.is_resident() && s.recipe.is_some() && !has_evicted {
                return Err(format!("{id:?} ({}) holds bytes that nothing reads", s.label.text));
            }
            // A charge that gave way stays in the table until its owner drops it.
            if s.handles == 0 && s.readers.is_empty() && s.pins == 0 && s.kind != Kind::Staging {
                return Err(format!("{id:?} ({}) is needed by nothing", s.label.text));
            }
            if s.recipe.is_none() && !s.is_resident() && s.handles > 0 {
                return Err(format!("{id:?} ({}) can neither be read nor made", s.label.text));
            }
            for r in &s.readers {
                let ok = self.recipes.get(*r).is_some_and(|r| r.x.iter().any(|x| x.storage == id));
                if !ok {
                    return Err(format!("{id:?} lists {r:?}, which does not read it"));
                }
            }
        }
        for (id, r) in self.recipes.iter() {
            let made =
                r.y.iter()
                    .enumerate()
                    .any(|(k, y)| y.and_then(|y| self.storages.get(y)).is_some_and(|s| s.recipe == Some((id, k))));
            let read = r.x.iter().all(|x| self.storages.get(x.storage).is_some_and(|s| s.readers.contains(&id)));
            if !made || !read {
                return Err(format!("recipe {id:?} of {} is not linked both ways", r.op.label()));
            }
        }
        if fixed != self.fixed_bytes {
            return Err(format!("fixed bytes {} recount to {fixed}", self.fixed_bytes));
        }
        Ok(())
    }
}

impl Index<StorageId> for Table {
    type Output = Storage;

    #[inline]
    fn index(&self, id: StorageId) -> &Storage {
        &self.storages[id]
    }
}

impl IndexMut<StorageId> for Table {
    #[inline]
    fn index_mut(&mut self, id: StorageId) -> &mut Storage {
        &mut self.storages[id]
    }
}

impl Index<RecipeId> for Table {
    type Output = Recipe;

    #[inline]
    fn index(&self, id: RecipeId) -> &Recipe {
        &self.recipes[id]
    }
}
