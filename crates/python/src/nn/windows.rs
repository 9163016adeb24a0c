//! Layers of windows, padding and rearranged pixels, by kind: they have no state.

use pyo3::prelude::*;
use remat::nn::{
    AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, Fold, Layer, LpPool, MaxPool, MaxUnpool, Pad, PadMode, Patches, Pooling,
    Sizes, Unfold, Upsample,
};
use remat::{Divisor, InterpolateOptions, Padding};
use serde::Deserialize;

use super::layers::{Held, Make, array, read};
use crate::ops::choices::of_name;

/// Pools; a list has an entry for each axis.
#[derive(Deserialize)]
struct PoolArgs {
    kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<[usize; 2]>,
    dilation: Vec<usize>,
    ceil_mode: bool,
    #[serde(default)]
    count_include_pad: bool,
    divisor: Option<usize>,
    #[serde(default)]
    p: f64,
}

#[derive(Deserialize)]
struct SizeArgs {
    size: Vec<usize>,
}

#[derive(Deserialize)]
struct PatchArgs {
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [[usize; 2]; 2],
    dilation: [usize; 2],
    #[serde(default)]
    size: [usize; 2],
}

#[derive(Deserialize)]
struct PadArgs {
    padding: Vec<[usize; 2]>,
    mode: String,
    value: f64,
}

#[derive(Deserialize)]
struct UpsampleArgs {
    size: Option<Vec<usize>>,
    factor: Option<Vec<f64>>,
    mode: String,
    align_corners: bool,
    antialias: bool,
    recompute_scale: bool,
}

/// What lies beyond an edge, by its name; `constant` is `value`. Errors: ValueError for another name.
pub(super) fn pad_mode(name: &str, value: f64) -> PyResult<PadMode> {
    if name == "constant" { Ok(PadMode::Constant(value)) } else { of_name(name) }
}

fn pooling<const D: usize>(o: &PoolArgs) -> PyResult<Pooling<D>> {
    Ok(Pooling {
        kernel: array(&o.kernel)?,
        stride: array(&o.stride)?,
        padding: Padding::from(array::<[usize; 2], D>(&o.padding)?),
        dilation: array(&o.dilation)?,
        ceil_mode: o.ceil_mode,
    })
}

fn patches(o: &PatchArgs) -> Patches {
    Patches { kernel: o.kernel, stride: o.stride, padding: Padding::from(o.padding), dilation: o.dilation }
}

fn made(layer: impl Layer + 'static) -> Make {
    Box::new(move |_| Ok(Held::one(layer)))
}

/// Layers over `D` axes, whose kinds end in that number.
fn of_axes<const D: usize>(kind: &str, text: &str) -> PyResult<Option<Make>> {
    let size = || -> PyResult<[usize; D]> { array(&read::<SizeArgs>(text)?.size) };
    Ok(Some(match kind {
        "max_pool" => made(MaxPool { pooling: pooling::<D>(&read(text)?)? }),
        "avg_pool" => {
            let o: PoolArgs = read(text)?;
            let counted = if o.count_include_pad { Divisor::WithPadding } else { Divisor::WithoutPadding };
            made(AvgPool { pooling: pooling::<D>(&o)?, divisor: o.divisor.map_or(counted, Divisor::Of) })
        }
        "lp_pool" => {
            let o: PoolArgs = read(text)?;
            made(LpPool { p: o.p, pooling: pooling::<D>(&o)? })
        }
        "adaptive_avg_pool" => made(AdaptiveAvgPool::<D>::new(size()?)),
        "adaptive_max_pool" => made(AdaptiveMaxPool::<D>::new(size()?)),
        "max_unpool" => {
            let layer = MaxUnpool::<D> { size: size()? };
            Box::new(move |_| Ok(Held::several(layer)))
        }
        "pad" => {
            let o: PadArgs = read(text)?;
            let padding = Padding::from(array::<[usize; 2], D>(&o.padding)?);
            made(Pad::with(padding, pad_mode(&o.mode, o.value)?))
        }
        _ => return Ok(None),
    }))
}

fn upsample(text: &str) -> PyResult<Make> {
    let o: UpsampleArgs = read(text)?;
    let sizes = match (o.size, o.factor) {
        (Some(size), _) => Sizes::To(size),
        (None, factor) => Sizes::By(factor.unwrap_or_default()),
    };
    let options = InterpolateOptions {
        mode: of_name(&o.mode)?,
        align_corners: o.align_corners,
        antialias: o.antialias,
        recompute_scale: o.recompute_scale,
    };
    Ok(made(Upsample::with(sizes, options)))
}

/// What makes a layer of this kind, if it is one of these.
pub(super) fn make(kind: &str, text: &str) -> PyResult<Option<Make>> {
    let axes = [("1d", of_axes::<1> as fn(&str, &str) -> _), ("2d", of_axes::<2>), ("3d", of_axes::<3>)];
    if let Some((name, of)) = axes.iter().find_map(|(end, of)| Some((kind.strip_suffix(end)?, of))) {
        return of(name, text);
    }
    Ok(Some(match kind {
        "unfold" => made(Unfold { patches: patches(&read(text)?) }),
        "fold" => {
            let o: PatchArgs = read(text)?;
            made(Fold { size: o.size, patches: patches(&o) })
        }
        "upsample" => upsample(text)?,
        _ => return Ok(None),
    }))
}
