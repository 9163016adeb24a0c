//! What the worker knows: tensors, the storages that hold their bytes, and the recipes that can make them again.
//!
//! The unit of memory is the storage: views share one. A storage with a recipe is evictable; one without is a *leaf*
//! (data, committed state) and stays while a handle or a recipe needs it. References point from value to input only:
//! a recipe holds its inputs, a storage merely names the recipes that read it, so that an in-place update finds them.
//!
//! Invariants: a recipe lives while any of its outputs does; `readers` of a storage lists each living recipe that has
//! it as an input, once; a storage with neither handles nor readers is gone; `fixed_bytes` is what resident leaves
//! hold.

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

/// What a tensor's name stands for.
#[derive(Clone)]
pub(in crate::eager) enum Slot {
    Ready(Input),
    /// An update that failed should have made it, and it stands for the old version. Until somebody was told of the failure,
    /// whatever reads it depends on that; from then on it is its old version, and the program goes on with it.
    Stale {
        old: Input,
        failure: Arc<Failure>,
    },
    Failed(Arc<Failure>),
}

impl Slot {
    /// What is read under the name. Errors: the failure that it depends on.
    pub(in crate::eager) fn read(&self) -> Result<&Input, &Arc<Failure>> {
        match self {
            Slot::Ready(s) => Ok(s),
            Slot::Stale { old, failure } if failure.is_reported() => Ok(old),
            Slot::Stale { failure, .. } | Slot::Failed(failure) => Err(failure),
        }
    }

    /// The bytes that the name keeps, whoever may read them.
    pub(in crate::eager) fn kept(&self) -> Option<&Input> {
        match self {
            Slot::Ready(s) | Slot::Stale { old: s, .. } => Some(s),
            Slot::Failed(_) => None,
        }
    }
}

pub(in crate::eager) struct Storage {
    pub(in crate::eager) bytes: usize,
    /// Counts storages as commands make them, unlike the place in the table, which depends on what ran again.
    pub(in crate::eager) number: u64,
    /// `None` while evicted.
    pub(in crate::eager) block: Option<Block>,
    /// A copy of the bytes in the spill file.
    pub(in crate::eager) copied: Option<Copied>,
    /// The recipe and which of its outputs this is.
    pub(in crate::eager) recipe: Option<(RecipeId, usize)>,
    pub(in crate::eager) readers: SmallVec<[RecipeId; 4]>,
    /// Tensors that are views of this storage.
    pub(in crate::eager) handles: u32,
    /// Those tensors.
    pub(in crate::eager) tensors: SmallVec<[TensorId; 2]>,
    /// Must stay: a running op uses it.
    pub(in crate::eager) pins: u32,
    /// Should stay: a recomputation in progress will need it.
    pub(in crate::eager) wanted: u32,
    /// Stays until the plan that is followed lets it go.
    pub(in crate::eager) pinned_by_plan: bool,
    /// Its number in the present step.
    pub(in crate::eager) local: Local,
    pub(in crate::eager) kind: Kind,
    /// The op that made it.
    pub(in crate::eager) label: Label,
    pub(in crate::eager) last_use_ns: u64,
    /// When its version was made; if that failed, so does what reads it.
    pub(in crate::eager) written: Event,
    /// When the bytes of that version last came to where they are: moved, or brought back after an update that failed.
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

    /// The same storage in a copy of the table: its block is owned there by the copy of the arena.
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

    /// Who uses it, of names, running commands and recomputations.
    pub(in crate::eager) fn held_by(&self) -> HeldBy {
        match (self.handles, self.pins, self.wanted) {
            (0, 0, 0) => HeldBy::Nobody,
            _ => HeldBy::Others,
        }
    }

    /// Nothing holds its bytes in place and they can be made again.
    pub(in crate::eager) fn is_evictable(&self) -> bool {
        self.block.is_some() && self.recipe.is_some() && self.pins == 0
    }
}

