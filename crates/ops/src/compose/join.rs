//! Putting values together, and taking them apart.

use remat_types::{Error, ErrorKind, Result, Shape, SmallVec};

use super::shaped;
use crate::Apply;
use crate::shape::{BroadcastTo, Concat, Slice};

/// Values of one shape side by side along a new `axis`. Errors: Shape; Arity for none.
#[track_caller]
pub fn stack<A: Apply>(cx: &A, x: impl IntoIterator<Item = A::Value>, axis: usize) -> Result<A::Value> {
    let mut wide: SmallVec<[A::Value; 4]> = SmallVec::new();
    let mut first = None;
    for (i, v) in x.into_iter().enumerate() {
        let shape = cx.fact(&v).shape;
        let first = first.get_or_insert_with(|| shape.clone());
        if shape != *first {
            let text = format!("tensor 0 has shape {first}, tensor {i} {shape}");
            return Err(Error::new(ErrorKind::Shape, text).with_op("stack"));
        }
        let mut dims: SmallVec<[usize; 4]> = SmallVec::from_slice(&shape);
        dims.insert(axis, 1);
        wide.push(shaped(cx, v, &dims[..])?);
    }
    cx.apply1(Concat { axis }, wide)
}

/// The parts of `axis` that have these extents, one after the other. Errors: Shape if they do not make it up.
#[track_caller]
pub fn split<A: Apply>(cx: &A, x: &A::Value, axis: usize, extents: &[usize]) -> Result<Vec<A::Value>> {
    let shape = cx.fact(x).shape;
    let sum = extents.iter().try_fold(0usize, |sum, e| sum.checked_add(*e));
    if sum != Some(shape[axis]) {
        let text = format!("parts of {extents:?} do not make up axis {axis} of {shape}");
        return Err(Error::new(ErrorKind::Shape, text).with_op("split"));
    }
    let mut parts = Vec::with_capacity(extents.len());
    for part in Slice::split(axis, extents) {
        parts.push(cx.apply1(part, [x.clone()])?);
    }
    Ok(parts)
}

/// The value `counts[a]` times along each axis `a`, whole after whole; more counts than axes add axes in front. Errors: Shape
/// for fewer, or for a result that is too large.
#[track_caller]
pub fn repeat<A: Apply>(cx: &A, x: A::Value, counts: &[usize]) -> Result<A::Value> {
    let own = cx.fact(&x).shape;
    let Some(new) = counts.len().checked_sub(own.rank()) else {
        let text = format!("{} counts for shape {own}", counts.len());
        return Err(Error::new(ErrorKind::Shape, text).with_op("repeat"));
    };
    // [d] -> [1, d] -> [count, d] -> [count d] on every axis
    let extent = |a: usize| if a < new { 1 } else { own[a - new] };
    let (mut apart, mut wide, mut joined) = (Shape::scalar(), Shape::scalar(), Shape::scalar());
    for (a, &count) in counts.iter().enumerate() {
        [1, extent(a)].into_iter().for_each(|d| apart.push(d));
        [count, extent(a)].into_iter().for_each(|d| wide.push(d));
        joined.push(count.saturating_mul(extent(a)));
    }
    joined.checked_elems().map_err(|e| e.with_op("repeat"))?;
    let y = shaped(cx, x, apart)?;
    let y = cx.apply1(BroadcastTo { shape: wide }, [y])?;
    shaped(cx, y, joined)
}

/// Each element of `axis` `n` times, one after the other. Errors: Shape for a result that is too large.
#[track_caller]
pub fn repeat_interleave<A: Apply>(cx: &A, x: A::Value, n: usize, axis: usize) -> Result<A::Value> {
    let own = cx.fact(&x).shape;
    let with = |d: usize| -> Shape {
        let (before, after) = own.split_at(axis + 1);
        before.iter().chain([&d]).chain(after).copied().collect()
    };
    let mut joined = own.clone();
    joined.dims_mut()[axis] = joined[axis].saturating_mul(n);
    joined.checked_elems().map_err(|e| e.with_op("repeat_interleave"))?;
    let y = shaped(cx, x, with(1))?;
    let y = cx.apply1(BroadcastTo { shape: with(n) }, [y])?;
    shaped(cx, y, joined)
}

/// Element `i` of `axis` goes to `i + shift`; what leaves at one end comes in at the other.
#[track_caller]
pub fn roll<A: Apply>(cx: &A, x: A::Value, shift: isize, axis: usize) -> Result<A::Value> {
    let extent = cx.fact(&x).shape[axis];
    let by = shift.checked_rem_euclid(extent as isize).map_or(0, |by| by as usize);
    if by == 0 {
        return Ok(x);
    }
    let mut parts = SmallVec::<[A::Value; 2]>::new();
    for part in Slice::split(axis, &[extent - by, by]) {
        parts.push(cx.apply1(part, [x.clone()])?);
    }
    parts.swap(0, 1);
    cx.apply1(Concat { axis }, parts)
}
