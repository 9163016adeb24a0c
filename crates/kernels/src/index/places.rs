//! The elements of a tensor that index tensors name.
//!
//! A place is where a row of elements begins: the sum of what a layout without the indexed axes gives, and of each index
//! times the step of its axis. Places are found in blocks on the stack: a loop for each index tensor, then one over the
//! elements, so that neither knows the other's types.

use remat_types::Layout;

use super::indices::{BadIndex, Index, Indices, element, for_indices};
use crate::copy::{PARALLEL_MIN_ELEMS, PART_ELEMS, Walk, chunks, read_run};
use crate::pool::Pool;
use crate::simd::widest;

/// Places that are found at once.
pub(super) const BLOCK: usize = 256;

/// An index tensor over positions, for one axis of another tensor.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    index: Indices<'a>,
    walk: Walk,
    extent: u64,
    step: isize,
}

impl<'a> Named<'a> {
    /// The indices in the storage `index` that `own` selects, repeated to the positions of `over`, for an axis of `extent`
    /// whose neighbours are `step` elements apart. `negative` ones count from the end.
    ///
    /// Errors: the first bad index, by its position in `own`.
    pub fn new(
        index: Indices<'a>,
        own: &Layout,
        over: &Layout,
        extent: usize,
        step: isize,
        negative: bool,
    ) -> Result<Self, BadIndex> {
        index.check_walk(&Walk::new(own), own.elems(), extent, negative)?;
        Ok(Named { index, walk: Walk::new(over), extent: extent as u64, step })
    }

    /// Adds what the indices from position `start` on say to `at`.
    fn add(&self, start: usize, at: &mut [usize]) {
        // a negative step wraps, and the sum is what it would be
        let (n, by) = (self.extent, self.step as usize);
        for_indices!(self.index, x => self.walk.runs(start, at.len(), |from, step, range| {
            let at = &mut at[range];
            match step {
                1 => add_run(&x[from as usize..], n, by, at),
                0 => {
                    let more = element(x[from as usize], n).wrapping_mul(by);
                    at.iter_mut().for_each(|at| *at = at.wrapping_add(more));
                }
                _ => {
                    for (k, at) in at.iter_mut().enumerate() {
                        let v = x[(from + k as isize * step) as usize];
                        *at = at.wrapping_add(element(v, n).wrapping_mul(by));
                    }
                }
            }
        }));
    }
}

/// Adds the elements that indices name, `by` apart, to places.
fn add_run<I: Index>(x: &[I], n: u64, by: usize, at: &mut [usize]) {
    widest(
        #[inline(always)]
        || {
            let both = at.iter_mut().zip(x);
            if by == 1 {
                both.for_each(|(at, &v)| *at = at.wrapping_add(element(v, n)));
            } else {
                both.for_each(|(at, &v)| *at = at.wrapping_add(element(v, n).wrapping_mul(by)));
            }
        },
    );
}

/// Where rows begin, by position.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    /// Of what is not indexed, over all positions.
    pub base: Walk,
    /// The index tensors.
    pub named: &'a [Named<'a>],
}

impl Places<'_> {
    /// The places from position `start` on.
    pub(super) fn find(&self, start: usize, at: &mut [usize]) {
        self.base.runs(start, at.len(), |from, step, range| {
            if step == 0 {
                return at[range].fill(from as usize);
            }
            for (k, at) in at[range].iter_mut().enumerate() {
                *at = (from + k as isize * step) as usize;
            }
        });
        self.named.iter().for_each(|named| named.add(start, at));
    }
}

/// The elements of one place: how they lie, and how many there are.
#[derive(Clone, Debug)]
pub struct Row {
    /// From the place on.
    pub walk: Walk,
    /// Their number.
    pub len: usize,
}

impl Row {
    /// Copies the row at a place.
    #[inline]
    fn read<T: Copy>(&self, x: &[T], at: usize, y: &mut [T]) {
        self.walk.runs(0, y.len(), |from, step, range| read_run(x, at as isize + from, step, &mut y[range]));
    }
}

/// `y[p, i] = x[place p + i-th of the row]` for all positions `p`.
///
/// # Panics
/// If a place is outside of `x`.
pub fn gather<T: Copy + Send + Sync>(pool: &Pool, x: &[T], places: &Places<'_>, row: &Row, y: &mut [T]) {
    if y.is_empty() {
        return;
    }
    let parallel = y.len() >= PARALLEL_MIN_ELEMS;
    let rows = (PART_ELEMS / row.len).max(1);
    chunks(pool, parallel, y, rows * row.len, |part, y| {
        let mut at = [0; BLOCK];
        for (k, y) in y.chunks_mut(BLOCK * row.len).enumerate() {
            let at = &mut at[..y.len() / row.len];
            places.find(part * rows + k * BLOCK, at);
            if row.len == 1 {
                y.iter_mut().zip(at).for_each(|(y, at)| *y = x[*at]);
            } else {
                y.chunks_exact_mut(row.len).zip(at).for_each(|(y, at)| row.read(x, *at, y));
            }
        }
    });
}
