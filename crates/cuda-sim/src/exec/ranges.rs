//! Reads, writes, fills and copies of whole ranges. A range may go on from one piece of mapped memory into the next.

use super::memory::{Allocation, Memory, MemoryError, outside};

/// The part of a range that is in one allocation: the offset there, and bytes.
type Piece<'m> = (&'m Allocation, u64, u64);

impl Memory {
    /// The parts of a range in order. Errors: a byte of it has no memory.
    fn pieces(&self, address: u64, bytes: u64) -> Result<Vec<Piece<'_>>, MemoryError> {
        let mut pieces: Vec<Piece<'_>> = Vec::new();
        let (mut at, mut left) = (address, bytes);
        while left > 0 {
            let Some(number) = self.find(at, 0) else {
                return Err(match pieces.last() {
                    Some((a, ..)) if !self.is_reserved(at) => {
                        let message = format!("{bytes} bytes from here end behind the allocation of {} bytes", a.bytes);
                        outside(address, &message)
                    }
                    _ => outside(at, self.why_nothing(at)),
                });
            };
            let a = self.allocation(number);
            let offset = at - a.base;
            let here = left.min(a.bytes - offset);
            pieces.push((a, offset, here));
            at += here;
            left -= here;
        }
        Ok(pieces)
    }

    /// Errors unless all bytes of a range have memory.
    pub fn check(&self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.pieces(address, bytes).map(|_| ())
    }

    /// Writes bytes. Errors: the range has not memory everywhere.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let mut data = data;
        for (a, offset, bytes) in self.pieces(address, data.len() as u64)? {
            let (here, rest) = data.split_at(bytes as usize);
            a.put(offset, here);
            data = rest;
        }
        Ok(())
    }

    /// Reads bytes. Errors: the range has not memory everywhere, or holds bytes that nobody wrote,
    /// where these are checked.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let mut out = out;
        for (a, offset, bytes) in self.pieces(address, out.len() as u64)? {
            let (here, rest) = out.split_at_mut(bytes as usize);
            if let Some(at) = a.first_unwritten(offset, bytes) {
                let message = "nobody wrote this byte".to_string();
                return Err(MemoryError { address: a.base + at, is_uninitialised: true, message });
            }
            a.get(offset, here);
            out = rest;
        }
        Ok(())
    }

    /// Fills a range with a value of 1, 2 or 4 bytes. Errors: the range has not memory everywhere.
    pub fn fill(&self, address: u64, value: &[u8], count: u64) -> Result<(), MemoryError> {
        let bytes = count.saturating_mul(value.len() as u64);
        self.check(address, bytes)?;
        let block = value.repeat(4096 / value.len().max(1));
        let mut at = 0;
        while at < bytes {
            let now = (bytes - at).min(block.len() as u64);
            self.write(address + at, &block[..now as usize])?;
            at += now;
        }
        Ok(())
    }

    /// Copies bytes, as if through a buffer; bytes that nobody wrote stay so. Errors: a range has not memory everywhere.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), MemoryError> {
        let (from, to) = (self.pieces(from, bytes)?, self.pieces(to, bytes)?);
        let mut data = vec![0; bytes as usize];
        let mut unwritten = Vec::new();
        let mut done = 0;
        for (a, offset, bytes) in from {
            a.get(offset, &mut data[done..done + bytes as usize]);
            if a.first_unwritten(offset, bytes).is_some() {
                let here = (offset..offset + bytes).zip(done..).filter(|(at, _)| !a.is_written(*at, 1));
                unwritten.extend(here.map(|(_, place)| place));
            }
            done += bytes as usize;
        }
        let mut unwritten = unwritten.into_iter().peekable();
        let mut done = 0;
        for (a, offset, bytes) in to {
            let end = done + bytes as usize;
            a.put(offset, &data[done..end]);
            while let Some(place) = unwritten.next_if(|place| *place < end) {
                a.forget(offset + (place - done) as u64, 1);
            }
            done = end;
        }
        Ok(())
    }

    /// Notes that nobody wrote these bytes, as after an allocation. Errors: the range has not memory everywhere.
    pub fn forget(&self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        for (a, offset, bytes) in self.pieces(address, bytes)? {
            a.forget(offset, bytes);
        }
        Ok(())
    }
}

/// A range within an allocation as bytes before the first whole word, words, and bytes behind them.
fn cut(offset: u64, bytes: u64) -> (u64, u64, u64) {
    let before = offset.wrapping_neg() % 4;
    let before = before.min(bytes);
    let words = (bytes - before) / 4;
    (before, words, bytes - before - 4 * words)
}

impl Allocation {
    /// Writes bytes that are within.
    fn put(&self, offset: u64, data: &[u8]) {
        let (before, words, _) = cut(offset, data.len() as u64);
        let (first, rest) = data.split_at(before as usize);
        let (middle, last) = rest.split_at(4 * words as usize);
        for (byte, at) in first.iter().zip(offset..).chain(last.iter().zip(offset + before + 4 * words..)) {
            self.write(at, 1, u64::from(*byte));
            self.mark_written(at, 1);
        }
        let whole = middle.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        self.put_words(((offset + before) / 4) as usize, whole);
    }

    /// Reads bytes that are within.
    fn get(&self, offset: u64, out: &mut [u8]) {
        let (before, words, _) = cut(offset, out.len() as u64);
        let (first, rest) = out.split_at_mut(before as usize);
        let (middle, last) = rest.split_at_mut(4 * words as usize);
        for (byte, at) in first.iter_mut().zip(offset..).chain(last.iter_mut().zip(offset + before + 4 * words..)) {
            *byte = self.read(at, 1) as u8;
        }
        let whole = self.words_from(((offset + before) / 4) as usize);
        for (bytes, word) in middle.chunks_exact_mut(4).zip(whole) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}
