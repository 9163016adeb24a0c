//! The addresses of a warp, checked together: what is within one range takes no further check of each lane.

use pulp::{Arch, Simd, WithSimd};

use crate::lanes::LANES;

/// Where the accesses of a warp lie: offsets of all lanes from the beginning of a range. Lanes that are not active have the offset
/// of one that is.
pub(super) type Offsets = [u32; LANES];

/// The range from `base` on in which accesses must lie, and their size, a power of two.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) size: u64,
}

/// The offsets of the lanes of a mask that is not 0. `None` if some access is not within the range or is not aligned, or if the range
/// has more bytes than offsets count.
#[inline(always)]
pub(super) fn offsets(addresses: &[u64; LANES], mask: u32, range: Range) -> Option<Offsets> {
    let last = range.bytes.checked_sub(range.size).filter(|last| *last <= u64::from(u32::MAX))?;
    Arch::new().dispatch(Check { addresses, mask, range, last })
}

struct Check<'a> {
    addresses: &'a [u64; LANES],
    mask: u32,
    range: Range,
    /// The last offset at which an access is within.
    last: u64,
}

impl WithSimd for Check<'_> {
    type Output = Option<Offsets>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Option<Offsets> {
        let Check { addresses, mask, range, last } = self;
        let some = addresses[mask.trailing_zeros() as usize % LANES];
        let mut offsets = [0; LANES];
        let (mut bits, mut is_outside) = (0, 0);
        for lane in 0..LANES {
            let address = if mask & 1 << lane != 0 { addresses[lane] } else { some };
            let offset = address.wrapping_sub(range.base);
            bits |= address;
            // negative where the offset is beyond the last one; both are far from half of all numbers, or the upper bits show
            is_outside |= last.wrapping_sub(offset) | offset;
            offsets[lane] = offset as u32;
        }
        let is_within = is_outside >> 63 == 0 && bits & (range.size - 1) == 0;
        is_within.then_some(offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_accesses_that_are_all_within() {
        let range = Range { base: 0x1000, bytes: 260, size: 4 };
        let addresses: [u64; LANES] = std::array::from_fn(|lane| 0x1000 + 8 * lane as u64);
        let found = offsets(&addresses, u32::MAX, range).expect("all are within");
        assert!(found.iter().enumerate().all(|(lane, offset)| *offset == 8 * lane as u32));
        for wrong in [0xffc, 0x1101, 0x1104, 0x1002, 0, u64::MAX - 3, 1 << 63, (1 << 63) + 0x1000] {
            for lane in [0, 13, 31] {
                let mut addresses = addresses;
                addresses[lane] = wrong;
                assert_eq!(offsets(&addresses, u32::MAX, range), None, "{wrong:#x} in lane {lane}");
                // a lane that is not active may have any address
                let found = offsets(&addresses, !(1 << lane), range).expect("the others are within");
                assert!(found.iter().all(|offset| *offset <= 256));
            }
        }
        assert_eq!(offsets(&addresses, 1, Range { bytes: 3, ..range }), None);
        assert_eq!(offsets(&addresses, 1, Range { bytes: 1 << 40, ..range }), None);
        let last = [0x1000 + 256; LANES];
        assert_eq!(offsets(&last, u32::MAX, range), Some([256; LANES]));
    }
}
