//! The elements of a channel in runs that are long enough for vectors.

use std::ops::Range;

use super::BatchDims;
use crate::float::{Disjoint, FloatElement, moments3};
use crate::prefetch::{prefetch_l2_beyond, prefetch_run};
use crate::transpose::move_short;

/// Elements of a run of short rows.
const RUN_ELEMS: usize = 1024;
/// Elements of a row from which on it is a run by itself.
const LONG_ROW: usize = RUN_ELEMS / 2;

/// Room for a run.
pub(super) type Buffer<T> = [T; RUN_ELEMS];

/// The data that a pass over a channel prefetches.
#[derive(Clone, Copy)]
pub(super) enum Prefetch {
    Nothing,
    /// The next row of the channel, all of it at once: it lies in pages of its own, where no processor looks ahead.
    Row,
    /// At each line what lies so many bytes beyond.
    Beyond(isize),
}

/// [`moments3`], whose lines prefetch what lies so many bytes beyond those of `x`. A loop that prefetches nothing is another one, for
/// in the cache a request takes as long as the sums of a line.
#[inline(always)]
pub(super) fn moments_prefetching<T: FloatElement>(
    [x, y, z]: [&[T]; 3],
    beyond: Option<isize>,
    a: impl Fn(T, T, T) -> T::Real,
    b: impl Fn(T, T, T) -> T::Real,
) -> [f64; 2] {
    match beyond {
        Some(bytes) => moments3(x, y, z, |x, _| prefetch_l2_beyond(x, bytes), a, b),
        None => moments3(x, y, z, |_, _| {}, a, b),
    }
}

/// The rows of a channel, an image each: long ones as they are, short ones gathered, many to a run. A loop over a row of
/// four takes as long as one over fifty, and the lanes of a sum are folded at the end of each run.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    d: BatchDims,
    channel: usize,
    /// Rows of a run; by sizes only.
    rows: usize,
}

impl Runs {
    #[inline(always)]
    pub(super) fn new(d: BatchDims, channel: usize) -> Runs {
        Runs { d, channel, rows: if d.s < LONG_ROW { RUN_ELEMS / d.s.max(1) } else { 1 } }
    }

    /// The images of each run.
    #[inline(always)]
    pub(super) fn images(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.d.n).step_by(self.rows).map(move |first| first..(first + self.rows).min(self.d.n))
    }

    /// How far beyond them lines ask, if they do: rows that are gathered ask where they are.
    #[inline(always)]
    pub(super) fn beyond(self, ahead: Prefetch) -> Option<isize> {
        match ahead {
            Prefetch::Beyond(bytes) if self.rows == 1 => Some(bytes),
            _ => None,
        }
    }

    /// Prefetches the row of an image, if there is one.
    #[inline(always)]
    fn prefetch_row<T>(self, x: &[T], image: usize) {
        if image < self.d.n {
            let row = self.d.row(image, self.channel);
            prefetch_run(x.as_ptr().wrapping_add(row.start), row.len());
        }
    }

    /// The elements of these images. Of a run that is a row by itself what lies beyond is prefetched by who goes through its lines.
    #[inline(always)]
    pub(super) fn of<'a, T: FloatElement>(
        self,
        x: &'a [T],
        images: Range<usize>,
        buffer: &'a mut Buffer<T>,
        ahead: Prefetch,
    ) -> &'a [T] {
        if self.rows == 1 {
            if matches!(ahead, Prefetch::Row) {
                self.prefetch_row(x, images.end);
            }
            return &x[self.d.row(images.start, self.channel)];
        }
        let s = self.d.s;
        let run = &mut buffer[..images.len() * s];
        for (i, to) in images.zip(run.chunks_exact_mut(s)) {
            let row = &x[self.d.row(i, self.channel)];
            match ahead {
                Prefetch::Nothing => {}
                Prefetch::Row => self.prefetch_row(x, i + self.rows),
                Prefetch::Beyond(bytes) => prefetch_run(row.as_ptr().wrapping_byte_offset(bytes), s),
            }
            // SAFETY: both have `s` elements.
            unsafe { move_short(row.as_ptr(), to.as_mut_ptr(), s) };
        }
        run
    }

    /// Gives `f` room for the elements of these images of `y`. `f` writes all of them. Prefetches a row of `y` if told so.
    ///
    /// # Safety
    /// Nobody else touches this channel of `y` meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write<T: FloatElement>(
        self,
        y: &Disjoint<'_, T>,
        images: Range<usize>,
        buffer: &mut Buffer<T>,
        ahead: Prefetch,
        f: impl FnOnce(&mut [T]),
    ) {
        let row = |i: usize| {
            let row = self.d.row(i, self.channel);
            // SAFETY: a row of the channel that the caller owns.
            unsafe { y.part(row.start, row.len()) }
        };
        if self.rows == 1 {
            if matches!(ahead, Prefetch::Row) && images.end < self.d.n {
                y.prefetch(self.d.row(images.end, self.channel));
            }
            return f(row(images.start));
        }
        let s = self.d.s;
        let run = &mut buffer[..images.len() * s];
        f(run);
        for (i, from) in images.zip(run.chunks_exact(s)) {
            // SAFETY: both have `s` elements.
            unsafe { move_short(from.as_ptr(), row(i).as_mut_ptr(), s) };
        }
    }
}

/// A buffer.
#[inline(always)]
pub(super) fn buffer<T: FloatElement>() -> Buffer<T> {
    [T::default(); RUN_ELEMS]
}
