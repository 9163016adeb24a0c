//! Memory of the device: allocations far apart in one space of addresses, with a shadow that says which bytes were written.
//!
//! Words are atomics with relaxed order, so blocks on several threads may race without undefined behaviour; the cells say
//! that they did. Addresses are never used again: what was freed stays out of bounds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::cells::by_block;

/// Addresses of allocations are multiples of this, as CUDA promises for `cuMemAlloc`.
const ALIGN_BYTES: u64 = 512;
/// The gap behind an allocation. An index that is a little wrong must not reach the next one.
const GAP_BYTES: u64 = 1 << 20;
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// Words of a page, the unit in which the pages that a launch touches are noted.
pub(super) const PAGE_WORDS: usize = 1024;
/// The contents of fresh memory: NaN as a float, -1 as an integer.
const FRESH: u32 = u32::MAX;
const ALL: u8 = 0xf;

/// A range of addresses that is not within one allocation, or that holds bytes that nobody wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryError {
    /// The first address that is wrong.
    pub address: u64,
    /// True if the bytes exist and nobody wrote them.
    pub is_uninitialised: bool,
    /// The error in words.
    pub message: String,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (address {:#x})", self.message, self.address)
    }
}

impl std::error::Error for MemoryError {}

/// Ranges of addresses, first and past the last, in order and apart.
pub type Ranges = Vec<(u64, u64)>;

#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) base: u64,
    pub(super) bytes: u64,
    words: Box<[AtomicU32]>,
    /// A bit for each byte of the word that was written. None of it, nor of the cells, in memory that is unchecked.
    written: Box<[AtomicU8]>,
    pub(super) cells: Box<[AtomicU64]>,
    /// For pages that have split words, a cell for each byte.
    pub(super) split: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// The last launch that touched the page.
    pub(super) touched: Box<[AtomicU64]>,
}

fn filled<T>(count: usize, make: impl Fn() -> T) -> Box<[T]> {
    (0..count).map(|_| make()).collect()
}

impl Allocation {
    pub(super) fn new(base: u64, bytes: u64, is_checked: bool) -> Self {
        let words = bytes.div_ceil(4) as usize;
        let shadow = if is_checked { words } else { 0 };
        let pages = shadow.div_ceil(PAGE_WORDS);
        Allocation {
            base,
            bytes,
            words: filled(words, || AtomicU32::new(FRESH)),
            written: filled(shadow, || AtomicU8::new(0)),
            cells: filled(shadow, || AtomicU64::new(0)),
            split: filled(pages, OnceLock::new),
            touched: filled(pages, || AtomicU64::new(0)),
        }
    }

    /// A word by its number.
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u32 {
        self.words[at].load(Relaxed)
    }

    /// 1, 2, 4 or 8 bytes at an offset that is a multiple of the size.
    #[inline(always)]
    pub(super) fn read(&self, offset: u64, bytes: u32) -> u64 {
        let at = (offset >> 2) as usize;
        let word = |k: usize| u64::from(self.words[at + k].load(Relaxed));
        match bytes {
            4 => word(0),
            8 => word(0) | word(1) << 32,
            2 => word(0) >> (8 * (offset & 3)) & 0xffff,
            _ => word(0) >> (8 * (offset & 3)) & 0xff,
        }
    }

    #[inline(always)]
    pub(super) fn write(&self, offset: u64, bytes: u32, value: u64) {
        let at = (offset >> 2) as usize;
        match bytes {
            4 => self.words[at].store(value as u32, Relaxed),
            8 => {
                self.words[at].store(value as u32, Relaxed);
                self.words[at + 1].store((value >> 32) as u32, Relaxed);
            }
            _ => {
                let shift = 8 * (offset & 3) as u32;
                let mask = if bytes == 2 { 0xffff << shift } else { 0xff << shift };
                let update = |word: u32| Some(word & !mask | (value as u32) << shift & mask);
                // other blocks may write the other bytes of the word at the same time
                let _ = self.words[at].fetch_update(Relaxed, Relaxed, update);
            }
        }
    }

