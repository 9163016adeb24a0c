//! Index tensors of any integer type.

use std::ops::Range;

use crate::copy::Walk;
use crate::simd::widest;

/// Indices of any integer type.
#[derive(Clone, Copy, Debug)]
pub enum Indices<'a> {
    /// i8.
    I8(&'a [i8]),
    /// i16.
    I16(&'a [i16]),
    /// i32.
    I32(&'a [i32]),
    /// i64.
    I64(&'a [i64]),
    /// u8.
    U8(&'a [u8]),
    /// u16.
    U16(&'a [u16]),
    /// u32.
    U32(&'a [u32]),
    /// u64.
    U64(&'a [u64]),
}

/// An index that is not within the extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadIndex {
    /// Position in row-major order.
    pub position: usize,
    /// The index.
    pub value: i128,
}

/// Evaluates an expression for the slice that indices are.
macro_rules! for_indices {
    ($index:expr, $x:ident => $body:expr) => {
        match $index {
            Indices::I8($x) => $body,
            Indices::I16($x) => $body,
            Indices::I32($x) => $body,
            Indices::I64($x) => $body,
            Indices::U8($x) => $body,
            Indices::U16($x) => $body,
            Indices::U32($x) => $body,
            Indices::U64($x) => $body,
        }
    };
}
pub(super) use for_indices;

/// The integer types of indices.
pub(super) trait Index: Copy + Into<i128> {
    /// True if values may be negative.
    const SIGNED: bool;
    /// The value with its sign extended to 64 bits.
    fn extended(self) -> u64;
}

macro_rules! index_types {
    ($($t:ident $signed:literal),*) => { $(
        impl Index for $t {
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn extended(self) -> u64 { self as u64 }
        }
    )* };
}
index_types! { i8 true, i16 true, i32 true, i64 true, u8 false, u16 false, u32 false, u64 false }

/// True if `v` names an element of an axis of `extent`, where `negative` ones count from the end.
#[inline(always)]
pub(super) fn is_within<I: Index>(v: I, extent: u64, negative: bool) -> bool {
    let v = v.extended();
    (v < extent) | (negative & I::SIGNED & (v.wrapping_add(extent) < extent))
}

/// The element that `v`, which is within, names.
#[inline(always)]
pub(super) fn element<I: Index>(v: I, extent: u64) -> usize {
    let v = v.extended();
    // the sign in all bits chooses the extent, or nothing
    (if I::SIGNED { v.wrapping_add((v as i64 >> 63) as u64 & extent) } else { v }) as usize
}

impl<'a> Indices<'a> {
    /// Those at the positions of `range`.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Indices<'a> {
        match self {
            Indices::I8(x) => Indices::I8(&x[range]),
            Indices::I16(x) => Indices::I16(&x[range]),
            Indices::I32(x) => Indices::I32(&x[range]),
            Indices::I64(x) => Indices::I64(&x[range]),
            Indices::U8(x) => Indices::U8(&x[range]),
            Indices::U16(x) => Indices::U16(&x[range]),
            Indices::U32(x) => Indices::U32(&x[range]),
            Indices::U64(x) => Indices::U64(&x[range]),
        }
    }

    /// The number of indices.
    pub fn len(&self) -> usize {
        for_indices!(self, x => x.len())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `i`-th index.
    pub fn value(&self, i: usize) -> i128 {
        for_indices!(self, x => x[i].into())
    }

    /// The `i`-th index, which [`Indices::check`] has found good.
    #[inline]
    pub(crate) fn at(&self, i: usize) -> usize {
        for_indices!(self, x => x[i] as usize)
    }

    /// Finds the first index that is not in `0..extent`.
    pub fn check(&self, extent: usize) -> Result<(), BadIndex> {
        for_indices!(self, x => check_run(x, 0, extent, false))
    }

    /// Finds the first of the `len` indices that `walk` reads which names no element of an axis of `extent`; `negative` ones
    /// count from the end.
    pub fn check_walk(&self, walk: &Walk, len: usize, extent: usize, negative: bool) -> Result<(), BadIndex> {
        for_indices!(self, x => {
            let mut found = Ok(());
            walk.runs(0, len, |at, step, range| {
                if found.is_ok() {
                    found = if step == 1 {
                        check_run(&x[at as usize..at as usize + range.len()], range.start, extent, negative)
                    } else {
                        let one = |k: usize| &x[(at + k as isize * step) as usize..][..1];
                        (0..range.len()).try_for_each(|k| check_run(one(k), range.start + k, extent, negative))
                    };
                }
            });
            found
        })
    }
}

/// Checks indices that lie side by side, from position `first` on.
fn check_run<I: Index>(x: &[I], first: usize, extent: usize, negative: bool) -> Result<(), BadIndex> {
    let n = extent as u64;
    // all at once, which the compiler makes vectors of; where one is bad it is looked for
    let good = widest(
        #[inline(always)]
        || x.iter().fold(true, |good, &v| good & is_within(v, n, negative)),
    );
    if good {
        return Ok(());
    }
    match x.iter().position(|&v| !is_within(v, n, negative)) {
        Some(k) => Err(BadIndex { position: first + k, value: x[k].into() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_indices_count_from_the_end_only_where_they_may() {
        for (v, negative, want) in [(0i64, false, true), (2, false, true), (3, false, false), (-1, false, false)]
            .into_iter()
            .chain([(-1, true, true), (-3, true, true), (-4, true, false), (i64::MIN, true, false), (3, true, false)])
        {
            assert_eq!(is_within(v, 3, negative), want, "{v} {negative}");
        }
        assert!(!is_within(u64::MAX, 3, true), "an unsigned index is not negative");
        assert_eq!((element(-1i8, 3), element(-3i32, 3), element(2i16, 3)), (2, 0, 2));
        assert_eq!(Indices::I8(&[0, 1, -1]).check(2), Err(BadIndex { position: 2, value: -1 }));
    }
}
