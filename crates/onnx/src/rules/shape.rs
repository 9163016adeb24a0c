//! Shapes, layouts, constants.

use std::sync::Arc;

use remat_import::{Cx, KNOWN_MAX_ELEMS, Literal, Text, Value, axes, one, scalar, shape_error, size, value_error};
use remat_tensor::{PadMode, Span, Tensor};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result, Shape, axis_of};

use super::{Row, dtype, of, row};

pub(super) const ROWS: &[Row] = &[
    row("CenterCropPad", 18, center_crop_pad),
    row("Concat", 1, concat),
    row("Constant", 1, constant),
    row("ConstantOfShape", 9, constant_of_shape),
    row("DepthToSpace", 1, depth_to_space),
    row("Expand", 8, expand),
    row("EyeLike", 9, eye_like),
    row("Flatten", 1, flatten),
    row("Identity", 1, |c| Ok(vec![c.needed(0)?.clone()])),
    row("Pad", 1, pad),
    row("Range", 11, range),
    row("Reshape", 1, reshape),
    row("Shape", 1, shape_of),
    row("Size", 1, size_of),
    row("Slice", 1, slice),
    row("SpaceToDepth", 1, space_to_depth),
    row("Split", 1, split),
    row("Squeeze", 1, squeeze),
    row("Tile", 6, tile),
    row("Transpose", 1, transpose),
    row("Trilu", 14, trilu),
    row("Unsqueeze", 1, unsqueeze),
    of("com.microsoft", "Pad", 1, pad),
];

fn signed(shape: &[usize]) -> Vec<isize> {
    shape.iter().map(|d| *d as isize).collect()
}

fn concat(c: &Cx<'_>) -> Result<Vec<Value>> {
    // before version 4 the axis is 1 unless it is given
    let axis = if c.version() < 4 { c.int("axis", 1)? } else { c.int_of("axis")? };
    one(Tensor::concat(&c.all()?, axis as isize)?)
}

fn constant(c: &Cx<'_>) -> Result<Vec<Value>> {
    let vector = |h: HostTensor| Ok(vec![c.constant(&h)?]);
    for name in ["value", "sparse_value"] {
        match c.literal(name)? {
            Some(Literal::Tensor(t)) => return vector(t.clone()),
            Some(Literal::Text(t)) => return Ok(vec![Value::Text(t.clone())]),
            None => {}
        }
    }
    let text = |data: Vec<String>, shape: Shape| Ok(vec![Value::Text(Text { shape, data: Arc::new(data) })]);
    if c.has("value_float") {
        vector(HostTensor::scalar(c.real("value_float", 0.0)? as f32))
    } else if let Some(v) = c.opt_int("value_int")? {
        vector(HostTensor::scalar(v))
    } else if let Some(v) = c.reals("value_floats")? {
        vector(HostTensor::from_slice(v, [v.len()])?)
    } else if let Some(v) = c.ints("value_ints")? {
        vector(HostTensor::from_slice(v, [v.len()])?)
    } else if c.has("value_string") {
        text(vec![c.string("value_string", "")?.to_owned()], Shape::scalar())
    } else if let Some(v) = c.strings("value_strings")? {
        let n = v.len();
        text(v, [n].into())
    } else {
        Err(c.missing("value"))
    }
}

/// The shape that numbers say. Errors: Value for negative ones; Shape too large to address.
fn shape_from(numbers: &[i64]) -> Result<Shape> {
    let shape: Shape = numbers.iter().map(|n| size(*n)).collect::<Result<Vec<usize>>>()?.into();
    shape.checked_elems()?;
    Ok(shape)
}

fn constant_of_shape(c: &Cx<'_>) -> Result<Vec<Value>> {
    let shape = shape_from(&c.numbers(0)?)?;
    let (dtype, value) = match c.tensor("value")? {
        Some(t) => (t.dtype(), scalar(t).map_err(|e| e.context("attribute `value`"))?),
        None => (DType::F32, 0i64.into()),
    };
    if shape.elems() > KNOWN_MAX_ELEMS {
        return one(Tensor::full(c.device(), shape, dtype, value)?);
    }
    let host =
        remat_types::for_dtype!(dtype, T => HostTensor::from_slice(&vec![value.cast::<T>(); shape.elems()], shape))?;
    Ok(vec![c.constant(&host)?])
}

