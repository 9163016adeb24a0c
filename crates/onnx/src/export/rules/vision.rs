//! Images between their pixels.

use remat_kernels::pool::Pool;
use remat_ops::eval_on_host;
use remat_ops::vision::{Between, Beyond, PoolIndices, Resample, ResampleRule, SamplePoints};
use remat_types::{DType, HostTensor, Result};

use super::{Row, Rule, pointwise, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};

pub(super) const ROWS: &[Row] = &[row::<Resample>(), row::<SamplePoints>(), row::<PoolIndices>()];

/// Weights of an axis that are written out, at most.
const MOST_WEIGHTS: usize = 1 << 24;

/// The name that the standard has for how the places of an axis lie on those of another, if it has one.
fn coordinates(op: &Resample, scale: f64, shift: f64) -> Option<&'static str> {
    let (size, out) = (op.size as f64, op.out as f64);
    let is = |s: f64, t: f64| scale == s && shift == t;
    if is(size / out, 0.5 * (size / out) - 0.5) {
        Some("half_pixel")
    } else if op.out > 1 && is((size - 1.0) / (out - 1.0), 0.0) {
        Some("align_corners")
    } else if is(size / out, 0.0) {
        Some("asymmetric")
    } else {
        None
    }
}

impl Rule for Resample {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let form = match self.rule {
            ResampleRule::Linear { scale, shift } => Some(("linear", scale.to_f64(), shift.to_f64())),
            ResampleRule::Cubic { scale, shift } => Some(("cubic", scale.to_f64(), shift.to_f64())),
            _ => None,
        };
        let image = (3..=5).contains(&c.fact(0)?.rank()) && self.axis >= 2;
        let plain = !self.transposed && image && self.out > 0;
        if let Some((mode, scale, shift)) = form.filter(|_| plain)
            && let Some(coordinates) = coordinates(self, scale, shift)
        {
            let (x, sizes) = (c.x(0)?, c.sizes(&[self.out])?);
            let mut attributes = vec![
                attr::text("mode", mode),
                attr::text("coordinate_transformation_mode", coordinates),
                attr::ints("axes", &[self.axis]),
            ];
            if mode == "cubic" {
                attributes.push(attr::float("cubic_coeff_a", -0.75));
            }
            return Ok(c.nodes("Resize", &[Some(&x), None, None, Some(&sizes)], attributes, 1));
        }
        Ok(vec![weighted(c, self)?])
    }
}

/// A product with the weights of all places, which the op itself gives of ones.
fn weighted(c: &mut Cx<'_>, op: &Resample) -> Result<Name> {
    let (x, dtype, shape) = (c.x(0)?, c.dtype(0)?, c.dims(0)?);
    let n = shape[op.axis];
    let out = if op.transposed { op.size } else { op.out };
    if n.saturating_mul(out) > MOST_WEIGHTS {
        return Err(left_out(format!("sums along an axis of {n} to one of {out}: too many weights to write out")));
    }
    let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
    let mut one = vec![0.0; n * n];
    (0..n).for_each(|i| one[i * n + i] = 1.0);
    let one = HostTensor::from_f64_slice(&one, wide, [n, n])?;
    let along = Resample { axis: 1, ..op.clone() };
    let weights = eval_on_host(&along, &[one], &Pool::new(1))?;
    let weights = weights.into_iter().next().ok_or_else(|| left_out("no weights"))?;
    let (x, weights) = (c.cast_from(&x, dtype, wide), c.tensor(weights));
    // the axis last, and back
    let mut order: Vec<usize> = (0..shape.len()).filter(|a| *a != op.axis).collect();
    order.push(op.axis);
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, a)| back[*a] = i);
    let x = c.transpose(&x, &order);
    let y = match shape.len() {
        1 => {
            let row = c.unsqueeze(&x, 0)?;
            let y = c.op("MatMul", &[&row, &weights]);
            c.squeeze(&y, 0)?
        }
        _ => c.op("MatMul", &[&x, &weights]),
    };
    let y = c.transpose(&y, &back);
    Ok(c.cast_from(&y, wide, dtype))
}

