//! Methods that take a struct of options. Its fields are arguments here.

use pyo3::prelude::*;
use remat::tensor::{BagMode, Bags, Interpolate, Rope, RopePairs, TriangleOptions};
use remat::{Attend, ConvParams, Divisor, Pooling, QueryPlace, Tensor, Windows};

use super::Row;
use super::args::Args;
use super::choices::{extents, padding};

/// Stride, padding, dilation and groups from argument `i` on.
fn conv_params<const D: usize>(a: &Args<'_, '_>, i: usize) -> PyResult<ConvParams<D>> {
    Ok(ConvParams {
        stride: extents(&a.any(i)?)?,
        padding: padding(&a.any(i + 1)?)?,
        dilation: extents(&a.any(i + 2)?)?,
        groups: a.get(i + 3)?,
    })
}

/// Kernel, stride, padding, dilation and `ceil_mode` from argument `i` on.
fn pooling<const D: usize>(a: &Args<'_, '_>, i: usize) -> PyResult<Pooling<D>> {
    Ok(Pooling {
        kernel: extents(&a.any(i)?)?,
        stride: extents(&a.any(i + 1)?)?,
        padding: padding(&a.any(i + 2)?)?,
        dilation: extents(&a.any(i + 3)?)?,
        ceil_mode: a.get(i + 4)?,
    })
}

fn windows(a: &Args<'_, '_>, i: usize) -> PyResult<Windows> {
    Ok(Windows::sliding(extents(&a.any(i)?)?, extents(&a.any(i + 1)?)?, padding::<2>(&a.any(i + 2)?)?))
}

fn max_pool<const D: usize>(a: &Args<'_, '_>) -> PyResult<Py<PyAny>> {
    let (x, p) = (a.tensor(0)?, pooling::<D>(a, 1)?);
    a.run(move || x.max_pool(p))
}

fn max_pool_with_indices<const D: usize>(a: &Args<'_, '_>) -> PyResult<Py<PyAny>> {
    let (x, p) = (a.tensor(0)?, pooling::<D>(a, 1)?);
    a.run(move || x.max_pool_with_indices(p))
}

fn avg_pool<const D: usize>(a: &Args<'_, '_>) -> PyResult<Py<PyAny>> {
    let (x, p) = (a.tensor(0)?, pooling::<D>(a, 1)?);
    let divisor = if a.get(6)? { Divisor::WithPadding } else { Divisor::WithoutPadding };
    a.run(move || x.avg_pool(p, divisor))
}

fn adaptive_avg_pool<const D: usize>(a: &Args<'_, '_>) -> PyResult<Py<PyAny>> {
    let (x, size) = (a.tensor(0)?, extents::<D>(&a.any(1)?)?);
    a.run(move || x.adaptive_avg_pool(size))
}

fn adaptive_max_pool<const D: usize>(a: &Args<'_, '_>) -> PyResult<Py<PyAny>> {
    let (x, size) = (a.tensor(0)?, extents::<D>(&a.any(1)?)?);
    a.run(move || x.adaptive_max_pool(size))
}

/// Splits a mask as PyTorch has it: truth values say which scores count, and other values are added to the scores.
fn masks(mask: &Tensor) -> (Option<&Tensor>, Option<&Tensor>) {
    if mask.dtype().is_float() { (Some(mask), None) } else { (None, Some(mask)) }
}

/// `x, indices, size`
fn max_unpool<const D: usize>(a: &Args<'_, '_>) -> PyResult<Py<PyAny>> {
    let (x, indices, size) = (a.tensor(0)?, a.tensor(1)?, extents::<D>(&a.any(2)?)?);
    a.run(move || x.max_unpool(&indices, size))
}

/// `x, p, kernel, stride, padding, dilation, ceil_mode`
fn lp_pool<const D: usize>(a: &Args<'_, '_>) -> PyResult<Py<PyAny>> {
    let (x, p, windows) = (a.tensor(0)?, a.get(1)?, pooling::<D>(a, 2)?);
    a.run(move || x.lp_pool(p, windows))
}