/// Blocks of `b` channels beside each other, as images: `mode` says which of the axes of channels comes first.
fn depth_to_space(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let [n, channels, h, w] = x.dims_n()?;
    let b = size(c.int_of("blocksize")?)?;
    let block = b.checked_mul(b).filter(|n| *n > 0 && channels.is_multiple_of(*n));
    let block = block.ok_or_else(|| shape_error(format!("{channels} channels in blocks of {b} x {b}")))?;
    let deep = channels / block;
    let y = match c.string("mode", "DCR")? {
        "DCR" => x.reshape(&signed(&[n, b, b, deep, h, w]))?.permute(&[0, 3, 4, 1, 5, 2])?,
        "CRD" => x.reshape(&signed(&[n, deep, b, b, h, w]))?.permute(&[0, 1, 4, 2, 5, 3])?,
        other => return Err(c.unknown("mode", other)),
    };
    one(y.reshape(&signed(&[n, deep, h * b, w * b]))?)
}

fn space_to_depth(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let [n, channels, h, w] = x.dims_n()?;
    let b = size(c.int_of("blocksize")?)?;
    if b == 0 || h % b != 0 || w % b != 0 {
        return Err(shape_error(format!("shape {} in blocks of {b} x {b}", x.shape())));
    }
    let order = match c.string("mode", "DCR")? {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        other => return Err(c.unknown("mode", other)),
    };
    let y = x.reshape(&signed(&[n, channels, h / b, b, w / b, b]))?.permute(&order)?;
    one(y.reshape(&signed(&[n, channels * b * b, h / b, w / b]))?)
}

fn expand(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let shape = shape_from(&c.numbers(1)?)?;
    one(x.broadcast_to(x.shape().broadcast(&shape)?)?)
}

fn eye_like(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let [rows, columns] = x.dims_n()?;
    let dtype = dtype(c, "dtype")?.unwrap_or(x.dtype());
    let count = |n: usize| Tensor::arange(c.device(), 0, n as i64, 1, DType::I64);
    let place = count(rows)?.add(c.int("k", 0)?)?.unsqueeze(1)?;
    one(place.eq(&count(columns)?)?.cast(dtype)?)
}

fn flatten(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let (rank, axis) = (x.rank() as i64, c.int("axis", 1)?);
    let at = if axis < 0 { axis + rank } else { axis };
    if !(0..=rank).contains(&at) {
        return Err(Error::new(ErrorKind::Axis, format!("axis {axis} of shape {}", x.shape())));
    }
    let rows: usize = x.dims()[..at as usize].iter().product();
    let columns: usize = x.dims()[at as usize..].iter().product();
    one(x.reshape(&[rows as isize, columns as isize])?)
}

/// Amounts before and after each axis, from `[before.., after..]` of some axes.
fn amounts(rank: usize, pads: &[i64], axes: Option<Vec<i64>>) -> Result<Vec<(i64, i64)>> {
    let axes = axes.unwrap_or_else(|| (0..rank as i64).collect());
    if pads.len() != 2 * axes.len() {
        return Err(shape_error(format!("{} amounts of padding for {} axes", pads.len(), axes.len())));
    }
    let mut all = vec![(0, 0); rank];
    for (i, a) in axes.iter().enumerate() {
        all[axis_of(*a as isize, rank)?] = (pads[i], pads[axes.len() + i]);
    }
    Ok(all)
}

fn pad(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let old = c.version() < 11 && c.domain().is_empty();
    let pads = match old {
        true => c.ints("pads")?.or(c.ints("paddings")?).ok_or_else(|| c.missing("pads"))?.to_vec(),
        false => c.numbers(1)?,
    };
    let chosen = if old { None } else { c.opt_numbers(3)? };
    let all = amounts(x.rank(), &pads, chosen)?;
    // negative elements are set to 0 first
    let mut y = x.clone();
    for (axis, (before, after)) in all.iter().enumerate() {
        let cut = |n: i64| if n < 0 { n.unsigned_abs() as usize } else { 0 };
        let (front, back) = (cut(*before), cut(*after));
        if front > 0 || back > 0 {
            let len = y.dims()[axis].checked_sub(front.saturating_add(back));
            let len =
                len.ok_or_else(|| shape_error(format!("axis {axis} of {} cut by {front} and {back}", y.shape())))?;
            y = y.narrow(axis as isize, front as isize, len)?;
        }
    }
    let grown: Vec<(usize, usize)> = all.iter().map(|(b, a)| ((*b).max(0) as usize, (*a).max(0) as usize)).collect();
    let value = match (old, c.value(2)) {
        (true, _) => Some(c.real("value", 0.0)?.into()),
        (false, Some(v)) => v.known().map(|v| scalar(&v)).transpose()?,
        (false, None) => Some(0i64.into()),
    };
    one(match (c.string("mode", "constant")?, value) {
        ("constant", Some(value)) => y.pad(&grown, value)?,
        // a value that is computed goes where there was nothing
        ("constant", None) => {
            let inside = Tensor::ones(c.device(), y.shape(), DType::Bool)?.pad(&grown, false)?;
            inside.where_cond(&y.pad(&grown, 0)?, &c.x(2)?.reshape(&[])?)?
        }
        ("reflect", _) => y.pad_with(&grown, PadMode::Reflect)?,
        ("edge", _) => y.pad_with(&grown, PadMode::Replicate)?,
        ("wrap", _) => y.pad_with(&grown, PadMode::Circular)?,
        (other, _) => return Err(c.unknown("mode", other)),
    })
}

