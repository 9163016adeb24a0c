//! Tiles of the gradient of a weight: outer products of what the taps read and of `dy`, summed over places.

use crate::prefetch::prefetch;
use crate::simd::{LINE_BYTES, Simd, opaque};

/// `c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0) + sum over p of x[offsets[i] + p . step] * d[at(p) * nv * lanes + j]`,
/// where `p = (image, h, w) < size` goes in row-major order and `at` counts them, for a tile of `mr` rows and `nv * lanes`
/// columns. If `ahead` is not zero, the places so far behind the ones that are read are prefetched.
///
/// # Safety
/// The processor has the table's instruction set. Readable: `mr` offsets, the named places of `x`, `nv * lanes` elements at
/// `d` for each `p`. Writable, and readable if it accumulates: `nv * lanes` elements at each `c + i * ldc`.
pub(in crate::conv) type OuterTile<T> = unsafe fn(
    size: [usize; 3],
    x: *const T,
    offsets: *const usize,
    step: [usize; 3],
    d: *const T,
    c: *mut T,
    ldc: usize,
    accumulate: bool,
    ahead: usize,
);

/// A tile; see [`OuterTile`].
///
/// # Safety
/// As [`OuterTile`], for the vector type `V`.
#[inline(always)]
pub(super) unsafe fn outer<V: Simd, const MR: usize, const NV: usize>(
    size: [usize; 3],
    x: *const V::Elem,
    offsets: *const usize,
    step: [usize; 3],
    mut d: *const V::Elem,
    c: *mut V::Elem,
    ldc: usize,
    accumulate: bool,
    ahead: usize,
) {
    // SAFETY: the caller keeps the contract of `OuterTile`.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let mut acc = [[zero; NV]; MR];
        let mut at = [0; MR];
        for i in 0..MR {
            at[i] = *offsets.add(i);
        }
        for image in 0..size[0] {
            for h in 0..size[1] {
                let row = x.wrapping_add(image * step[0] + h * step[1]);
                match step[2] {
                    1 => outer_row::<V, MR, NV, 1>(size[2], row, &at, d, ahead, &mut acc),
                    2 => outer_row::<V, MR, NV, 2>(size[2], row, &at, d, ahead, &mut acc),
                    step => outer_row_apart(size[2], row, &at, step, d, &mut acc),
                }
                d = d.add(size[2] * NV * V::LANES);
            }
        }
        for i in 0..MR {
            for j in 0..NV {
                let p = c.add(i * ldc + j * V::LANES);
                (if accumulate { V::load(p).add(acc[i][j]) } else { acc[i][j] }).store(p);
            }
        }
    }
}

/// The steps of `outer` along a row, `STEP` places apart.
///
/// # Safety
/// As [`OuterTile`], with the offsets in `at`, for the places from `x` on.
#[inline(always)]
unsafe fn outer_row<V: Simd, const MR: usize, const NV: usize, const STEP: usize>(
    width: usize,
    x: *const V::Elem,
    at: &[usize; MR],
    mut d: *const V::Elem,
    ahead: usize,
    acc: &mut [[V; NV]; MR],
) {
    // SAFETY: same contract.
    unsafe {
        let mut rows = [x; MR];
        for i in 0..MR {
            rows[i] = x.add(at[i]);
        }
        let rounds = width / V::UNROLLED;
        let mut p = 0;
        for _ in 0..rounds {
            // If the compiler knows `p`, it keeps a pointer for each row and step of a round. These are more than there are
            // registers, and loading them takes as many loads as the elements do.
            p = opaque(p);
            if ahead > 0 && p / STEP % (LINE_BYTES / size_of::<V::Elem>()) < V::UNROLLED {
                for i in 0..MR {
                    prefetch(rows[i].wrapping_add(p + ahead));
                }
            }
            for u in 0..V::UNROLLED {
                outer_step(&rows, p + u * STEP, d.add(u * NV * V::LANES), acc);
            }
            d = d.add(V::UNROLLED * NV * V::LANES);
            p += V::UNROLLED * STEP;
        }
        for u in 0..width - rounds * V::UNROLLED {
            outer_step(&rows, p + u * STEP, d, acc);
            d = d.add(NV * V::LANES);
        }
    }
}

/// The same for any step.
///
/// # Safety
/// As `outer_row`.
#[inline(always)]
unsafe fn outer_row_apart<V: Simd, const MR: usize, const NV: usize>(
    width: usize,
    x: *const V::Elem,
    at: &[usize; MR],
    step: usize,
    d: *const V::Elem,
    acc: &mut [[V; NV]; MR],
) {
    // SAFETY: same contract.
    unsafe {
        let mut rows = [x; MR];
        for i in 0..MR {
            rows[i] = x.add(at[i]);
        }
        for p in 0..width {
            outer_step(&rows, opaque(p * step), d.add(p * NV * V::LANES), acc);
        }
    }
}

/// `acc[i][j] += rows[i][p] * d[j]`, in vectors of `d`.
///
/// # Safety
/// The processor has the instruction set of `V`; element `p` of the rows and `NV` vectors at `d` are readable.
#[inline(always)]
unsafe fn outer_step<V: Simd, const MR: usize, const NV: usize>(
    rows: &[*const V::Elem; MR],
    p: usize,
    d: *const V::Elem,
    acc: &mut [[V; NV]; MR],
) {
    // SAFETY: as the caller says.
    unsafe {
        let mut row = [V::splat(V::Elem::default()); NV];
        for j in 0..NV {
            row[j] = V::load(d.add(j * V::LANES));
        }
        for i in 0..MR {
            let w = V::splat(*rows[i].add(p));
            for j in 0..NV {
                acc[i][j] = w.mul_add(row[j], acc[i][j]);
            }
        }
    }
}
