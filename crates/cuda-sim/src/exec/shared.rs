//! Shared memory of a block.

use super::access::{is_aligned, lanes};
use super::cells::by_thread::{self, Who};
use super::cells::{self, Clash, Use};
use super::fault::{FaultKind, Tried, Trouble};
use super::memory::Allocation;
use super::row::{self, Offsets};
use crate::lanes::LANES;

/// In `written`: an asynchronous copy to the word is under way.
const PENDING: u8 = 0x10;

/// Lanes of half a warp.
const HALF: usize = LANES / 2;

#[derive(Debug, Default)]
pub(super) struct Shared {
    bytes: u64,
    words: Vec<u32>,
    written: Vec<u8>,
    cells: Vec<u64>,
    /// Cells of the bytes of split words.
    split: Vec<u64>,
    epoch: u64,
    /// How many syncs each warp has passed.
    syncs: [u64; LANES],
    is_checked: bool,
}

impl Shared {
    pub(super) fn new(bytes: u32, is_checked: bool) -> Self {
        let words = bytes.div_ceil(4) as usize;
        let shadow = if is_checked { words } else { 0 };
        Shared {
            bytes: u64::from(bytes),
            words: vec![u32::MAX; words],
            written: vec![0; shadow],
            cells: vec![0; shadow],
            split: Vec::new(),
            epoch: 0,
            syncs: [0; LANES],
            is_checked,
        }
    }

    /// Begins a block.
    pub(super) fn begin(&mut self) {
        self.written.fill(0);
        self.pass_barrier();
    }

    /// Orders all accesses so far before all that follow.
    pub(super) fn pass_barrier(&mut self) {
        self.epoch += 1;
        if self.epoch > by_thread::LAYOUT.epoch_mask {
            self.cells.fill(0);
            self.split.fill(0);
            self.epoch = 1;
        }
    }

    /// Orders the accesses of a warp so far before those that follow.
    pub(super) fn pass_sync(&mut self, warp: usize) {
        self.syncs[warp] += 1;
        if self.syncs[warp] == by_thread::SYNCS {
            // Counts that begin again would look like old ones. A race across this point is missed, none is invented.
            self.syncs[warp] = 0;
            self.cells.fill(0);
            self.split.fill(0);
        }
    }

    #[inline(always)]
    fn who(&self, thread: usize) -> Who {
        Who { thread: thread as u32, epoch: self.epoch, syncs: self.syncs[thread / LANES] }
    }

    /// The number of the word, after bounds were checked.
    #[inline(always)]
    fn place(&self, address: u64, bytes: u32) -> Tried<usize> {
        if address > self.bytes || u64::from(bytes) > self.bytes - address {
            let message = format!("{bytes} bytes here are outside of the {} bytes of shared memory", self.bytes);
            return Err(Trouble::at(FaultKind::OutOfBounds, address, message));
        }
        Ok((address >> 2) as usize)
    }

    #[inline(always)]
    pub(super) fn read(&mut self, address: u64, bytes: u32, thread: usize, how: Use) -> Tried<u64> {
        let at = self.place(address, bytes)?;
        if self.is_checked {
            let mask = Allocation::byte_mask(address, bytes);
            let is_ready = |written: u8| written & (mask | PENDING) == mask;
            if !is_ready(self.written[at]) || bytes == 8 && !is_ready(self.written[at + 1]) {
                return Err(self.not_ready(address, at, bytes));
            }
            self.note(address, at, bytes, thread, how)?;
        }
        let word = u64::from(self.words[at]);
        Ok(match bytes {
            4 => word,
            8 => word | u64::from(self.words[at + 1]) << 32,
            2 => word >> (8 * (address & 3)) & 0xffff,
            _ => word >> (8 * (address & 3)) & 0xff,
        })
    }

    /// Reads `N` words for each lane of a warp, into a row for each word.
    pub(super) fn read_words<const N: usize>(
        &mut self,
        addresses: &[u64; LANES],
        warp: usize,
        mask: u32,
        how: Use,
        rows: &mut [[u32; LANES]; 4],
    ) -> Tried<()> {
        let range = row::Range { base: 0, bytes: self.bytes, size: 4 * N as u64 };
        let Some(offsets) = row::offsets(addresses, mask, range) else {
            return self.read_lanes(addresses, warp, mask, how, &mut rows[..N]);
        };
        if self.is_checked {
            self.note_row::<N>(&offsets, warp, mask, how)?;
        }
        for (lane, offset) in offsets.iter().enumerate() {
            let at = (offset >> 2) as usize;
            for (row, word) in rows.iter_mut().zip(&self.words[at..at + N]) {
                row[lane] = *word;
            }
        }
        Ok(())
    }

