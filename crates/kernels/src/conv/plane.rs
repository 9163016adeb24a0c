//! The padded copy of a band of rows of an image: what the tiles read instead of an im2col matrix.

use crate::transpose::move_short;
use short::Short;
use smallvec::SmallVec;

#[cfg(target_arch = "x86_64")]
mod short;
/// Other processors have no such permutations.
#[cfg(not(target_arch = "x86_64"))]
mod short {
    pub(super) enum Short {}

    impl Short {
        pub(super) fn new(_: &super::Plane, _: std::ops::Range<usize>, _: usize) -> Option<Short> {
            None
        }

        pub(super) unsafe fn copy(&self, _: &super::Plane, _: *const f32, _: isize, _: *mut f32) {
            match *self {}
        }
    }
}

/// Where a copy comes from and how it is laid out.
///
/// In padded coordinates, row `y` is source row `y - pad`. With stride `s`, phase `p` of an axis holds the padded places
/// `p, p + s, p + 2 s, ..`. The copy is `[channel][row phase][column phase][rows][pitch]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    /// Height and width of the source.
    pub size: [usize; 2],
    pub pad: [isize; 2],
    pub stride: [usize; 2],
    /// Phases that are copied, along rows and columns.
    pub phases: [usize; 2],
    /// Rows of each phase.
    pub rows: usize,
    /// Elements from one row of a phase to the next.
    pub pitch: usize,
}

impl Plane {
    /// Elements of one phase.
    pub(super) fn phase_len(&self) -> usize {
        self.rows * self.pitch
    }

    /// Elements of one channel.
    pub(super) fn channel_len(&self) -> usize {
        self.phases[0] * self.phases[1] * self.phase_len()
    }

    /// Place of padded row and column `at`, relative to the copy's first row, in a channel of the copy.
    pub(super) fn place(&self, at: [usize; 2]) -> usize {
        let phase = at[0] % self.stride[0] * self.phases[1] + at[1] % self.stride[1];
        phase * self.phase_len() + at[0] / self.stride[0] * self.pitch + at[1] / self.stride[1]
    }

    /// Copies rows `first ..` of the phases of each channel of `src` (`[channels, height, width]`) to `out`.
    pub(super) fn copy<T: Copy + Default>(&self, src: &[T], first: usize, out: &mut [T]) {
        let [height, width] = self.size;
        let columns: SmallVec<[Columns; 4]> = (0..self.phases[1]).map(|phase| self.columns::<T>(phase)).collect();
        let mut phases = out.chunks_exact_mut(self.phase_len());
        for channel in src.chunks_exact(height * width) {
            for phase_row in 0..self.phases[0] {
                for (columns, phase) in columns.iter().zip(phases.by_ref()) {
                    let top = (first * self.stride[0] + phase_row) as isize - self.pad[0];
                    if let Some(short) = &columns.short {
                        // SAFETY: `channel` has the plane's size, `phase` its rows; the elements are of four bytes.
                        unsafe { short.copy(self, channel.as_ptr().cast(), top, phase.as_mut_ptr().cast()) };
                        continue;
                    }
                    for (i, row) in phase.chunks_exact_mut(self.pitch).enumerate() {
                        match usize::try_from(top + (i * self.stride[0]) as isize) {
                            // SAFETY: row `y` of the channel has `width` elements, and `row` a pitch of them.
                            Ok(y) if y < height => unsafe {
                                self.copy_row(channel.as_ptr().add(y * width), columns, row.as_mut_ptr());
                            },
                            _ => row.fill(T::default()),
                        }
                    }
                }
            }
        }
    }

    /// Which places of a phase's rows are source columns.
    fn columns<T>(&self, phase: usize) -> Columns {
        let (stride, shift) = (self.stride[1], phase as isize - self.pad[1]);
        // First place whose source column is not negative, and first whose column is past the end.
        let begin = places_before(-shift, stride).min(self.pitch);
        let end = places_before(self.size[1] as isize - shift, stride).clamp(begin, self.pitch);
        let start = if begin == end { 0 } else { ((begin * stride) as isize + shift) as usize };
        let short = if size_of::<T>() == 4 { Short::new(self, begin..end, start) } else { None };
        Columns { begin, end, start, short }
    }

