//! Copies and transpositions that packing is made of: of rows that lie in order, to rows that lie in order, apart, or
//! anywhere.

/// Steps of `p` that `transpose_into` takes at a time: the lines of `out` that it touches stay in the L1 cache, and where
/// `src` is contiguous along `p` each of its lines is used up.
const TRANSPOSE_BLOCK: usize = 16;

/// `out[p * width + i] = src[i * outer + p * inner]` for `i < valid`, defaults up to `width`.
///
/// # Safety
/// `src` is readable at those places for `i < valid`, `p < kc`.
pub(crate) unsafe fn transpose_into<T: Copy + Default>(
    src: *const T,
    outer: isize,
    inner: isize,
    valid: usize,
    kc: usize,
    width: usize,
    out: &mut [T],
) {
    assert!(out.len() >= kc * width && valid <= width);
    if outer == 1 && inner != 1 {
        // SAFETY: `valid` contiguous elements are readable at each step.
        return unsafe { copy_rows(src, inner, kc, valid, width, out) };
    }
    #[cfg(target_arch = "x86_64")]
    if inner == 1 && size_of::<T>() == 4 && is_x86_feature_detected!("avx2") {
        // SAFETY: same contract, for elements of four bytes that are only moved, and the feature is there.
        return unsafe { squares::transpose(src.cast(), outer, valid, kc, width, out.as_mut_ptr().cast()) };
    }
    for p in (0..kc).step_by(TRANSPOSE_BLOCK) {
        let steps = TRANSPOSE_BLOCK.min(kc - p);
        let src = src.wrapping_offset(p as isize * inner);
        let out = &mut out[p * width..][..steps * width];
        let mut i = 0;
        // SAFETY: rows `i .. i + R` are valid ones and steps `p .. p + steps` lie below `kc`.
        unsafe {
            while i + 4 <= valid {
                rows_into::<T, 4>(src.wrapping_offset(i as isize * outer), outer, inner, i, width, out);
                i += 4;
            }
            while i < valid {
                rows_into::<T, 1>(src.wrapping_offset(i as isize * outer), outer, inner, i, width, out);
                i += 1;
            }
        }
        if valid < width {
            out.chunks_exact_mut(width).for_each(|row| row[valid..].fill(T::default()));
        }
    }
}

/// `out[p * width + j] = src[p * stride + j]` for `j < valid`, zeros up to `width`.
///
/// # Safety
/// `src` is readable at those places.
pub(crate) unsafe fn copy_rows<T: Copy + Default>(
    src: *const T,
    stride: isize,
    kc: usize,
    valid: usize,
    width: usize,
    out: &mut [T],
) {
    for (p, row) in out.chunks_exact_mut(width).take(kc).enumerate() {
        // SAFETY: `valid` elements from row `p` on are readable, as the caller says, and `row` has `width >= valid`.
        unsafe { move_short(src.offset(p as isize * stride), row.as_mut_ptr(), valid) };
        row[valid..].fill(T::default());
    }
}

/// Copies `len` elements: for short pieces a few moves of fixed length, where a call would cost more. The last move overlaps
/// the one before it.
///
/// # Safety
/// `len` elements are readable at `from` and writable at `to`, and the two do not overlap.
#[inline(always)]
pub(crate) unsafe fn move_short<T: Copy>(from: *const T, to: *mut T, len: usize) {
    /// # Safety
    /// `H` elements are readable at `from` and writable at `to`.
    #[inline(always)]
    unsafe fn step<T: Copy, const H: usize>(from: *const T, to: *mut T) {
        // SAFETY: as the caller says; an array has its element's size and is moved at any alignment.
        unsafe { to.cast::<[T; H]>().write_unaligned(from.cast::<[T; H]>().read_unaligned()) }
    }
    if size_of::<T>() == 8 {
        // Moves of 64 bytes would be calls.
        // SAFETY: the same bytes, as twice as many elements of half the size.
        return unsafe { move_short(from.cast::<u32>(), to.cast::<u32>(), 2 * len) };
    }
    // SAFETY: every step lies within the `len` elements.
    unsafe {
        match len {
            0 => {}
            1 => *to = *from,
            2..4 => {
                step::<T, 2>(from, to);
                step::<T, 2>(from.add(len - 2), to.add(len - 2));
            }
            4..8 => {
                step::<T, 4>(from, to);
                step::<T, 4>(from.add(len - 4), to.add(len - 4));
            }
            _ => {
                let mut at = 0;
                while at + 8 <= len {
                    step::<T, 8>(from.add(at), to.add(at));
                    at += 8;
                }
                if at < len {
                    step::<T, 8>(from.add(len - 8), to.add(len - 8));
                }
            }
        }
    }
}

