//! Rearrangements of pixels and channels, and windows as an axis.

use remat_ops::shape::Reshape;
use remat_types::{DType, Error, ErrorKind, Padding, Result, axis_of};

use super::{product, rank_at_least, rank_is, wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// Windows that slide over the last two axes: of [`Tensor::unfold`], [`Tensor::fold`] and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches {
    /// Extents of a window: height, width.
    pub kernel: [usize; 2],
    /// Places from one window to the next. Default: 1.
    pub stride: [usize; 2],
    /// Zeros around the image. Default: none.
    pub padding: Padding,
    /// Places from one element of a window to the next. Default: 1.
    pub dilation: [usize; 2],
}

impl Patches {
    /// Windows of `kernel` one place apart, without padding.
    pub fn new(kernel: [usize; 2]) -> Patches {
        Patches { kernel, stride: [1, 1], padding: Padding::NONE, dilation: [1, 1] }
    }

    /// How many windows there are on an image of `size`, down and across. Errors: Value, Shape.
    pub fn out(&self, size: [usize; 2]) -> Result<[usize; 2]> {
        Ok(self.on(size)?.1)
    }

    /// Extents of the padded image, and how many windows there are down and across. Errors: Value, Shape.
    pub(super) fn on(&self, size: [usize; 2]) -> Result<([usize; 2], [usize; 2])> {
        let (mut padded, mut out) = ([0; 2], [0; 2]);
        for a in 0..2 {
            let (kernel, stride, dilation) = (self.kernel[a], self.stride[a], self.dilation[a]);
            if kernel == 0 || stride == 0 || dilation == 0 {
                let text = format!("a kernel of {kernel}, a stride of {stride}, a dilation of {dilation}: at least 1");
                return Err(wrong_value(text));
            }
            let [before, after] = self.padding.axis(a);
            padded[a] = product(&[size[a].saturating_add(before).saturating_add(after)])?;
            let reach = (kernel - 1).saturating_mul(dilation).saturating_add(1);
            if padded[a] < reach {
                return Err(wrong_shape(format!("a window of {reach} places does not fit {} of axis {a}", padded[a])));
            }
            out[a] = (padded[a] - reach) / stride + 1;
        }
        Ok((padded, out))
    }

    /// The place in the flat padded image of each element of each window: `[kh kw, oh ow]`.
    fn places(&self, like: &Tensor, padded: [usize; 2], out: [usize; 2]) -> Result<Tensor> {
        let axis = |a: usize| -> Result<Tensor> {
            let steps =
                |n: usize, step: usize| Tensor::arange(&like.device(), 0, end(n, step), step as i64, DType::I64);
            let (taps, windows) = (steps(self.kernel[a], self.dilation[a])?, steps(out[a], self.stride[a])?);
            taps.unsqueeze(1)? + windows
        };
        let (down, across) = ((axis(0)? * padded[1] as i64)?, axis(1)?);
        let all = (down.unsqueeze(1)?.unsqueeze(3)? + across.unsqueeze(1)?.unsqueeze(0)?)?;
        Tensor::apply_owned(Reshape { shape: [product(&self.kernel)?, product(&out)?].into() }, [all])
    }
}

/// The bound that `n` steps do not reach.
fn end(n: usize, step: usize) -> i64 {
    n.saturating_mul(step).min(i64::MAX as usize) as i64
}

