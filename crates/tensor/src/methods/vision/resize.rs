//! Images of another size.

use remat_ops::vision::{Resample, ResampleRule};
use remat_types::{DType, Error, ErrorKind, Result};

use super::{wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// The interpolation between pixels when an image is made larger or smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolate {
    /// The pixel at `floor(o scale)`.
    #[default]
    Nearest,
    /// The pixel nearest to the middle of the new one, as in PIL.
    NearestExact,
    /// A line between neighbours, along each axis: bilinear of images, trilinear of volumes.
    Linear,
    /// Keys' cubic through four neighbours, along each of one or two axes: bicubic.
    Cubic,
    /// The mean of what the new pixel covers.
    Area,
}

/// How large the result of [`Tensor::interpolate`] is.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// These extents of the spatial axes.
    To(Vec<usize>),
    /// So many times the extents, rounded down; a single number stands for all axes.
    By(Vec<f64>),
}

/// How [`Tensor::interpolate`] lays one grid over the other. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterpolateOptions {
    /// The interpolation between pixels. Default: the nearest pixel.
    pub mode: Interpolate,
    /// The middles of the corner pixels lie on one another, of linear and cubic interpolation; else the image's edges do (half
    /// pixels). Default: false.
    pub align_corners: bool,
    /// Smooths an image that is made smaller, for linear and cubic interpolation. Default: false.
    pub antialias: bool,
    /// Takes the scale from the extents where factors were given. Default: false.
    pub recompute_scale: bool,
}

impl InterpolateOptions {
    /// The defaults with a mode.
    pub fn with_mode(mode: Interpolate) -> Self {
        InterpolateOptions { mode, ..InterpolateOptions::default() }
    }
}

impl Tensor {
    /// An image of another size: `[n, c, size..]` of one to three spatial axes, each interpolated by itself. `Nearest` and
    /// `NearestExact` take any dtype, the others floats, and of 16-bit floats compute in f32.
    ///
    /// Errors: Axis for another rank; DType; Shape for another number of extents, or an axis without elements; Value for factors
    /// that are not above 0, `Cubic` of three axes, and options that a mode has not.
    ///
    /// ```
    /// # use remat_tensor::{Interpolate, InterpolateOptions, Sizes, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 4.0], [1, 1, 2])?;
    /// let y = x.interpolate(Sizes::To(vec![4]), InterpolateOptions::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 4.0, 4.0]);
    /// let y = x.interpolate(Sizes::By(vec![2.0]), InterpolateOptions::with_mode(Interpolate::Linear))?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "upsample")]
    #[track_caller]
    pub fn interpolate(&self, sizes: Sizes, options: InterpolateOptions) -> Result<Tensor> {
        const NAME: &str = "interpolate";
        let plan = self.resizing(&sizes, options).in_op(NAME)?;
        if matches!(options.mode, Interpolate::Nearest | Interpolate::NearestExact) {
            let exact = options.mode == Interpolate::NearestExact;
            let step =
                |x: Tensor, (axis, out, scale): &(usize, usize, f64)| x.nearest_along(*axis, *out, *scale, exact);
            return plan.iter().try_fold(self.clone(), step).called(NAME);
        }
        let wide = matches!(self.dtype(), DType::F16 | DType::BF16);
        let x = if wide { self.cast(DType::F32)? } else { self.clone() };
        let mut steps: Vec<(Resample, bool)> = Vec::new();
        for (axis, out, scale) in plan {
            let size = self.dims()[axis];
            let rule = rule(options, size, out, scale);
            steps.push((Resample { axis, size, out, rule, transposed: false }, out <= size));
        }
        // what becomes smaller comes first, so that the other axes have less to do
        steps.sort_by_key(|(_, shrinks)| !*shrinks);
        let is_idle =
            |op: &Resample| op.size == op.out && !matches!(op.rule, ResampleRule::Sum { .. }) && is_identity(op.rule);
        let steps = steps.into_iter().map(|(op, _)| op).filter(|op| !is_idle(op));
        let y = steps.map(Ok).try_fold(x, |x, op: Result<Resample>| Tensor::apply_owned(op?, [x])).called(NAME)?;
        y.cast(self.dtype())
    }

