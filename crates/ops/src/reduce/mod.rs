//! Reductions over any set of axes, and the position of an extreme along one.

mod all_finite;
mod arg_reduce;
mod log_sum_exp;
mod prod_grad;
mod reduce_op;
mod var;

pub use all_finite::AllFinite;
pub use arg_reduce::{ArgReduce, ArgReduceFn};
pub use log_sum_exp::LogSumExp;
pub(crate) use reduce_op::WithReducer;
pub use reduce_op::{Reduce, ReduceFn};
pub use var::{Std, Var};

use remat_types::{Error, ErrorKind, Result, Shape, SmallVec};

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![AllFinite, ArgReduce, LogSumExp, Reduce, Std, Var];

/// The shape left when `axes` of `x` are reduced. Errors: Axis for one out of range or named twice.
fn reduced_shape(x: &Shape, axes: &[usize], keepdims: bool) -> Result<Shape> {
    for (i, &a) in axes.iter().enumerate() {
        if a >= x.rank() {
            return Err(Error::new(ErrorKind::Axis, format!("axis {a} is out of range for rank {}", x.rank())));
        }
        if axes[..i].contains(&a) {
            return Err(Error::new(ErrorKind::Axis, format!("axis {a} is named twice")));
        }
    }
    let kept = x.iter().enumerate().filter(|(i, _)| keepdims || !axes.contains(i));
    Ok(kept.map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect())
}

/// Number of elements that fall on one output.
pub(crate) fn reduced_elems(x: &Shape, axes: &[usize]) -> usize {
    axes.iter().map(|&a| x[a]).product()
}

/// Errors (Shape) if outputs would be reductions of nothing.
fn not_empty(x: &Shape, axes: &[usize], y: &Shape, what: &str) -> Result<()> {
    if reduced_elems(x, axes) == 0 && y.elems() > 0 {
        return Err(Error::new(ErrorKind::Shape, format!("no elements have no {what}: shape {x} over axes {axes:?}")));
    }
    Ok(())
}

/// The shape of `x` with `axes` of extent 1: what a reduced tensor is viewed as to be broadcast back.
fn with_ones(x: &Shape, axes: &[usize]) -> Shape {
    let axes: SmallVec<[usize; 4]> = axes.into();
    x.iter().enumerate().map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect()
}