fn center_crop_pad(c: &Cx<'_>) -> Result<Vec<Value>> {
    let mut y = c.x(0)?.clone();
    let target = c.numbers(1)?;
    let axes = c.ints("axes")?.map_or_else(|| (0..y.rank() as i64).collect(), <[i64]>::to_vec);
    if axes.len() != target.len() {
        return Err(shape_error(format!("{} extents for {} axes", target.len(), axes.len())));
    }
    for (axis, want) in axes.iter().zip(target) {
        let (axis, want) = (axis_of(*axis as isize, y.rank())?, size(want)?);
        let have = y.dims()[axis];
        if have >= want {
            y = y.narrow(axis as isize, ((have - want) / 2) as isize, want)?;
        } else {
            let mut grown = vec![(0, 0); y.rank()];
            let all = want - have;
            grown[axis] = (all / 2, all - all / 2);
            y = y.pad(&grown, 0)?;
        }
    }
    one(y)
}

fn range(c: &Cx<'_>) -> Result<Vec<Value>> {
    let dtype = c.x(0)?.dtype();
    if dtype.is_float() && (0..3).any(|i| c.value(i).is_some_and(|v| v.known().is_none())) {
        // how many there are is a size; the numbers are computed
        let (start, end, step) = (c.x(0)?.reshape(&[])?, c.x(1)?.reshape(&[])?, c.x(2)?.reshape(&[])?);
        let count = end.sub(&start)?.cast(DType::F64)?.div(&step.cast(DType::F64)?)?.ceil()?.maximum(0.0)?;
        let n = count.cast(DType::I64)?.as_size()? as i64;
        let places = Tensor::arange(c.device(), 0, n, 1, DType::I64)?.cast(DType::F64)?;
        let y = places.mul(&step.cast(DType::F64)?)?.add(&start.cast(DType::F64)?)?;
        return one(y.cast(dtype)?);
    }
    let (start, end, step) = (c.scalar(0)?, c.scalar(1)?, c.scalar(2)?);
    let y = Tensor::arange(c.device(), start, end, step, dtype)?;
    // it has no inputs that are tensors, from which its value could be known
    if y.elems() <= KNOWN_MAX_ELEMS {
        let host = if dtype.is_float() {
            let at = |i: usize| start.to_f64() + i as f64 * step.to_f64();
            HostTensor::from_f64_slice(&(0..y.elems()).map(at).collect::<Vec<_>>(), dtype, [y.elems()])?
        } else {
            let (start, step) = (start.cast::<i64>(), step.cast::<i64>());
            let all: Vec<i64> = (0..y.elems() as i64).map(|i| start.wrapping_add(i.wrapping_mul(step))).collect();
            remat_types::for_dtype!(dtype, T => {
                let all: Vec<T> = all.iter().map(|v| <T as remat_types::Element>::from_i64(*v)).collect();
                HostTensor::from_slice(&all, [all.len()])?
            })
        };
        return Ok(vec![c.constant(&host)?]);
    }
    one(y)
}

fn reshape(c: &Cx<'_>) -> Result<Vec<Value>> {
    let target =
        if c.version() < 5 { c.ints("shape")?.ok_or_else(|| c.missing("shape"))?.to_vec() } else { c.numbers(1)? };
    let keep_zeros = c.flag("allowzero", false)?;
    if let Value::Text(t) = c.needed(0)? {
        let shape = shape_from(&target)?;
        if shape.elems() != t.data.len() {
            return Err(shape_error(format!("{} strings under shape {shape}", t.data.len())));
        }
        return Ok(vec![Value::Text(Text { shape, data: t.data.clone() })]);
    }
    let x = c.x(0)?;
    let extent = |(i, n): (usize, &i64)| match *n {
        0 if !keep_zeros => {
            let same = x.dims().get(i).map(|d| *d as isize);
            same.ok_or_else(|| shape_error(format!("extent {i} of shape {} is not there", x.shape())))
        }
        n => Ok(n as isize),
    };
    one(x.reshape(&target.iter().enumerate().map(extent).collect::<Result<Vec<_>>>()?)?)
}

/// The extents of a value. Errors: Value for a sequence.
fn dims_of(v: &Value) -> Result<Vec<i64>> {
    let dims = match v {
        Value::Text(t) => t.shape.dims().to_vec(),
        other => other.tensor()?.dims().to_vec(),
    };
    Ok(dims.into_iter().map(|d| d as i64).collect())
}