    /// Axis, new extent and input places of an output place, of each axis. Errors: Axis, Shape, Value, DType.
    fn resizing(&self, sizes: &Sizes, options: InterpolateOptions) -> Result<Vec<(usize, usize, f64)>> {
        let InterpolateOptions { mode, align_corners, antialias, recompute_scale } = options;
        if !(3..=5).contains(&self.rank()) {
            let text = format!("x has shape {}: rank {}, not 3 to 5", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text));
        }
        let size = &self.dims()[2..];
        let smooth = matches!(mode, Interpolate::Linear | Interpolate::Cubic);
        if (align_corners || antialias) && !smooth {
            return Err(wrong_value(format!("{mode:?} neither aligns corners nor smooths")));
        }
        if (smooth || mode == Interpolate::Area) && !self.dtype().is_float() {
            return Err(Error::new(ErrorKind::DType, format!("{mode:?} is not defined for {}", self.dtype())));
        }
        if (mode == Interpolate::Cubic || antialias) && size.len() == 3 {
            return Err(wrong_value(format!("{mode:?}, smooth: {antialias}, of three axes")));
        }
        let (outs, factors): (Vec<usize>, Vec<Option<f64>>) = match sizes {
            Sizes::To(outs) => (outs.clone(), vec![None; outs.len()]),
            Sizes::By(factors) => {
                let factors = if factors.len() == 1 { vec![factors[0]; size.len()] } else { factors.clone() };
                if let Some(f) = factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
                    return Err(wrong_value(format!("a factor of {f}, not above 0")));
                }
                let outs: Vec<f64> = size.iter().zip(&factors).map(|(d, f)| (*d as f64 * f).floor()).collect();
                if let Some(out) = outs.iter().find(|out| **out >= isize::MAX as f64) {
                    return Err(wrong_shape(format!("an extent of {out} cannot be addressed")));
                }
                let kept = |f: f64| if recompute_scale { None } else { Some(f) };
                (outs.into_iter().map(|out| out as usize).collect(), factors.into_iter().map(kept).collect())
            }
        };
        if outs.len() != size.len() {
            return Err(wrong_shape(format!("{} extents for {} spatial axes", outs.len(), size.len())));
        }
        if size.contains(&0) && outs.iter().all(|out| *out > 0) {
            return Err(wrong_shape(format!("an image of shape {} has no pixels", self.shape())));
        }
        let each = outs.iter().zip(factors).enumerate();
        Ok(each.map(|(a, (out, f))| (a + 2, *out, f.map_or(size[a] as f64 / *out as f64, |f| 1.0 / f))).collect())
    }

    /// The pixel at `floor(o scale)` of each place of `axis`, or if `exact` at `floor((o + 1/2) scale)`.
    #[track_caller]
    fn nearest_along(&self, axis: usize, out: usize, scale: f64, exact: bool) -> Result<Tensor> {
        let size = self.dims()[axis];
        if size == out && scale == 1.0 {
            return Ok(self.clone());
        }
        let places = Tensor::arange(&self.device(), 0, i64::try_from(out).unwrap_or(i64::MAX), 1, DType::I64)?;
        let middle = if exact { 0.5 } else { 0.0 };
        let at = ((places.cast(DType::F64)? + middle)? * scale)?.floor()?.cast(DType::I64)?;
        self.take(axis as isize, &at.minimum(size as i64 - 1)?)
    }

    /// MegEngine's `resize`: `size` are the new extents of the last two axes of `[n, c, h, w]`, half pixels apart. Errors: as
    /// [`Tensor::interpolate`].
    ///
    /// ```
    /// # use remat_tensor::{Interpolate, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 4.0], [1, 1, 1, 2])?;
    /// assert_eq!(x.resize([1, 4], Interpolate::Linear)?.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn resize(&self, size: [usize; 2], mode: Interpolate) -> Result<Tensor> {
        self.interpolate(Sizes::To(size.to_vec()), InterpolateOptions::with_mode(mode)).called("resize")
    }
}

/// The rule along an axis of `size` places that becomes one of `out`, `scale` places of it apart.
fn rule(options: InterpolateOptions, size: usize, out: usize, scale: f64) -> ResampleRule {
    let InterpolateOptions { mode, align_corners, antialias, .. } = options;
    let (scale, shift) = match align_corners {
        // a single place of all lies on the first one
        true if out > 1 => (((size - 1) as f64 / (out - 1) as f64).max(f64::MIN_POSITIVE), 0.0),
        true => (f64::MIN_POSITIVE, 0.0),
        false => (scale, 0.5 * scale - 0.5),
    };
    let (scale, shift) = (scale.into(), shift.into());
    match (mode, antialias) {
        (Interpolate::Area, _) => ResampleRule::Mean,
        (Interpolate::Cubic, false) => ResampleRule::Cubic { scale, shift },
        (Interpolate::Cubic, true) => ResampleRule::SmoothCubic { scale },
        (_, true) => ResampleRule::SmoothLinear { scale },
        (_, false) => ResampleRule::Linear { scale, shift },
    }
}

/// Whether a rule that keeps the extent changes nothing.
fn is_identity(rule: ResampleRule) -> bool {
    match rule {
        ResampleRule::Linear { scale, shift } | ResampleRule::Cubic { scale, shift } => {
            scale.to_f64() == 1.0 && shift.to_f64() == 0.0
        }
        ResampleRule::SmoothLinear { scale } | ResampleRule::SmoothCubic { scale } => scale.to_f64() == 1.0,
        ResampleRule::Mean => true,
        ResampleRule::Sum { .. } => false,
    }
}
