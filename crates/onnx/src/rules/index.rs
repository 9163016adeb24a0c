//! Parts that other tensors name.

use remat_import::{Cx, Text, Value, one, shape_error};
use remat_ops::compose::ScatterReduce;
use remat_ops::index::PutFn;
use remat_tensor::Tensor;
use remat_types::{DType, Result, axis_of};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("Compress", 9, compress),
    row("Gather", 1, gather),
    row("GatherElements", 11, gather_elements),
    row("GatherND", 11, gather_nd),
    row("NonZero", 9, |c| one(c.x(0)?.nonzero()?.t()?)),
    row("OneHot", 9, one_hot),
    row("ReverseSequence", 10, reverse_sequence),
    row("Scatter", 9, scatter_elements),
    row("ScatterElements", 11, scatter_elements),
    row("ScatterND", 11, scatter_nd),
    row("TensorScatter", 24, tensor_scatter),
];

/// Indices of an axis of `extent`, counted from its start.
pub(super) fn from_start(c: &Cx<'_>, i: usize, extent: usize) -> Result<Tensor> {
    let index = c.x(i)?;
    if let Some(host) = c.needed(i)?.known()
        && host.to_i64_vec().iter().all(|v| *v >= 0)
    {
        return Ok(index.clone());
    }
    let wide = index.cast(DType::I64)?;
    wide.lt(0)?.where_cond(&wide.add(extent as i64)?, &wide)
}

fn compress(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, chosen) = (c.x(0)?, c.x(1)?.nonzero()?.reshape(&[-1])?);
    match c.opt_int("axis")? {
        Some(axis) => one(x.index_select(axis as isize, &chosen)?),
        None => one(x.reshape(&[-1])?.index_select(0, &chosen)?),
    }
}

fn gather(c: &Cx<'_>) -> Result<Vec<Value>> {
    let axis = c.axis("axis", 0)?;
    if let Value::Text(t) = c.needed(0)? {
        return gather_text(c, t, axis);
    }
    let x = c.x(0)?;
    let at = axis_of(axis, x.rank())?;
    // one place is a view
    if let Some(host) = c.needed(1)?.known()
        && host.elems() == 1
        && host.shape().rank() <= 1
    {
        let place = host.to_i64_vec()[0] as isize;
        let y = x.select(axis, place)?;
        return one(if host.shape().rank() == 0 { y } else { y.unsqueeze(at as isize)? });
    }
    one(x.take(axis, &from_start(c, 1, x.dims()[at])?)?)
}

fn gather_text(c: &Cx<'_>, t: &Text, axis: isize) -> Result<Vec<Value>> {
    if t.shape.rank() != 1 || axis_of(axis, 1)? != 0 {
        return Err(shape_error(format!("strings of shape {}: only a vector of them has places", t.shape)));
    }
    let index = c.host(1)?;
    let n = t.data.len() as i64;
    let at = |i: &i64| {
        let place = usize::try_from(if *i < 0 { i + n } else { *i }).ok();
        let found = place.and_then(|p| t.data.get(p)).cloned();
        found.ok_or_else(|| remat_types::Error::new(remat_types::ErrorKind::Index, format!("place {i} of {n}")))
    };
    let data = index.to_i64_vec().iter().map(at).collect::<Result<Vec<_>>>()?;
    Ok(vec![Value::Text(Text { shape: index.shape().clone(), data: data.into() })])
}

fn gather_elements(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, axis) = (c.x(0)?, c.axis("axis", 0)?);
    let extent = x.dims()[axis_of(axis, x.rank())?];
    one(x.gather(axis, &from_start(c, 1, extent)?)?)
}

fn gather_nd(c: &Cx<'_>) -> Result<Vec<Value>> {
    let batch = remat_import::size(c.int("batch_dims", 0)?)?;
    one(c.x(0)?.gather_nd(c.x(1)?, batch)?)
}

