//! The places of bytes: the arena with the ledger of their holders, and the table of storages and recipes.
//!
//! Blocks are allocated and freed through `place.rs` alone, which keeps arena, ledger and table consistent: a storage
//! has a block exactly if the arena has one for it.

mod ledger;
mod place;
pub(super) mod table;

use rustc_hash::FxHashMap;

pub(super) use self::ledger::Label;
use self::ledger::Ledger;
use self::table::StorageId;
use crate::report::Kind;
use remat_device::{Alignment, Arena, ArenaFigures, Block, Segment};

/// See the module's note.
pub(super) struct Memory {
    arena: Arena,
    ledger: Ledger,
}

impl Memory {
    pub(super) fn new(capacity: usize, alignment: Alignment) -> Self {
        Memory { arena: Arena::new(capacity, alignment), ledger: Ledger::default() }
    }

    /// A copy for a rehearsal, whose blocks are those of a copy of the table.
    pub(super) fn duplicate(&self) -> Memory {
        Memory { arena: self.arena.clone(), ledger: self.ledger.clone() }
    }

    /// The arena, for reading.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn figures(&mut self) -> ArenaFigures {
        self.arena.figures()
    }

    /// Bytes of the largest free range.
    pub(super) fn largest_free(&mut self) -> usize {
        self.arena.figures().largest_free
    }

    /// Blocks and free ranges in the order of their addresses.
    pub(super) fn segments(&mut self) -> impl Iterator<Item = Segment> + '_ {
        self.arena.segments()
    }

    /// The next segments in that order, no more than `most`, as [`Arena::look`].
    pub(super) fn look(&mut self, most: usize) -> impl Iterator<Item = Segment> + '_ {
        self.arena.look(most)
    }

    pub(super) fn segment_count(&mut self) -> usize {
        self.arena.segment_count()
    }

    /// True if a block of `bytes` could lie at this offset.
    pub(super) fn is_free(&mut self, at: usize, bytes: usize) -> bool {
        self.arena.is_free(at, bytes)
    }

    /// True if a block of `bytes` could lie below this offset.
    pub(super) fn has_room_below(&mut self, limit: usize, bytes: usize) -> bool {
        self.arena.has_room_below(limit, bytes)
    }

    /// The label under which an op's bytes are counted.
    pub(super) fn label(&mut self, text: &'static str) -> Label {
        self.ledger.label(text)
    }

    /// A block at this offset, if it is free there; for [`put_down`](super::worker::Worker::put_down).
    pub(super) fn alloc_at(&mut self, at: usize, bytes: usize, id: StorageId) -> Option<Block> {
        self.arena.alloc_at(at, bytes, id.raw())
    }

    /// A block below this offset.
    pub(super) fn alloc_below(&mut self, limit: usize, bytes: usize, id: StorageId) -> Option<Block> {
        self.arena.alloc_below(limit, bytes, id.raw())
    }

    /// Extends the arena up to `capacity`. The device has made those addresses usable.
    pub(super) fn extend_to(&mut self, capacity: usize) {
        self.arena.grow(capacity);
    }

    /// Removes the addresses from `capacity` on, where nothing may lie. Returns the new end.
    pub(super) fn shrink_to(&mut self, capacity: usize) -> usize {
        self.arena.shrink(capacity)
    }

    /// Bytes at the peak by kind and by op.
    pub(super) fn at_peak(&mut self) -> ([usize; Kind::ALL.len()], FxHashMap<&'static str, usize>) {
        self.ledger.note_peak(self.arena.in_use());
        self.ledger.at_peak()
    }

    pub(super) fn reset_peak(&mut self) {
        self.arena.reset_peak();
        self.ledger.reset();
    }
}