    /// Reads words for each lane by itself.
    #[cold]
    fn read_lanes(
        &mut self,
        addresses: &[u64; LANES],
        warp: usize,
        mask: u32,
        how: Use,
        rows: &mut [[u32; LANES]],
    ) -> Tried<()> {
        for lane in lanes(mask) {
            let (address, thread) = (addresses[lane], warp * LANES + lane);
            is_aligned(address, 4 * rows.len() as u64).map_err(|t| t.by(thread))?;
            for (k, row) in rows.iter_mut().enumerate() {
                row[lane] = self.read(address + 4 * k as u64, 4, thread, how).map_err(|t| t.by(thread))? as u32;
            }
        }
        Ok(())
    }

    /// Notes the reads of a warp, half by half: kernels read one word or words in a row with each half of a warp.
    fn note_row<const N: usize>(&mut self, offsets: &Offsets, warp: usize, mask: u32, how: Use) -> Tried<()> {
        for (half, offsets) in offsets.as_chunks::<HALF>().0.iter().enumerate() {
            let first = half * HALF;
            let active = mask >> first & ((1 << HALF) - 1);
            if active == 0 {
                continue;
            }
            let is_one = offsets.iter().fold(0, |others, offset| others | (offset ^ offsets[0])) == 0;
            if !is_one && self.are_read_by_many::<N>(offsets) {
                continue;
            }
            // what two lanes of a warp have read in the simple case stays as it is after a third one
            let behind = active & active.wrapping_sub(1);
            let two = active & !(behind & behind.wrapping_sub(1));
            let mut lanes_left = if is_one { two } else { active };
            let mut is_simple = true;
            while lanes_left != 0 && is_simple {
                let lane = lanes_left.trailing_zeros() as usize;
                is_simple = self.note_reads::<N>((offsets[lane] >> 2) as usize, warp * LANES + first + lane);
                lanes_left &= lanes_left - u32::from(is_simple);
            }
            if is_simple {
                continue;
            }
            for lane in lanes(active) {
                let thread = warp * LANES + first + lane;
                for k in 0..N as u64 {
                    self.read(u64::from(offsets[lane]) + 4 * k, 4, thread, how).map_err(|t| t.by(thread))?;
                }
            }
        }
        Ok(())
    }

    /// Writes words for each lane of a warp, from a row for each word.
    pub(super) fn write_words(
        &mut self,
        addresses: &[u64; LANES],
        warp: usize,
        mask: u32,
        how: Use,
        rows: &[[u32; LANES]],
    ) -> Tried<()> {
        let range = row::Range { base: 0, bytes: self.bytes, size: 4 * rows.len() as u64 };
        let offsets = row::offsets(addresses, mask, range).filter(|_| !self.is_checked);
        for lane in lanes(mask) {
            if let Some(offsets) = &offsets {
                let at = (offsets[lane] >> 2) as usize;
                for (word, row) in self.words[at..at + rows.len()].iter_mut().zip(rows) {
                    *word = row[lane];
                }
                continue;
            }
            let (address, thread) = (addresses[lane], warp * LANES + lane);
            is_aligned(address, range.size).map_err(|t| t.by(thread))?;
            for (k, row) in rows.iter().enumerate() {
                let at = address.wrapping_add(4 * k as u64);
                self.write(at, 4, u64::from(row[lane]), thread, how).map_err(|t| t.by(thread))?;
            }
        }
        Ok(())
    }

    /// True if all words were written, and were only read in this epoch, by several threads of several warps: another read changes
    /// nothing.
    #[inline(always)]
    fn are_read_by_many<const N: usize>(&self, offsets: &[u32; HALF]) -> bool {
        let mut others = 0;
        for offset in offsets {
            let at = (offset >> 2) as usize;
            for (cell, written) in self.cells[at..at + N].iter().zip(&self.written[at..at + N]) {
                others |= by_thread::other_than_read_by_many(*cell, self.epoch) | u64::from(*written ^ 0xf);
            }
        }
        others == 0
    }