impl Tensor {
    /// `r^2` channels as the pixels of an `r` times larger image: `[.., c r r, h, w]` to `[.., c, h r, w r]` (Shi et al., CVPR
    /// 2016). Errors: Axis below rank 3; Value for an `r` of 0, or if its square does not divide the channels.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6, 7, 8], [4, 1, 2])?;
    /// let y = x.pixel_shuffle(2)?;
    /// assert_eq!((y.dims(), y.to_vec::<i32>()?), (&[1, 2, 4][..], vec![1, 3, 2, 4, 5, 7, 6, 8]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn pixel_shuffle(&self, r: usize) -> Result<Tensor> {
        const NAME: &str = "pixel_shuffle";
        rank_at_least(self, 3).in_op(NAME)?;
        let (lead, c, h, w) = image(self);
        if r == 0 || !c.is_multiple_of(r.saturating_mul(r)) {
            return Err(wrong_value(format!("{r} squared does not divide {c} channels"))).in_op(NAME);
        }
        let n = product(lead).in_op(NAME)?;
        let split = Tensor::apply1(Reshape { shape: [n, c / (r * r), r, r, h, w].into() }, &[self])?;
        let apart = split.permute(&[0, 1, 4, 2, 5, 3])?;
        Tensor::apply_owned(Reshape { shape: with(lead, [c / (r * r), h * r, w * r]) }, [apart])
    }

    /// The reverse of [`Tensor::pixel_shuffle`]: `[.., c, h r, w r]` to `[.., c r r, h, w]`. Errors: Axis below rank 3; Value
    /// for an `r` of 0, or one that does not divide height and width.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 3, 2, 4, 5, 7, 6, 8], [1, 2, 4])?;
    /// assert_eq!(x.pixel_unshuffle(2)?.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6, 7, 8]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Tensor> {
        const NAME: &str = "pixel_unshuffle";
        let (apart, lead, [c, h, w]) = self.blocks(r, NAME)?;
        let channels = product(&[c, r, r]).in_op(NAME)?;
        Tensor::apply_owned(Reshape { shape: with(&lead, [channels, h, w]) }, [apart.permute(&[0, 1, 3, 5, 2, 4])?])
    }

    /// Blocks of `r` by `r` pixels as channels, the block first and the old channels within: `[n, c, h r, w r]` to
    /// `[n, r r c, h, w]` (ONNX's SpaceToDepth). Errors: Axis below rank 3; Value as [`Tensor::pixel_unshuffle`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6, 7, 8], [2, 2, 2])?;
    /// assert_eq!(x.space_to_depth(2)?.to_vec::<i32>()?, [1, 5, 2, 6, 3, 7, 4, 8]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn space_to_depth(&self, r: usize) -> Result<Tensor> {
        const NAME: &str = "space_to_depth";
        let (apart, lead, [c, h, w]) = self.blocks(r, NAME)?;
        let channels = product(&[c, r, r]).in_op(NAME)?;
        Tensor::apply_owned(Reshape { shape: with(&lead, [channels, h, w]) }, [apart.permute(&[0, 3, 5, 1, 2, 4])?])
    }

    /// The reverse of [`Tensor::space_to_depth`]: `[n, r r c, h, w]` to `[n, c, h r, w r]`; ONNX's DepthToSpace in its mode DCR.
    /// [`Tensor::pixel_shuffle`] is its mode CRD. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 5, 2, 6, 3, 7, 4, 8], [8, 1, 1])?;
    /// assert_eq!(x.depth_to_space(2)?.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6, 7, 8]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn depth_to_space(&self, r: usize) -> Result<Tensor> {
        const NAME: &str = "depth_to_space";
        rank_at_least(self, 3).in_op(NAME)?;
        let (lead, c, h, w) = image(self);
        if r == 0 || !c.is_multiple_of(r.saturating_mul(r)) {
            return Err(wrong_value(format!("{r} squared does not divide {c} channels"))).in_op(NAME);
        }
        let n = product(lead).in_op(NAME)?;
        let split = Tensor::apply1(Reshape { shape: [n, r, r, c / (r * r), h, w].into() }, &[self])?;
        let apart = split.permute(&[0, 3, 4, 1, 5, 2])?;
        Tensor::apply_owned(Reshape { shape: with(lead, [c / (r * r), h * r, w * r]) }, [apart])
    }

    /// `[n, c, h, r, w, r]`, the extents in front, and `[c, h, w]`. Errors: Axis, Value.
    #[track_caller]
    fn blocks(&self, r: usize, op: &str) -> Result<(Tensor, Vec<usize>, [usize; 3])> {
        rank_at_least(self, 3).in_op(op)?;
        let (lead, c, h, w) = image(self);
        if r == 0 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
            return Err(wrong_value(format!("{r} does not divide an image of {h} by {w}"))).in_op(op);
        }
        let n = product(lead).in_op(op)?;
        let apart = Tensor::apply1(Reshape { shape: [n, c, h / r, r, w / r, r].into() }, &[self])?;
        Ok((apart, lead.to_vec(), [c, h / r, w / r]))
    }

    /// The channels (axis 1) of `groups` groups dealt out in turn: channel `i` of group `g` becomes channel `i groups + g`
    /// (Zhang et al., CVPR 2018). Errors: Axis below rank 2; Value unless `groups` divides the channels.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [1, 6])?;
    /// assert_eq!(x.channel_shuffle(2)?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        const NAME: &str = "channel_shuffle";
        rank_at_least(self, 2).in_op(NAME)?;
        let (n, c) = (self.dims()[0], self.dims()[1]);
        if groups == 0 || !c.is_multiple_of(groups) {
            return Err(wrong_value(format!("{groups} groups do not divide {c} channels"))).in_op(NAME);
        }
        let rest = product(&self.dims()[2..]).in_op(NAME)?;
        let split = Tensor::apply1(Reshape { shape: [n, groups, c / groups, rest].into() }, &[self])?;
        Tensor::apply_owned(Reshape { shape: self.shape().clone() }, [split.permute(&[0, 2, 1, 3])?])
    }

    /// Turned by `quarters` right angles in the plane of two axes, from the first towards the second, as NumPy's `rot90`.
    /// Errors: Axis if out of range, or twice the same.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// assert_eq!(x.rot90(1, [0, 1])?.to_vec::<i32>()?, [2, 4, 1, 3]);
    /// assert_eq!(x.rot90(-1, [0, 1])?.to_vec::<i32>()?, [3, 1, 4, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rot90(&self, quarters: isize, axes: [isize; 2]) -> Result<Tensor> {
        let [a, b] = axes;
        let (from, to) = (axis_of(a, self.rank()).in_op("rot90")?, axis_of(b, self.rank()).in_op("rot90")?);
        if from == to {
            let text = format!("a plane of axis {from} alone");
            return Err(Error::new(ErrorKind::Axis, text)).in_op("rot90");
        }
        match quarters.rem_euclid(4) {
            1 => self.flip(&[b])?.transpose(a, b),
            2 => self.flip(&[a, b]),
            3 => self.transpose(a, b)?.flip(&[b]),
            _ => Ok(self.clone()),
        }
    }

    /// Every window of an image as a column: `[n, c, h, w]` to `[n, c kh kw, oh ow]` (im2col), as PyTorch's `unfold`.
    ///
    /// Errors: Axis for another rank; Value for a kernel, stride or dilation of 0; Shape if no window fits.
    ///
    /// ```
    /// # use remat_tensor::{Patches, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [1, 1, 2, 3])?;
    /// let y = x.unfold(Patches::new([2, 2]))?;
    /// assert_eq!((y.dims(), y.to_vec::<i32>()?), (&[1, 4, 2][..], vec![1, 2, 2, 3, 4, 5, 5, 6]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "im2col")]
    #[track_caller]
    pub fn unfold(&self, patches: Patches) -> Result<Tensor> {
        let (columns, _) = self.columns(patches, "unfold")?;
        let (n, c, k, l) = (columns.dims()[0], columns.dims()[1], columns.dims()[2], columns.dims()[3]);
        Tensor::apply_owned(Reshape { shape: [n, c * k, l].into() }, [columns])
    }

    /// Every window of an image: `[n, c, h, w]` to `[n, c, oh, ow, kh, kw]` (MegEngine's `sliding_window`). Errors: as
    /// [`Tensor::unfold`].
    ///
    /// ```
    /// # use remat_tensor::{Patches, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [1, 1, 2, 3])?;
    /// let y = x.sliding_window(Patches::new([2, 2]))?;
    /// assert_eq!((y.dims(), y.to_vec::<i32>()?), (&[1, 1, 1, 2, 2, 2][..], vec![1, 2, 4, 5, 2, 3, 5, 6]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn sliding_window(&self, patches: Patches) -> Result<Tensor> {
        let (columns, [oh, ow]) = self.columns(patches, "sliding_window")?;
        let (n, c, [kh, kw]) = (columns.dims()[0], columns.dims()[1], patches.kernel);
        let apart = Tensor::apply_owned(Reshape { shape: [n, c, kh, kw, oh, ow].into() }, [columns])?;
        apart.permute(&[0, 1, 4, 5, 2, 3])
    }

    /// `[n, c, kh kw, oh ow]`, and `[oh, ow]`.
    #[track_caller]
    pub(super) fn columns(&self, patches: Patches, op: &str) -> Result<(Tensor, [usize; 2])> {
        rank_is(self, 4).in_op(op)?;
        let [n, c, h, w] = self.dims_n()?;
        let (padded, out) = patches.on([h, w]).in_op(op)?;
        let places = patches.places(self, padded, out).in_op(op)?;
        let Padding { begin: [top, left], end: [bottom, right] } = patches.padding;
        let x = if patches.padding.is_none() {
            self.clone()
        } else {
            self.pad(&[(0, 0), (0, 0), (top, bottom), (left, right)], 0)?
        };
        let flat = Tensor::apply_owned(Reshape { shape: [n, c, padded[0] * padded[1]].into() }, [x])?;
        Ok((flat.take(2, &places).called(op)?, out))
    }

    /// The sum of all columns in their windows: `[n, c kh kw, oh ow]` to `[n, c, h, w]` of `size` (col2im), the transpose of
    /// [`Tensor::unfold`], as PyTorch's `fold`. Errors: Axis, Value, Shape.
    ///
    /// ```
    /// # use remat_tensor::{Patches, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0], [1, 4, 2])?;
    /// assert_eq!(x.fold([2, 3], Patches::new([2, 2]))?.to_vec::<f32>()?, [1.0, 4.0, 3.0, 4.0, 10.0, 6.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "col2im")]
    #[track_caller]
    pub fn fold(&self, size: [usize; 2], patches: Patches) -> Result<Tensor> {
        rank_is(self, 3).in_op("fold")?;
        let [n, ck, l] = self.dims_n()?;
        let k = product(&patches.kernel).in_op("fold")?;
        if k == 0 || !ck.is_multiple_of(k) {
            let text = format!("a window of {k} elements does not divide axis 1 of shape {}", self.shape());
            return Err(wrong_shape(text)).in_op("fold");
        }
        let columns = Tensor::apply1(Reshape { shape: [n, ck / k, k, l].into() }, &[self])?;
        columns.folded(size, patches, "fold")
    }

    /// The sum of all windows in their places: `[n, c, oh, ow, kh, kw]` to `[n, c, h, w]` of `size`, the transpose of
    /// [`Tensor::sliding_window`]. Errors: Axis, Value, Shape.
    ///
    /// ```
    /// # use remat_tensor::{Patches, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0; 8], [1, 1, 1, 2, 2, 2])?;
    /// let y = x.sliding_window_transpose([2, 3], Patches::new([2, 2]))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn sliding_window_transpose(&self, size: [usize; 2], patches: Patches) -> Result<Tensor> {
        const NAME: &str = "sliding_window_transpose";
        rank_is(self, 6).in_op(NAME)?;
        let [n, c, oh, ow, kh, kw] = self.dims_n()?;
        if [kh, kw] != patches.kernel {
            let text = format!("windows of shape {} for a kernel of {:?}", self.shape(), patches.kernel);
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let apart = self.permute(&[0, 1, 4, 5, 2, 3])?;
        let columns = Tensor::apply_owned(Reshape { shape: [n, c, kh * kw, oh * ow].into() }, [apart])?;
        columns.folded(size, patches, NAME)
    }

    /// `[n, c, kh kw, oh ow]` added up in an image of `size`.
    #[track_caller]
    fn folded(&self, size: [usize; 2], patches: Patches, op: &str) -> Result<Tensor> {
        let [n, c, k, l] = self.dims_n()?;
        let (padded, out) = patches.on(size).in_op(op)?;
        if out[0].checked_mul(out[1]) != Some(l) {
            let text = format!("{l} windows, but {} by {} fit an image of {size:?}", out[0], out[1]);
            return Err(wrong_shape(text)).in_op(op);
        }
        let places = patches.places(self, padded, out).in_op(op)?.flatten_from(0)?;
        let pixels = product(&padded).in_op(op)?;
        // sums of 16-bit floats are rounded once
        let wide = if matches!(self.dtype(), DType::F16 | DType::BF16) { self.cast(DType::F32)? } else { self.clone() };
        let src = Tensor::apply_owned(Reshape { shape: [n, c, k * l].into() }, [wide])?;
        let zeros = Tensor::zeros(&self.device(), [n, c, pixels], src.dtype()).in_op(op)?;
        let flat = zeros.index_add(2, &places, &src).called(op)?;
        let image = Tensor::apply_owned(Reshape { shape: [n, c, padded[0], padded[1]].into() }, [flat])?;
        let [top, left] = patches.padding.begin;
        let inner = image.narrow(2, top as isize, size[0])?.narrow(3, left as isize, size[1])?;
        inner.cast(self.dtype())
    }
}

/// The extents in front of the last three, and those.
fn image(x: &Tensor) -> (&[usize], usize, usize, usize) {
    let (lead, last) = x.dims().split_at(x.rank() - 3);
    (lead, last[0], last[1], last[2])
}

fn with(lead: &[usize], last: [usize; 3]) -> remat_types::Shape {
    lead.iter().copied().chain(last).collect()
}
