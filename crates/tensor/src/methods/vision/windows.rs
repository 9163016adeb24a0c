//! Products with windows that are no plain convolution: of deformed kernels, of kernels that differ from place to place, within
//! regions, and of one image with another.

use remat_ops::shape::Reshape;
use remat_ops::vision::{Beyond, Resample, ResampleRule};
use remat_types::{Error, ErrorKind, Result};

use super::sample::{Warp, point_dtype};
use super::shuffle::Patches;
use super::{product, rank_is, wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// How [`Tensor::correlation`] compares two images. Names are MegEngine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correlation {
    /// Extent of the patches, an odd number. Default: 1.
    pub kernel: usize,
    /// How far apart they are at most. Default: 1.
    pub max_displacement: usize,
    /// Places from one patch of the first image to the next. Default: 1.
    pub stride1: usize,
    /// Places from one displacement to the next. Default: 1.
    pub stride2: usize,
    /// Zeros around both images. Default: 0.
    pub padding: usize,
    /// Products are added up; else the absolute differences. Default: true.
    pub is_multiply: bool,
}

impl Default for Correlation {
    fn default() -> Self {
        Correlation { kernel: 1, max_displacement: 1, stride1: 1, stride2: 1, padding: 0, is_multiply: true }
    }
}

/// Displacements each way that [`Tensor::correlation`] takes: each pair of them is a product of its own.
const MOST_STEPS: usize = 64;

