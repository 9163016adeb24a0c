//! Offsets in one address range: best fit with coalescing, and exact figures.
//!
//! The arena is bookkeeping only. It never touches memory, so it serves host memory, a device behind a driver and a
//! dry run alike. Blocks carry their owner, so that a policy can read the address order and choose a window.
//!
//! A small block that is freed is *kept*: it stays a segment of its own for the next block of its size. That block most
//! often comes at once, and then neither call walks a tree. Kept blocks count as free in every figure. A function that
//! reads free ranges, or finds none large enough, merges the kept blocks first. So whether an allocation succeeds never
//! depends on which blocks were kept.
//!
//! [`Arena::verify`] checks the invariants in tests. Segments tile `0..capacity` without gaps. No two free segments are
//! neighbours, except for kept ones. The size index lists exactly the free segments that are not kept. The figures
//! equal a recount.
//!
//! Rejected: size classes (they make the peak depend on history), buddy allocation (its internal padding breaks a
//! byte budget), first fit from one end (it mixes values that are cheap to recompute with values that are not).

use std::collections::BTreeSet;

mod order;

use order::{At, NONE, Node, Order, State};

/// The multiple at which blocks start and end: a property of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Base-2 logarithm of the unit. The arena divides by the unit for each block, and a shift is quicker.
    log2: u32,
}

impl Alignment {
    /// The alignment of host memory: a cache line, and the width of an AVX-512 load.
    pub const HOST: Alignment = Alignment { log2: 6 };

    /// `None` unless `bytes` is a power of two of at least 64: host tensors lie at multiples of 64.
    pub const fn new(bytes: usize) -> Option<Alignment> {
        match bytes.is_power_of_two() && bytes >= Alignment::HOST.bytes() {
            true => Some(Alignment { log2: bytes.ilog2() }),
            false => None,
        }
    }

    /// Bytes of a unit.
    pub const fn bytes(self) -> usize {
        1 << self.log2
    }

    /// The number of whole units in `bytes`.
    pub const fn units(self, bytes: usize) -> usize {
        bytes >> self.log2
    }

    /// `bytes` rounded up to whole units; saturates instead of overflowing.
    pub const fn pad(self, bytes: usize) -> usize {
        self.cut(bytes.saturating_add(self.bytes() - 1))
    }

    /// `bytes` rounded down to whole units.
    pub const fn cut(self, bytes: usize) -> usize {
        self.units(bytes) << self.log2
    }
}

impl Default for Alignment {
    fn default() -> Self {
        Alignment::HOST
    }
}

/// An allocated range. A caller returns it to the arena by value: whoever holds a block owns its range.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    start: usize,
    bytes: usize,
    at: At,
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

    /// The same range as a block of a copy of the arena.
    pub fn duplicate(&self) -> Block {
        Block { ..*self }
    }

    /// The block of an empty tensor.
    pub fn empty() -> Block {
        Block { start: 0, bytes: 0, at: NONE }
    }
}

/// Who owns a block; the meaning is the caller's.
pub type Owner = u32;

/// The end of a free range from which a block is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Low addresses, for values that are cheap to recompute.
    Low,
    /// High addresses, for values that are expensive or impossible to recompute.
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

/// Freed blocks of at most this many bytes are kept. For larger blocks the tree's cost is small beside that of their
/// kernels.
const KEPT_MAX_BYTES: usize = 4096;

/// The most kept blocks. Blocks freed beyond that are merged at once, so that kept blocks cannot fragment the range
/// without end.
const KEPT_MAX: usize = 1024;

/// See the module's note.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    alignment: Alignment,
    capacity: usize,
    order: Order,
    /// Free ranges that are not kept, by size and then by address.
    free: BTreeSet<(usize, usize, At)>,
    /// Kept blocks by size in alignment units and the end they came from.
    kept: Vec<[Vec<At>; 2]>,
    kept_count: usize,
    in_use: usize,
    peak: usize,
    padding: usize,
}

