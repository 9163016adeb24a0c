//! Loads and stores of lanes, in all spaces.

use super::block::Block;
use super::cells::Use;
use super::fault::{FaultKind, Tried, Trouble};
use super::memory::Allocation;
use super::row::Offsets;
use crate::code::{Access, Address, Order, WINDOW_BYTES, window};
use crate::lanes::{Class, LANES, Slot};
use crate::ptx::Space;

/// The numbers of the bits that are set.
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros();
            mask &= mask - 1;
            lane as usize
        })
    })
}

/// The space and the offset of a generic address.
pub(super) fn resolve(space: Space, address: u64) -> (Space, u64) {
    if space != Space::Generic {
        return (space, address);
    }
    for space in [Space::Shared, Space::Local] {
        let offset = address.wrapping_sub(window(space));
        if offset < WINDOW_BYTES {
            return (space, offset);
        }
    }
    (Space::Global, address)
}

impl<'b> Block<'b> {
    #[inline(always)]
    pub(super) fn address(&self, address: &Address, warp: usize, lane: usize) -> u64 {
        let base = match address.base {
            None => 0,
            Some((Class::Double, slot)) => self.regs.doubles[self.regs.row(slot, warp)][lane],
            Some((_, slot)) => u64::from(self.regs.words[self.regs.row(slot, warp)][lane]),
        };
        base.wrapping_add(address.offset as u64)
    }

    #[inline(always)]
    pub(super) fn register(&self, class: Class, slot: Slot, warp: usize, lane: usize) -> u64 {
        let row = self.regs.row(slot, warp);
        match class {
            Class::Double => self.regs.doubles[row][lane],
            _ => u64::from(self.regs.words[row][lane]),
        }
    }

    #[inline(always)]
    pub(super) fn set_register(&mut self, class: Class, slot: Slot, warp: usize, lane: usize, value: u64) {
        let row = self.regs.row(slot, warp);
        match class {
            Class::Double => self.regs.doubles[row][lane] = value,
            Class::Half => self.regs.words[row][lane] = value as u32 & 0xffff,
            _ => self.regs.words[row][lane] = value as u32,
        }
    }

