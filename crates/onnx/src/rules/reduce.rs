//! Over axes.

use remat_import::{Cx, Value, axes, one};
use remat_tensor::Tensor;
use remat_types::{DType, Result, Scalar, Shape, axes_of};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("ReduceL1", 1, |c| reduce(c, F::L1)),
    row("ReduceL2", 1, |c| reduce(c, F::L2)),
    row("ReduceLogSum", 1, |c| reduce(c, F::LogSum)),
    row("ReduceLogSumExp", 1, |c| reduce(c, F::LogSumExp)),
    row("ReduceMax", 1, |c| reduce(c, F::Max)),
    row("ReduceMean", 1, |c| reduce(c, F::Mean)),
    row("ReduceMin", 1, |c| reduce(c, F::Min)),
    row("ReduceProd", 1, |c| reduce(c, F::Prod)),
    row("ReduceSum", 1, |c| reduce(c, F::Sum)),
    row("ReduceSumSquare", 1, |c| reduce(c, F::SumSquare)),
];

/// A reduction of the standard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum F {
    L1,
    L2,
    LogSum,
    LogSumExp,
    Max,
    Mean,
    Min,
    Prod,
    Sum,
    SumSquare,
}

/// Axes are an attribute before version 18, of sums before 13.
fn reduce(c: &Cx<'_>, f: F) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let as_input = if f == F::Sum { 13 } else { 18 };
    let given = if c.version() < as_input { c.ints("axes")?.map(<[i64]>::to_vec) } else { c.opt_numbers(1)? };
    let given = axes(&given.unwrap_or_default());
    let keep = c.flag("keepdims", true)?;
    if given.is_empty() && c.flag("noop_with_empty_axes", false)? {
        return one(x.clone());
    }
    one(over(x, f, &given, keep)?)
}

fn over(x: &Tensor, f: F, of: &[isize], keep: bool) -> Result<Tensor> {
    let dtype = x.dtype();
    let real = if dtype.is_float() { x.clone() } else { x.cast(DType::F64)? };
    let y = match f {
        F::Sum => x.sum_over(of, keep)?,
        F::Prod => x.prod_over(of, keep)?,
        F::Mean => real.mean_over(of, keep)?,
        F::L1 => x.abs()?.sum_over(of, keep)?,
        F::L2 => real.norm_over(of, keep)?,
        F::LogSum => real.sum_over(of, keep)?.log()?,
        F::SumSquare if dtype.is_float() => x.sum_sqr_over(of, keep)?,
        F::SumSquare => x.square()?.sum_over(of, keep)?,
        F::LogSumExp | F::Max | F::Min if has_nothing(x, of)? => return nothing(x, f, of, keep),
        F::LogSumExp => real.log_sum_exp_over(of, keep)?,
        F::Max | F::Min => {
            let numbers = if dtype == DType::Bool { x.cast(DType::U8)? } else { x.clone() };
            if f == F::Max { numbers.max_over(of, keep)? } else { numbers.min_over(of, keep)? }
        }
    };
    y.cast(dtype)
}

/// Whether one of the axes is empty.
fn has_nothing(x: &Tensor, of: &[isize]) -> Result<bool> {
    if of.is_empty() {
        return Ok(x.elems() == 0);
    }
    Ok(axes_of(of, x.rank())?.iter().any(|a| x.dims()[*a] == 0))
}

/// The extreme of an empty tensor.
fn nothing(x: &Tensor, f: F, of: &[isize], keep: bool) -> Result<Tensor> {
    let of = if of.is_empty() { (0..x.rank()).collect() } else { axes_of(of, x.rank())? };
    let mut shape = Shape::scalar();
    for (a, d) in x.dims().iter().enumerate() {
        match (of.contains(&a), keep) {
            (true, true) => shape.push(1),
            (true, false) => {}
            (false, _) => shape.push(*d),
        }
    }
    let low = f != F::Min;
    let value = match x.dtype() {
        d if d.is_float() => Scalar::Float(if low { f64::NEG_INFINITY } else { f64::INFINITY }),
        DType::Bool => Scalar::Bool(!low),
        // saturates to the limits of the type
        d => {
            let limit = Scalar::Float(if low { f64::MIN } else { f64::MAX });
            remat_types::for_dtype!(d, T => Scalar::Int(remat_types::Element::to_i64(limit.cast::<T>())))
        }
    };
    Tensor::full(&x.device(), shape, x.dtype(), value)
}
