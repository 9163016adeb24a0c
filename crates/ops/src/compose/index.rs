//! Parts of a value by index tensors, and values put where they say.

use remat_types::{DType, Error, ErrorKind, Result, Scalar, Shape, SmallVec, smallvec};

use super::{cast, shaped};
use crate::index::{Index, IndexPut, PutFn, Scatter, Take};
use crate::shape::{BroadcastTo, Slice};
use crate::{Apply, Op, OpRef};

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

/// The axes in ascending order, each with its index tensor. Errors: Arity.
fn ascending<V>(axes: &[usize], indices: Vec<V>) -> Result<(SmallVec<[usize; 4]>, Vec<V>)> {
    if axes.len() != indices.len() {
        let text = format!("{} index tensors for axes {axes:?}", indices.len());
        return Err(Error::new(ErrorKind::Arity, text));
    }
    let mut pairs: Vec<(usize, V)> = axes.iter().copied().zip(indices).collect();
    pairs.sort_by_key(|p| p.0);
    Ok(pairs.into_iter().unzip::<_, _, SmallVec<[usize; 4]>, Vec<V>>())
}

/// The elements that integer tensors name together, one for each of `axes`: they broadcast, and negative ones count from the end.
/// Their axes take the place of `axes` where those stand side by side, else they come first (NumPy's rule). Errors: those of
/// [`Index`].
#[track_caller]
pub fn index<A: Apply>(cx: &A, x: A::Value, axes: &[usize], indices: Vec<A::Value>) -> Result<A::Value> {
    let (axes, indices) = ascending(axes, indices).map_err(|e| e.with_op("index"))?;
    cx.apply1(Index { axes, negative: true }, std::iter::once(x).chain(indices))
}

/// `x` with `value` put at the places of the index, or added if `accumulate`. `value` broadcasts to the shape that [`index()`]
/// gives. If several elements are set at one place, the last one stays. Errors: those of [`IndexPut`].
#[track_caller]
pub fn index_put<A: Apply>(
    cx: &A,
    x: A::Value,
    axes: &[usize],
    indices: Vec<A::Value>,
    value: A::Value,
    accumulate: bool,
) -> Result<A::Value> {
    let f = if accumulate { PutFn::Add } else { PutFn::Set };
    put_at(cx, f, x, axes, indices, value).map_err(|e| e.with_op("index_put"))
}

/// [`index_put`] with any function.
#[track_caller]
pub fn put_at<A: Apply>(
    cx: &A,
    f: PutFn,
    x: A::Value,
    axes: &[usize],
    indices: Vec<A::Value>,
    value: A::Value,
) -> Result<A::Value> {
    let (axes, indices) = ascending(axes, indices)?;
    let facts: Vec<_> = std::iter::once(&x).chain(&indices).map(|v| cx.fact(v)).collect();
    // inference of the op that reads there
    let read = Index { axes: axes.clone(), negative: true }.infer(&facts.iter().collect::<Vec<_>>())?;
    let value = spread(cx, value, &read[0].shape)?;
    put(cx, f, IndexPut { f, axes, negative: true }.into(), x, value, indices)
}

/// `v` repeated to `shape`, without memory. Errors: Shape.
#[track_caller]
fn spread<A: Apply>(cx: &A, v: A::Value, shape: &Shape) -> Result<A::Value> {
    let own = cx.fact(&v).shape;
    if own == *shape {
        return Ok(v);
    }
    if own.broadcast(shape).ok().as_ref() != Some(shape) {
        return Err(Error::new(ErrorKind::Shape, format!("a value of shape {own} does not broadcast to {shape}")));
    }
    cx.apply1(BroadcastTo { shape: shape.clone() }, [v])
}

/// Applies `op` to `x`, the elements to put there, and indices. 16-bit floats are added and multiplied in f32, and rounded once.
#[track_caller]
fn put<A: Apply>(
    cx: &A,
    f: PutFn,
    op: OpRef,
    x: A::Value,
    src: A::Value,
    indices: impl IntoIterator<Item = A::Value>,
) -> Result<A::Value> {
    let indices: SmallVec<[A::Value; 4]> = indices.into_iter().collect();
    // inference by itself, so that its errors speak of the function
    let facts: SmallVec<[_; 6]> = [&x, &src].into_iter().chain(&indices).map(|v| cx.fact(v)).collect();
    (*op).infer(&facts.iter().collect::<SmallVec<[_; 6]>>())?;
    let own = facts[0].dtype;
    let half = matches!(own, DType::F16 | DType::BF16) && matches!(f, PutFn::Add | PutFn::Mul);
    let wide = if half { DType::F32 } else { own };
    let first = [cast(cx, x, wide)?, cast(cx, src, wide)?];
    cast(cx, cx.apply1(op, first.into_iter().chain(indices))?, own)
}

