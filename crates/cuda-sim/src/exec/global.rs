//! A block's view of memory of the device: bounds, alignment, writtenness and races are checked here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::access::{is_aligned, lanes};
use super::cells::{self, Clash, Use, by_block};
use super::fault::{FaultKind, Tried, Trouble};
use super::memory::{Allocation, Memory, PAGE_WORDS};
use super::row::{self, Offsets};
use crate::lanes::LANES;

/// The parts that all blocks of a launch share.
pub(super) struct Common<'a> {
    pub(super) memory: &'a Memory,
    pub(super) launch: u64,
    pub(super) epoch: u64,
    pub(super) is_checked: bool,
    /// One thread runs all blocks.
    pub(super) is_alone: bool,
    /// Atomics of one address exclude each other, and so do splits of one word.
    pub(super) locks: [Mutex<()>; LOCKS],
}

pub(super) const LOCKS: usize = 64;

/// The view of one block.
pub(super) struct Global<'a> {
    pub(super) common: &'a Common<'a>,
    pub(super) block: u32,
    hint: usize,
}

impl<'a> Global<'a> {
    pub(super) fn new(common: &'a Common<'a>) -> Self {
        Global { common, block: 0, hint: 0 }
    }

    /// The allocation of an access, and the offset there.
    #[inline(always)]
    fn place(&mut self, address: u64, bytes: u32) -> Tried<(&'a Allocation, u64)> {
        let memory = self.common.memory;
        let Some(number) = memory.find(address, self.hint) else {
            return Err(nowhere(memory, address, bytes));
        };
        self.hint = number;
        let a = memory.allocation(number);
        let offset = address - a.base;
        if u64::from(bytes) > a.bytes - offset {
            let message = format!("{bytes} bytes here end behind the allocation of {} bytes at {:#x}", a.bytes, a.base);
            return Err(Trouble::at(FaultKind::OutOfBounds, address, message));
        }
        Ok((a, offset))
    }

