//! Putting elements where index tensors say.

use super::places::{BLOCK, Places, Row};
use crate::copy::{PARALLEL_MIN_ELEMS, Walk, chunks};
use crate::pool::Pool;
use crate::reduce::{Arith, Num};

/// What becomes of an element and what is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// What is put.
    Set,
    /// The sum.
    Add,
    /// The product.
    Mul,
    /// The larger; NaN if either is.
    Max,
    /// The smaller; NaN if either is.
    Min,
}

/// What is put: position `p` has the elements from `p * row.len` on.
#[derive(Clone, Debug)]
pub struct Source<'a, T> {
    /// The storage.
    pub data: &'a [T],
    /// The elements therein.
    pub walk: Walk,
    /// The number of positions.
    pub positions: usize,
}

/// Puts the elements of `src`, position after position, at their places in `y`: the last one that is set wins.
///
/// `y` is cut into `cuts` equal parts, of which the first ones have so many equal runs of positions, each within its part:
/// (runs, parts).
///
/// # Panics
/// If a place is outside of its part of `y`, or `src` is too short.
pub fn put<T: Num>(
    pool: &Pool,
    f: Put,
    src: &Source<'_, T>,
    places: &Places<'_>,
    row: &Row,
    cuts: (usize, usize),
    y: &mut [T],
) {
    #[allow(clippy::eq_op, reason = "the test for NaN of any type")]
    let is_nan = |v: T| v != v;
    match f {
        Put::Set => put_by(pool, src, places, row, cuts, y, |_, b| b),
        Put::Add => put_by(pool, src, places, row, cuts, y, plus),
        Put::Mul => put_by(pool, src, places, row, cuts, y, |a, b| T::narrow(T::widen(a.lane().times(b.lane())))),
        Put::Max => put_by(pool, src, places, row, cuts, y, |a, b| if b > a || is_nan(b) { b } else { a }),
        Put::Min => put_by(pool, src, places, row, cuts, y, |a, b| if b < a || is_nan(b) { b } else { a }),
    }
}

#[inline(always)]
fn plus<T: Num>(a: T, b: T) -> T {
    T::narrow(T::widen(a.lane().plus(b.lane())))
}

fn put_by<T: Num>(
    pool: &Pool,
    src: &Source<'_, T>,
    places: &Places<'_>,
    row: &Row,
    (runs, parts): (usize, usize),
    y: &mut [T],
    f: impl Fn(T, T) -> T + Copy + Sync,
) {
    if y.is_empty() || src.positions == 0 || row.len == 0 {
        return;
    }
    let (len, count) = (y.len() / parts, src.positions / runs);
    let parallel = parts > 1 && src.positions * row.len >= PARALLEL_MIN_ELEMS;
    chunks(pool, parallel, y, len, |part, y| {
        if part >= runs {
            return;
        }
        let (mut at, mut held) = ([0; BLOCK], [T::default(); BLOCK]);
        let (first, end) = (part * count, (part + 1) * count);
        for start in (first..end).step_by(BLOCK) {
            let at = &mut at[..BLOCK.min(end - start)];
            places.find(start, at);
            at.iter_mut().for_each(|at| *at -= part * len);
            if row.len == 1 {
                let x = src.read(start, &mut held[..at.len()]);
                at.iter().zip(x).for_each(|(at, x)| y[*at] = f(y[*at], *x));
                continue;
            }
            for (k, at) in at.iter().enumerate() {
                put_row(src, (start + k) * row.len, row, &mut y[*at..], &mut held, f);
            }
        }
    });
}

/// Puts a row, whose elements begin at position `from` of the source, at the beginning of `y`.
fn put_row<T: Num>(
    src: &Source<'_, T>,
    from: usize,
    row: &Row,
    y: &mut [T],
    held: &mut [T; BLOCK],
    f: impl Fn(T, T) -> T + Copy,
) {
    for i in (0..row.len).step_by(BLOCK) {
        let len = BLOCK.min(row.len - i);
        let x = src.read(from + i, &mut held[..len]);
        row.walk.runs(i, len, |at, step, range| {
            let x = &x[range];
            if step == 1 {
                let at = at as usize;
                y[at..at + x.len()].iter_mut().zip(x).for_each(|(y, x)| *y = f(*y, *x));
            } else {
                for (k, x) in x.iter().enumerate() {
                    let y = &mut y[(at + k as isize * step) as usize];
                    *y = f(*y, *x);
                }
            }
        });
    }
}

impl<T: Copy> Source<'_, T> {
    /// The elements from `start` on: where they lie, if they lie side by side, else in `held`.
    #[inline]
    fn read<'b>(&'b self, start: usize, held: &'b mut [T]) -> &'b [T] {
        if let Some(at) = self.walk.run_at(start, held.len()) {
            return &self.data[at..at + held.len()];
        }
        self.walk.read(self.data, start, held);
        held
    }
}