/// `x` with `src` put where `index` says along `axis`: see [`Scatter`]. Errors: those of it.
#[track_caller]
pub fn scatter<A: Apply>(
    cx: &A,
    f: PutFn,
    x: A::Value,
    axis: usize,
    index: A::Value,
    src: A::Value,
) -> Result<A::Value> {
    put(cx, f, Scatter { f, axis }.into(), x, src, [index])
}

/// How [`scatter_reduce`] makes one element of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The mean; integers are rounded down.
    Mean,
    /// The largest.
    Amax,
    /// The smallest.
    Amin,
}

/// `x`, with each element combined with the elements of `src` that go there. Without `include_self`, an element of `x` does not
/// count if any element of `src` goes there. Errors: those of [`Scatter`]; DType for sums, products and means of bools.
#[track_caller]
pub fn scatter_reduce<A: Apply>(
    cx: &A,
    f: ScatterReduce,
    x: A::Value,
    axis: usize,
    index: A::Value,
    src: A::Value,
    include_self: bool,
) -> Result<A::Value> {
    let of_x = cx.fact(&x);
    let dtype = of_x.dtype;
    let put_fn = match f {
        ScatterReduce::Sum | ScatterReduce::Mean => PutFn::Add,
        ScatterReduce::Prod => PutFn::Mul,
        ScatterReduce::Amax => PutFn::Max,
        ScatterReduce::Amin => PutFn::Min,
    };
    let mean = f == ScatterReduce::Mean;
    let index_shape = cx.fact(&index).shape;
    let fill = |v: Scalar, dtype, shape: &Shape| spread(cx, cx.scalar(dtype, v)?, shape);
    let start = if include_self {
        x
    } else {
        let neutral = neutral(put_fn, dtype);
        let neutral = fill(neutral, dtype, &index_shape)?;
        cx.apply1(Scatter { f: PutFn::Set, axis }, [x, neutral, index.clone()])?
    };
    // the terms of each mean; at least one, where none goes
    let terms = if mean {
        let counts = if dtype.is_float() { crate::args::real_dtype(dtype) } else { dtype };
        let own = fill(Scalar::Int(1), counts, &of_x.shape)?;
        let ones = fill(Scalar::Int(1), counts, &index_shape)?;
        let own = if include_self {
            own
        } else {
            let zeros = fill(Scalar::Int(0), counts, &index_shape)?;
            cx.apply1(Scatter { f: PutFn::Set, axis }, [own, zeros, index.clone()])?
        };
        Some(cx.apply1(Scatter { f: PutFn::Add, axis }, [own, ones, index.clone()])?)
    } else {
        None
    };
    let y = scatter(cx, put_fn, start, axis, index, src)?;
    match terms {
        None => Ok(y),
        Some(terms) => {
            let y = super::Arith(cx).bin(crate::pointwise::BinaryFn::Div, y, terms)?;
            cast(cx, y, dtype)
        }
    }
}

/// The neutral element of `f`.
fn neutral(f: PutFn, dtype: DType) -> Scalar {
    match f {
        PutFn::Set | PutFn::Add => Scalar::Int(0),
        PutFn::Mul => Scalar::Int(1),
        PutFn::Max => lowest(dtype),
        PutFn::Min => highest(dtype),
    }
}

/// The smallest value of the dtype: -inf, the least integer, false.
pub(crate) fn lowest(dtype: DType) -> Scalar {
    match dtype {
        DType::I8 => Scalar::Int(i8::MIN.into()),
        DType::I16 => Scalar::Int(i16::MIN.into()),
        DType::I32 => Scalar::Int(i32::MIN.into()),
        DType::I64 => Scalar::Int(i64::MIN),
        d if d.is_float() => Scalar::Float(f64::NEG_INFINITY),
        _ => Scalar::Int(0),
    }
}

