//! The padded copy of a band of rows of an image: what the tiles read instead of an im2col matrix.

use crate::gemm::pack::move_short;

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
        let mut phases = out.chunks_exact_mut(self.phase_len());
        for channel in src.chunks_exact(height * width) {
            for phase_row in 0..self.phases[0] {
                for phase_col in 0..self.phases[1] {
                    let phase = phases.next().expect("the copy has a plane for each channel and phase");
                    let columns = self.columns(phase_col);
                    for (i, row) in phase.chunks_exact_mut(self.pitch).enumerate() {
                        let y = ((first + i) * self.stride[0] + phase_row) as isize - self.pad[0];
                        match usize::try_from(y) {
                            // SAFETY: row `y` of the channel has `width` elements, and `row` a pitch of them.
                            Ok(y) if y < height => unsafe {
                                self.copy_row(channel.as_ptr().add(y * width), &columns, row.as_mut_ptr());
                            },
                            _ => row.fill(T::default()),
                        }
                    }
                }
            }
        }
    }

    /// Which places of a phase's rows are source columns.
    fn columns(&self, phase: usize) -> Columns {
        let (stride, shift) = (self.stride[1], phase as isize - self.pad[1]);
        // First place whose source column is not negative, and first whose column is past the end.
        let begin = places_before(-shift, stride).min(self.pitch);
        let end = places_before(self.size[1] as isize - shift, stride).clamp(begin, self.pitch);
        let start = if begin == end { 0 } else { ((begin * stride) as isize + shift) as usize };
        Columns { begin, end, start }
    }

    /// Every `stride`-th element of a padded row.
    ///
    /// # Safety
    /// `src` is a row of the source, `out` is writable for a pitch.
    #[inline(always)]
    unsafe fn copy_row<T: Copy + Default>(&self, src: *const T, columns: &Columns, out: *mut T) {
        let &Columns { begin, end, start } = columns;
        let len = end - begin;
        // SAFETY: `begin <= end <= pitch`, and the source columns `start + i * stride` for `i < len` are below the width.
        unsafe {
            zero_short(out, begin);
            zero_short(out.add(end), self.pitch - end);
            let (src, out) = (src.add(start), out.add(begin));
            match self.stride[1] {
                1 => move_short(src, out, len),
                2 => {
                    // Pairs have a known length, so this becomes shuffles; the last element may have no partner.
                    const PAIRS: usize = 4;
                    let mut i = 0;
                    while i + PAIRS < len {
                        let pairs = src.add(2 * i).cast::<[[T; 2]; PAIRS]>().read_unaligned();
                        out.add(i).cast::<[T; PAIRS]>().write_unaligned(pairs.map(|pair| pair[0]));
                        i += PAIRS;
                    }
                    while i < len {
                        *out.add(i) = *src.add(2 * i);
                        i += 1;
                    }
                }
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
