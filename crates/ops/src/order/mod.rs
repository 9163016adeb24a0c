//! Along an axis, in order: running functions, recurrences, sorting, selection and search.

mod cumulate;
mod order_statistic;
mod recurrence;
mod search_sorted;
mod sort;
mod top_k;

pub use cumulate::{Cumulate, CumulateFn};
pub use order_statistic::{OrderFn, OrderStatistic};
pub use recurrence::Recurrence;
pub use search_sorted::SearchSorted;
pub use sort::Sort;
pub use top_k::TopK;

use remat_kernels::cumulate::Along;
use remat_kernels::order::Lanes;
use remat_types::{Error, ErrorKind, Result, Scalar, Shape, SmallVec, smallvec};

use crate::op::{Entry, entries};
use crate::shape::{Pad, Slice};
use crate::{GradCx, Var};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Cumulate, OrderStatistic, Recurrence, SearchSorted, Sort, TopK];

/// Errors (Axis) unless `axis` is below the rank.
fn axis_in(axis: usize, shape: &Shape) -> Result<()> {
    if axis >= shape.rank() {
        return Err(Error::new(ErrorKind::Axis, format!("axis {axis} is out of range for rank {}", shape.rank())));
    }
    Ok(())
}

/// The walk along `axis` of a contiguous tensor.
fn along(shape: &Shape, axis: usize, reverse: bool, exclusive: bool) -> Along {
    Along { n: shape[axis], inner: shape[axis + 1..].iter().product(), reverse, exclusive }
}

/// The lanes of a contiguous tensor along `axis`.
fn lanes(shape: &Shape, axis: usize) -> Lanes {
    Lanes { n: shape[axis], inner: shape[axis + 1..].iter().product() }
}

/// Operations of a sort of `n` elements, `count` times.
fn sort_flops(count: usize, n: usize) -> u64 {
    (count as u64).saturating_mul(8 * u64::from(n.max(2).ilog2()))
}

/// Each element's neighbour along `axis`, on the side of the end or of the start; `value` where there is none.
fn neighbour(cx: &GradCx<'_>, v: Var, axis: usize, of_end: bool, value: f64) -> Result<Var> {
    let shape = cx.fact(v).shape;
    let Some(len) = shape[axis].checked_sub(1) else { return Ok(v) };
    let part = cx.apply(Slice { axis, start: usize::from(of_end), len, step: 1 }, &[v])?;
    let mut before: SmallVec<[usize; 4]> = smallvec![0; shape.rank()];
    let mut after = before.clone();
    if of_end {
        after[axis] = 1
    } else {
        before[axis] = 1
    }
    cx.apply(Pad { before, after, value: Scalar::Float(value) }, &[part])
}
