//! Offsets in one address range: best fit with immediate coalescing, and exact figures.
//!
//! The arena is bookkeeping only. It never touches memory, so it serves host memory, a device behind a driver and a
//! dry run alike. Blocks carry their owner, so that a policy can look at the address order and choose a window.
//!
//! Invariants, checked by [`Arena::verify`] in tests: segments tile `0..capacity` without gaps, no two free segments
//! are neighbours, the size index lists exactly the free segments, and the figures equal a recount.
//!
//! Rejected: size classes (they make the peak depend on history), buddy allocation (its internal padding breaks a
//! byte budget), first fit from one end (it mixes what is cheap and what is dear to recompute).

use std::collections::{BTreeMap, BTreeSet};

/// Every block starts and ends at a multiple of this: a cache line, and the width of an AVX-512 load.
pub const ALIGN_BYTES: usize = 64;

/// `bytes` rounded up to whole alignment units; saturates instead of overflowing.
pub const fn padded(bytes: usize) -> usize {
    bytes.saturating_add(ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES
}

/// An allocated range. It is returned to the arena by value: who holds it owns the range.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    start: usize,
    bytes: usize,
}

impl Block {
    /// Offset of the first byte.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Length, padding included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One past the last byte.
    pub fn end(&self) -> usize {
        self.start + self.bytes
    }

    /// The block of an empty tensor.
    pub(crate) fn empty() -> Block {
        Block { start: 0, bytes: 0 }
    }
}

/// Who owns a block; the meaning is the caller's.
pub type Owner = u32;

/// From which end of a free range a block is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Low addresses: what is cheap to recompute.
    Low,
    /// High addresses: what is dear, or cannot be recomputed.
    High,
}

/// A range of the address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the first byte.
    pub start: usize,
    /// Length.
    pub bytes: usize,
    /// `None` for a free range.
    pub owner: Option<Owner>,
}

/// The arena's figures in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaFigures {
    /// Size of the address range.
    pub capacity: usize,
    /// Allocated, padding included.
    pub in_use: usize,
    /// Largest `in_use` since the last reset.
    pub peak: usize,
    /// Allocated but not asked for.
    pub padding: usize,
    /// Largest free range.
    pub largest_free: usize,
}

/// See the module's note.
#[derive(Debug, Default)]
pub struct Arena {
    capacity: usize,
    segments: BTreeMap<usize, (usize, Option<Owner>)>,
    free: BTreeSet<(usize, usize)>,
    in_use: usize,
    peak: usize,
    padding: usize,
}

impl Arena {
    /// An arena over `0..capacity`, rounded down to whole alignment units.
    pub fn new(capacity: usize) -> Self {
        let mut a = Arena::default();
        a.grow(capacity);
        a
    }

    /// Extends the range to `capacity`; a smaller value changes nothing.
    pub fn grow(&mut self, capacity: usize) {
        let capacity = capacity / ALIGN_BYTES * ALIGN_BYTES;
        if capacity > self.capacity {
            let (start, bytes) = (self.capacity, capacity - self.capacity);
            self.capacity = capacity;
            self.insert_free(start, bytes);
        }
    }

    /// Cuts the free tail so that the range ends at `capacity` or after the last block; returns the new capacity.
    pub fn shrink(&mut self, capacity: usize) -> usize {
        let capacity = capacity / ALIGN_BYTES * ALIGN_BYTES;
        if let Some((&start, &(bytes, None))) = self.segments.last_key_value() {
            let end = start.max(capacity).min(start + bytes);
            self.remove_free(start, bytes);
            self.capacity = end;
            if end > start {
                self.insert_free(start, end - start);
            }
        }
        self.capacity
    }

    /// A block of at least `bytes` in the smallest free range that holds it, or `None`.
    pub fn alloc(&mut self, bytes: usize, owner: Owner, end: End) -> Option<Block> {
        let want = padded(bytes);
        if want == 0 {
            return Some(Block::empty());
        }
        let &(have, start) = self.free.range((want, 0)..).next()?;
        let at = if end == End::Low { start } else { start + have - want };
        Some(self.take(start, have, at, want, bytes, owner))
    }

    /// A block of at least `bytes` that starts at `at`, if that range is free.
    pub fn alloc_at(&mut self, at: usize, bytes: usize, owner: Owner) -> Option<Block> {
        let want = padded(bytes);
        if want == 0 {
            return Some(Block::empty());
        }
        let (&start, &(have, used)) = self.segments.range(..=at).next_back()?;
        (used.is_none() && at + want <= start + have).then(|| self.take(start, have, at, want, bytes, owner))
    }

    fn take(&mut self, start: usize, have: usize, at: usize, want: usize, asked: usize, owner: Owner) -> Block {
        self.remove_free(start, have);
        if at > start {
            self.insert_lone(start, at - start);
        }
        if at + want < start + have {
            self.insert_lone(at + want, start + have - at - want);
        }
        self.segments.insert(at, (want, Some(owner)));
        self.in_use += want;
        self.padding += want - asked;
        self.peak = self.peak.max(self.in_use);
        Block { start: at, bytes: want }
    }

