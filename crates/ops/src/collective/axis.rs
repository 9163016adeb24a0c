//! Collectives along any axis.

use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::{AllGather, AllToAll, Communicator, GatherTo, ReduceScatter, Reduction, ScatterFrom};
use crate::Apply;
use crate::shape::{Concat, Contiguous, Permute, Slice};

/// `f` of the value with `axis` in front, where ranks are counted, and the axis back at its place.
fn along<A: Apply>(cx: &A, x: A::Value, axis: usize, f: impl FnOnce(A::Value) -> Result<A::Value>) -> Result<A::Value> {
    if axis == 0 {
        return f(x);
    }
    let rank = cx.fact(&x).rank();
    let forth: SmallVec<[usize; 4]> = [axis].into_iter().chain((0..rank).filter(|a| *a != axis)).collect();
    let back: SmallVec<[usize; 4]> =
        (0..rank).map(|a| if a == axis { 0 } else { 1 + a - usize::from(a > axis) }).collect();
    let y = f(cx.apply1(Permute { order: forth }, [x])?)?;
    cx.apply1(Permute { order: back }, [y])
}

/// All ranks' values, one behind the other along `axis`, on all ranks.
#[track_caller]
pub fn all_gather<A: Apply>(cx: &A, x: A::Value, axis: usize, group: &Communicator) -> Result<A::Value> {
    along(cx, x, axis, |x| cx.apply1(AllGather { group: group.clone() }, [x]))
}

/// Of as many equal parts of `axis` as there are ranks, this rank's, reduced over all ranks. Errors: DType, Shape.
#[track_caller]
pub fn reduce_scatter<A: Apply>(
    cx: &A,
    x: A::Value,
    axis: usize,
    reduction: Reduction,
    group: &Communicator,
) -> Result<A::Value> {
    along(cx, x, axis, |x| cx.apply1(ReduceScatter { reduction, group: group.clone() }, [x]))
}

/// All ranks' values, one behind the other along `axis`, on rank `root`; nothing along it on the others.
#[track_caller]
pub fn gather_to<A: Apply>(cx: &A, x: A::Value, axis: usize, root: usize, group: &Communicator) -> Result<A::Value> {
    along(cx, x, axis, |x| cx.apply1(GatherTo { root, group: group.clone() }, [x]))
}

/// This rank's part, of extent `extent`, of rank `root`'s value along `axis`. Errors: Shape unless the axis has that extent for each
/// rank on the root, and 0 on the others.
#[track_caller]
pub fn scatter_from<A: Apply>(
    cx: &A,
    x: A::Value,
    axis: usize,
    extent: usize,
    root: usize,
    group: &Communicator,
) -> Result<A::Value> {
    along(cx, x, axis, |x| cx.apply1(ScatterFrom { root, extent, group: group.clone() }, [x]))
}

/// Cuts axis `split` into one equal part per rank; part `r` goes to rank `r`. The received parts are joined along axis `concat`
/// in the order of ranks. Errors: Shape if `split` is not divisible.
#[track_caller]
pub fn all_to_all<A: Apply>(
    cx: &A,
    x: A::Value,
    split: usize,
    concat: usize,
    group: &Communicator,
) -> Result<A::Value> {
    let (extent, size) = (cx.fact(&x).shape[split], group.size());
    if !extent.is_multiple_of(size) {
        let text = format!("axis {split} of {} is no multiple of the {size} ranks", cx.fact(&x).shape);
        return Err(Error::new(ErrorKind::Shape, text));
    }
    let y = along(cx, x, split, |x| cx.apply1(AllToAll { group: group.clone() }, [x]))?;
    if split == concat || size == 1 {
        return Ok(y);
    }
    let extents = vec![extent / size; size];
    let parts = Slice::split(split, &extents).map(|part| {
        let part = cx.apply1(part, [y.clone()])?;
        cx.apply1(Contiguous, [part])
    });
    let parts: Vec<A::Value> = parts.collect::<Result<_>>()?;
    cx.apply1(Concat { axis: concat }, parts)
}