fn one_hot(c: &Cx<'_>) -> Result<Vec<Value>> {
    let depth = match c.needed(1)?.known() {
        Some(host) if host.elems() == 1 => host.to_f64_vec()[0] as i64,
        _ => c.x(1)?.cast(DType::I64)?.as_size()? as i64,
    };
    let depth_elems = remat_import::size(depth)?;
    let index = c.x(0)?.cast(DType::I64)?;
    let index = index.lt(0)?.where_cond(&index.add(depth)?, &index)?;
    let axis = axis_of(c.axis("axis", -1)?, index.rank() + 1)?;
    let mut shape = vec![1isize; index.rank() + 1];
    shape[axis] = depth_elems as isize;
    let classes = Tensor::arange(c.device(), 0, depth, 1, DType::I64)?.reshape(&shape)?;
    let hot = index.unsqueeze(axis as isize)?.eq(&classes)?;
    let values = c.x(2)?;
    let (off, on) = (values.select(0, 0)?, values.select(0, 1)?);
    one(hot.where_cond(&on, &off)?)
}

fn reverse_sequence(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, lens) = (c.x(0)?, c.x(1)?.cast(DType::I64)?);
    let (time, batch) = (c.axis("time_axis", 0)?, c.axis("batch_axis", 1)?);
    let (time, batch) = (axis_of(time, x.rank())?, axis_of(batch, x.rank())?);
    if time > 1 || batch > 1 || time == batch {
        return Err(shape_error(format!("time along axis {time}, the batch along {batch}; they are the first two")));
    }
    let steps = Tensor::arange(c.device(), 0, x.dims()[time] as i64, 1, DType::I64)?.unsqueeze(1 - time as isize)?;
    let lens = lens.unsqueeze(1 - batch as isize)?;
    let index = steps.lt(&lens)?.where_cond(&lens.sub(1)?.sub(&steps)?, &steps)?;
    let mut shape: Vec<isize> = x.dims()[..2].iter().map(|d| *d as isize).collect();
    shape.resize(x.rank(), 1);
    let index = index.reshape(&shape)?.broadcast_to(x.shape())?;
    one(x.gather(time as isize, &index)?)
}

fn scatter_elements(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, src, axis) = (c.x(0)?, c.x(2)?, c.axis("axis", 0)?);
    let index = from_start(c, 1, x.dims()[axis_of(axis, x.rank())?])?;
    let f = match c.string("reduction", "none")? {
        "none" => return one(x.scatter(axis, &index, src)?),
        "add" => ScatterReduce::Sum,
        "mul" => ScatterReduce::Prod,
        "max" => ScatterReduce::Amax,
        "min" => ScatterReduce::Amin,
        other => return Err(c.unknown("reduction", other)),
    };
    one(x.scatter_reduce(axis, &index, src, f, true)?)
}

fn scatter_nd(c: &Cx<'_>) -> Result<Vec<Value>> {
    let f = match c.string("reduction", "none")? {
        "none" => PutFn::Set,
        "add" => PutFn::Add,
        "mul" => PutFn::Mul,
        "max" => PutFn::Max,
        "min" => PutFn::Min,
        other => return Err(c.unknown("reduction", other)),
    };
    one(c.x(0)?.scatter_nd(c.x(1)?, c.x(2)?, f)?)
}

/// Rows of a cache replaced, from a place of each sequence on.
fn tensor_scatter(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (past, update) = (c.x(0)?, c.x(1)?);
    let axis = axis_of(c.axis("axis", -2)?, past.rank())?;
    if axis == 0 || update.rank() != past.rank() {
        return Err(shape_error(format!(
            "an update of shape {} along axis {axis} of {}",
            update.shape(),
            past.shape()
        )));
    }
    let (len, room) = (update.dims()[axis], past.dims()[axis]);
    let batch = past.dims()[0];
    let first = match c.opt(2)? {
        Some(t) => t.cast(DType::I64)?,
        None => Tensor::zeros(c.device(), [batch], DType::I64)?,
    };
    let steps = Tensor::arange(c.device(), 0, len as i64, 1, DType::I64)?;
    let places = first.unsqueeze(1)?.add(&steps)?;
    let places = match c.string("mode", "linear")? {
        "linear" => places,
        "circular" => places.rem((room.max(1)) as i64)?,
        other => return Err(c.unknown("mode", other)),
    };
    let mut shape = vec![1isize; past.rank()];
    (shape[0], shape[axis]) = (batch as isize, len as isize);
    let index = places.reshape(&shape)?.broadcast_to(update.shape())?;
    one(past.scatter(axis as isize, &index, update)?)
}