impl Arena {
    /// An arena over `0..capacity`, rounded down to whole units of `alignment`.
    pub fn new(capacity: usize, alignment: Alignment) -> Self {
        let mut a = Arena { alignment, ..Arena::default() };
        a.kept.resize_with(alignment.units(KEPT_MAX_BYTES) + 1, Default::default);
        a.grow(capacity);
        a
    }

    /// The multiple at which its blocks lie.
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Extends the range to `capacity`; a smaller value changes nothing.
    pub fn grow(&mut self, capacity: usize) {
        let capacity = self.alignment.cut(capacity);
        if capacity > self.capacity {
            let (start, bytes) = (self.capacity, capacity - self.capacity);
            self.capacity = capacity;
            let at = self.order.insert_after(self.order.last, start, bytes, State::Kept);
            self.merge(at);
        }
    }

    /// Cuts the free tail so that the range ends at `capacity` or after the last block; returns the new capacity.
    pub fn shrink(&mut self, capacity: usize) -> usize {
        self.merge_kept();
        let capacity = self.alignment.cut(capacity);
        let at = self.order.last;
        if let Some(&Node { start, bytes, .. }) = self.order.free_at(at) {
            self.free.remove(&(bytes, start, at));
            self.capacity = start.max(capacity).min(start + bytes);
            if self.capacity > start {
                self.order.node_mut(at).bytes = self.capacity - start;
                self.free.insert((self.capacity - start, start, at));
            } else {
                self.order.remove(at);
            }
        }
        self.capacity
    }

    /// A block of at least `bytes`: a kept one of that size, or a part of the smallest free range that holds it.
    pub fn alloc(&mut self, bytes: usize, owner: Owner, end: End) -> Option<Block> {
        let want = self.alignment.pad(bytes);
        if want == 0 {
            return Some(Block::empty());
        }
        let kept = self.kept.get_mut(self.alignment.units(want)).and_then(|k| k[end as usize].pop());
        let at = match kept {
            Some(at) => {
                self.kept_count -= 1;
                at
            }
            None => {
                let (have, start, at) = self.best_fit(want)?;
                self.cut(at, if end == End::Low { start } else { start + have - want }, want)
            }
        };
        self.order.node_mut(at).end = end;
        Some(self.give(at, bytes, owner))
    }

    fn best_fit(&mut self, want: usize) -> Option<(usize, usize, At)> {
        if let found @ Some(_) = self.free.range((want, 0, 0)..).next() {
            return found.copied();
        }
        self.merge_kept();
        self.free.range((want, 0, 0)..).next().copied()
    }

    /// A block of at least `bytes` that starts at `at`, if that range is free.
    pub fn alloc_at(&mut self, at: usize, bytes: usize, owner: Owner) -> Option<Block> {
        let want = self.alignment.pad(bytes);
        if want == 0 {
            return Some(Block::empty());
        }
        let range = self.range_around(at, want)?;
        let cut = self.cut(range, at, want);
        Some(self.give(cut, bytes, owner))
    }

    /// A block of at least `bytes` that ends at `limit` or below, at the lowest address that there is.
    pub fn alloc_below(&mut self, limit: usize, bytes: usize, owner: Owner) -> Option<Block> {
        let want = self.alignment.pad(bytes);
        if want == 0 {
            return Some(Block::empty());
        }
        let (at, start) = self.room_below(limit, want)?;
        let cut = self.cut(at, start, want);
        Some(self.give(cut, bytes, owner))
    }

    /// True if [`Arena::alloc_below`] would succeed.
    pub fn has_room_below(&mut self, limit: usize, bytes: usize) -> bool {
        bytes == 0 || self.room_below(limit, self.alignment.pad(bytes)).is_some()
    }

    fn room_below(&mut self, limit: usize, want: usize) -> Option<(At, usize)> {
        self.merge_kept();
        let mut below = self.order.iter().take_while(|(_, n)| n.start < limit);
        let holds_it = |n: &Node| n.state == State::Free && n.bytes >= want && n.start + want <= limit;
        below.find(|(_, n)| holds_it(n)).map(|(at, n)| (at, n.start))
    }

