//! Shapes, axes and broadcasting.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Error, ErrorKind, Result};

/// The extent of each axis, outermost first. A shape of rank 0 holds one element.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Self {
        Shape(clone_words(&self.0))
    }
}

/// SmallVec's own clone goes element by element through its general path, and shapes are cloned for every op.
#[inline]
pub(crate) fn clone_words<T: Copy + Default>(v: &SmallVec<[T; 4]>) -> SmallVec<[T; 4]> {
    let mut inline = [T::default(); 4];
    if v.len() > inline.len() {
        return SmallVec::from_slice(v);
    }
    inline.iter_mut().zip(v).for_each(|(to, from)| *to = *from);
    SmallVec::from_buf_and_len(inline, v.len())
}

impl Shape {
    /// The rank-0 shape.
    pub fn scalar() -> Self {
        Shape::default()
    }

    /// The extents as a slice.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The extents, to be changed.
    pub fn dims_mut(&mut self) -> &mut [usize] {
        &mut self.0
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements. Shapes are checked by [`Shape::checked_elems`] where they enter, so the product fits.
    pub fn elems(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of elements, or an error of kind Shape when the product, or eight bytes times it, exceeds `isize::MAX`.
    pub fn checked_elems(&self) -> Result<usize> {
        // The non-zero extents alone must fit, so that any sub-shape of an empty shape is also safe to multiply.
        let mut n: usize = 1;
        for &d in self.0.iter().filter(|&&d| d != 0) {
            n = n.checked_mul(d).filter(|&n| n <= (isize::MAX as usize) / 8).ok_or_else(|| {
                Error::new(ErrorKind::Shape, format!("shape {self} has more elements than memory can address"))
            })?;
        }
        Ok(self.elems())
    }

    /// Appends an axis.
    pub fn push(&mut self, dim: usize) {
        self.0.push(dim);
    }

    /// The shape that both broadcast to: right-aligned, extents equal or one of them 1 (NumPy's rule).
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        if self == other {
            return Ok(self.clone());
        }
        let rank = self.rank().max(other.rank());
        let mut out: SmallVec<[usize; 4]> = SmallVec::with_capacity(rank);
        for i in 0..rank {
            let a = if i + self.rank() >= rank { self.0[i + self.rank() - rank] } else { 1 };
            let b = if i + other.rank() >= rank { other.0[i + other.rank() - rank] } else { 1 };
            out.push(match (a, b) {
                _ if a == b => a,
                (1, _) => b,
                (_, 1) => a,
                _ => {
                    return Err(Error::new(
                        ErrorKind::Shape,
                        format!("shapes {self} and {other} do not broadcast: axis {i} has extents {a} and {b}"),
                    ));
                }
            });
        }
        Ok(Shape(out))
    }
}

/// Resolves an axis that may be negative (counted from the end) against `rank`.
pub fn axis_of(axis: isize, rank: usize) -> Result<usize> {
    let r = rank as isize;
    if axis < -r || axis >= r {
        return Err(Error::new(ErrorKind::Axis, format!("axis {axis} is out of range for rank {rank}")));
    }
    Ok(if axis < 0 { (axis + r) as usize } else { axis as usize })
}

/// Resolves several axes, sorted ascending; an axis named twice is an error of kind Axis.
pub fn axes_of(axes: &[isize], rank: usize) -> Result<SmallVec<[usize; 4]>> {
    let mut out: SmallVec<[usize; 4]> = axes.iter().map(|&a| axis_of(a, rank)).collect::<Result<_>>()?;
    out.sort_unstable();
    if let Some(w) = out.windows(2).find(|w| w[0] == w[1]) {
        return Err(Error::new(ErrorKind::Axis, format!("axis {} is named twice", w[0])));
    }
    Ok(out)
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}
impl From<&[usize]> for Shape {
    fn from(d: &[usize]) -> Self {
        Shape(SmallVec::from_slice(d))
    }
}
impl From<&Vec<usize>> for Shape {
    fn from(d: &Vec<usize>) -> Self {
        Shape(SmallVec::from_slice(d))
    }
}
impl From<Vec<usize>> for Shape {
    fn from(d: Vec<usize>) -> Self {
        Shape(SmallVec::from_vec(d))
    }
}
impl From<&Shape> for Shape {
    fn from(d: &Shape) -> Self {
        d.clone()
    }
}
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(d: [usize; N]) -> Self {
        Shape(SmallVec::from_slice(&d))
    }
}
impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(d: &[usize; N]) -> Self {
        Shape(SmallVec::from_slice(d))
    }
}
impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        Shape(iter.into_iter().collect())
    }
}
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}
impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}
impl Serialize for Shape {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        self.dims().serialize(s)
    }
}
impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        Ok(Shape::from(Vec::<usize>::deserialize(d)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let s = |d: &[usize]| Shape::from(d);
        assert_eq!(s(&[2, 1, 3]).broadcast(&s(&[4, 1])).expect("fits"), s(&[2, 4, 3]));
        assert_eq!(s(&[]).broadcast(&s(&[5])).expect("fits"), s(&[5]));
        assert_eq!(s(&[0]).broadcast(&s(&[1])).expect("fits"), s(&[0]));
        assert_eq!(s(&[0]).broadcast(&s(&[2])).expect_err("0 and 2 differ").kind(), ErrorKind::Shape);
    }

    #[test]
    fn a_shape_too_large_to_address_is_an_error_even_when_empty() {
        assert!(Shape::from([usize::MAX, 0, 2]).checked_elems().is_err());
        assert_eq!(Shape::from([3, 0, 2]).checked_elems().expect("small"), 0);
        assert_eq!(Shape::scalar().checked_elems().expect("one"), 1);
    }

    #[test]
    fn axes_count_from_the_end_and_appear_once() {
        assert_eq!(axis_of(-1, 3).expect("in range"), 2);
        assert!(axis_of(3, 3).is_err());
        assert!(axes_of(&[0, -3], 3).is_err());
    }
}