    /// The bits of the bytes of an access within its first word.
    #[inline(always)]
    pub(super) fn byte_mask(offset: u64, bytes: u32) -> u8 {
        if bytes >= 4 { ALL } else { ((1 << bytes) - 1) << (offset & 3) }
    }

    #[inline(always)]
    pub(super) fn is_written(&self, offset: u64, bytes: u32) -> bool {
        if self.written.is_empty() {
            return true;
        }
        let at = (offset >> 2) as usize;
        let mask = Self::byte_mask(offset, bytes);
        let first = self.written[at].load(Relaxed) & mask == mask;
        first && (bytes < 8 || self.written[at + 1].load(Relaxed) == ALL)
    }

    #[inline(always)]
    pub(super) fn mark_written(&self, offset: u64, bytes: u32) {
        if self.written.is_empty() {
            return;
        }
        let at = (offset >> 2) as usize;
        if bytes < 4 {
            self.written[at].fetch_or(Self::byte_mask(offset, bytes), Relaxed);
            return;
        }
        self.written[at].store(ALL, Relaxed);
        if bytes == 8 {
            self.written[at + 1].store(ALL, Relaxed);
        }
    }

    /// Writes words from one on.
    pub(super) fn put_words(&self, first: usize, values: impl ExactSizeIterator<Item = u32>) {
        let count = values.len();
        self.words[first..].iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
        self.written.iter().skip(first).take(count).for_each(|written| written.store(ALL, Relaxed));
    }

    /// The words from one on.
    pub(super) fn words_from(&self, first: usize) -> impl Iterator<Item = u32> {
        self.words[first..].iter().map(|word| word.load(Relaxed))
    }

    /// The first byte of a range within that nobody wrote.
    pub(super) fn first_unwritten(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let is_word = at.is_multiple_of(4) && end - at >= 4;
            let step = if is_word { 4 } else { 1 };
            if !self.is_written(at, step) {
                return (at..at + u64::from(step)).find(|&byte| !self.is_written(byte, 1));
            }
            at += u64::from(step);
        }
        None
    }

    /// Notes that nobody wrote a range within.
    pub(super) fn forget(&self, offset: u64, bytes: u64) {
        if self.written.is_empty() {
            return;
        }
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let word = &self.written[(at >> 2) as usize];
            if at.is_multiple_of(4) && end - at >= 4 {
                word.store(0, Relaxed);
                at += 4;
            } else {
                word.fetch_and(!(1 << (at & 3)), Relaxed);
                at += 1;
            }
        }
    }

    fn ranges(&self, launch: u64, epoch: u64, reads: &mut Ranges, writes: &mut Ranges) {
        for (page, touched) in self.touched.iter().enumerate() {
            if touched.load(Relaxed) != launch {
                continue;
            }
            let first = page * PAGE_WORDS;
            for at in first..(first + PAGE_WORDS).min(self.cells.len()) {
                let cell = self.cells[at].load(Relaxed);
                let address = self.base + 4 * at as u64;
                if super::cells::is_split(cell, epoch, &by_block::LAYOUT) {
                    let Some(bytes) = self.split[page].get() else { continue };
                    for k in 0..4 {
                        let (read, write) = by_block::uses(bytes[4 * (at - first) + k].load(Relaxed), epoch);
                        note(reads, read, address + k as u64, 1);
                        note(writes, write, address + k as u64, 1);
                    }
                    continue;
                }
                let (read, write) = by_block::uses(cell, epoch);
                note(reads, read, address, 4);
                note(writes, write, address, 4);
            }
        }
    }
}

/// Adds bytes behind all ranges so far.
fn note(ranges: &mut Ranges, is_used: bool, address: u64, bytes: u64) {
    match ranges.last_mut() {
        _ if !is_used => {}
        Some(last) if last.1 == address => last.1 += bytes,
        _ => ranges.push((address, address + bytes)),
    }
}

