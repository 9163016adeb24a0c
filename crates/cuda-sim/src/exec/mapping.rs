//! Virtual memory: ranges of addresses that are reserved, and memory that is mapped there.
//!
//! Memory is apart from its addresses: it keeps its bytes when it is unmapped. It cannot be accessed before access is given.
//! Nobody here needs more of what CUDA allows, and it is refused: a part of a piece, and one piece at two addresses.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use super::memory::{Allocation, Memory, MemoryError, outside};

/// Memory without an address.
#[derive(Debug)]
pub(crate) struct Physical(Allocation);

impl Physical {
    /// Memory that nobody has written, of a checked [`Memory`] or another one.
    pub(crate) fn new(bytes: u64, is_checked: bool) -> Self {
        Physical(Allocation::new(0, bytes, is_checked))
    }
}

impl Memory {
    /// Reserves addresses, from a multiple of `alignment` on.
    pub(crate) fn reserve(&mut self, bytes: u64, alignment: u64) -> u64 {
        let base = self.take_addresses(bytes, alignment);
        self.reserved.insert(base, bytes);
        base
    }

    /// Gives reserved addresses back. Errors: they are not a whole reservation, or memory is mapped there.
    pub(crate) fn unreserve(&mut self, base: u64, bytes: u64) -> Result<(), MemoryError> {
        if self.reserved.get(&base) != Some(&bytes) {
            return Err(outside(base, &format!("no reservation of {bytes} bytes begins here")));
        }
        if let Some(mapped) = self.mapped().find(|a| a.base.wrapping_sub(base) < bytes) {
            return Err(outside(mapped.base, "memory is mapped here still"));
        }
        self.reserved.remove(&base);
        Ok(())
    }

    /// Errors: the addresses are not reserved, or other memory is mapped there.
    pub(crate) fn check_map(&self, at: u64, bytes: u64) -> Result<(), MemoryError> {
        let reservation = self.reserved.range(..=at).next_back().filter(|(base, size)| at - *base < **size);
        let Some((base, size)) = reservation else { return Err(outside(at, "the address is not reserved")) };
        if bytes > size - (at - base) {
            return Err(outside(at, &format!("{bytes} bytes from here end behind the reservation")));
        }
        match self.mapped().find(|a| a.base < at + bytes && at < a.base + a.bytes) {
            Some(other) => Err(outside(other.base, "other memory is mapped here")),
            None => Ok(()),
        }
    }

    /// Maps memory where [`Memory::check_map`] allows it. It cannot be accessed yet.
    pub(crate) fn map(&mut self, at: u64, memory: Physical) {
        let mut piece = memory.0;
        piece.base = at;
        self.closed.push(piece);
    }

    /// Allows accesses. Errors: the range is not all of one or more pieces.
    pub(crate) fn give_access(&mut self, at: u64, bytes: u64) -> Result<(), MemoryError> {
        let pieces = self.whole_pieces(at, bytes)?;
        for base in pieces {
            let Some(number) = self.closed.iter().position(|a| a.base == base) else { continue };
            let piece = self.closed.remove(number);
            // its cells may be of a launch long ago, whose number was given again
            piece.cells.iter().for_each(|cell| cell.store(0, Relaxed));
            piece.split.iter().filter_map(OnceLock::get).flatten().for_each(|cell| cell.store(0, Relaxed));
            piece.touched.iter().for_each(|launch| launch.store(0, Relaxed));
            let place = self.allocations.partition_point(|a| a.base < base);
            self.allocations.insert(place, piece);
        }
        Ok(())
    }

    /// Unmaps pieces: the address that each had, and its memory. Errors: the range is not all of one or more pieces.
    pub(crate) fn unmap(&mut self, at: u64, bytes: u64) -> Result<Vec<(u64, Physical)>, MemoryError> {
        let pieces = self.whole_pieces(at, bytes)?;
        let mut unmapped = Vec::new();
        for list in [&mut self.allocations, &mut self.closed] {
            unmapped.extend(list.extract_if(.., |a| pieces.contains(&a.base)).map(|a| (a.base, Physical(a))));
        }
        Ok(unmapped)
    }

    /// All memory that is mapped.
    fn mapped(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(|a| self.is_reserved(a.base)).chain(&self.closed)
    }

    /// The addresses of the pieces that make up a range.
    fn whole_pieces(&self, at: u64, bytes: u64) -> Result<Vec<u64>, MemoryError> {
        let (mut next, end, mut pieces) = (at, at.saturating_add(bytes), Vec::new());
        while next < end {
            let piece = self.mapped().find(|a| a.base == next);
            let Some(piece) = piece else { return Err(outside(next, "no memory that is mapped begins here")) };
            pieces.push(piece.base);
            next += piece.bytes;
        }
        match next == end {
            true => Ok(pieces),
            false => Err(outside(at, &format!("{bytes} bytes from here end within memory that is mapped"))),
        }
    }

    /// True for an address in a reservation, with memory or without.
    pub(super) fn is_reserved(&self, address: u64) -> bool {
        self.reserved.range(..=address).next_back().is_some_and(|(base, bytes)| address - base < *bytes)
    }

    /// The reason for which an address has no memory.
    pub(super) fn why_nothing(&self, address: u64) -> &'static str {
        if !self.is_reserved(address) {
            return "nothing is allocated here";
        }
        match self.closed.iter().any(|a| address.wrapping_sub(a.base) < a.bytes) {
            true => "memory is mapped here, and access to it was not given",
            false => "the address is reserved, and no memory is mapped here",
        }
    }
}