/// Where the rows of a transposition go: row `p` to element `p % minor * minor_step + p / minor * major_step`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apart {
    pub(crate) minor: usize,
    pub(crate) minor_step: usize,
    pub(crate) major_step: usize,
}

impl Apart {
    /// Rows that lie `step` elements apart.
    pub(crate) fn by(step: usize) -> Apart {
        Apart { minor: usize::MAX, minor_step: step, major_step: 0 }
    }

    fn row(&self, p: usize) -> usize {
        p % self.minor * self.minor_step + p / self.minor * self.major_step
    }
}

/// `out[rows.row(p) + i] = src[i * outer + p]` for `i < valid`, defaults up to `width`: a transposition whose rows go to
/// places of their own.
///
/// # Safety
/// `src` is readable at those places for `i < valid`, `p < kc`; `width >= valid` elements are writable at each row's place,
/// and rows do not overlap.
pub(crate) unsafe fn transpose_apart<T: Copy + Default>(
    src: *const T,
    outer: usize,
    valid: usize,
    kc: usize,
    width: usize,
    rows: Apart,
    out: *mut T,
) {
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 4 && kc >= squares::SIDE && is_x86_feature_detected!("avx2") {
        // SAFETY: same contract, for elements of four bytes that are only moved, and the feature is there.
        return unsafe { squares::transpose_apart(src.cast(), outer, valid, kc, width, rows, out.cast()) };
    }
    for p in 0..kc {
        // SAFETY: as the caller says.
        unsafe {
            let out = out.add(rows.row(p));
            (0..valid).for_each(|i| *out.add(i) = *src.add(i * outer + p));
            (valid..width).for_each(|i| *out.add(i) = T::default());
        }
    }
}

/// `out[i * apart + p] = row(p)[i]` for `i < width`, `p < rows`: a transposition of rows that lie anywhere.
///
/// # Safety
/// `width` elements are readable at each row; those of `out` are writable.
pub(crate) unsafe fn transpose_gathered<T: Copy>(
    row: impl Fn(usize) -> *const T,
    rows: usize,
    width: usize,
    apart: usize,
    out: *mut T,
) {
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 4 && rows.min(width) >= squares::SIDE && is_x86_feature_detected!("avx2") {
        // SAFETY: same contract, for elements of four bytes that are only moved, and the feature is there.
        return unsafe { squares::transpose_gathered(|p| row(p).cast(), rows, width, apart, out.cast()) };
    }
    for p in 0..rows {
        let from = row(p);
        // SAFETY: as the caller says.
        (0..width).for_each(|i| unsafe { *out.add(i * apart + p) = *from.add(i) });
    }
}

/// Columns `i .. i + R` of `out` (rows of `width`) from `R` rows of `src`. Where the rows are contiguous, `R x R` squares
/// go through registers: the compiler turns them into shuffles.
///
/// # Safety
/// `R` rows of `src`, `outer` apart, are readable for `out.len() / width` elements, `inner` apart.
#[inline(always)]
unsafe fn rows_into<T: Copy + Default, const R: usize>(
    src: *const T,
    outer: isize,
    inner: isize,
    i: usize,
    width: usize,
    out: &mut [T],
) {
    let steps = out.len() / width;
    let mut p = 0;
    let mut column = [T::default(); R];
    if inner == 1 {
        let mut rows = [[T::default(); R]; R];
        while p + R <= steps {
            for (r, row) in rows.iter_mut().enumerate() {
                // SAFETY: `R` elements from step `p` on of `R` rows.
                *row = unsafe { src.offset(r as isize * outer + p as isize).cast::<[T; R]>().read_unaligned() };
            }
            for q in 0..R {
                for r in 0..R {
                    column[r] = rows[r][q];
                }
                out[(p + q) * width + i..][..R].copy_from_slice(&column);
            }
            p += R;
        }
    }
    while p < steps {
        for (r, slot) in column.iter_mut().enumerate() {
            // SAFETY: step `p` of `R` rows.
            *slot = unsafe { *src.offset(r as isize * outer + p as isize * inner) };
        }
        out[p * width + i..][..R].copy_from_slice(&column);
        p += 1;
    }
}