/// All memory of the device.
#[derive(Debug, Default)]
pub struct Memory {
    /// Allocations that can be accessed, by address.
    pub(super) allocations: Vec<Allocation>,
    /// Bytes of each range of addresses that is reserved (`mapping.rs`), by address.
    pub(super) reserved: BTreeMap<u64, u64>,
    /// Memory that is mapped and may not be accessed yet.
    pub(super) closed: Vec<Allocation>,
    next: u64,
    launches: u64,
    /// True if kernels do not note what they write, so that nothing is known of bytes that nobody wrote.
    is_unchecked: bool,
}

impl Memory {
    /// Memory without an allocation.
    pub fn new() -> Self {
        Memory { next: FIRST_ADDRESS, ..Memory::default() }
    }

    /// Memory for kernels that run with other checks than all: reads of bytes that nobody wrote are allowed.
    pub fn unchecked() -> Self {
        Memory { is_unchecked: true, ..Memory::new() }
    }

    /// See [`Memory::unchecked`].
    pub(crate) fn is_unchecked(&self) -> bool {
        self.is_unchecked
    }

    /// Allocates bytes that nobody has written. Their address is a multiple of 512.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let base = self.take_addresses(bytes, ALIGN_BYTES);
        self.allocations.push(Allocation::new(base, bytes, !self.is_unchecked));
        base
    }

    /// Addresses that nothing had before, behind all others.
    pub(super) fn take_addresses(&mut self, bytes: u64, alignment: u64) -> u64 {
        let base = self.next.max(FIRST_ADDRESS).next_multiple_of(alignment);
        self.next = base + bytes + GAP_BYTES;
        base
    }

    /// Frees the allocation that begins at an address, and returns its size. Errors: none begins there.
    pub fn free(&mut self, base: u64) -> Result<u64, MemoryError> {
        match self.allocations.binary_search_by_key(&base, |a| a.base) {
            Ok(at) if !self.is_reserved(base) => Ok(self.allocations.remove(at).bytes),
            _ => Err(outside(base, "no allocation begins here")),
        }
    }

    /// The allocation that holds an address: its number. `hint` is the number that is tried first.
    #[inline(always)]
    pub(super) fn find(&self, address: u64, hint: usize) -> Option<usize> {
        let holds = |a: &Allocation| address.wrapping_sub(a.base) < a.bytes;
        if self.allocations.get(hint).is_some_and(holds) {
            return Some(hint);
        }
        let behind = self.allocations.partition_point(|a| a.base <= address);
        behind.checked_sub(1).filter(|&at| holds(&self.allocations[at]))
    }

    #[inline(always)]
    pub(super) fn allocation(&self, number: usize) -> &Allocation {
        &self.allocations[number]
    }

    /// Begins a launch: its number, and the epoch of its cells.
    pub(super) fn begin_launch(&mut self) -> (u64, u64) {
        self.launches += 1;
        let epoch = self.launches & by_block::LAYOUT.epoch_mask;
        if epoch == 0 {
            // cells of the launch with the same epoch long ago would look like this one's
            for a in &self.allocations {
                a.cells.iter().for_each(|cell| cell.store(0, Relaxed));
                a.split.iter().filter_map(OnceLock::get).flatten().for_each(|cell| cell.store(0, Relaxed));
            }
            self.launches += 1;
        }
        (self.launches, self.launches & by_block::LAYOUT.epoch_mask)
    }

    /// The bytes that the last launch read, and those that it wrote, if it ran with checks.
    pub fn last_uses(&self) -> (Ranges, Ranges) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let epoch = self.launches & by_block::LAYOUT.epoch_mask;
        for a in &self.allocations {
            a.ranges(self.launches, epoch, &mut reads, &mut writes);
        }
        (reads, writes)
    }
}

pub(super) fn outside(address: u64, message: &str) -> MemoryError {
    MemoryError { address, is_uninitialised: false, message: message.to_string() }
}