impl Tensor {
    /// A convolution whose taps are moved by `offset`, and weighted by `mask` if there is one (Dai et al., ICCV 2017; Zhu et
    /// al., CVPR 2019). `self: [n, c, h, w]`, `weight: [k, c / groups, r, s]`, `offset: [n, 2 g r s, oh, ow]`, down and
    /// across for each tap of each of `g` groups of channels, `mask: [n, g r s, oh, ow]`, to `[n, k, oh, ow]`. `patches` has
    /// stride, padding and dilation.
    ///
    /// Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::{Patches, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 4.0], [1, 1, 1, 3])?;
    /// let weight = Tensor::new(&device, &[10.0], [1, 1, 1, 1])?;
    /// let offset = Tensor::new(&device, &[0.0, 0.0, 0.0, 0.5, 0.5, 0.0], [1, 2, 1, 3])?;
    /// let y = x.deform_conv2d(&offset, &weight, None, Patches::new([1, 1]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [15.0, 30.0, 40.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn deform_conv2d(
        &self,
        offset: &Tensor,
        weight: &Tensor,
        mask: Option<&Tensor>,
        patches: Patches,
    ) -> Result<Tensor> {
        const NAME: &str = "deform_conv2d";
        rank_is(self, 4).in_op(NAME)?;
        rank_is(offset, 4).in_op(NAME)?;
        let ([n, c, h, w], [_, places, oh, ow]) = (self.dims_n()?, offset.dims_n()?);
        let (_, out) = patches.on([h, w]).in_op(NAME)?;
        let taps = product(&patches.kernel).in_op(NAME)?;
        let g = places / (2 * taps).max(1);
        let mask_is = mask.is_none_or(|m| m.dims() == [n, g * taps, oh, ow]);
        if [oh, ow] != out
            || offset.dims()[0] != n
            || g == 0
            || places != 2 * g * taps
            || !c.is_multiple_of(g)
            || !mask_is
        {
            let text = format!(
                "offsets of shape {} and a mask of {:?} for images of shape {} and {taps} taps at {out:?} places",
                offset.shape(),
                mask.map(|m| m.dims()),
                self.shape()
            );
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let real = point_dtype(self.dtype());
        let base = |a: usize| -> Result<Tensor> {
            let line = |n: usize, step: usize, first: f64| (self.batch_numbers(n)?.cast(real)? * step as f64)? + first;
            let windows = line(out[a], patches.stride[a], -(patches.padding.begin[a] as f64))?;
            let taps = line(patches.kernel[a], patches.dilation[a], 0.0)?;
            taps.unsqueeze(1)? + windows
        };
        let [r, s] = patches.kernel;
        let whole = |t: Tensor, shape: [isize; 4]| t.reshape(&shape)?.broadcast_to([r, s, oh, ow]);
        let down = whole(base(0)?, [r as isize, 1, oh as isize, 1])?;
        let across = whole(base(1)?, [1, s as isize, 1, ow as isize])?;
        let base = Tensor::stack(&[&down, &across], 2)?;
        let base = Tensor::apply_owned(Reshape { shape: [taps, 2, oh * ow].into() }, [base])?;
        let moved = Tensor::apply1(Reshape { shape: [n * g, taps, 2, oh * ow].into() }, &[&offset.cast(real)?])?;
        let points = (moved + base)?.permute(&[0, 1, 3, 2])?;
        let points = Tensor::apply_owned(Reshape { shape: [n * g, taps * oh * ow, 2].into() }, [points])?;
        let images = Tensor::apply1(Reshape { shape: [n * g, c / g, h, w].into() }, &[self])?;
        let warp = Warp { beyond: Beyond::Zeros, ..Warp::default() };
        let mut columns = images.at_points(&points, &self.batch_numbers(n * g)?, warp).called(NAME)?;
        if let Some(mask) = mask {
            columns = (columns * Tensor::apply1(Reshape { shape: [n * g, 1, taps * oh * ow].into() }, &[mask])?)?;
        }
        let columns = Tensor::apply_owned(Reshape { shape: [n, c, taps, oh * ow].into() }, [columns])?;
        columns.times_kernel(weight, patches, out).in_op(NAME)
    }

    /// `[n, c, r s, l]` times `weight: [k, c / groups, r, s]`, to `[n, k, out..]`. Errors: Axis, Shape, Value.
    #[track_caller]
    fn times_kernel(&self, weight: &Tensor, patches: Patches, out: [usize; 2]) -> Result<Tensor> {
        rank_is(weight, 4)?;
        let ([n, c, taps, l], [k, each, r, s]) = (self.dims_n()?, weight.dims_n()?);
        let groups = c.checked_div(each).unwrap_or(0);
        if [r, s] != patches.kernel || groups == 0 || groups * each != c || !k.is_multiple_of(groups) {
            let text =
                format!("a weight of shape {} for {c} channels and windows of {:?}", weight.shape(), patches.kernel);
            return Err(wrong_shape(text));
        }
        let columns = Tensor::apply1(Reshape { shape: [n, groups, each * taps, l].into() }, &[self])?;
        let weight = Tensor::apply1(Reshape { shape: [groups, k / groups, each * taps].into() }, &[weight])?;
        let y = weight.matmul(&columns)?;
        Tensor::apply_owned(Reshape { shape: [n, k, out[0], out[1]].into() }, [y])
    }

    /// A convolution with a kernel of its own at each place (a locally connected layer): `self: [n, c, h, w]`, `weight:
    /// [groups, oh, ow, c / groups, r, s, k / groups]`, MegEngine's order, to `[n, k, oh, ow]`. Errors: Axis, Shape, DType,
    /// Value.
    ///
    /// ```
    /// # use remat_tensor::{Patches, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [1, 1, 1, 2])?;
    /// let weight = Tensor::new(&device, &[10.0, 100.0], [1, 1, 2, 1, 1, 1, 1])?;
    /// assert_eq!(x.local_conv2d(&weight, Patches::new([1, 1]))?.to_vec::<f32>()?, [10.0, 200.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn local_conv2d(&self, weight: &Tensor, patches: Patches) -> Result<Tensor> {
        const NAME: &str = "local_conv2d";
        rank_is(weight, 7).in_op(NAME)?;
        let (columns, out) = self.columns(patches, NAME)?;
        let ([n, c, taps, l], [g, oh, ow, each, r, s, k]) = (columns.dims_n()?, weight.dims_n()?);
        if [oh, ow] != out || [r, s] != patches.kernel || g * each != c {
            let text = format!(
                "a weight of shape {} for {c} channels and windows of {:?} at {out:?} places",
                weight.shape(),
                patches.kernel
            );
            return Err(wrong_shape(text)).in_op(NAME);
        }
        // places as a batch
        let columns = Tensor::apply_owned(Reshape { shape: [n, g, each * taps, l].into() }, [columns])?;
        let columns = columns.permute(&[1, 3, 0, 2])?;
        let weight = Tensor::apply1(Reshape { shape: [g, l, each * taps, k].into() }, &[weight])?;
        let y = columns.matmul(&weight).called(NAME)?.permute(&[2, 0, 3, 1])?;
        Tensor::apply_owned(Reshape { shape: [n, g * k, oh, ow].into() }, [y])
    }

    /// A convolution that sees only pixels of the output's own region: an output pixel sees the pixels whose number in
    /// `rin: [n, 1, h, w]` equals its own number in `rout: [n, 1, oh, ow]`. Both are integers. `self: [n, c, h, w]`,
    /// `weight: [k, c / groups, r, s]`, to `[n, k, oh, ow]`. Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::{Patches, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 4.0], [1, 1, 1, 3])?;
    /// let weight = Tensor::new(&device, &[1.0, 1.0], [1, 1, 1, 2])?;
    /// let (rin, rout) = (Tensor::new(&device, &[0, 0, 1], [1, 1, 1, 3])?, Tensor::new(&device, &[0, 0], [1, 1, 1, 2])?);
    /// let y = x.region_restricted_conv(&weight, &rin, &rout, Patches::new([1, 2]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn region_restricted_conv(
        &self,
        weight: &Tensor,
        rin: &Tensor,
        rout: &Tensor,
        patches: Patches,
    ) -> Result<Tensor> {
        const NAME: &str = "region_restricted_conv";
        let (columns, out) = self.columns(patches, NAME)?;
        let [n, _, _, l] = columns.dims_n()?;
        if rin.dims() != [n, 1, self.dims()[2], self.dims()[3]] || rout.dims() != [n, 1, out[0], out[1]] {
            let text = format!("regions of shapes {} and {} for {n} images, {out:?} places", rin.shape(), rout.shape());
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let (regions, _) = rin.columns(patches, NAME)?;
        let own = regions.eq(&Tensor::apply1(Reshape { shape: [n, 1, 1, l].into() }, &[rout])?).called(NAME)?;
        let zero = Tensor::zeros(&self.device(), [], self.dtype())?;
        let seen = own.broadcast_to(columns.shape())?.where_cond(&columns, zero).called(NAME)?;
        seen.times_kernel(weight, patches, out).in_op(NAME)
    }

    /// How alike patches of two images are, for displacements of the second up to `max_displacement` (Dosovitskiy et al.,
    /// ICCV 2015): `[n, c, h, w]` both, to `[n, d d, oh, ow]` with `d = 2 floor(max_displacement / stride2) + 1`, the mean
    /// over the patch and channels. Errors: Axis; Shape for images that differ or are too small; Value.
    ///
    /// ```
    /// # use remat_tensor::{Correlation, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 2.0, 3.0], [1, 1, 1, 3])?;
    /// let y = a.correlation(&a, Correlation { max_displacement: 1, padding: 1, ..Correlation::default() })?;
    /// assert_eq!(y.dims(), [1, 9, 1, 3]);
    /// assert_eq!(y.narrow(1, 3, 3)?.to_vec::<f32>()?, [0.0, 2.0, 6.0, 1.0, 4.0, 9.0, 2.0, 6.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn correlation(&self, other: &Tensor, options: Correlation) -> Result<Tensor> {
        const NAME: &str = "correlation";
        rank_is(self, 4).in_op(NAME)?;
        let Correlation { kernel, max_displacement: far, stride1, stride2, padding: p, is_multiply } = options;
        if other.shape() != self.shape() {
            return Err(wrong_shape(format!("images of shapes {} and {}", self.shape(), other.shape()))).in_op(NAME);
        }
        if kernel.is_multiple_of(2) || stride1 == 0 || stride2 == 0 {
            let text = format!("a kernel of {kernel}, which must be odd, strides of {stride1} and {stride2}");
            return Err(wrong_value(text)).in_op(NAME);
        }
        if !self.dtype().is_float() {
            return Err(Error::new(ErrorKind::DType, format!("is not defined for {}", self.dtype()))).in_op(NAME);
        }
        let [_, c, h, w] = self.dims_n()?;
        // patches of the first image lie so far within that the second one's do, too
        let inner = |d: usize| {
            let room = d.saturating_add(p.saturating_mul(2));
            room.checked_sub(far.saturating_mul(2)).filter(|room| *room >= kernel)
        };
        let (Some(ih), Some(iw)) = (inner(h), inner(w)) else {
            let text =
                format!("images of {h} by {w} are too small for displacements of {far} and a kernel of {kernel}");
            return Err(wrong_shape(text)).in_op(NAME);
        };
        let around = [(0, 0), (0, 0), (p, p), (p, p)];
        let (a, b) = (self.pad(&around, 0)?, other.pad(&around, 0)?);
        let at = |x: &Tensor, top: usize, left: usize| x.narrow(2, top as isize, ih)?.narrow(3, left as isize, iw);
        let first = at(&a, far, far)?;
        let steps = far / stride2;
        if steps > MOST_STEPS {
            return Err(wrong_value(format!("{steps} displacements each way, above {MOST_STEPS}"))).in_op(NAME);
        }
        let places: Vec<usize> = (0..=2 * steps).map(|i| far + i * stride2 - steps * stride2).collect();
        let mut all = Vec::with_capacity(places.len() * places.len());
        for (top, left) in places.iter().flat_map(|top| places.iter().map(move |left| (*top, *left))) {
            let second = at(&b, top, left)?;
            let each = if is_multiply { (&first * second)? } else { (&first - second)?.abs()? };
            all.push(each.sum_over(&[1], true)?);
        }
        let mut y = Tensor::concat(&all.iter().collect::<Vec<_>>(), 1)?;
        for axis in [2, 3] {
            let size = y.dims()[axis];
            let out = (size - kernel) / stride1 + 1;
            let rule = ResampleRule::Sum { kernel, stride: stride1, dilation: 1, before: 0 };
            y = Tensor::apply_owned(Resample { axis, size, out, rule, transposed: false }, [y]).called(NAME)?;
        }
        y / (kernel * kernel * c).max(1) as f64
    }

    /// The colours of images `[n, c, h, w]` in another form. Luma is that of ITU-R BT.601; `U = 0.492 (B - Y) + 0.5` and `V =
    /// 0.877 (R - Y) + 0.5`, as OpenCV has them of floats. Errors: Axis; Shape for other channels; DType for other than
    /// floats.
    ///
    /// ```
    /// # use remat_tensor::{Colour, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 0.0, 0.0], [1, 3, 1, 1])?;
    /// assert_eq!(x.cvt_color(Colour::RgbToGray)?.to_vec::<f32>()?, [0.299]);
    /// assert_eq!(x.cvt_color(Colour::RgbToBgr)?.to_vec::<f32>()?, [0.0, 0.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cvt_color(&self, mode: Colour) -> Result<Tensor> {
        const NAME: &str = "cvt_color";
        rank_is(self, 4).in_op(NAME)?;
        let (rows, bias) = mode.matrix();
        let channels = rows[0].len();
        if self.dims()[1] != channels {
            let text = format!("{mode:?} is of {channels} channels, and shape {} has {}", self.shape(), self.dims()[1]);
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let of = |v: &[f64], shape: &[usize]| Tensor::from_slice(&self.device(), v, shape)?.cast(self.dtype());
        let weight = of(&rows.concat(), &[rows.len(), channels, 1, 1])?;
        let y = self.conv2d(&weight, remat_ops::conv::ConvParams::PLAIN).called(NAME)?;
        if bias.iter().all(|b| *b == 0.0) { Ok(y) } else { y + of(&bias, &[rows.len(), 1, 1])? }
    }
}

