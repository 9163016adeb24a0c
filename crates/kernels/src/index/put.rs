//! Putting elements where index tensors say.

use std::ops::Range;

use super::places::{BLOCK, Places, Row};
use crate::copy::{PARALLEL_MIN_ELEMS, Walk, chunks};
use crate::pool::Pool;
use crate::reduce::{Arith, Num};

/// A function of an element and the element put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The element put there.
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

/// The elements to put: position `p` has the elements from `p * row.len` on.
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
/// `cuts` is (runs, parts). `y` is cut into `parts` equal parts, and `src` into `runs` equal runs of positions, one for
/// each of the first parts. If there is one part, and rows lie side by side, the work is cut by destination.
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
    let large = src.positions * row.len >= PARALLEL_MIN_ELEMS;
    if parts > 1 || !large || pool.threads() == 1 || row.walk.run_at(0, row.len) != Some(0) {
        let (len, count) = (y.len() / parts, src.positions / runs);
        chunks(pool, parts > 1 && large, y, len, |part, y| {
            if part < runs {
                put_run(src, places, row, part * count..(part + 1) * count, part * len, y, f);
            }
        });
        return;
    }
    // each part walks all positions, and puts what falls on its rows
    let rows = (y.len() / row.len).div_ceil(pool.threads());
    chunks(pool, true, y, rows * row.len, |part, y| {
        put_run(src, places, row, 0..src.positions, part * rows * row.len, y, f);
    });
}

/// Puts the rows of a run of positions whose places are in `y`, which begins at place `start`.
fn put_run<T: Num>(
    src: &Source<'_, T>,
    places: &Places<'_>,
    row: &Row,
    run: Range<usize>,
    start: usize,
    y: &mut [T],
    f: impl Fn(T, T) -> T + Copy,
) {
    let (mut at, mut held) = ([0; BLOCK], [T::default(); BLOCK]);
    for from in run.clone().step_by(BLOCK) {
        let at = &mut at[..BLOCK.min(run.end - from)];
        places.find(from, at);
        if row.len == 1 {
            let x = src.read(from, &mut held[..at.len()]);
            for (at, x) in at.iter().zip(x) {
                if let Some(y) = y.get_mut(at.wrapping_sub(start)) {
                    *y = f(*y, *x);
                }
            }
            continue;
        }
        for (k, at) in at.iter().enumerate() {
            if let Some(y) = y.get_mut(at.wrapping_sub(start)..).filter(|y| !y.is_empty()) {
                put_row(src, (from + k) * row.len, row, y, &mut held, f);
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use remat_types::Layout;

    use super::*;
    use crate::index::{Indices, Named};

    #[test]
    fn what_is_put_has_the_same_bits_on_any_number_of_threads() {
        for (n, inner, m) in [(700, 1, 200_000), (90, 40, 5000), (1, 3, 40_000)] {
            let index: Vec<i64> = (0..m).map(|i| (i * i * 7919 % n) as i64).collect();
            let src: Vec<f32> = (0..m * inner).map(|i| 1.0 / (1 + i % 1013) as f32).collect();
            let own = Layout::contiguous([m]);
            let named = [Named::new(Indices::I64(&index), &own, &own, n, inner as isize, false).expect("in range")];
            let nothing = Layout::new([m], &[0], 0).expect("one stride");
            let places = Places { base: Walk::new(&nothing), named: &named };
            let row = Row { walk: Walk::new(&Layout::contiguous([inner])), len: inner };
            let src = Source { data: &src, walk: Walk::new(&Layout::contiguous([m, inner])), positions: m };
            for f in [Put::Set, Put::Add] {
                let run = |threads| {
                    let mut y = vec![0.5f32; n * inner];
                    put(&Pool::new(threads), f, &src, &places, &row, (1, 1), &mut y);
                    y
                };
                let one = run(1);
                assert!([2, 3].into_iter().all(|threads| run(threads) == one), "{f:?} into {n} x {inner}");
                let last = index.iter().rposition(|&i| i == 0).expect("it is named");
                assert!(f == Put::Add || one[0] == src.data[last * inner], "the last one stays");
            }
        }
    }
}