/// The largest value of the dtype: inf, the largest integer, true.
pub(crate) fn highest(dtype: DType) -> Scalar {
    match dtype {
        DType::I8 => Scalar::Int(i8::MAX.into()),
        DType::I16 => Scalar::Int(i16::MAX.into()),
        DType::I32 => Scalar::Int(i32::MAX.into()),
        DType::I64 => Scalar::Int(i64::MAX),
        DType::U8 => Scalar::Int(u8::MAX.into()),
        DType::U16 => Scalar::Int(u16::MAX.into()),
        DType::U32 => Scalar::Int(u32::MAX.into()),
        DType::U64 => Scalar::Uint(u64::MAX),
        DType::Bool => Scalar::Bool(true),
        _ => Scalar::Float(f64::INFINITY),
    }
}

/// `x` with the slices of `src` put where `index: [n]` says along `axis`. Errors: DType, Shape, Axis; Index at run time.
#[track_caller]
pub fn put_slices<A: Apply>(
    cx: &A,
    f: PutFn,
    x: A::Value,
    axis: usize,
    index: A::Value,
    src: A::Value,
) -> Result<A::Value> {
    put(cx, f, IndexPut { f, axes: smallvec![axis], negative: false }.into(), x, src, [index])
}

/// The elements that the last axis of `indices: [batch.., n.., k]` names along `k` axes of `x`, after `batch` axes that both have:
/// `[batch.., n.., rest..]` (ONNX GatherND). Negative indices count from the end. Errors: Axis, Shape, DType.
#[track_caller]
pub fn gather_nd<A: Apply>(cx: &A, x: A::Value, indices: A::Value, batch: usize) -> Result<A::Value> {
    let shape = cx.fact(&x).shape;
    let (axes, parts) = nd(cx, &shape, indices, batch).map_err(|e| e.with_op("gather_nd"))?;
    index(cx, x, &axes, parts).map_err(|e| e.with_op("gather_nd"))
}

/// `x` with `updates` put where [`gather_nd`] would read them (ONNX ScatterND). Errors: those of it.
#[track_caller]
pub fn scatter_nd<A: Apply>(cx: &A, f: PutFn, x: A::Value, indices: A::Value, updates: A::Value) -> Result<A::Value> {
    let shape = cx.fact(&x).shape;
    let (axes, parts) = nd(cx, &shape, indices, 0).map_err(|e| e.with_op("scatter_nd"))?;
    put_at(cx, f, x, &axes, parts, updates).map_err(|e| e.with_op("scatter_nd"))
}

/// The axes that `indices` are for, and an index tensor for each.
#[track_caller]
fn nd<A: Apply>(cx: &A, shape: &Shape, indices: A::Value, batch: usize) -> Result<(Vec<usize>, Vec<A::Value>)> {
    let of = cx.fact(&indices).shape;
    let Some((&k, front)) = of.split_last() else {
        return Err(Error::new(ErrorKind::Axis, "the indices have rank 0, and no last axis"));
    };
    if k == 0 || batch + k > shape.rank() || front.len() < batch || front[..batch] != shape[..batch] {
        let text = format!("indices {of} do not fit shape {shape} after {batch} axes of a batch");
        return Err(Error::new(ErrorKind::Shape, text));
    }
    let mut parts = Vec::with_capacity(batch + k);
    for axis in 0..batch {
        let step = cx.apply1(
            crate::pointwise::Arange { dtype: DType::I64, start: 0.into(), step: 1.into(), len: shape[axis] },
            [],
        )?;
        let ones = (0..front.len()).map(|a| if a == axis { shape[axis] } else { 1 });
        parts.push(shaped(cx, step, ones.collect::<Shape>())?);
    }
    for i in 0..k {
        parts.push(select(cx, indices.clone(), front.len(), i)?);
    }
    Ok(((0..batch + k).collect(), parts))
}

/// The elements of the flat `x` that `index`, of any shape, names. Errors: DType; Index at run time.
#[track_caller]
pub fn take_flat<A: Apply>(cx: &A, x: A::Value, index: A::Value) -> Result<A::Value> {
    let elems = cx.fact(&x).shape.elems();
    let flat = shaped(cx, x, [elems])?;
    cx.apply1(Take { axis: 0 }, [flat, index])
}