    /// True if [`Arena::alloc_at`] would succeed.
    pub fn is_free(&mut self, at: usize, bytes: usize) -> bool {
        bytes == 0 || self.range_around(at, self.alignment.pad(bytes)).is_some()
    }

    /// The free range that holds `want` bytes from `at` on.
    fn range_around(&mut self, at: usize, want: usize) -> Option<At> {
        self.merge_kept();
        let end = at.checked_add(want)?;
        let holds_it = |n: &Node| n.state == State::Free && n.start <= at && end <= n.start + n.bytes;
        Some(self.order.iter().find(|(_, n)| holds_it(n))?.0)
    }

    /// Cuts `start..start + want` out of a free range; the segment is then in no index.
    fn cut(&mut self, range: At, start: usize, want: usize) -> At {
        let Node { start: from, bytes: have, before, .. } = *self.order.node(range);
        self.free.remove(&(have, from, range));
        if start > from {
            let low = self.order.insert_after(before, from, start - from, State::Free);
            self.free.insert((start - from, from, low));
        }
        let (end, to) = (start + want, from + have);
        if end < to {
            let high = self.order.insert_after(range, end, to - end, State::Free);
            self.free.insert((to - end, end, high));
        }
        let n = self.order.node_mut(range);
        (n.start, n.bytes) = (start, want);
        range
    }

    /// Makes a block of a segment that is in no index.
    fn give(&mut self, at: At, asked: usize, owner: Owner) -> Block {
        let n = self.order.node_mut(at);
        n.state = State::Used(owner);
        let (start, bytes) = (n.start, n.bytes);
        self.in_use += bytes;
        self.padding += bytes - asked;
        self.peak = self.peak.max(self.in_use);
        Block { start, bytes, at }
    }

    /// Takes a block back. `asked` is the number of bytes it was allocated for.
    pub fn free(&mut self, block: Block, asked: usize) {
        if block.bytes == 0 {
            return;
        }
        let n = self.order.node_mut(block.at);
        debug_assert!(matches!(n.state, State::Used(_)) && n.start == block.start, "freed {block:?}, found {n:?}");
        self.in_use -= block.bytes;
        self.padding -= block.bytes - asked;
        n.state = State::Kept;
        if block.bytes <= KEPT_MAX_BYTES && self.kept_count < KEPT_MAX {
            self.kept[self.alignment.units(block.bytes)][n.end as usize].push(block.at);
            self.kept_count += 1;
        } else {
            self.merge(block.at);
        }
    }

    /// Hands a block to another owner.
    pub fn set_owner(&mut self, block: &Block, owner: Owner) {
        if block.bytes > 0 {
            self.order.node_mut(block.at).state = State::Used(owner);
        }
    }

    /// Joins a free segment that is in no index with its free neighbours, and enters the result in the size index.
    fn merge(&mut self, at: At) {
        let Node { mut start, mut bytes, before, after, .. } = *self.order.node(at);
        if let Some(n) = self.order.free_at(before).copied() {
            self.free.remove(&(n.bytes, n.start, before));
            self.order.remove(before);
            (start, bytes) = (n.start, n.bytes + bytes);
        }
        if let Some(n) = self.order.free_at(after).copied() {
            self.free.remove(&(n.bytes, n.start, after));
            self.order.remove(after);
            bytes += n.bytes;
        }
        let n = self.order.node_mut(at);
        (n.start, n.bytes, n.state) = (start, bytes, State::Free);
        self.free.insert((bytes, start, at));
    }

    fn merge_kept(&mut self) {
        if self.kept_count == 0 {
            return;
        }
        for class in 0..self.kept.len() {
            for end in 0..2 {
                let mut list = std::mem::take(&mut self.kept[class][end]);
                list.drain(..).for_each(|at| self.merge(at));
                // The emptied list keeps its capacity for the next blocks.
                self.kept[class][end] = list;
            }
        }
        self.kept_count = 0;
    }

