//! The forward pass of few queries: a task is a head of keys, whose rows pass by all queries that share it.

use super::tile::is_real;
use super::{Attention, Inputs, Strided, cut as pieces};
use crate::float::{Disjoint, FloatElement, Real};
use crate::gemm::GemmElement;
use crate::pool::Pool;
use crate::simd::widest;
use remat_types::Element;

/// Most queries of a head: more fill tiles well enough.
const FEW: usize = 8;

/// Partial sums of a product of two rows.
const LANES: usize = 16;

/// True if these sizes run here.
pub(super) fn suits(a: &Attention) -> bool {
    (1..=FEW).contains(&a.tq) && a.drops.is_none() && a.tk > 0
}

/// Items of a slot: the queries, the scores, maximum and sum of each query, the sums of values, a row that is widened.
pub(super) fn lens(a: &Attention) -> [usize; 5] {
    let rows = a.group() * a.tq;
    [rows * a.d, rows * a.tk, 2 * rows, rows * a.dv, a.d.max(a.dv)]
}

pub(super) fn run<T: FloatElement<Real: GemmElement>>(
    pool: &Pool,
    a: &Attention,
    x: &Inputs<'_, T>,
    y: &mut [T],
    lse: &mut [T::Real],
    workspace: &mut [T::Real],
) {
    let lens = lens(a);
    let (y, lse) = (Disjoint::new(y), Disjoint::new(lse));
    pool.with_slots(a.n * a.heads_kv, workspace, lens.iter().sum(), |pair, slot| {
        let [n, kv] = a.pair_kv(pair);
        let [q, scores, totals, sums, wide] = pieces(slot, lens);
        let (totals, _) = totals.as_chunks_mut::<2>();
        // the queries of all heads that share the keys, head after head
        let rows = || {
            (0..a.group() * a.tq).map(|r| {
                let i = r % a.tq;
                Query { at: [n, kv * a.group() + r / a.tq], i, first: a.begin(i), end: a.end(i) }
            })
        };
        for (row, q) in rows().zip(q.chunks_exact_mut(a.d.max(1))) {
            // SAFETY: an element of this head, which was checked.
            unsafe { fill(&x.q, [n, row.i, row.at[1]], q) };
            q.iter_mut().for_each(|q| *q *= T::Real::from_f64(a.scale));
        }
        let (first, end) = (a.begin(0), a.seen());
        for key in first..end {
            // SAFETY: as above.
            let k = unsafe { row_of(&x.k, [n, key, kv], a.d, wide) };
            for (r, _) in rows().enumerate().filter(|(_, row)| row.sees(key)) {
                scores[r * a.tk + key] = product(&q[r * a.d..][..a.d], k);
            }
        }
        for (r, row) in rows().enumerate() {
            let scores = &mut scores[r * a.tk..][row.first..row.end];
            // SAFETY: as above, of mask and bias.
            unsafe { adjusted(a, x, &row, scores) };
            totals[r] = exponentials(scores);
        }
        sums.fill(T::Real::ZERO);
        for key in first..end {
            // SAFETY: as above.
            let v = unsafe { row_of(&x.v, [n, key, kv], a.dv, wide) };
            for (r, _) in rows().enumerate().filter(|(_, row)| row.sees(key)) {
                let p = scores[r * a.tk + key];
                // what is not seen takes nothing of a value that is not finite
                if p != T::Real::ZERO {
                    sums[r * a.dv..][..a.dv].iter_mut().zip(v).for_each(|(y, v)| *y += p * *v);
                }
            }
        }
        for (r, (row, [max, sum])) in rows().zip(&*totals).enumerate() {
            let share = if *sum == T::Real::ZERO { *sum } else { T::Real::ONE / *sum };
            let [n, h] = row.at;
            // SAFETY: the heads of queries of a head of keys are its task's.
            let (y, lse) = unsafe {
                (y.part(((n * a.tq + row.i) * a.heads + h) * a.dv, a.dv), lse.part((n * a.heads + h) * a.tq + row.i, 1))
            };
            y.iter_mut().zip(&sums[r * a.dv..]).for_each(|(y, s)| *y = T::down(*s * share));
            lse[0] = *max + sum.ln();
        }
    });
}

/// One query, and the keys that it sees but for the mask.
struct Query {
    /// Image and head.
    at: [usize; 2],
    i: usize,
    first: usize,
    end: usize,
}

impl Query {
    fn sees(&self, key: usize) -> bool {
        (self.first..self.end).contains(&key)
    }
}