    /// Notes reads of whole words in the simple case: they were written, and nobody writes them in this epoch. Returns false,
    /// and may have noted some, in any other case.
    #[inline(always)]
    fn note_reads<const N: usize>(&mut self, at: usize, thread: usize) -> bool {
        let who = self.who(thread);
        let mut is_simple = true;
        for written in &self.written[at..at + N] {
            is_simple &= *written == 0xf;
        }
        for cell in &mut self.cells[at..at + N] {
            match by_thread::after_simple_read(*cell, who) {
                Some(new) => *cell = new,
                None => is_simple = false,
            }
        }
        is_simple
    }

    #[inline(always)]
    pub(super) fn write(&mut self, address: u64, bytes: u32, value: u64, thread: usize, how: Use) -> Tried<()> {
        let at = self.place(address, bytes)?;
        if self.is_checked {
            let mask = Allocation::byte_mask(address, bytes);
            self.note(address, at, bytes, thread, how)?;
            self.written[at] |= mask;
            if bytes == 8 {
                self.written[at + 1] |= mask;
            }
        }
        match bytes {
            4 => self.words[at] = value as u32,
            8 => {
                self.words[at] = value as u32;
                self.words[at + 1] = (value >> 32) as u32;
            }
            _ => {
                let shift = 8 * (address & 3) as u32;
                let mask = if bytes == 2 { 0xffff << shift } else { 0xff << shift };
                self.words[at] = self.words[at] & !mask | (value as u32) << shift & mask;
            }
        }
        Ok(())
    }

    /// Notes that an asynchronous copy to these bytes begins or ends.
    pub(super) fn set_pending(&mut self, address: u64, bytes: u32, is_pending: bool) -> Tried<()> {
        let first = self.place(address, bytes)?;
        if self.is_checked {
            for written in &mut self.written[first..first + bytes as usize / 4] {
                *written = if is_pending { *written | PENDING } else { *written & !PENDING };
            }
        }
        Ok(())
    }

    #[cold]
    fn not_ready(&self, address: u64, at: usize, bytes: u32) -> Box<Trouble> {
        let is_pending = self.written[at..].iter().take(bytes.div_ceil(4) as usize).any(|w| w & PENDING != 0);
        match is_pending {
            true => {
                Trouble::at(FaultKind::PendingCopy, address, "an asynchronous copy to these bytes was not waited for")
            }
            false => {
                let message = format!("no thread of the block wrote the {bytes} bytes of shared memory read here");
                Trouble::at(FaultKind::Uninitialised, address, message)
            }
        }
    }

    /// Notes a use without touching the bytes.
    #[inline(always)]
    pub(super) fn note(&mut self, address: u64, at: usize, bytes: u32, thread: usize, how: Use) -> Tried<()> {
        let who = self.who(thread);
        let mask = Allocation::byte_mask(address, bytes);
        let words = if bytes == 8 { 2 } else { 1 };
        for at in at..at + words {
            let cell = self.cells[at];
            let noted = if mask != 0xf || cells::is_split(cell, who.epoch, &by_thread::LAYOUT) {
                self.note_bytes(at, mask, who, how)
            } else {
                by_thread::after(cell, who, how).map(|new| self.cells[at] = new)
            };
            noted.map_err(|clash| race(clash, address, thread, how))?;
        }
        Ok(())
    }

    fn note_bytes(&mut self, at: usize, mask: u8, who: Who, how: Use) -> Result<(), Clash> {
        if self.split.is_empty() {
            self.split = vec![0; 4 * self.cells.len()];
        }
        let bytes = &mut self.split[4 * at..4 * at + 4];
        if !cells::is_split(self.cells[at], who.epoch, &by_thread::LAYOUT) {
            bytes.fill(self.cells[at]);
            self.cells[at] = cells::split(who.epoch, &by_thread::LAYOUT);
        }
        for (_, byte) in bytes.iter_mut().enumerate().filter(|(k, _)| mask >> k & 1 == 1) {
            *byte = by_thread::after(*byte, who, how)?;
        }
        Ok(())
    }
}

#[cold]
fn race(clash: Clash, address: u64, thread: usize, how: Use) -> Box<Trouble> {
    let did = match how {
        Use::Read | Use::ReadOnly | Use::StrongRead => "reads",
        Use::Write => "writes",
        Use::Atomic => "changes by an atomic",
    };
    let other = match clash.other {
        Some(other) => format!("thread number {other}"),
        None => "several threads".to_string(),
    };
    let verb = if clash.other_wrote { "wrote" } else { "read" };
    let message =
        format!("a race in shared memory: thread number {thread} {did} what {other} {verb}, and no barrier is between");
    Trouble::at(FaultKind::SharedRace, address, message)
}

#[cfg(test)]
mod tests;