    /// Takes a block back. `asked` is the number of bytes it was allocated for.
    pub fn free(&mut self, block: Block, asked: usize) {
        if block.bytes == 0 {
            return;
        }
        let removed = self.segments.remove(&block.start);
        debug_assert!(matches!(removed, Some((b, Some(_))) if b == block.bytes), "freed {block:?}, found {removed:?}");
        self.in_use -= block.bytes;
        self.padding -= block.bytes - asked;
        self.insert_free(block.start, block.bytes);
    }

    /// Hands a block to another owner.
    pub fn set_owner(&mut self, block: &Block, owner: Owner) {
        if let Some(s) = self.segments.get_mut(&block.start).filter(|_| block.bytes > 0) {
            s.1 = Some(owner);
        }
    }

    fn insert_lone(&mut self, start: usize, bytes: usize) {
        self.segments.insert(start, (bytes, None));
        self.free.insert((bytes, start));
    }

    /// Inserts a free range and merges it with free neighbours.
    fn insert_free(&mut self, mut start: usize, mut bytes: usize) {
        if let Some((&s, &(b, None))) = self.segments.range(..start).next_back() {
            self.remove_free(s, b);
            (start, bytes) = (s, bytes + b);
        }
        if let Some((&s, &(b, None))) = self.segments.range(start + bytes..).next() {
            self.remove_free(s, b);
            bytes += b;
        }
        self.insert_lone(start, bytes);
    }

    fn remove_free(&mut self, start: usize, bytes: usize) {
        self.segments.remove(&start);
        self.free.remove(&(bytes, start));
    }

    /// All segments in address order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.segments.iter().map(|(&start, &(bytes, owner))| Segment { start, bytes, owner })
    }

    /// Bytes of the free ranges just below and just above a block.
    pub fn free_neighbours(&self, block: &Block) -> (usize, usize) {
        let free = |s: Option<(&usize, &(usize, Option<Owner>))>| match s {
            Some((_, &(bytes, None))) => bytes,
            _ => 0,
        };
        (free(self.segments.range(..block.start).next_back()), free(self.segments.range(block.end()..).next()))
    }

    /// The figures.
    pub fn figures(&self) -> ArenaFigures {
        ArenaFigures {
            capacity: self.capacity,
            in_use: self.in_use,
            peak: self.peak,
            padding: self.padding,
            largest_free: self.free.last().map_or(0, |&(b, _)| b),
        }
    }

    /// Bytes of the free range at the end.
    pub fn free_tail(&self) -> usize {
        match self.segments.last_key_value() {
            Some((_, &(bytes, None))) => bytes,
            _ => 0,
        }
    }

    /// Size of the address range.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Allocated bytes, padding included.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Largest `in_use` since the last reset.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// Starts a new peak at the bytes in use now.
    pub fn reset_peak(&mut self) {
        self.peak = self.in_use;
    }

    /// Slides every block down so that all free bytes form one range at the top. Calls `moved(owner, from, to, bytes)`
    /// in ascending address order; `to < from` always, and ranges may overlap. The caller moves the bytes and then
    /// replaces each block it holds by [`Arena::block_at`].
    pub fn compact(&mut self, mut moved: impl FnMut(Owner, usize, usize, usize)) {
        let used: Vec<(usize, usize, Owner)> =
            self.segments.iter().filter_map(|(&s, &(b, o))| o.map(|o| (s, b, o))).collect();
        self.segments.clear();
        self.free.clear();
        let mut to = 0;
        for (from, bytes, owner) in used {
            self.segments.insert(to, (bytes, Some(owner)));
            if to != from {
                moved(owner, from, to, bytes);
            }
            to += bytes;
        }
        if to < self.capacity {
            self.insert_lone(to, self.capacity - to);
        }
    }

    /// The block that starts at `start` after a compaction moved it there.
    pub fn block_at(&self, start: usize) -> Option<Block> {
        self.segments.get(&start).filter(|s| s.1.is_some()).map(|s| Block { start, bytes: s.0 })
    }

    /// Checks the invariants of the module's note; for tests.
    pub fn verify(&self) -> Result<(), String> {
        let (mut at, mut used, mut last_free, mut free) = (0, 0, false, 0);
        for s in self.segments() {
            if s.start != at || s.bytes == 0 || !s.bytes.is_multiple_of(ALIGN_BYTES) {
                return Err(format!("segment {s:?} does not continue at {at}"));
            }
            at += s.bytes;
            if s.owner.is_some() {
                used += s.bytes;
            } else {
                free += 1;
                if last_free || !self.free.contains(&(s.bytes, s.start)) {
                    return Err(format!("free segment {s:?} is not merged or not indexed"));
                }
            }
            last_free = s.owner.is_none();
        }
        if at != self.capacity || used != self.in_use || free != self.free.len() || self.peak < self.in_use {
            return Err(format!("figures {:?} disagree with a recount: end {at}, used {used}", self.figures()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
