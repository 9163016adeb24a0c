//! Rows that a vector holds: a load, a permutation and a store each, whatever stride and margins are.

use std::ops::Range;

use super::Plane;

/// Elements of a vector.
const LANES: usize = 16;

/// How the rows of a phase of at most a vector come from source rows of at most two.
pub(super) struct Short {
    /// The source column of each place.
    index: [i32; LANES],
    /// Places that have one; the others are zero.
    kept: u16,
}

impl Short {
    /// For places `places`, which are the columns from `start` on, a stride apart. `None` where rows are longer, or the
    /// processor has no AVX-512.
    pub(super) fn new(plane: &Plane, places: Range<usize>, start: usize) -> Option<Short> {
        if plane.pitch <= LANES && plane.size[1] <= 2 * LANES && is_x86_feature_detected!("avx512f") {
            let mut index = [0; LANES];
            for (i, index) in index[places.clone()].iter_mut().enumerate() {
                *index = (start + i * plane.stride[1]) as i32;
            }
            return Some(Short { index, kept: below(places.end) & !below(places.start) });
        }
        None
    }

    /// Fills a phase. Its row `i` is source row `top + i * stride`, or zeros beside the source.
    ///
    /// # Safety
    /// `src` is a channel of the plane's size, `out` is writable for its rows; elements have four bytes, which are moved.
    #[inline(always)]
    pub(super) unsafe fn copy(&self, plane: &Plane, src: *const f32, top: isize, out: *mut f32) {
        // SAFETY: same contract; the processor has AVX-512, or there were no `self`.
        unsafe { self.move_rows(plane, src, top, out) }
    }

    /// # Safety
    /// As [`Short::copy`]; the processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn move_rows(&self, plane: &Plane, src: *const f32, top: isize, out: *mut f32) {
        use std::arch::x86_64::*;
        let [height, width] = plane.size;
        let (low, high) = (below(width.min(LANES)), below(width.saturating_sub(LANES)));
        let written = below(plane.pitch);
        // SAFETY: loads are of the columns of a row that is in the source, stores of a row of the phase.
        unsafe {
            let index = _mm512_loadu_si512(self.index.as_ptr().cast());
            for i in 0..plane.rows {
                let mut row = _mm512_setzero_ps();
                if let Ok(y) = usize::try_from(top + (i * plane.stride[0]) as isize)
                    && y < height
                {
                    let from = src.add(y * width);
                    row = _mm512_maskz_loadu_ps(low, from);
                    row = if high == 0 {
                        _mm512_maskz_permutexvar_ps(self.kept, index, row)
                    } else {
                        let rest = _mm512_maskz_loadu_ps(high, from.wrapping_add(LANES));
                        _mm512_maskz_permutex2var_ps(self.kept, row, index, rest)
                    };
                }
                _mm512_mask_storeu_ps(out.add(i * plane.pitch), written, row);
            }
        }
    }
}

/// Ones in the lowest `n` bits of 16.
fn below(n: usize) -> u16 {
    ((1u32 << n) - 1) as u16
}