/// From which colours to which. Names say both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Colour {
    RgbToGray,
    BgrToGray,
    GrayToRgb,
    GrayToBgr,
    RgbToBgr,
    BgrToRgb,
    RgbToYuv,
    BgrToYuv,
    YuvToRgb,
    YuvToBgr,
}

impl Colour {
    /// A row for each channel of the result, and what is added to it.
    fn matrix(self) -> (Vec<Vec<f64>>, Vec<f64>) {
        const LUMA: [f64; 3] = [0.299, 0.587, 0.114];
        const U: f64 = 0.492;
        const V: f64 = 0.877;
        let swapped = |rows: Vec<Vec<f64>>| rows.into_iter().map(|r| r.into_iter().rev().collect()).collect();
        match self {
            Colour::RgbToGray => (vec![LUMA.to_vec()], vec![0.0]),
            Colour::BgrToGray => (swapped(vec![LUMA.to_vec()]), vec![0.0]),
            Colour::GrayToRgb | Colour::GrayToBgr => (vec![vec![1.0]; 3], vec![0.0; 3]),
            Colour::RgbToBgr | Colour::BgrToRgb => {
                (vec![vec![0.0, 0.0, 1.0], vec![0.0, 1.0, 0.0], vec![1.0, 0.0, 0.0]], vec![0.0; 3])
            }
            Colour::RgbToYuv | Colour::BgrToYuv => {
                let less = |of: [f64; 3], by: f64| of.iter().zip(LUMA).map(|(o, l)| by * (o - l)).collect::<Vec<_>>();
                let rows = vec![LUMA.to_vec(), less([0.0, 0.0, 1.0], U), less([1.0, 0.0, 0.0], V)];
                (if self == Colour::RgbToYuv { rows } else { swapped(rows) }, vec![0.0, 0.5, 0.5])
            }
            Colour::YuvToRgb | Colour::YuvToBgr => {
                let (red, blue) = (vec![1.0, 0.0, 1.0 / V], vec![1.0, 1.0 / U, 0.0]);
                let green = vec![1.0, -LUMA[2] / (U * LUMA[1]), -LUMA[0] / (V * LUMA[1])];
                let rows = if self == Colour::YuvToRgb { vec![red, green, blue] } else { vec![blue, green, red] };
                let bias = rows.iter().map(|r: &Vec<f64>| -0.5 * (r[1] + r[2])).collect();
                (rows, bias)
            }
        }
    }
}
