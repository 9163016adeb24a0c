//! Strided layouts: where each element of a tensor lies in its storage.
//!
//! Strides and the offset are in elements. A stride may be zero (a broadcast axis) or negative (a flipped one). All
//! functions here are metadata only; [`Layout::fits`] is the check that makes indexing a storage in bounds.

use smallvec::SmallVec;

use crate::shape::clone_words;
use crate::{Error, ErrorKind, Result, Shape};

/// Shape, strides and offset of a tensor within its storage.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: SmallVec<[isize; 4]>,
    offset: usize,
}

impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Self {
        Layout { shape: self.shape.clone(), strides: clone_words(&self.strides), offset: self.offset }
    }
}

impl Layout {
    /// Row-major strides without gaps, offset 0.
    pub fn contiguous(shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        let mut strides: SmallVec<[isize; 4]> = match shape.rank() {
            rank @ 0..=4 => SmallVec::from_buf_and_len([1; 4], rank),
            rank => SmallVec::from_elem(1, rank),
        };
        for i in (1..shape.rank()).rev() {
            strides[i - 1] = strides[i] * shape[i].max(1) as isize;
        }
        Layout { shape, strides, offset: 0 }
    }

    /// A layout of given parts. Errors (Shape) when there is not one stride per axis.
    pub fn new(shape: impl Into<Shape>, strides: &[isize], offset: usize) -> Result<Self> {
        let shape = shape.into();
        if shape.rank() != strides.len() {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{} strides for a shape of rank {}", strides.len(), shape.rank()),
            ));
        }
        Ok(Layout { shape, strides: SmallVec::from_slice(strides), offset })
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Elements to step per axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Element at which index zero lies.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.shape.elems()
    }

    /// True if the elements lie in row-major order without gaps. Axes of extent 1 do not count, empty layouts are.
    pub fn is_contiguous(&self) -> bool {
        let mut expect = 1isize;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
            if d == 0 {
                return true;
            }
            if d != 1 && s != expect {
                return false;
            }
            expect *= d as isize;
        }
        true
    }

    /// The lowest and one past the highest element touched; `(offset, offset)` for an empty layout.
    ///
    /// `None` if the range leaves the numbers that can be addressed, or starts below zero.
    pub fn span(&self) -> Option<(usize, usize)> {
        let (mut lo, mut hi) = (isize::try_from(self.offset).ok()?, isize::try_from(self.offset).ok()?);
        if self.shape.contains(&0) {
            return Some((self.offset, self.offset));
        }
        for (&d, &s) in self.shape.iter().zip(&self.strides) {
            let reach = s.checked_mul(isize::try_from(d - 1).ok()?)?;
            if reach < 0 {
                lo = lo.checked_add(reach)?;
            } else {
                hi = hi.checked_add(reach)?;
            }
        }
        Some((usize::try_from(lo).ok()?, usize::try_from(hi).ok()?.checked_add(1)?))
    }

    /// True if every element lies in a storage of `elems` elements.
    pub fn fits(&self, elems: usize) -> bool {
        self.span().is_some_and(|(_, hi)| hi <= elems)
    }

    /// Axes reordered: axis `i` of the result is axis `order[i]`. Errors (Axis) if `order` is no permutation.
    pub fn permute(&self, order: &[usize]) -> Result<Layout> {
        let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, self.rank());
        let valid = order.len() == self.rank()
            && order.iter().all(|&a| a < self.rank() && !std::mem::replace(&mut seen[a], true));
        if !valid {
            return Err(Error::new(
                ErrorKind::Axis,
                format!("{order:?} is not a permutation of the axes of rank {}", self.rank()),
            ));
        }
        Ok(Layout {
            shape: order.iter().map(|&a| self.shape[a]).collect(),
            strides: order.iter().map(|&a| self.strides[a]).collect(),
            offset: self.offset,
        })
    }

    /// Broadcast to `shape` with zero strides. Errors (Shape) if it does not broadcast one way.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<Layout> {
        if self.shape.broadcast(shape)? != *shape {
            return Err(Error::new(ErrorKind::Shape, format!("shape {} does not broadcast to {shape}", self.shape)));
        }
        let lead = shape.rank() - self.rank();
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, shape.rank());
        for i in 0..self.rank() {
            strides[lead + i] = if self.shape[i] == 1 && shape[lead + i] != 1 { 0 } else { self.strides[i] };
        }
        Ok(Layout { shape: shape.clone(), strides, offset: self.offset })
    }

    /// Elements `start`, `start + step`, ... (`len` of them) along `axis`; `step` may be negative.
    ///
    /// Errors: Axis for an axis out of range, Index if an element lies outside.
    pub fn slice(&self, axis: usize, start: usize, len: usize, step: isize) -> Result<Layout> {
        if axis >= self.rank() {
            return Err(Error::new(ErrorKind::Axis, format!("axis {axis} is out of range for rank {}", self.rank())));
        }
        let extent = self.shape[axis];
        let last = (len as isize - 1).checked_mul(step).and_then(|r| r.checked_add(start as isize));
        let inside = |i: isize| i >= 0 && (i as usize) < extent;
        if len > 0 && !(inside(start as isize) && last.is_some_and(inside)) {
            return Err(Error::new(
                ErrorKind::Index,
                format!("slice of {len} from {start} step {step} leaves axis {axis} of extent {extent}"),
            ));
        }
        let mut out = self.clone();
        out.shape.dims_mut()[axis] = len;
        // where another axis is empty no element is there to point at, and the offset could leave the storage
        if len > 0 && !self.shape.contains(&0) {
            let at = self.offset as isize + start as isize * self.strides[axis];
            out.offset = at as usize;
        }
        out.strides[axis] = self.strides[axis] * step;
        Ok(out)
    }

    /// The same elements under another shape without moving them, or `None` when the strides do not allow it.
    ///
    /// The number of elements must agree; callers check that first.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if self.elems() != shape.elems() {
            return None;
        }
        if self.is_contiguous() {
            return Some(Layout { offset: self.offset, ..Layout::contiguous(shape.clone()) });
        }
        // Group old axes into runs that step uniformly, and cut each run by the new extents.
        let old: SmallVec<[(usize, isize); 4]> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|&(d, _)| d != 1).collect();
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, shape.rank());
        let (mut i, mut j) = (0, 0);
        while i < old.len() {
            let (mut have, start) = (old[i].0, i);
            i += 1;
            let (mut want, first) = (1, j);
            while want != have {
                if want < have {
                    want *= *shape.get(j)?;
                    j += 1;
                } else {
                    let &(d, s) = old.get(i)?;
                    if old[i - 1].1 != s * d as isize {
                        return None;
                    }
                    have *= d;
                    i += 1;
                }
            }
            // a run may end before the next old axis only where its inner axes step uniformly
            if (start + 1..i).any(|a| old[a - 1].1 != old[a].1 * old[a].0 as isize) {
                return None;
            }
            let mut step = old[i - 1].1;
            for a in (first..j).rev() {
                strides[a] = step;
                step *= shape[a] as isize;
            }
        }
        Some(Layout { shape: shape.clone(), strides, offset: self.offset })
    }

    /// The storage element of each index, in row-major order of the indices.
    pub fn indices(&self) -> LayoutIndices<'_> {
        LayoutIndices {
            layout: self,
            index: SmallVec::from_elem(0, self.rank()),
            at: self.offset as isize,
            left: self.elems(),
        }
    }
}

/// Iterator of [`Layout::indices`].
pub struct LayoutIndices<'a> {
    layout: &'a Layout,
    index: SmallVec<[usize; 4]>,
    at: isize,
    left: usize,
}

impl Iterator for LayoutIndices<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let here = self.at as usize;
        for axis in (0..self.index.len()).rev() {
            self.index[axis] += 1;
            self.at += self.layout.strides[axis];
            if self.index[axis] < self.layout.shape[axis] {
                break;
            }
            self.at -= self.layout.strides[axis] * self.layout.shape[axis] as isize;
            self.index[axis] = 0;
        }
        Some(here)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
impl ExactSizeIterator for LayoutIndices<'_> {}

#[cfg(test)]
mod tests;