    /// Reads 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub(super) fn read(&mut self, address: u64, bytes: u32, how: Use) -> Tried<u64> {
        let (a, offset) = self.place(address, bytes)?;
        self.read_at(a, offset, bytes, how)
    }

    /// Reads within an allocation.
    #[inline(always)]
    pub(super) fn read_at(&self, a: &Allocation, offset: u64, bytes: u32, how: Use) -> Tried<u64> {
        if self.common.is_checked {
            self.check_read(a, offset, bytes, how)?;
        }
        Ok(a.read(offset, bytes))
    }

    #[inline(always)]
    fn check_read(&self, a: &Allocation, offset: u64, bytes: u32, how: Use) -> Tried<()> {
        if !a.is_written(offset, bytes) {
            let message = format!("nobody wrote the {bytes} bytes read here");
            return Err(Trouble::at(FaultKind::Uninitialised, a.base + offset, message));
        }
        self.note(a, offset, bytes, how)
    }

    /// The allocation that holds all accesses of a warp, and where they lie there. `None` if none does.
    #[inline(always)]
    pub(super) fn place_row(
        &mut self,
        addresses: &[u64; LANES],
        mask: u32,
        size: u64,
    ) -> Option<(&'a Allocation, Offsets)> {
        let memory = self.common.memory;
        let number = memory.find(addresses[mask.trailing_zeros() as usize % LANES], self.hint)?;
        self.hint = number;
        let a = memory.allocation(number);
        let range = row::Range { base: a.base, bytes: a.bytes, size };
        row::offsets(addresses, mask, range).map(|offsets| (a, offsets))
    }

    /// Reads a word for each lane of a warp and each row; the words of a lane follow each other.
    pub(super) fn read_words(
        &mut self,
        addresses: &[u64; LANES],
        warp: usize,
        mask: u32,
        how: Use,
        rows: &mut [[u32; LANES]],
    ) -> Tried<()> {
        let size = 4 * rows.len() as u64;
        let Some((a, offsets)) = self.place_row(addresses, mask, size) else {
            for lane in lanes(mask) {
                let (address, thread) = (addresses[lane], warp * LANES + lane);
                is_aligned(address, size).map_err(|t| t.by(thread))?;
                for (k, row) in rows.iter_mut().enumerate() {
                    let at = address.wrapping_add(4 * k as u64);
                    row[lane] = self.read(at, 4, how).map_err(|t| t.by(thread))? as u32;
                }
            }
            return Ok(());
        };
        if self.common.is_checked {
            for lane in lanes(mask) {
                for k in 0..rows.len() as u64 {
                    let offset = u64::from(offsets[lane]) + 4 * k;
                    self.check_read(a, offset, 4, how).map_err(|t| t.by(warp * LANES + lane))?;
                }
            }
        }
        for (k, row) in rows.iter_mut().enumerate() {
            for (word, offset) in row.iter_mut().zip(&offsets) {
                *word = a.word((offset >> 2) as usize + k);
            }
        }
        Ok(())
    }

    /// Writes a word for each lane of a warp and each row; the words of a lane follow each other.
    pub(super) fn write_words(
        &mut self,
        addresses: &[u64; LANES],
        warp: usize,
        mask: u32,
        how: Use,
        rows: &[[u32; LANES]],
    ) -> Tried<()> {
        let size = 4 * rows.len() as u64;
        let place = self.place_row(addresses, mask, size);
        for lane in lanes(mask) {
            let (address, thread) = (addresses[lane], warp * LANES + lane);
            if place.is_none() {
                is_aligned(address, size).map_err(|t| t.by(thread))?;
            }
            for (k, row) in rows.iter().enumerate() {
                let value = u64::from(row[lane]);
                match &place {
                    Some((a, offsets)) => self.write_at(a, u64::from(offsets[lane]) + 4 * k as u64, 4, value, how),
                    None => self.write(address.wrapping_add(4 * k as u64), 4, value, how),
                }
                .map_err(|t| t.by(thread))?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn write(&mut self, address: u64, bytes: u32, value: u64, how: Use) -> Tried<()> {
        let (a, offset) = self.place(address, bytes)?;
        self.write_at(a, offset, bytes, value, how)
    }

    /// Writes within an allocation.
    #[inline(always)]
    pub(super) fn write_at(&self, a: &Allocation, offset: u64, bytes: u32, value: u64, how: Use) -> Tried<()> {
        if self.common.is_checked {
            self.note(a, offset, bytes, how)?;
            a.mark_written(offset, bytes);
        }
        a.write(offset, bytes, value);
        Ok(())
    }

    /// Reads, changes and writes with no other atomic between. Returns the old value.
    pub(super) fn change(&mut self, address: u64, bytes: u32, f: impl FnOnce(u64) -> u64) -> Tried<u64> {
        let lock = &self.common.locks[(address / 8) as usize % LOCKS];
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.read_for_change(address, bytes)?;
        let (a, offset) = self.place(address, bytes)?;
        a.write(offset, bytes, f(old));
        Ok(old)
    }

    fn read_for_change(&mut self, address: u64, bytes: u32) -> Tried<u64> {
        let (a, offset) = self.place(address, bytes)?;
        if self.common.is_checked {
            if !a.is_written(offset, bytes) {
                return Err(Trouble::at(FaultKind::Uninitialised, address, "nobody wrote what the atomic changes"));
            }
            self.note(a, offset, bytes, Use::Atomic)?;
        }
        Ok(a.read(offset, bytes))
    }

    #[inline(always)]
    fn note(&self, a: &Allocation, offset: u64, bytes: u32, how: Use) -> Tried<()> {
        let at = (offset >> 2) as usize;
        let touched = &a.touched[at / PAGE_WORDS];
        if touched.load(Relaxed) != self.common.launch {
            touched.store(self.common.launch, Relaxed);
        }
        let mask = Allocation::byte_mask(offset, bytes);
        let first = self.note_word(a, at, mask, how);
        let result = if bytes == 8 { first.and_then(|()| self.note_word(a, at + 1, mask, how)) } else { first };
        result.map_err(|clash| race(clash, a.base + offset, how))
    }

    #[inline(always)]
    fn note_word(&self, a: &Allocation, at: usize, mask: u8, how: Use) -> Result<(), Clash> {
        let cell = &a.cells[at];
        let epoch = self.common.epoch;
        loop {
            let old = cell.load(Relaxed);
            if mask != 0xf || cells::is_split(old, epoch, &by_block::LAYOUT) {
                return self.note_bytes(a, at, mask, how);
            }
            let new = by_block::after(old, epoch, self.block, how)?;
            if new == old {
                return Ok(());
            }
            if self.common.is_alone {
                cell.store(new, Relaxed);
                return Ok(());
            }
            if cell.compare_exchange_weak(old, new, Relaxed, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    fn note_bytes(&self, a: &Allocation, at: usize, mask: u8, how: Use) -> Result<(), Clash> {
        let page = a.split[at / PAGE_WORDS].get_or_init(|| (0..4 * PAGE_WORDS).map(|_| AtomicU64::new(0)).collect());
        let first = 4 * (at % PAGE_WORDS);
        let bytes = &page[first..first + 4];
        let epoch = self.common.epoch;
        let lock = &self.common.locks[at % LOCKS];
        if !cells::is_split(a.cells[at].load(Relaxed), epoch, &by_block::LAYOUT) {
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let mut old = a.cells[at].load(Relaxed);
            while !cells::is_split(old, epoch, &by_block::LAYOUT) {
                bytes.iter().for_each(|byte| byte.store(old, Relaxed));
                let split = cells::split(epoch, &by_block::LAYOUT);
                // Release: whoever sees the split also sees the bytes
                let order = (std::sync::atomic::Ordering::Release, Relaxed);
                match a.cells[at].compare_exchange(old, split, order.0, order.1) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        for (k, byte) in bytes.iter().enumerate().filter(|(k, _)| mask >> k & 1 == 1) {
            debug_assert!(k < 4);
            loop {
                let old = byte.load(Relaxed);
                let new = by_block::after(old, epoch, self.block, how)?;
                if new == old || byte.compare_exchange_weak(old, new, Relaxed, Relaxed).is_ok() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The trouble of an access to an address without memory.
#[cold]
fn nowhere(memory: &Memory, address: u64, bytes: u32) -> Box<Trouble> {
    match memory.is_reserved(address) {
        true => Trouble::at(FaultKind::Unmapped, address, memory.why_nothing(address)),
        false => Trouble::at(FaultKind::OutOfBounds, address, format!("{bytes} bytes here are not allocated")),
    }
}

#[cold]
fn race(clash: Clash, address: u64, how: Use) -> Box<Trouble> {
    let did = match how {
        Use::Read | Use::ReadOnly | Use::StrongRead => "reads",
        Use::Write => "writes",
        Use::Atomic => "changes by an atomic",
    };
    let other = match clash.other {
        Some(block) => format!("block number {block}"),
        None => "several blocks".to_string(),
    };
    let verb = if clash.other_wrote { "wrote" } else { "read" };
    let message = format!("a race: this block {did} what {other} {verb} in the same launch");
    Trouble::at(FaultKind::GlobalRace, address, message)
}