impl Rule for SamplePoints {
    /// Points in pixels as the standard's, which are -1 and 1 at the edges, in the order across, down, deep.
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        if self.orders.iter().any(|o| *o > 0) {
            return Err(left_out("derivatives of an image; an exported model is for inference"));
        }
        let (beyond, corners) = match self.beyond {
            Beyond::Zeros => ("zeros", false),
            Beyond::Edge => ("border", false),
            Beyond::Reflect => ("reflection", true),
            Beyond::ReflectEdge => ("reflection", false),
            // with some pixels of the other end beside it, and points within
            Beyond::Wrap if c.has(19) => ("border", false),
            Beyond::Wrap => {
                return Err(left_out("an image that goes on as it begins, for which it is padded since version 19"));
            }
        };
        let between = match (self.between, c.has(20)) {
            (Between::Nearest, _) => "nearest",
            (Between::Linear, true) => "linear",
            (Between::Linear, false) => "bilinear",
            (Between::Cubic, true) => "cubic",
            (Between::Cubic, false) => "bicubic",
        };
        let (mut x, points, batch) = (c.x(0)?, c.x(1)?, c.x(2)?);
        let (shape, of, dtype, from) = (c.dims(0)?, c.dims(1)?, c.dtype(1)?, c.dtype(0)?);
        let (mut size, axes) = (shape[2..].to_vec(), shape.len() - 2);
        if axes == 3 && !c.has(20) {
            return Err(left_out("points in volumes, which the standard has since version 20"));
        }
        let index = c.dtype(2)?;
        let batch = c.cast_from(&batch, index, DType::I64);
        x = c.with("Gather", &[&x, &batch], vec![attr::int("axis", 0)]);
        let mut p = points;
        if self.beyond == Beyond::Wrap {
            (x, p) = wrapped(c, &x, &p, &size, dtype)?;
            size.iter_mut().for_each(|n| *n += 2 * BESIDE);
        }
        if axes == 1 {
            // a line is an image of one row
            x = c.unsqueeze(&x, 2)?;
            let amounts = c.sizes(&[0, 0, 1, 0, 0, 0])?;
            let zero = c.number(dtype, 0.0);
            p = c.op("Pad", &[&p, &amounts, &zero]);
            size.insert(0, 1);
        }
        let axes = size.len();
        let (mut factor, mut shift) = (Vec::new(), Vec::new());
        for s in &size {
            let n = *s as f64;
            match corners {
                true => (factor.push(2.0 / (n - 1.0).max(1.0)), shift.push(-1.0)),
                false => (factor.push(2.0 / n.max(1.0)), shift.push(1.0 / n.max(1.0) - 1.0)),
            };
        }
        let factor = HostTensor::from_f64_slice(&factor, dtype, [axes])?;
        let shift = HostTensor::from_f64_slice(&shift, dtype, [axes])?;
        let (factor, shift) = (c.tensor(factor), c.tensor(shift));
        p = c.op("Mul", &[&p, &factor]);
        p = c.op("Add", &[&p, &shift]);
        let order: Vec<usize> = (0..axes).rev().collect();
        let order = c.sizes(&order)?;
        p = c.with("Gather", &[&p, &order], vec![attr::int("axis", -1)]);
        let mut grid = vec![of[0]];
        grid.resize(axes, 1);
        grid.extend([of[1], axes]);
        p = c.reshape(&p, &grid)?;
        p = c.cast_from(&p, dtype, from);
        let attributes =
            vec![attr::text("mode", between), attr::text("padding_mode", beyond), attr::flag("align_corners", corners)];
        let y = c.with("GridSample", &[&x, &p], attributes);
        let y = c.reshape(&y, &[of[0], shape[1], of[1]])?;
        Ok(vec![y])
    }
}

/// Pixels that a point reads beyond the two that it lies between, and one.
const BESIDE: usize = 2;

/// Images with pixels of the other ends around them, and points within the images, counted from the first of those pixels.
fn wrapped(c: &mut Cx<'_>, x: &Name, p: &Name, size: &[usize], dtype: DType) -> Result<(Name, Name)> {
    if size.iter().any(|n| *n < BESIDE) {
        return Err(left_out("an image of one pixel that goes on as it begins"));
    }
    let side = [0, 0].into_iter().chain(size.iter().map(|_| BESIDE));
    let amounts: Vec<usize> = side.clone().chain(side).collect();
    let amounts = c.sizes(&amounts)?;
    let x = c.with("Pad", &[x, &amounts], vec![attr::text("mode", "wrap")]);
    let extents: Vec<f64> = size.iter().map(|n| *n as f64).collect();
    let extents = c.tensor(HostTensor::from_f64_slice(&extents, dtype, [size.len()])?);
    let within = pointwise::rem(c, p, &extents, dtype);
    let beside = c.number(dtype, BESIDE as f64);
    Ok((x, c.op("Add", &[&within, &beside])))
}

impl Rule for PoolIndices {
    /// The second result of the standard's pooling counts through the whole tensor, which this takes back to the plane.
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (mut x, shape, dtype) = (c.x(0)?, c.dims(0)?, c.dtype(0)?);
        let size = &shape[2..];
        if !(dtype.is_float() || matches!(dtype, DType::I8 | DType::U8)) {
            if dtype.size_bytes() > 4 {
                return Err(left_out("integers of 64 bits, which no float holds"));
            }
            x = c.cast(&x, DType::F64);
        }
        let mut attributes = Vec::new();
        if self.kernel.is_empty() {
            let fits = size.iter().zip(&self.out).all(|(n, o)| *o > 0 && n.is_multiple_of(*o));
            if !fits {
                return Err(left_out("places of the largest in windows that differ in size"));
            }
            let kernel: Vec<usize> = size.iter().zip(&self.out).map(|(n, o)| n / o).collect();
            attributes.extend([attr::ints("kernel_shape", &kernel), attr::ints("strides", &kernel)]);
        } else {
            let one = |v: &[usize], i: usize| v.get(i).copied().unwrap_or(1);
            let mut after = Vec::new();
            for (a, n) in size.iter().enumerate() {
                let reach = one(&self.dilation, a) * (self.kernel[a] - 1) + 1;
                let end = self.out[a].saturating_sub(1) * one(&self.stride, a) + reach;
                let begin = self.before.get(a).copied().unwrap_or(0);
                after.push(end.saturating_sub(begin + n));
            }
            let mut pads: Vec<usize> = (0..size.len()).map(|a| self.before.get(a).copied().unwrap_or(0)).collect();
            pads.extend(after);
            attributes.extend([attr::ints("kernel_shape", &self.kernel), attr::ints("pads", &pads)]);
            if !self.stride.is_empty() {
                attributes.push(attr::ints("strides", &self.stride));
            }
            if !self.dilation.is_empty() {
                attributes.push(attr::ints("dilations", &self.dilation));
            }
        }
        let y = c.nodes("MaxPool", &[Some(&x)], attributes, 2);
        let mut places = y[1].clone();
        for (a, out) in self.out.iter().enumerate() {
            places = c.slice(&places, a + 2, 0, *out)?;
        }
        let plane = c.int(size.iter().product::<usize>() as i64);
        Ok(vec![c.op("Mod", &[&places, &plane])])
    }
}
