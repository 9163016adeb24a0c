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
            for (byte, at) in here.iter_mut().zip(offset..) {
                if !self.is_unchecked() && !a.is_written(at, 1) {
                    let message = "nobody wrote this byte".to_string();
                    return Err(MemoryError { address: a.base + at, is_uninitialised: true, message });
                }
                *byte = a.read(at, 1) as u8;
            }
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
        let mut buffer = Vec::with_capacity(bytes as usize);
        for (a, offset, bytes) in from {
            buffer.extend((offset..offset + bytes).map(|at| (a.read(at, 1), a.is_written(at, 1))));
        }
        let mut buffer = buffer.into_iter();
        for (a, offset, bytes) in to {
            for (at, (value, is_written)) in (offset..offset + bytes).zip(&mut buffer) {
                a.write(at, 1, value);
                a.set_written(at, is_written);
            }
        }
        Ok(())
    }

    /// Notes that nobody wrote these bytes, as after an allocation. Errors: the range has not memory everywhere.
    pub fn forget(&self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        for (a, offset, bytes) in self.pieces(address, bytes)? {
            (offset..offset + bytes).for_each(|at| a.set_written(at, false));
        }
        Ok(())
    }
}

impl Allocation {
    /// Writes bytes that are within.
    fn put(&self, offset: u64, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let here = offset + at as u64;
            if here.is_multiple_of(4)
                && let Some(word) = data[at..].first_chunk::<4>()
            {
                self.write(here, 4, u64::from(u32::from_le_bytes(*word)));
                self.mark_written(here, 4);
                at += 4;
            } else {
                self.write(here, 1, u64::from(data[at]));
                self.mark_written(here, 1);
                at += 1;
            }
        }
    }
}
