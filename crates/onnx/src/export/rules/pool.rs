//! Pooling.

use remat_ops::pooling::{AvgPool2d, MaxPool2d, Windows};
use remat_types::{DType, HostTensor, Result};

use super::{Row, Rule, reduce, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};
use crate::proto::AttributeProto;

pub(super) const ROWS: &[Row] = &[row::<AvgPool2d>(), row::<MaxPool2d>()];

fn attributes(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 4]) -> Vec<AttributeProto> {
    vec![attr::ints("kernel_shape", &kernel), attr::ints("strides", &stride), attr::ints("pads", &padding)]
}

/// Adaptive windows that are all of one size and side by side: that size.
fn regular(input: &[usize], out: [usize; 2]) -> Option<[usize; 2]> {
    let fits = |a: usize| out[a] > 0 && input[a] > 0 && input[a].is_multiple_of(out[a]);
    (fits(0) && fits(1)).then(|| [input[0] / out[0], input[1] / out[1]])
}

/// Where window `o` of `out` begins and ends.
fn window(o: usize, size: usize, out: usize) -> (usize, usize) {
    (o * size / out, ((o + 1) * size).div_ceil(out))
}

impl Rule for AvgPool2d {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, size) = (c.x(0)?, c.dims(0)?[2..].to_vec());
        match self.windows {
            Windows::Sliding { kernel, stride, padding } => {
                let mut all = attributes(kernel, stride, padding);
                all.push(attr::flag("count_include_pad", self.count_include_pad));
                Ok(vec![c.with("AveragePool", &[&x], all)])
            }
            Windows::Adaptive { size: [1, 1] } => Ok(vec![c.op("GlobalAveragePool", &[&x])]),
            Windows::Adaptive { size: out } => match regular(&size, out) {
                Some(kernel) => Ok(vec![c.with("AveragePool", &[&x], attributes(kernel, kernel, [0; 4]))]),
                None => Ok(vec![means(c, &size, out)?]),
            },
        }
    }
}

/// Means of windows that differ in size, as products with their weights.
fn means(c: &mut Cx<'_>, size: &[usize], out: [usize; 2]) -> Result<Name> {
    let (x, dtype) = (c.x(0)?, c.dtype(0)?);
    let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
    let x = c.cast_from(&x, dtype, wide);
    let weights = |a: usize, turned: bool| {
        let mut w = vec![0.0; size[a] * out[a]];
        for o in 0..out[a] {
            let (from, to) = window(o, size[a], out[a]);
            for i in from..to {
                let at = if turned { i * out[a] + o } else { o * size[a] + i };
                w[at] = 1.0 / (to - from) as f64;
            }
        }
        HostTensor::from_f64_slice(&w, wide, if turned { [size[a], out[a]] } else { [out[a], size[a]] })
    };
    let (down, across) = (c.tensor(weights(0, false)?), c.tensor(weights(1, true)?));
    let y = c.op("MatMul", &[&down, &x]);
    let y = c.op("MatMul", &[&y, &across]);
    Ok(c.cast_from(&y, wide, dtype))
}

/// True for what the standard's pooling takes: floats, and integers of 8 bits.
fn is_pooled(dtype: DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::I8 | DType::U8)
}

impl Rule for MaxPool2d {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, size, dtype) = (c.x(0)?, c.dims(0)?[2..].to_vec(), c.dtype(0)?);
        let out = c.result(0)?.shape.dims()[2..].to_vec();
        match self.windows {
            Windows::Sliding { kernel, stride, padding } => {
                if is_pooled(dtype) {
                    return Ok(vec![c.with("MaxPool", &[&x], attributes(kernel, stride, padding))]);
                }
                // places of the padding are left out
                let at = |a: usize, o: usize| {
                    let (from, to) = (o * stride[a], o * stride[a] + kernel[a]);
                    (from.saturating_sub(padding[a]), to.saturating_sub(padding[a]).min(size[a]))
                };
                if (0..2).any(|a| (0..out[a]).any(|o| at(a, o).0 >= at(a, o).1)) {
                    return Err(left_out("windows of integers in the padding alone"));
                }
                Ok(vec![largest(c, [out[0], out[1]], at)?])
            }
            Windows::Adaptive { size: [1, 1] } if dtype.is_float() => Ok(vec![c.op("GlobalMaxPool", &[&x])]),
            Windows::Adaptive { size: out } => match regular(&size, out).filter(|_| is_pooled(dtype)) {
                Some(kernel) => Ok(vec![c.with("MaxPool", &[&x], attributes(kernel, kernel, [0; 4]))]),
                None => Ok(vec![largest(c, out, |a, o| window(o, size[a], out[a]))?]),
            },
        }
    }
}

/// The largest of windows that differ in size, each from a place to another: places of shorter ones are taken more than once.
fn largest(c: &mut Cx<'_>, out: [usize; 2], window: impl Fn(usize, usize) -> (usize, usize)) -> Result<Name> {
    let (mut x, dtype) = (c.x(0)?, c.dtype(0)?);
    let mut shape = c.dims(0)?[..2].to_vec();
    for (a, n) in out.into_iter().enumerate() {
        let most = (0..n).map(|o| window(a, o)).map(|(from, to)| to - from).max().unwrap_or(0);
        let mut places = Vec::with_capacity(n * most);
        for o in 0..n {
            let (from, to) = window(a, o);
            places.extend((0..most).map(|k| (from + k).min(to - 1)));
        }
        let places = c.sizes(&places)?;
        x = c.with("Gather", &[&x, &places], vec![attr::size("axis", a + 2)]);
        shape.extend([n, most]);
    }
    let x = c.reshape(&x, &shape)?;
    let own = reduce::whole(dtype, true);
    let x = c.cast_from(&x, dtype, own);
    let y = c.reduce("ReduceMax", &x, &[3, 5], false)?;
    Ok(c.cast_from(&y, own, dtype))
}
