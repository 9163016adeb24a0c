//! Parts of a value, and sums of parts into it.

use remat_types::{DType, Error, ErrorKind, Result};

use super::{cast, shaped};
use crate::index::{TakeAlongGrad, TakeGrad};
use crate::pointwise::{Binary, BinaryFn};
use crate::shape::Slice;
use crate::{Apply, OpRef};

/// Element `index` of `axis`, which is gone from the result.
#[track_caller]
pub fn select<A: Apply>(cx: &A, x: A::Value, axis: usize, index: usize) -> Result<A::Value> {
    let mut shape = cx.fact(&x).shape;
    let one = cx.apply1(Slice { axis, start: index, len: 1, step: 1 }, [x])?;
    shape = shape.iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, d)| *d).collect();
    shaped(cx, one, shape)
}

/// Reversed along `axes`.
#[track_caller]
pub fn flip<A: Apply>(cx: &A, x: A::Value, axes: &[usize]) -> Result<A::Value> {
    let shape = cx.fact(&x).shape;
    let mut y = x;
    for &axis in axes {
        let len = shape[axis];
        y = cx.apply1(Slice { axis, start: len.saturating_sub(1), len, step: -1 }, [y])?;
    }
    Ok(y)
}

/// `x` plus the slices of `src` where `index: [n]` says along `axis`. Errors: DType, Shape, Axis.
#[track_caller]
pub fn index_add<A: Apply>(cx: &A, x: A::Value, axis: usize, index: A::Value, src: A::Value) -> Result<A::Value> {
    let extent = cx.fact(&x).shape[axis];
    plus_scattered(cx, x, TakeGrad { axis, extent }.into(), index, src).map_err(|e| e.with_op("index_add"))
}

/// `x` plus the elements of `src` where `index`, of its shape, says along `axis`. Errors: DType, Shape, Axis.
#[track_caller]
pub fn scatter_add<A: Apply>(cx: &A, x: A::Value, axis: usize, index: A::Value, src: A::Value) -> Result<A::Value> {
    let extent = cx.fact(&x).shape[axis];
    plus_scattered(cx, x, TakeAlongGrad { axis, extent }.into(), index, src).map_err(|e| e.with_op("scatter_add"))
}

/// `x + scatter(src, index)`. Halves are added up in f32.
#[track_caller]
fn plus_scattered<A: Apply>(cx: &A, x: A::Value, scatter: OpRef, index: A::Value, src: A::Value) -> Result<A::Value> {
    let (own, given) = (cx.fact(&x), cx.fact(&src));
    let dtype = own.dtype;
    if given.dtype != dtype {
        let text = format!("the source is {}, the tensor {dtype}", given.dtype);
        return Err(Error::new(ErrorKind::DType, text));
    }
    // inference by itself, so that its errors speak of the function
    let y = (*scatter).infer(&[&given, &cx.fact(&index)])?;
    if y[0].shape != own.shape {
        let text = format!("source and index make shape {}, the tensor has {}", y[0].shape, own.shape);
        return Err(Error::new(ErrorKind::Shape, text));
    }
    let wide = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    let src = cast(cx, src, wide)?;
    let sum = cx.apply1(scatter, [src, index])?;
    let x = cast(cx, x, wide)?;
    cast(cx, cx.apply1(Binary { f: BinaryFn::Add }, [x, sum])?, dtype)
}
