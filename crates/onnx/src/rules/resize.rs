//! Images of another size.
//!
//! Every axis is resized by itself: each place of the result is a sum of a few places of the input with weights that follow from its
//! coordinate. Places and weights are numbers on the host. Forms that the operator of tensors has go there.

use remat_import::{Cx, Value, one, shape_error, size, value_error};
use remat_tensor::{Interpolate, InterpolateOptions, Sizes, Tensor};
use remat_types::{DType, Result, axis_of};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[row("Resize", 10, resize), row("Upsample", 1, upsample)];

/// The most terms of all sums along an axis: what a scale may ask for.
const MOST_TERMS: usize = 1 << 26;

/// As far outside an axis as a coordinate is told from another: further than any filter reaches.
const FARTHEST: f64 = (1u64 << 40) as f64;

/// The resizing along one axis.
#[derive(Clone, Copy, Debug)]
struct Along {
    axis: usize,
    scale: f64,
    out: usize,
    /// First and last place of the region, as shares of the axis.
    roi: [f64; 2],
}

/// How places are found and weighted.
struct Form<'a> {
    mode: &'a str,
    coordinates: &'a str,
    nearest: &'a str,
    cubic_a: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: f64,
}

fn upsample(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let scales: Vec<f64> = match c.version() {
        ..7 => vec![1.0, 1.0, c.real("height_scale", 1.0)?, c.real("width_scale", 1.0)?],
        7..9 => c.reals("scales")?.ok_or_else(|| c.missing("scales"))?.iter().map(|v| f64::from(*v)).collect(),
        _ => c.floats(1)?,
    };
    let mode = match c.string("mode", "nearest")? {
        "bilinear" => "linear",
        other => other,
    };
    let form = Form { mode, ..OLD };
    one(apply(c, x, &by_scales(x, &scales, None)?, &form)?)
}

const OLD: Form<'static> = Form {
    mode: "nearest",
    coordinates: "asymmetric",
    nearest: "floor",
    cubic_a: -0.75,
    exclude_outside: false,
    antialias: false,
    extrapolation: 0.0,
};

fn resize(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    if c.version() < 11 {
        let form = Form { mode: c.string("mode", "nearest")?, ..OLD };
        return one(apply(c, x, &by_scales(x, &c.floats(1)?, None)?, &form)?);
    }
    let form = Form {
        mode: c.string("mode", "nearest")?,
        coordinates: c.string("coordinate_transformation_mode", "half_pixel")?,
        nearest: c.string("nearest_mode", "round_prefer_floor")?,
        cubic_a: c.real("cubic_coeff_a", -0.75)?,
        exclude_outside: c.flag("exclude_outside", false)?,
        antialias: c.flag("antialias", false)?,
        extrapolation: c.real("extrapolation_value", 0.0)?,
    };
    let axes = match c.ints("axes")? {
        Some(all) => Some(all.iter().map(|a| axis_of(*a as isize, x.rank())).collect::<Result<Vec<_>>>()?),
        None => None,
    };
    let present = |i: usize| c.value(i).is_some_and(|v| v.tensor().is_ok_and(|t| t.elems() > 0));
    let mut along = if present(3) {
        let policy = c.string("keep_aspect_ratio_policy", "stretch")?;
        by_sizes(c, x, &c.numbers(3)?, axes.as_deref(), policy)?
    } else if present(2) {
        by_scales(x, &c.floats(2)?, axes.as_deref())?
    } else {
        return Err(value_error("neither scales nor sizes"));
    };
    if form.coordinates == "tf_crop_and_resize" {
        let roi = c.floats(1)?;
        let n = along.len();
        if roi.len() != 2 * n {
            return Err(shape_error(format!("a region of {} numbers for {n} axes", roi.len())));
        }
        for (i, a) in along.iter_mut().enumerate() {
            a.roi = [roi[i], roi[n + i]];
        }
    }
    one(apply(c, x, &along, &form)?)
}

fn chosen(x: &Tensor, axes: Option<&[usize]>, n: usize) -> Result<Vec<usize>> {
    let axes: Vec<usize> = axes.map_or_else(|| (0..x.rank()).collect(), <[usize]>::to_vec);
    if axes.len() == n { Ok(axes) } else { Err(shape_error(format!("{n} numbers for {} axes", axes.len()))) }
}

fn by_scales(x: &Tensor, scales: &[f64], axes: Option<&[usize]>) -> Result<Vec<Along>> {
    let axes = chosen(x, axes, scales.len())?;
    let along = |(axis, scale): (&usize, &f64)| {
        let out = (*scale * x.dims()[*axis] as f64).floor();
        if !(*scale > 0.0 && out < MOST_TERMS as f64) {
            return Err(value_error(format!("a scale of {scale} along axis {axis} of shape {}", x.shape())));
        }
        Ok(Along { axis: *axis, scale: *scale, out: out as usize, roi: [0.0, 1.0] })
    };
    axes.iter().zip(scales).map(along).collect()
}