fn shape_of(c: &Cx<'_>) -> Result<Vec<Value>> {
    let dims = dims_of(c.needed(0)?)?;
    let rank = dims.len() as i64;
    let place = |n: i64| (if n < 0 { n + rank } else { n }).clamp(0, rank) as usize;
    let (start, end) = (place(c.int("start", 0)?), place(c.int("end", rank)?));
    Ok(vec![c.shape_value(dims.get(start..end.max(start)).unwrap_or(&[]))?])
}

fn size_of(c: &Cx<'_>) -> Result<Vec<Value>> {
    let n: i64 = dims_of(c.needed(0)?)?.iter().product();
    Ok(vec![c.constant(&HostTensor::scalar(n))?])
}

fn slice(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (starts, ends, chosen, steps) = if c.version() < 10 {
        let of = |name: &str| -> Result<Vec<i64>> { Ok(c.ints(name)?.ok_or_else(|| c.missing(name))?.to_vec()) };
        (of("starts")?, of("ends")?, c.ints("axes")?.map(<[i64]>::to_vec), None)
    } else {
        (c.numbers(1)?, c.numbers(2)?, c.opt_numbers(3)?, c.opt_numbers(4)?)
    };
    let n = starts.len();
    let chosen = chosen.unwrap_or_else(|| (0..n as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; n]);
    if [ends.len(), chosen.len(), steps.len()] != [n; 3] {
        let text = format!("{n} starts, {} ends, {} axes and {} steps", ends.len(), chosen.len(), steps.len());
        return Err(shape_error(text));
    }
    let mut y = c.x(0)?.clone();
    for i in 0..n {
        let span = Span { start: Some(starts[i] as isize), end: Some(ends[i] as isize) };
        y = y.slice_step(chosen[i] as isize, span, steps[i] as isize)?;
    }
    one(y)
}

/// The extents of `n` equal parts of `extent`; the last may be smaller.
pub(super) fn parts(extent: usize, n: usize) -> Result<Vec<usize>> {
    if n == 0 {
        return Err(value_error("0 parts"));
    }
    let each = extent.div_ceil(n);
    Ok((0..n).map(|i| each.min(extent.saturating_sub(i * each))).collect())
}

fn split(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let axis = axis_of(c.axis("axis", 0)?, x.rank())?;
    let given = if c.version() < 13 { c.ints("split")?.map(<[i64]>::to_vec) } else { c.opt_numbers(1)? };
    let extents = match given {
        Some(all) => all.iter().map(|n| size(*n)).collect::<Result<Vec<_>>>()?,
        None => {
            let outputs = c.output_count();
            let n = c.opt_int("num_outputs")?.map_or(Ok(outputs), size)?;
            parts(x.dims()[axis], n.min(outputs.max(1)))?
        }
    };
    Ok(x.split(&extents, axis as isize)?.into_iter().map(Value::Tensor).collect())
}

fn squeeze(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let given = if c.version() < 13 { c.ints("axes")?.map(<[i64]>::to_vec) } else { c.opt_numbers(1)? };
    match given {
        Some(given) if given.is_empty() => one(x.clone()),
        given => one(x.squeeze(&axes(&given.unwrap_or_default()))?),
    }
}

fn unsqueeze(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let given = match c.version() < 13 {
        true => c.ints("axes")?.ok_or_else(|| c.missing("axes"))?.to_vec(),
        false => c.numbers(1)?,
    };
    let rank = x.rank() + given.len();
    let mut at = remat_types::axes_of(&axes(&given), rank)?.to_vec();
    at.sort_unstable();
    let mut dims: Vec<isize> = signed(x.dims());
    at.iter().for_each(|a| dims.insert((*a).min(dims.len()), 1));
    one(x.reshape(&dims)?)
}

fn tile(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let counts = c.numbers(1)?.iter().map(|n| size(*n)).collect::<Result<Vec<_>>>()?;
    if counts.len() != x.rank() {
        return Err(shape_error(format!("{} counts for shape {}", counts.len(), x.shape())));
    }
    one(if counts.is_empty() { x.clone() } else { x.repeat(&counts)? })
}

fn transpose(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let order = match c.ints("perm")? {
        Some(p) => axes(p),
        None => (0..x.rank() as isize).rev().collect(),
    };
    one(x.permute(&order)?)
}

fn trilu(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let k = if c.value(1).is_some() { c.number(1)? } else { 0 };
    // the operator takes numbers
    let numbers = if x.dtype() == DType::Bool { x.cast(DType::U8)? } else { x.clone() };
    let y = if c.flag("upper", true)? { numbers.triu(k)? } else { numbers.tril(k)? };
    one(y.cast(x.dtype())?)
}