    /// Every `stride`-th element of a padded row.
    ///
    /// # Safety
    /// `src` is a row of the source, `out` is writable for a pitch.
    #[inline(always)]
    unsafe fn copy_row<T: Copy + Default>(&self, src: *const T, columns: &Columns, out: *mut T) {
        let &Columns { begin, end, start, .. } = columns;
        let len = end - begin;
        // SAFETY: `begin <= end <= pitch`, and the source columns `start + i * stride` for `i < len` are below the width.
        unsafe {
            zero_short(out, begin);
            zero_short(out.add(end), self.pitch - end);
            let (src, out) = (src.add(start), out.add(begin));
            match self.stride[1] {
                1 => move_short(src, out, len),
                2 => every_second(src, len, out),
                stride => {
                    for i in 0..len {
                        *out.add(i) = *src.add(i * stride);
                    }
                }
            }
        }
    }
}

/// Places `begin .. end` of a row of a phase are the source columns from `start` on, a stride apart; the others are zero.
struct Columns {
    begin: usize,
    end: usize,
    start: usize,
    /// Another way to copy them.
    short: Option<Short>,
}

/// `out[i] = src[2 i]` for `i < len`.
///
/// # Safety
/// Those elements of `src` are readable, `len` at `out` are writable.
#[inline(always)]
unsafe fn every_second<T: Copy>(src: *const T, len: usize, out: *mut T) {
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 4 && is_x86_feature_detected!("avx2") {
        // SAFETY: same contract, for elements of four bytes that are only moved, and the feature is there.
        return unsafe { shuffled::every_second(src.cast(), len, out.cast()) };
    }
    for i in 0..len {
        // SAFETY: as the caller says.
        unsafe { *out.add(i) = *src.add(2 * i) };
    }
}

/// The same in vectors.
#[cfg(target_arch = "x86_64")]
mod shuffled {
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::every_second`]; the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn every_second(src: *const f32, len: usize, out: *mut f32) {
        // A vector reads the element after the last one that it keeps, so the last of all is moved by itself; the vector
        // before it overlaps.
        // SAFETY: vectors keep `i .. i + 8` or `i .. i + 4` and read up to `2 i + 15` or `2 i + 7`, below `2 len - 2`.
        unsafe {
            let Some(last) = len.checked_sub(1) else { return };
            let mut i = 0;
            if last >= 8 {
                while i < last {
                    i = i.min(last - 8);
                    let (low, high) = (_mm256_loadu_ps(src.add(2 * i)), _mm256_loadu_ps(src.add(2 * i + 8)));
                    let even = _mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(low, high));
                    let even = _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(even));
                    _mm256_storeu_ps(out.add(i), even);
                    i += 8;
                }
            } else if last >= 4 {
                while i < last {
                    i = i.min(last - 4);
                    let (low, high) = (_mm_loadu_ps(src.add(2 * i)), _mm_loadu_ps(src.add(2 * i + 4)));
                    _mm_storeu_ps(out.add(i), _mm_shuffle_ps::<0b10_00_10_00>(low, high));
                    i += 4;
                }
            }
            while i <= last {
                *out.add(i) = *src.add(2 * i);
                i += 1;
            }
        }
    }
}

/// Zeros for the borders of images: no call for the usual one or two.
///
/// # Safety
/// `len` elements are writable at `to`.
#[inline(always)]
unsafe fn zero_short<T: Copy + Default>(to: *mut T, len: usize) {
    // SAFETY: each branch writes the first `len` elements.
    unsafe {
        match len {
            0 => {}
            1 => *to = T::default(),
            2 => to.cast::<[T; 2]>().write_unaligned([T::default(); 2]),
            _ => std::slice::from_raw_parts_mut(to, len).fill(T::default()),
        }
    }
}

/// Number of places `j` with `j * stride < limit`.
pub(super) fn places_before(limit: isize, stride: usize) -> usize {
    let limit = usize::try_from(limit).unwrap_or(0);
    // A division takes as long as the copy of a short row.
    if stride == 1 { limit } else { limit.div_ceil(stride) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_element_and_no_other_is_read_and_written() {
        for len in 0..70 {
            // the last one has no partner
            let src: Vec<f32> = (0..(2 * len).max(1) - 1).map(|i| i as f32).collect();
            let src = src.into_boxed_slice();
            let mut out = vec![-1.0; len + 3];
            // SAFETY: `src` ends with element `2 (len - 1)`, `out` has room for more than `len`.
            unsafe { every_second(src.as_ptr(), len, out.as_mut_ptr()) };
            let want: Vec<f32> = (0..len).map(|i| 2.0 * i as f32).chain([-1.0; 3]).collect();
            assert_eq!(out, want);
        }
    }
}