fn by_sizes(c: &Cx<'_>, x: &Tensor, sizes: &[i64], axes: Option<&[usize]>, policy: &str) -> Result<Vec<Along>> {
    let axes = chosen(x, axes, sizes.len())?;
    let mut all = Vec::new();
    for (axis, n) in axes.iter().zip(sizes) {
        let (have, out) = (x.dims()[*axis], size(*n)?);
        if have == 0 || out > MOST_TERMS {
            return Err(shape_error(format!("axis {axis} of shape {} as {out} places", x.shape())));
        }
        all.push(Along { axis: *axis, scale: out as f64 / have as f64, out, roi: [0.0, 1.0] });
    }
    let scales = all.iter().map(|a| a.scale);
    let one = match policy {
        "stretch" => return Ok(all),
        "not_larger" => scales.fold(f64::INFINITY, f64::min),
        "not_smaller" => scales.fold(0.0, f64::max),
        other => return Err(c.unknown("keep_aspect_ratio_policy", other)),
    };
    for a in &mut all {
        // halves go up
        (a.scale, a.out) = (one, (one * x.dims()[a.axis] as f64 + 0.5).floor() as usize);
    }
    Ok(all)
}

fn apply(c: &Cx<'_>, x: &Tensor, along: &[Along], form: &Form<'_>) -> Result<Tensor> {
    let moves = |a: &&Along| a.out != x.dims()[a.axis] || a.scale != 1.0 || a.roi != [0.0, 1.0];
    let along: Vec<&Along> = along.iter().filter(moves).collect();
    if let Some(y) = by_operator(x, &along, form)? {
        return Ok(y);
    }
    let nearest = form.mode == "nearest" && !form.antialias;
    let wide = if nearest || x.dtype() == DType::F64 { x.clone() } else { x.cast(DType::F32)? };
    let mut y = wide;
    let mut outside: Vec<(usize, Vec<bool>)> = Vec::new();
    for a in along {
        let terms = Terms::of(c, y.dims()[a.axis], a, form)?;
        y = terms.sum(c, &y, a)?;
        outside.extend(terms.outside.map(|o| (a.axis, o)));
    }
    // whole numbers saturate, and are cut as a cast does
    y = if x.dtype().is_float() || nearest { y.cast(x.dtype())? } else { y.round()?.cast(x.dtype())? };
    for (axis, places) in outside {
        let mut shape = vec![1isize; y.rank()];
        shape[axis] = -1;
        let mask = Tensor::from_slice(c.device(), &places, [places.len()])?.reshape(&shape)?;
        let value = Tensor::full(c.device(), remat_types::Shape::scalar(), y.dtype(), form.extrapolation)?;
        y = mask.where_cond(&value, &y)?;
    }
    Ok(y)
}

/// Linear forms of images, and nearest ones by whole factors, as the operator of tensors has them.
fn by_operator(x: &Tensor, along: &[&Along], form: &Form<'_>) -> Result<Option<Tensor>> {
    let spatial = (3..=5).contains(&x.rank()) && along.iter().all(|a| a.axis >= 2);
    if along.is_empty() || !spatial || form.antialias || form.exclude_outside {
        return Ok(None);
    }
    let mut sizes: Vec<usize> = x.dims()[2..].to_vec();
    along.iter().for_each(|a| sizes[a.axis - 2] = a.out);
    // the operator finds the scale from the extents
    let exact = along.iter().all(|a| a.scale * x.dims()[a.axis] as f64 == a.out as f64);
    let whole = along.iter().all(|a| a.scale >= 1.0 && a.scale.fract() == 0.0);
    let options = match (form.mode, form.coordinates, form.nearest) {
        ("linear", "half_pixel", _) if exact && x.dtype().is_float() => {
            InterpolateOptions::with_mode(Interpolate::Linear)
        }
        ("linear", "align_corners", _) if exact && x.dtype().is_float() => {
            InterpolateOptions { align_corners: true, ..InterpolateOptions::with_mode(Interpolate::Linear) }
        }
        ("nearest", "asymmetric", "floor") if whole && exact => InterpolateOptions::with_mode(Interpolate::Nearest),
        ("nearest", "half_pixel", "round_prefer_floor") if whole && exact => {
            InterpolateOptions::with_mode(Interpolate::Nearest)
        }
        _ => return Ok(None),
    };
    x.interpolate(Sizes::To(sizes), options).map(Some)
}

/// The terms of each place's sum: as many for each.
struct Terms {
    each: usize,
    index: Vec<i64>,
    weight: Vec<f64>,
    outside: Option<Vec<bool>>,
}

