//! Operators on images that take a struct of options. Its fields are arguments here, in the struct's order.

use pyo3::prelude::*;
use remat::tensor::{
    Between, Beyond, Correlation, DeformPsRoi, Interpolate, InterpolateOptions, Patches, RoiAlign, Sizes, Warp,
};

use super::Row;
use super::args::Args;
use super::choices::{extents, padding};

/// Kernel, stride, padding and dilation from argument `i` on.
fn patches(a: &Args<'_, '_>, i: usize) -> PyResult<Patches> {
    Ok(Patches {
        kernel: extents(&a.any(i)?)?,
        stride: extents(&a.any(i + 1)?)?,
        padding: padding(&a.any(i + 2)?)?,
        dilation: extents(&a.any(i + 3)?)?,
    })
}

/// `between, beyond, fill` from argument `i` on.
fn warp(a: &Args<'_, '_>, i: usize) -> PyResult<Warp> {
    Ok(Warp { between: a.choice::<Between>(i)?, beyond: a.choice::<Beyond>(i + 1)?, fill: a.get(i + 2)? })
}

/// `size, scale, samples, aligned` from argument `i` on.
fn roi_align(a: &Args<'_, '_>, i: usize) -> PyResult<RoiAlign> {
    Ok(RoiAlign { size: extents(&a.any(i)?)?, scale: a.get(i + 1)?, samples: a.get(i + 2)?, aligned: a.get(i + 3)? })
}

/// Extents or, if there are none, factors: a number for all axes, or one for each.
fn sizes(a: &Args<'_, '_>, size: usize, factors: usize, axes: usize) -> PyResult<Sizes> {
    if a.any(size)?.is_none() {
        let by = a.any(factors)?;
        return Ok(Sizes::By(by.extract::<f64>().map(|f| vec![f]).or_else(|_| by.extract())?));
    }
    let to = a.any(size)?;
    Ok(Sizes::To(to.extract::<usize>().map(|n| vec![n; axes]).or_else(|_| to.extract())?))
}

pub(super) const METHODS: &[Row] = &[
    // `x, size, factors, mode, align_corners, antialias, recompute_scale`
    ("interpolate", |a| {
        let x = a.tensor(0)?;
        let sizes = sizes(a, 1, 2, x.rank().saturating_sub(2))?;
        let how = InterpolateOptions {
            mode: a.choice::<Interpolate>(3)?,
            align_corners: a.get(4)?,
            antialias: a.get(5)?,
            recompute_scale: a.get(6)?,
        };
        a.run(move || x.interpolate(sizes, how))
    }),
    // `x, boxes, size, scale, samples, aligned`
    ("roi_align", |a| {
        let (x, boxes, how) = (a.tensor(0)?, a.tensor(1)?, roi_align(a, 2)?);
        a.run(move || x.roi_align(&boxes, how))
    }),
    ("ps_roi_align", |a| {
        let (x, boxes, how) = (a.tensor(0)?, a.tensor(1)?, roi_align(a, 2)?);
        a.run(move || x.ps_roi_align(&boxes, how))
    }),
    // `x, boxes, offsets, size, group, samples, scale, offset_scale`
    ("deform_ps_roi_pool", |a| {
        let (x, boxes, offsets) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2)?);
        let how = DeformPsRoi {
            size: extents(&a.any(3)?)?,
            group: a.get(4)?,
            samples: a.get(5)?,
            scale: a.get(6)?,
            offset_scale: a.get(7)?,
        };
        a.run(move || x.deform_ps_roi_pool(&boxes, offsets.as_ref(), how))
    }),
    // `x, maps, size, between, beyond, fill`
    ("warp_affine", |a| {
        let (x, maps, size, how) = (a.tensor(0)?, a.tensor(1)?, extents(&a.any(2)?)?, warp(a, 3)?);
        a.run(move || x.warp_affine(&maps, size, how))
    }),
    // `x, maps, images, size, between, beyond, fill`
    ("warp_perspective", |a| {
        let (x, maps, images) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2)?);
        let (size, how) = (extents(&a.any(3)?)?, warp(a, 4)?);
        a.run(move || x.warp_perspective(&maps, images.as_ref(), size, how))
    }),
    // `x, map, between, beyond, fill`
    ("remap", |a| {
        let (x, map, how) = (a.tensor(0)?, a.tensor(1)?, warp(a, 2)?);
        a.run(move || x.remap(&map, how))
    }),
    // `x, degrees, between, beyond, fill`
    ("rotate", |a| {
        let (x, degrees, how) = (a.tensor(0)?, a.get(1)?, warp(a, 2)?);
        a.run(move || x.rotate(degrees, how))
    }),
    // `x, kernel, stride, padding, dilation`
    ("unfold", |a| {
        let (x, p) = (a.tensor(0)?, patches(a, 1)?);
        a.run(move || x.unfold(p))
    }),
    ("sliding_window", |a| {
        let (x, p) = (a.tensor(0)?, patches(a, 1)?);
        a.run(move || x.sliding_window(p))
    }),
    // `x, size, kernel, stride, padding, dilation`
    ("fold", |a| {
        let (x, size, p) = (a.tensor(0)?, extents(&a.any(1)?)?, patches(a, 2)?);
        a.run(move || x.fold(size, p))
    }),
    ("sliding_window_transpose", |a| {
        let (x, size, p) = (a.tensor(0)?, extents(&a.any(1)?)?, patches(a, 2)?);
        a.run(move || x.sliding_window_transpose(size, p))
    }),
    // `x, offset, weight, mask, kernel, stride, padding, dilation`
    ("deform_conv2d", |a| {
        let (x, offset, w, mask) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.opt_tensor(3)?);
        let p = patches(a, 4)?;
        a.run(move || x.deform_conv2d(&offset, &w, mask.as_ref(), p))
    }),
    // `x, weight, kernel, stride, padding, dilation`
    ("local_conv2d", |a| {
        let (x, w, p) = (a.tensor(0)?, a.tensor(1)?, patches(a, 2)?);
        a.run(move || x.local_conv2d(&w, p))
    }),
    // `x, weight, rin, rout, kernel, stride, padding, dilation`
    ("region_restricted_conv", |a| {
        let (x, w, rin, rout) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.tensor(3)?);
        let p = patches(a, 4)?;
        a.run(move || x.region_restricted_conv(&w, &rin, &rout, p))
    }),
    // `x, other, kernel, max_displacement, stride1, stride2, padding, is_multiply`
    ("correlation", |a| {
        let (x, other) = (a.tensor(0)?, a.tensor(1)?);
        let how = Correlation {
            kernel: a.get(2)?,
            max_displacement: a.get(3)?,
            stride1: a.get(4)?,
            stride2: a.get(5)?,
            padding: a.get(6)?,
            is_multiply: a.get(7)?,
        };
        a.run(move || x.correlation(&other, how))
    }),
];