/// `x, weight, stride, padding, dilation, groups`, and for the transposed `output_padding`; the others as named.
pub(super) const METHODS: &[Row] = &[
    ("conv1d", |a| {
        let (x, w, p) = (a.tensor(0)?, a.tensor(1)?, conv_params::<1>(a, 2)?);
        a.run(move || x.conv1d(&w, p))
    }),
    ("conv2d", |a| {
        let (x, w, p) = (a.tensor(0)?, a.tensor(1)?, conv_params::<2>(a, 2)?);
        a.run(move || x.conv2d(&w, p))
    }),
    ("conv3d", |a| {
        let (x, w, p) = (a.tensor(0)?, a.tensor(1)?, conv_params::<3>(a, 2)?);
        a.run(move || x.conv3d(&w, p))
    }),
    ("conv_transpose1d", |a| {
        let (x, w, p, o) = (a.tensor(0)?, a.tensor(1)?, conv_params::<1>(a, 2)?, extents(&a.any(6)?)?);
        a.run(move || x.conv_transpose1d(&w, p, o))
    }),
    ("conv_transpose2d", |a| {
        let (x, w, p, o) = (a.tensor(0)?, a.tensor(1)?, conv_params::<2>(a, 2)?, extents(&a.any(6)?)?);
        a.run(move || x.conv_transpose2d(&w, p, o))
    }),
    ("conv_transpose3d", |a| {
        let (x, w, p, o) = (a.tensor(0)?, a.tensor(1)?, conv_params::<3>(a, 2)?, extents(&a.any(6)?)?);
        a.run(move || x.conv_transpose3d(&w, p, o))
    }),
    // `x, kernel, stride, padding`, as the layer computes them
    ("max_pool2d", |a| {
        let (x, w) = (a.tensor(0)?, windows(a, 1)?);
        a.run(move || x.max_pool2d(w))
    }),
    ("avg_pool2d", |a| {
        let (x, w, count) = (a.tensor(0)?, windows(a, 1)?, a.get::<bool>(4)?);
        a.run(move || x.avg_pool2d(w, count))
    }),
    // `x, kernel, stride, padding, dilation, ceil_mode`
    ("max_pool1d", max_pool::<1>),
    ("max_pool_with2d", max_pool::<2>),
    ("max_pool3d", max_pool::<3>),
    ("max_pool_with_indices1d", max_pool_with_indices::<1>),
    ("max_pool_with_indices2d", max_pool_with_indices::<2>),
    ("max_pool_with_indices3d", max_pool_with_indices::<3>),
    ("avg_pool1d", avg_pool::<1>),
    ("avg_pool_with2d", avg_pool::<2>),
    ("avg_pool3d", avg_pool::<3>),
    ("adaptive_avg_pool1d", adaptive_avg_pool::<1>),
    ("adaptive_avg_pool2d", adaptive_avg_pool::<2>),
    ("adaptive_avg_pool3d", adaptive_avg_pool::<3>),
    ("adaptive_max_pool1d", adaptive_max_pool::<1>),
    ("adaptive_max_pool2d", adaptive_max_pool::<2>),
    ("adaptive_max_pool3d", adaptive_max_pool::<3>),
    // `q, k, v` of `[n, t, heads, d]`, `mask, bias, causal, scale, at_end, p, key`
    ("attention", |a| {
        let (q, k, v, mask, bias) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.opt_tensor(3)?, a.opt_tensor(4)?);
        let (causal, scale, p, key) = (a.get(5)?, a.get(6)?, a.get::<f64>(8)?, a.opt_tensor(9)?);
        let place = if a.get(7)? { QueryPlace::End } else { QueryPlace::Start };
        a.run(move || {
            let dropout = key.as_ref().map(|key| (p, key));
            let (mask, bias) = (mask.as_ref(), bias.as_ref());
            q.attention(&k, &v, Attend { causal, scale, place, mask, bias, dropout, ..Attend::ALL })
        })
    }),
    // `x, b, upper, transpose, unit`
    ("solve_triangular", |a| {
        let (x, b) = (a.tensor(0)?, a.tensor(1)?);
        let how = TriangleOptions { upper: a.get(2)?, transpose: a.get(3)?, unit: a.get(4)? };
        a.run(move || x.solve_triangular(&b, how))
    }),
    // `x, size, mode`
    ("resize", |a| {
        let (x, size, mode) = (a.tensor(0)?, extents(&a.any(1)?)?, a.choice::<Interpolate>(2)?);
        a.run(move || x.resize(size, mode))
    }),
    ("max_unpool1d", max_unpool::<1>),
    ("max_unpool2d", max_unpool::<2>),
    ("max_unpool3d", max_unpool::<3>),
    ("lp_pool1d", lp_pool::<1>),
    ("lp_pool2d", lp_pool::<2>),
    ("lp_pool3d", lp_pool::<3>),
    // `qkv, mask, causal, scale`
    ("self_attention", |a| {
        let (x, mask, causal, scale) = (a.tensor(0)?, a.opt_tensor(1)?, a.get(2)?, a.get(3)?);
        a.run(move || {
            let (bias, mask) = mask.as_ref().map_or((None, None), masks);
            x.self_attention(Attend { causal, scale, mask, bias, ..Attend::ALL })
        })
    }),
    // `table, index, mode, offsets, include_last_offset, weights, padding_idx`
    ("embedding_bag", |a| {
        let (x, index, mode) = (a.tensor(0)?, a.tensor(1)?, a.choice::<BagMode>(2)?);
        let (offsets, include_last_offset) = (a.opt_tensor(3)?, a.get(4)?);
        let (weights, padding_idx) = (a.opt_tensor(5)?, a.get(6)?);
        a.run(move || {
            let (offsets, weights) = (offsets.as_ref(), weights.as_ref());
            x.embedding_bag(&index, Bags { mode, offsets, include_last_offset, weights, padding_idx })
        })
    }),
    // `x, base, width, neighbours, offset, positions, scale`
    ("rope", |a| {
        let (x, base, width) = (a.tensor(0)?, a.get(1)?, a.get(2)?);
        let pairs = if a.get(3)? { RopePairs::Neighbours } else { RopePairs::Halves };
        let (offset, positions, scale) = (a.get(4)?, a.opt_tensor(5)?, a.get(6)?);
        a.run(move || x.rope(Rope { base, width, pairs, offset, positions: positions.as_ref(), scale }))
    }),
];