/// Squares of 8 x 8 four-byte elements through registers.
#[cfg(target_arch = "x86_64")]
pub(crate) mod squares {
    use crate::prefetch::prefetch_run_l2;
    use std::arch::x86_64::*;

    pub(crate) const SIDE: usize = 8;
    /// Steps of `p` for which eight rows are read before the next eight: their lines are used up even where all rows begin at
    /// the same place of a page and drive each other out of a first cache of 8 ways.
    const STEPS: usize = 64;

    /// `super::transpose_into` for `inner == 1` and elements of four bytes.
    ///
    /// # Safety
    /// The processor has AVX2. `src` is readable at `i * outer + p` for `i < valid`, `p < kc`; `out` is writable for
    /// `kc * width` elements, `valid <= width`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn transpose(
        src: *const f32,
        outer: isize,
        valid: usize,
        kc: usize,
        width: usize,
        out: *mut f32,
    ) {
        // The last square of a side overlaps the one before it and moves the same again. In a panel narrower than a square,
        // what a row writes past its end belongs to the next one: the last steps go one by one.
        let narrow = width < SIDE;
        let end = if kc < SIDE {
            0
        } else if narrow {
            (kc - SIDE) / SIDE * SIDE
        } else {
            kc
        };
        for next in (0..end).step_by(STEPS) {
            let steps = STEPS.min(end - next);
            // the rows of the next panel, most often: they lie in other pages, where no processor looks ahead
            for i in valid..2 * valid {
                let row = src.wrapping_offset(i as isize * outer + next as isize);
                prefetch_run_l2(row, steps);
            }
            for i in (0..width).step_by(SIDE) {
                let at = if narrow { 0 } else { i.min(width - SIDE) };
                let from = src.wrapping_offset(at as isize * outer);
                for p in (next..next + steps).step_by(SIDE).map(|p| p.min(kc - SIDE)) {
                    // SAFETY: steps `p .. p + 8` and the rows from `at` on that are valid are readable; the square of `out` ends
                    // within its rows, or, if the panel is narrower, before the panel's end.
                    unsafe {
                        let rows = SIDE.min(valid.saturating_sub(at));
                        square(from.wrapping_add(p), outer, rows, out.add(p * width + at), width);
                    }
                }
            }
        }
        if end < kc {
            // SAFETY: the steps that are left.
            unsafe { single(src.wrapping_add(end), outer, valid, kc - end, width, out.add(end * width), width) };
        }
    }

    /// `out[p * width + i] = src[i * outer + p]` for `i < 8`, `p < 8`, with zeros for `i >= rows`. Not inlined: in the loops
    /// around it the compiler would keep sixteen pointers on the stack instead of two.
    ///
    /// # Safety
    /// The processor has AVX2; 8 elements are readable at `rows` rows of `src` and writable at 8 rows of `out`, in order:
    /// what a row writes past its end the next one overwrites.
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    pub(crate) unsafe fn square(src: *const f32, outer: isize, rows: usize, out: *mut f32, width: usize) {
        // SAFETY: same contract.
        let columns = unsafe { columns(src, outer, rows) };
        for (p, column) in columns.into_iter().enumerate() {
            // SAFETY: 8 elements are writable at row `p`.
            unsafe { _mm256_storeu_ps(out.add(p * width), column) };
        }
    }

    /// `super::transpose_apart` for at least 8 steps.
    ///
    /// # Safety
    /// As that; the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn transpose_apart(
        src: *const f32,
        outer: usize,
        valid: usize,
        kc: usize,
        width: usize,
        rows: super::Apart,
        out: *mut f32,
    ) {
        // a step past whole squares goes by itself; else the last square of a side overlaps the one before it
        let whole = if kc % SIDE == 1 { kc - 1 } else { kc };
        if whole < kc {
            // SAFETY: the last step.
            unsafe { single(src.add(whole), outer as isize, valid, 1, width, out.add(rows.row(whole)), 0) };
        }
        for p in (0..whole).step_by(SIDE).map(|p| p.min(whole - SIDE)) {
            let place = (p % rows.minor, p / rows.minor * rows.major_step);
            for i in (0..width).step_by(SIDE).map(|i| i.min(width.saturating_sub(SIDE))) {
                // SAFETY: steps `p .. p + 8` of the rows from `i` on that are valid are readable, and 8 elements from `i` on at
                // the place of each step, or all of a row that is narrower.
                unsafe {
                    let from = src.wrapping_add(i * outer + p);
                    let (mut minor, mut major) = place;
                    for column in columns(from, outer as isize, SIDE.min(valid.saturating_sub(i))) {
                        let out = out.add(minor * rows.minor_step + major + i);
                        if width < SIDE {
                            let mut row = [0.0; SIDE];
                            _mm256_storeu_ps(row.as_mut_ptr(), column);
                            super::move_short(row.as_ptr(), out, width);
                        } else {
                            _mm256_storeu_ps(out, column);
                        }
                        minor += 1;
                        if minor == rows.minor {
                            (minor, major) = (0, major + rows.major_step);
                        }
                    }
                }
            }
        }
    }

    /// `super::transpose_gathered` for at least 8 rows of at least 8 elements.
    ///
    /// # Safety
    /// As that; the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn transpose_gathered(
        row: impl Fn(usize) -> *const f32,
        rows: usize,
        width: usize,
        apart: usize,
        out: *mut f32,
    ) {
        // the last square of a side overlaps the one before it
        for p in (0..rows).step_by(SIDE).map(|p| p.min(rows - SIDE)) {
            for i in (0..width).step_by(SIDE).map(|i| i.min(width - SIDE)) {
                let from: [*const f32; SIDE] = std::array::from_fn(|q| row(p + q).wrapping_add(i));
                // SAFETY: 8 elements are readable at each row, and 8 places of each of these columns are writable.
                unsafe {
                    let columns = transposed(from.map(|at| _mm256_loadu_ps(at)));
                    for (j, column) in columns.into_iter().enumerate() {
                        _mm256_storeu_ps(out.add((i + j) * apart + p), column);
                    }
                }
            }
        }
    }

    /// The columns of 8 x 8 elements, zeros for rows from `rows` on.
    ///
    /// # Safety
    /// The processor has AVX2; 8 elements are readable at `rows` rows of `src`.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn columns(src: *const f32, outer: isize, rows: usize) -> [__m256; SIDE] {
        // SAFETY: only called for the readable rows.
        let row = |i: isize| unsafe { _mm256_loadu_ps(src.wrapping_offset(i * outer)) };
        let mut r = [_mm256_setzero_ps(); SIDE];
        if rows == SIDE {
            r = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
        } else {
            for (i, r) in r.iter_mut().enumerate().take(rows) {
                *r = row(i as isize);
            }
        }
        transposed(r)
    }

    /// The columns of 8 rows.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn transposed(r: [__m256; SIDE]) -> [__m256; SIDE] {
        let pair = |a, b| (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let ((a0, a1), (a2, a3)) = (pair(r[0], r[1]), pair(r[2], r[3]));
        let ((a4, a5), (a6, a7)) = (pair(r[4], r[5]), pair(r[6], r[7]));
        let (b0, b1) = (_mm256_shuffle_ps::<0x44>(a0, a2), _mm256_shuffle_ps::<0xee>(a0, a2));
        let (b2, b3) = (_mm256_shuffle_ps::<0x44>(a1, a3), _mm256_shuffle_ps::<0xee>(a1, a3));
        let (b4, b5) = (_mm256_shuffle_ps::<0x44>(a4, a6), _mm256_shuffle_ps::<0xee>(a4, a6));
        let (b6, b7) = (_mm256_shuffle_ps::<0x44>(a5, a7), _mm256_shuffle_ps::<0xee>(a5, a7));
        [
            _mm256_permute2f128_ps::<0x20>(b0, b4),
            _mm256_permute2f128_ps::<0x20>(b1, b5),
            _mm256_permute2f128_ps::<0x20>(b2, b6),
            _mm256_permute2f128_ps::<0x20>(b3, b7),
            _mm256_permute2f128_ps::<0x31>(b0, b4),
            _mm256_permute2f128_ps::<0x31>(b1, b5),
            _mm256_permute2f128_ps::<0x31>(b2, b6),
            _mm256_permute2f128_ps::<0x31>(b3, b7),
        ]
    }

    /// The same, element by element, for `steps` steps and `all` elements of a row of `out`, zeros from `rows` on.
    ///
    /// # Safety
    /// Those elements are readable and writable.
    unsafe fn single(
        src: *const f32,
        outer: isize,
        rows: usize,
        steps: usize,
        all: usize,
        out: *mut f32,
        width: usize,
    ) {
        for p in 0..steps {
            for i in 0..all {
                // SAFETY: as the caller says.
                unsafe {
                    let x = if i < rows { *src.wrapping_offset(i as isize * outer + p as isize) } else { 0.0 };
                    *out.add(p * width + i) = x;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_transposition_go_where_they_should() {
        let sizes = (1..20).flat_map(|valid| (valid..=20).map(move |width| (valid, width)));
        for (valid, width) in sizes {
            for [major, minor] in [[1, 1], [1, 9], [9, 1], [3, 3], [4, 5], [17, 1], [2, 20]] {
                let (kc, outer) = (major * minor, major * minor + 3);
                let src: Vec<f32> = (0..(valid - 1) * outer + kc).map(|i| i as f32 + 1.0).collect();
                // rows of a minor step side by side, with two elements between them that stay as they are
                let order = Apart { minor, minor_step: major * (width + 2), major_step: width + 2 };
                let mut out = vec![f32::NAN; kc * (width + 2)];
                // SAFETY: `src` ends with the last of these elements, and `out` has room for each row.
                unsafe { transpose_apart(src.as_ptr(), outer, valid, kc, width, order, out.as_mut_ptr()) };
                for (at, row) in out.chunks_exact(width + 2).enumerate() {
                    let p = at % major * minor + at / major;
                    let want = (0..width).map(|i| if i < valid { src[i * outer + p] } else { 0.0 });
                    assert!(row[..width].iter().copied().eq(want), "{valid} of {width}, {major} x {minor}: {row:?}");
                    assert!(row[width..].iter().all(|x| x.is_nan()));
                }
            }
        }
    }

    #[test]
    fn rows_of_a_transposition_come_from_where_they_lie() {
        for rows in 1..20 {
            for width in 1..20 {
                // the last row first, with three elements between two
                let src: Vec<f32> = (0..rows * (width + 3)).map(|i| i as f32).collect();
                let at = |p: usize| (rows - 1 - p) * (width + 3);
                let mut out = vec![-1.0; width * (rows + 2)];
                // SAFETY: a row for each, and room for a column of each place, two elements apart.
                unsafe { transpose_gathered(|p| src[at(p)..].as_ptr(), rows, width, rows + 2, out.as_mut_ptr()) };
                for (i, column) in out.chunks_exact(rows + 2).enumerate() {
                    let want = (0..rows).map(|p| src[at(p) + i]).chain([-1.0; 2]);
                    assert!(column.iter().copied().eq(want), "{rows} x {width}: {column:?}");
                }
            }
        }
    }

    #[test]
    fn any_transposition_moves_each_element_to_its_place() {
        for valid in 1..20 {
            for width in valid..=20 {
                for kc in [1, 2, 7, 8, 9, 16, 31, 40] {
                    for (outer, inner) in [(kc as isize + 3, 1), (1, valid as isize + 2), (2 * kc as isize, 2)] {
                        let len = (valid - 1) * outer as usize + (kc - 1) * inner as usize + 1;
                        let src: Vec<f32> = (0..len).map(|i| i as f32 + 1.0).collect();
                        // Some elements after the panel must stay as they are.
                        let mut out = vec![f32::NAN; kc * width + 9];
                        let (panel, rest) = out.split_at_mut(kc * width);
                        // SAFETY: `src` ends with the last of these elements.
                        unsafe { transpose_into(src.as_ptr(), outer, inner, valid, kc, width, panel) };
                        for (at, &got) in panel.iter().enumerate() {
                            let (p, i) = (at / width, at % width);
                            let from = i * outer as usize + p * inner as usize;
                            let want = if i < valid { src[from] } else { 0.0 };
                            assert_eq!(got, want, "{valid} of {width}, {kc} steps, strides {outer} {inner}");
                        }
                        assert!(rest.iter().all(|x| x.is_nan()));
                    }
                }
            }
        }
    }
}