    /// All segments in address order.
    pub fn segments(&mut self) -> impl Iterator<Item = Segment> + '_ {
        self.merge_kept();
        self.order.iter().map(|(_, n)| n.segment())
    }

    /// The number of segments.
    pub fn segment_count(&mut self) -> usize {
        self.merge_kept();
        self.order.len()
    }

    /// At most `most` neighbouring segments in address order, those behind the segments of the last call. After the
    /// last segment the next call begins at the first again. All segments if there are no more than `most`.
    pub fn look(&mut self, most: usize) -> impl Iterator<Item = Segment> + '_ {
        self.merge_kept();
        let first = self.order.look(most);
        self.order.iter_from(first).take(most).map(|(_, n)| n.segment())
    }

    /// The figures.
    pub fn figures(&mut self) -> ArenaFigures {
        self.merge_kept();
        ArenaFigures {
            capacity: self.capacity,
            in_use: self.in_use,
            peak: self.peak,
            padding: self.padding,
            largest_free: self.free.last().map_or(0, |f| f.0),
        }
    }

    /// Bytes of the free range at the end.
    pub fn free_tail(&mut self) -> usize {
        self.merge_kept();
        self.order.free_at(self.order.last).map_or(0, |n| n.bytes)
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

    /// Slides every block down so that all free bytes form one range at the top. Calls `moved(owner, from, block)` in
    /// ascending address order; `block.start() < from` holds in every call, and the two ranges may overlap. The caller
    /// moves the bytes and replaces the owner's block by this one.
    pub fn compact(&mut self, mut moved: impl FnMut(Owner, usize, Block)) {
        self.merge_kept();
        self.free.clear();
        let (mut to, mut at) = (0, self.order.first);
        while at != NONE {
            let Node { start: from, bytes, after, state, .. } = *self.order.node(at);
            if let State::Used(owner) = state {
                self.order.node_mut(at).start = to;
                if to != from {
                    moved(owner, from, Block { start: to, bytes, at });
                }
                to += bytes;
            } else {
                self.order.remove(at);
            }
            at = after;
        }
        if to < self.capacity {
            let tail = self.order.insert_after(self.order.last, to, self.capacity - to, State::Kept);
            self.merge(tail);
        }
    }

    /// Kept blocks as ranges of alignment units.
    #[cfg(test)]
    fn kept_ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        let kept = self.order.iter().filter(|(_, n)| n.state == State::Kept);
        kept.map(|(_, n)| (self.alignment.units(n.start), self.alignment.units(n.start + n.bytes)))
    }

    /// Checks the invariants of the module's note; for tests.
    pub fn verify(&self) -> Result<(), String> {
        let (mut end, mut used, mut free, mut kept, mut last) = (0, 0, 0, 0, None);
        for (at, n) in self.order.iter() {
            if n.start != end || n.bytes == 0 || !n.bytes.is_multiple_of(self.alignment.bytes()) {
                return Err(format!("{n:?} does not continue at {end}"));
            }
            end += n.bytes;
            match n.state {
                State::Used(_) => used += n.bytes,
                State::Free => free += 1,
                State::Kept => kept += 1,
            }
            let listed = match n.state {
                State::Used(_) => true,
                State::Free => last != Some(State::Free) && self.free.contains(&(n.bytes, n.start, at)),
                State::Kept => {
                    self.kept.get(self.alignment.units(n.bytes)).is_some_and(|k| k[n.end as usize].contains(&at))
                }
            };
            if !listed {
                return Err(format!("{n:?} is not merged or not indexed"));
            }
            last = Some(n.state);
        }
        let counts = free == self.free.len() && kept == self.kept_count;
        if end != self.capacity || used != self.in_use || !counts || self.peak < self.in_use {
            return Err(format!("{self:?} disagrees with a recount: end {end}, used {used}, {free} free, {kept} kept"));
        }
        Ok(())
    }
}

impl Node {
    fn segment(&self) -> Segment {
        let owner = if let State::Used(owner) = self.state { Some(owner) } else { None };
        Segment { start: self.start, bytes: self.bytes, owner }
    }
}

#[cfg(test)]
mod tests;