/// Who uses a storage, beside recipes that read it.
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
    /// That of the first storage that it made, which may be gone: no other recipe has it.
    pub(in crate::eager) number: u64,
    pub(in crate::eager) facts: Facts,
    pub(in crate::eager) workspace_bytes: usize,
    /// Where measurements go.
    pub(in crate::eager) cost: CostId,
    /// Measured time of one run.
    pub(in crate::eager) cost_ns: f64,
    /// Longest chain of recipes down to leaves.
    pub(in crate::eager) depth: u32,
    /// Bytes beside leaves in which its outputs can be made from those alone (`turns.rs`), as long as none of what they are
    /// made of becomes a leaf: then it is more than that takes.
    pub(in crate::eager) from_nothing_bytes: usize,
    /// The input that is made first then, if it is not the deepest.
    pub(in crate::eager) first: Option<StorageId>,
    /// No recipe of that chain needs more bytes beside leaves when it runs.
    pub(in crate::eager) most_bytes: usize,
    pub(in crate::eager) stream: StreamId,
    pub(in crate::eager) scope: Option<Arc<str>>,
    pub(in crate::eager) site: CallSite,
    /// Set when it failed to run again, for a reason other than the budget: it is not asked a second time.
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

    /// A copy for a rehearsal, in which keys name the same.
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

    /// A storage, if it is there.
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

    /// Takes a storage out that nothing names or reads.
    pub(in crate::eager) fn remove(&mut self, id: StorageId) {
        self.storages.remove(id);
    }

    /// A recipe, if it is there.
    pub(in crate::eager) fn recipe(&self, id: RecipeId) -> Option<&Recipe> {
        self.recipes.get(id)
    }

    /// A recipe, if it is there, to change.
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

    /// What a tensor's name stands for.
    pub(in crate::eager) fn tensor(&self, id: &TensorId) -> Option<&Slot> {
        self.tensors.get(id)
    }

    /// The bytes that a tensor's name keeps.
    pub(in crate::eager) fn kept(&self, id: &TensorId) -> Option<&Input> {
        self.tensors.get(id)?.kept()
    }

    /// What is read under a tensor's name, if there is such a tensor. Errors: the failure that it depends on.
    pub(in crate::eager) fn read(&self, id: &TensorId) -> Option<Result<&Input, &Arc<Failure>>> {
        self.tensors.get(id).map(Slot::read)
    }

    /// What a name stands for is an old version from now on, or the result of updates of which a later one failed.
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

    /// Lets a name stand for something; the caller counts the handle.
    pub(in crate::eager) fn bind(&mut self, id: TensorId, slot: Slot) {
        self.tensors.insert(id, slot);
    }

    /// Takes a name out; the caller counts the handle.
    pub(in crate::eager) fn unbind(&mut self, id: &TensorId) -> Option<Slot> {
        self.tensors.remove(id)
    }

    /// Adds a storage, with its number.
    pub(in crate::eager) fn add(&mut self, s: Storage) -> StorageId {
        self.made += 1;
        self.storages.insert(Storage { number: self.made, ..s })
    }

    /// Puts a block under a storage.
    pub(in crate::eager) fn set_block(&mut self, id: StorageId, block: Block) {
        let s = &mut self.storages[id];
        if s.recipe.is_none() {
            self.fixed_bytes += block.bytes();
        }
        s.block = Some(block);
    }

    /// Takes the block from under a storage.
    pub(in crate::eager) fn take_block(&mut self, id: StorageId) -> Option<Block> {
        let s = &mut self.storages[id];
        let block = s.block.take()?;
        if s.recipe.is_none() {
            self.fixed_bytes -= block.bytes();
        }
        Some(block)
    }

    /// Registers how `y` were made. Storages without a recipe yet get this one.
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

    /// Makes a storage a leaf. Returns storages that nothing needs any more; the caller destroys them.
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

    /// Checks the invariants of the module's note; for tests. Once something was evicted, bytes that lead to it may stay
    /// though nothing else reads them.
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
            // A charge that gave way is there until its owner lets it go.
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