/// Where the first of a row's elements lies.
fn place<T>(x: &Strided<'_, T>, [n, t, h]: [usize; 3]) -> *const T {
    let [sn, st, sh, _] = x.strides;
    x.data.as_ptr().wrapping_add(x.offset).wrapping_offset(n as isize * sn + t as isize * st + h as isize * sh)
}

/// Copies row `t` of image `n` and head `h`.
///
/// # Safety
/// It was checked to lie in `x`.
unsafe fn fill<T: FloatElement>(x: &Strided<'_, T>, at: [usize; 3], to: &mut [T::Real]) {
    let from = place(x, at);
    for (j, to) in to.iter_mut().enumerate() {
        // SAFETY: as the caller says.
        *to = unsafe { *from.offset(j as isize * x.strides[3]) }.up();
    }
}

/// The `d` elements of row `t` of image `n` and head `h`, where they are or in `wide`.
///
/// # Safety
/// They were checked to lie in `x`.
unsafe fn row_of<'a, T: FloatElement>(
    x: &Strided<'a, T>,
    at: [usize; 3],
    d: usize,
    wide: &'a mut [T::Real],
) -> &'a [T::Real] {
    if is_real::<T>() && (x.strides[3] == 1 || d <= 1) {
        // SAFETY: elements side by side, as the caller says, of the type that is computed in.
        return unsafe { std::slice::from_raw_parts(place(x, at).cast(), d) };
    }
    // SAFETY: as the caller says.
    unsafe { fill(x, at, &mut wide[..d]) };
    &wide[..d]
}

/// `sum a[i] b[i]`, in an order that depends on the length alone.
fn product<R: Real>(a: &[R], b: &[R]) -> R {
    let mut total = R::ZERO;
    widest(
        #[inline(always)]
        || {
            let mut sums = [R::ZERO; LANES];
            let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
            for (a, b) in a.iter().zip(b) {
                for i in 0..LANES {
                    sums[i] += a[i] * b[i];
                }
            }
            for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
                *sum += *a * *b;
            }
            let mut width = LANES / 2;
            while width > 0 {
                for i in 0..width {
                    let other = sums[i + width];
                    sums[i] += other;
                }
                width /= 2;
            }
            total = sums[0];
        },
    );
    total
}

/// Capped, biased and masked.
///
/// # Safety
/// Mask and bias were checked for the sizes of `a`.
unsafe fn adjusted<T: FloatElement>(a: &Attention, x: &Inputs<'_, T>, row: &Query, scores: &mut [T::Real]) {
    let [n, h] = row.at;
    if a.cap != 0.0 {
        let (cap, inverse) = (T::Real::from_f64(a.cap), T::Real::from_f64(1.0 / a.cap));
        scores.iter_mut().for_each(|s| *s = cap * super::tile::tanh(*s * inverse));
    }
    let at = |strides: &[isize; 4], key: usize| {
        let places = [n, h, row.i, row.first + key];
        places.iter().zip(strides).map(|(p, s)| *p as isize * s).sum::<isize>()
    };
    if let Some(bias) = &x.bias {
        let from = bias.data.as_ptr().wrapping_add(bias.offset);
        // SAFETY: query and key are of this head, as the caller says.
        scores.iter_mut().enumerate().for_each(|(j, s)| *s += unsafe { *from.offset(at(&bias.strides, j)) }.up());
    }
    if let Some(mask) = &x.mask {
        let from = mask.data.as_ptr().wrapping_add(mask.offset);
        for (j, s) in scores.iter_mut().enumerate() {
            // SAFETY: as above.
            if unsafe { *from.offset(at(&mask.strides, j)) } == 0 {
                *s = T::Real::NEG_INFINITY;
            }
        }
    }
}

/// Scores become `exp(score - maximum)`; the maximum, 0 where nothing is seen, and the sum. A NaN is met by the sum.
fn exponentials<R: Real>(scores: &mut [R]) -> [R; 2] {
    let most = scores.iter().fold(R::NEG_INFINITY, |m, s| if *s > m { *s } else { m });
    let max = if most == R::NEG_INFINITY { R::ZERO } else { most };
    let mut sum = R::ZERO;
    widest(
        #[inline(always)]
        || {
            let mut sums = [R::ZERO; LANES];
            let (whole, rest) = scores.as_chunks_mut::<LANES>();
            for scores in whole {
                for i in 0..LANES {
                    scores[i] = (scores[i] - max).exp_below();
                    sums[i] += scores[i];
                }
            }
            for (s, sum) in rest.iter_mut().zip(&mut sums) {
                *s = (*s - max).exp_below();
                *sum += *s;
            }
            sum = sums.iter().fold(R::ZERO, |a, b| a + *b);
        },
    );
    [max, sum]
}