    pub(super) fn load(&mut self, access: &Access, mask: &[u32]) -> Tried<()> {
        let whole = u64::from(access.bytes) * access.parts.len() as u64;
        let how = match access.order {
            Order::Plain => Use::Read,
            Order::ReadOnly => Use::ReadOnly,
            Order::Strong => Use::StrongRead,
        };
        match access.space {
            Space::Shared | Space::Global | Space::Const if access.is_words => {
                return self.load_words(access, mask, how);
            }
            Space::Param if access.address.base.is_none() => return self.load_param(access, mask),
            _ => {}
        }
        for (warp, &mask) in mask.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            let place = self.place_row(access, warp, mask);
            for lane in lanes(mask) {
                let thread = warp * LANES + lane;
                let (space, address) = resolve(access.space, self.address(&access.address, warp, lane));
                if place.is_none() {
                    is_aligned(address, whole).map_err(|t| t.by(thread))?;
                }
                for (k, part) in access.parts.iter().enumerate() {
                    let step = k as u64 * u64::from(access.bytes);
                    let raw = match &place {
                        Some((a, at)) => self.global.read_at(a, u64::from(at[lane]) + step, access.bytes, how),
                        None => self.read(space, address.wrapping_add(step), access.bytes, thread, how),
                    };
                    let raw = raw.map_err(|t| t.by(thread))?;
                    let Some((class, slot)) = *part else { continue };
                    self.set_register(class, slot, warp, lane, access.extended(raw));
                }
            }
        }
        Ok(())
    }

    /// Where a warp's accesses to memory of the device lie, if that is one allocation.
    #[inline(always)]
    fn place_row(&mut self, access: &Access, warp: usize, mask: u32) -> Option<(&'b Allocation, Offsets)> {
        if !matches!(access.space, Space::Global | Space::Const) {
            return None;
        }
        let addresses = self.addresses(&access.address, warp);
        self.global.place_row(&addresses, mask, u64::from(access.bytes) * access.parts.len() as u64)
    }

    /// Loads a parameter, the same one for all lanes.
    fn load_param(&mut self, access: &Access, mask: &[u32]) -> Tried<()> {
        let Some(warp) = mask.iter().position(|mask| *mask != 0) else { return Ok(()) };
        let thread = warp * LANES + mask[warp].trailing_zeros() as usize;
        let address = access.address.offset as u64;
        is_aligned(address, u64::from(access.bytes) * access.parts.len() as u64).map_err(|t| t.by(thread))?;
        for (k, part) in access.parts.iter().enumerate() {
            let at = address.wrapping_add(k as u64 * u64::from(access.bytes));
            let raw = self.read(Space::Param, at, access.bytes, thread, Use::Read).map_err(|t| t.by(thread))?;
            let Some((class, slot)) = *part else { continue };
            let value = access.extended(raw);
            for (warp, &mask) in mask.iter().enumerate() {
                let row = self.regs.row(slot, warp);
                match class {
                    Class::Double => put_row(&mut self.regs.doubles[row], mask, &[value; LANES]),
                    Class::Half => put_row(&mut self.regs.words[row], mask, &[value as u32 & 0xffff; LANES]),
                    _ => put_row(&mut self.regs.words[row], mask, &[value as u32; LANES]),
                }
            }
        }
        Ok(())
    }

    /// Loads registers of 32 bits, row by row.
    fn load_words(&mut self, access: &Access, mask: &[u32], how: Use) -> Tried<()> {
        let count = access.parts.len();
        for (warp, &mask) in mask.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            let addresses = self.addresses(&access.address, warp);
            let mut rows = [[0; LANES]; 4];
            match (access.space, count) {
                (Space::Shared, 1) => self.shared.read_words::<1>(&addresses, warp, mask, how, &mut rows)?,
                (Space::Shared, 2) => self.shared.read_words::<2>(&addresses, warp, mask, how, &mut rows)?,
                (Space::Shared, _) => self.shared.read_words::<4>(&addresses, warp, mask, how, &mut rows)?,
                _ => self.global.read_words(&addresses, warp, mask, how, &mut rows[..count])?,
            }
            for (part, row) in access.parts.iter().zip(&rows) {
                let Some((_, slot)) = *part else { continue };
                let to = self.regs.row(slot, warp);
                put_row(&mut self.regs.words[to], mask, row);
            }
        }
        Ok(())
    }

    /// The addresses of all lanes of a warp.
    fn addresses(&self, address: &Address, warp: usize) -> [u64; LANES] {
        let offset = address.offset as u64;
        match address.base {
            None => [offset; LANES],
            Some((Class::Double, slot)) => self.regs.doubles[self.regs.row(slot, warp)].map(|a| a.wrapping_add(offset)),
            Some((_, slot)) => self.regs.words[self.regs.row(slot, warp)].map(|a| u64::from(a).wrapping_add(offset)),
        }
    }

    pub(super) fn store(&mut self, access: &Access, mask: &[u32]) -> Tried<()> {
        let whole = u64::from(access.bytes) * access.parts.len() as u64;
        let how = if access.order == Order::Strong { Use::Atomic } else { Use::Write };
        if access.is_words && matches!(access.space, Space::Shared | Space::Global) {
            return self.store_words(access, mask, how);
        }
        for (warp, &mask) in mask.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            let place = self.place_row(access, warp, mask);
            for lane in lanes(mask) {
                let thread = warp * LANES + lane;
                let (space, address) = resolve(access.space, self.address(&access.address, warp, lane));
                if place.is_none() {
                    is_aligned(address, whole).map_err(|t| t.by(thread))?;
                }
                for (k, part) in access.parts.iter().enumerate() {
                    let Some((class, slot)) = *part else { continue };
                    let value = self.register(class, slot, warp, lane);
                    let step = k as u64 * u64::from(access.bytes);
                    match &place {
                        Some((a, at)) => self.global.write_at(a, u64::from(at[lane]) + step, access.bytes, value, how),
                        None => self.write(space, address.wrapping_add(step), access.bytes, value, thread, how),
                    }
                    .map_err(|t| t.by(thread))?;
                }
            }
        }
        Ok(())
    }

    /// Stores registers of 32 bits, warp by warp.
    fn store_words(&mut self, access: &Access, mask: &[u32], how: Use) -> Tried<()> {
        let count = access.parts.len();
        for (warp, &mask) in mask.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            let addresses = self.addresses(&access.address, warp);
            let mut rows = [[0; LANES]; 4];
            for (part, row) in access.parts.iter().zip(&mut rows) {
                let Some((_, slot)) = *part else { continue };
                *row = self.regs.words[self.regs.row(slot, warp)];
            }
            match access.space {
                Space::Shared => self.shared.write_words(&addresses, warp, mask, how, &rows[..count])?,
                _ => self.global.write_words(&addresses, warp, mask, how, &rows[..count])?,
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn read(&mut self, space: Space, at: u64, bytes: u32, thread: usize, how: Use) -> Tried<u64> {
        match space {
            Space::Shared => self.shared.read(at, bytes, thread, how),
            Space::Local => {
                let from = self.local_place(at, bytes, thread)?;
                Ok(little_endian(&self.local[from..from + bytes as usize]))
            }
            Space::Param => {
                let end = at.checked_add(u64::from(bytes)).filter(|&end| end <= self.params.len() as u64);
                let Some(end) = end else {
                    return Err(Trouble::at(FaultKind::OutOfBounds, at, "the address is outside of the parameters"));
                };
                Ok(little_endian(&self.params[at as usize..end as usize]))
            }
            _ => self.global.read(at, bytes, how),
        }
    }

    #[inline(always)]
    pub(super) fn write(
        &mut self,
        space: Space,
        at: u64,
        bytes: u32,
        value: u64,
        thread: usize,
        how: Use,
    ) -> Tried<()> {
        match space {
            Space::Shared => self.shared.write(at, bytes, value, thread, how),
            Space::Local => {
                let to = self.local_place(at, bytes, thread)?;
                self.local[to..to + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
                Ok(())
            }
            _ => self.global.write(at, bytes, value, how),
        }
    }

    fn local_place(&self, at: u64, bytes: u32, thread: usize) -> Tried<usize> {
        let frame = u64::from(self.kernel.local_bytes);
        if at > frame || u64::from(bytes) > frame - at {
            let message = format!("{bytes} bytes here are outside of the {frame} bytes of local memory");
            return Err(Trouble::at(FaultKind::OutOfBounds, at, message));
        }
        Ok(thread * frame as usize + at as usize)
    }
}

fn put_row<T: Copy>(to: &mut [T; LANES], mask: u32, from: &[T; LANES]) {
    if mask == u32::MAX {
        *to = *from;
        return;
    }
    for lane in lanes(mask) {
        to[lane] = from[lane];
    }
}

impl Access {
    /// The value of a register that takes these bytes.
    #[inline(always)]
    fn extended(&self, raw: u64) -> u64 {
        let unused = 64 - 8 * self.bytes;
        if self.is_signed { ((raw << unused) as i64 >> unused) as u64 } else { raw }
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[inline(always)]
pub(super) fn is_aligned(address: u64, bytes: u64) -> Tried<()> {
    if address & (bytes - 1) == 0 {
        return Ok(());
    }
    let message = format!("an access of {bytes} bytes is not at a multiple of {bytes}");
    Err(Trouble::at(FaultKind::Misaligned, address, message))
}