impl Terms {
    fn of(c: &Cx<'_>, extent: usize, a: &Along, form: &Form<'_>) -> Result<Terms> {
        let n = extent as f64;
        let length = a.scale * n;
        let mut terms = Terms { each: 0, index: Vec::new(), weight: Vec::new(), outside: None };
        let mut outside = Vec::new();
        for o in 0..a.out {
            let at = coordinate(c, o as f64, a, n, length, form)?;
            if form.coordinates == "tf_crop_and_resize" {
                outside.push(at < 0.0 || at > n - 1.0);
            }
            terms.push(c, at, a.scale, extent, form)?;
            if terms.index.len() > MOST_TERMS {
                return Err(value_error("a scale that takes too many terms"));
            }
        }
        terms.outside = outside.contains(&true).then_some(outside);
        Ok(terms)
    }

    /// The terms of one place, whose coordinate is `at`.
    fn push(&mut self, c: &Cx<'_>, at: f64, scale: f64, extent: usize, form: &Form<'_>) -> Result<()> {
        let last = extent as i64 - 1;
        // beyond both ends all places are alike, and numbers stay those of whole places
        let at = at.clamp(-FARTHEST, extent as f64 + FARTHEST);
        if form.mode == "nearest" {
            let place = match form.nearest {
                "round_prefer_floor" => (at - 0.5).ceil(),
                "round_prefer_ceil" => (at + 0.5).floor(),
                "floor" => at.floor(),
                "ceil" => at.ceil(),
                other => return Err(c.unknown("nearest_mode", other)),
            };
            self.each = 1;
            self.index.push((place as i64).clamp(0, last));
            self.weight.push(1.0);
            return Ok(());
        }
        // a filter that is as wide as what a place covers
        let shrink = if form.antialias { scale.min(1.0) } else { 1.0 };
        let (reach, cubic) = match form.mode {
            "linear" => (1.0, false),
            "cubic" => (2.0, true),
            other => return Err(c.unknown("mode", other)),
        };
        let half = (reach / shrink).ceil() as i64;
        self.each = 2 * half as usize;
        // the left of two neighbours where the coordinate is whole
        let floor = at.floor() as i64 - i64::from(at == at.floor());
        let from = self.weight.len();
        for i in floor - half + 1..=floor + half {
            let distance = ((i as f64 - at) * shrink).abs();
            let w = if cubic { keys(distance, form.cubic_a) } else { (1.0 - distance).max(0.0) };
            let excluded = form.exclude_outside && !(0..=last).contains(&i);
            self.index.push(i.clamp(0, last));
            self.weight.push(if excluded { 0.0 } else { w });
        }
        if form.antialias || form.exclude_outside {
            let sum: f64 = self.weight[from..].iter().sum();
            if sum != 0.0 {
                self.weight[from..].iter_mut().for_each(|w| *w /= sum);
            }
        }
        Ok(())
    }

    fn sum(&self, c: &Cx<'_>, x: &Tensor, a: &Along) -> Result<Tensor> {
        let axis = a.axis as isize;
        if a.out == 0 {
            return x.narrow(axis, 0, 0);
        }
        let index = Tensor::from_slice(c.device(), &self.index, [self.index.len()])?;
        let taken = x.index_select(axis, &index)?;
        if self.each == 1 {
            return Ok(taken);
        }
        let mut shape = vec![1isize; x.rank() + 1];
        (shape[a.axis], shape[a.axis + 1]) = (a.out as isize, self.each as isize);
        let weight = Tensor::from_slice(c.device(), &self.weight, [self.weight.len()])?;
        let weight = weight.cast(x.dtype())?.reshape(&shape)?;
        taken.unflatten(axis, &[a.out as isize, self.each as isize])?.mul(&weight)?.sum_over(&[axis + 1], false)
    }
}

/// Keys' cubic kernel (IEEE Transactions on Acoustics, Speech, and Signal Processing 29, 1981) with parameter `a`.
fn keys(x: f64, a: f64) -> f64 {
    match x {
        ..=1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        ..2.0 => ((x - 5.0) * x + 8.0) * x * a - 4.0 * a,
        _ => 0.0,
    }
}

/// Where place `o` of the result lies in the input of `n` places, which become `length`.
fn coordinate(c: &Cx<'_>, o: f64, a: &Along, n: f64, length: f64, form: &Form<'_>) -> Result<f64> {
    let half = (o + 0.5) / a.scale - 0.5;
    Ok(match form.coordinates {
        "half_pixel" => half,
        "half_pixel_symmetric" => n / 2.0 * (1.0 - a.out as f64 / length) + half,
        "pytorch_half_pixel" => {
            if length == 1.0 {
                -0.5
            } else {
                half
            }
        }
        "asymmetric" => o / a.scale,
        "align_corners" => {
            if length == 1.0 {
                0.0
            } else {
                o * (n - 1.0) / (length - 1.0)
            }
        }
        "tf_half_pixel_for_nn" => (o + 0.5) / a.scale,
        "tf_crop_and_resize" => {
            let [first, last] = a.roi;
            let step = if length == 1.0 {
                0.5 * (last - first) * (n - 1.0)
            } else {
                o * (last - first) * (n - 1.0) / (length - 1.0)
            };
            first * (n - 1.0) + step
        }
        other => return Err(c.unknown("coordinate_transformation_mode", other)),
    })
}
