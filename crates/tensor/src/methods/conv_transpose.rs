//! Transposed convolution over one, two and three axes: the gradient of a convolution with respect to its input, as a
//! function of its own.

use remat_ops::conv::{Conv2dInputGrad, Taps};
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_ops::shape::SliceGrad;
use remat_types::{Error, ErrorKind, Result};

use super::conv::{extents, image_of};
use crate::Tensor;
use crate::site::InOp;

/// The operator that spreads `x: [n, c, h, w]` by `weight: [c, k / groups, r, s]`, and the extents of what it makes.
/// Errors: Shape, DType, Value.
fn spread(
    x: (&Tensor, [usize; 4]),
    weight: (&Tensor, [usize; 4]),
    taps: Taps,
    output_padding: [usize; 2],
) -> Result<(Conv2dInputGrad, [usize; 4])> {
    let ([_, c, h, w], [weight_c, _, r, s]) = (x.1, weight.1);
    if c != weight_c {
        let text = format!("x has {c} channels, the weight is for {weight_c}");
        return Err(Error::new(ErrorKind::Shape, text));
    }
    let mut size = [0; 2];
    for (a, (places, kernel)) in [(h, r), (w, s)].into_iter().enumerate() {
        let (stride, dilation, padding, more) = (taps.stride[a], taps.dilation[a], taps.padding[a], output_padding[a]);
        // as many places more would be another output of the convolution that this one is the gradient of
        if more > 0 && more >= stride {
            let text = format!("an output padding of {more} must be less than the stride of {stride}");
            return Err(Error::new(ErrorKind::Value, text));
        }
        // extents that saturate are refused as too large
        let steps = places.saturating_sub(1).saturating_mul(stride);
        let reach = kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1);
        let whole = steps.saturating_add(reach).saturating_add(more);
        size[a] = whole.checked_sub(padding.saturating_mul(2)).filter(|left| *left > 0).ok_or_else(|| {
            let text = format!("a padding of {padding} on both sides leaves nothing of {whole} places");
            Error::new(ErrorKind::Shape, text)
        })?;
    }
    let op = Conv2dInputGrad { taps, size };
    let y = image_of(&op, x, weight)?;
    Ok((op, y))
}

impl Tensor {
    /// Transposed convolution over one axis, as [`Tensor::conv_transpose2d`]: `self: [n, c, l]`,
    /// `weight: [c, k / groups, s]`, to `[n, k, ol]`. Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Taps;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [1, 1, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0], [1, 1, 3])?;
    /// let taps = Taps { stride: [2], ..Taps::PLAIN };
    /// let y = x.conv_transpose1d(&weight, taps, [1])?;
    /// assert_eq!(y.to_vec::<f64>()?, [1.0, 10.0, 102.0, 20.0, 200.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose1d(&self, weight: &Tensor, taps: Taps<1>, output_padding: [usize; 1]) -> Result<Tensor> {
        const OP: &str = "conv_transpose1d";
        let [n, c, l] = extents(self, "x").in_op(OP)?;
        let [weight_c, group_k, s] = extents(weight, "the weight").in_op(OP)?;
        let (x, w) = ([n, c, 1, l], [weight_c, group_k, 1, s]);
        let (op, y) = spread((self, x), (weight, w), taps.across(), [0, output_padding[0]]).in_op(OP)?;
        Tensor::apply_owned(op, [self.shaped(x)?, weight.shaped(w)?])?.shaped([n, y[1], y[3]])
    }

    /// Transposed convolution: each input place spreads over the outputs that its taps reach, the gradient of
    /// [`Tensor::conv2d`] with respect to its input. `self: [n, c, h, w]`, `weight: [c, k / groups, r, s]`, to
    /// `[n, k, oh, ow]` with `oh = (h - 1) stride - 2 padding + dilation (r - 1) + 1 + output_padding`, and `ow` likewise.
    ///
    /// A convolution under a stride has one output size for several input sizes; `output_padding`, less than the stride,
    /// says which of them is meant. Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Taps;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [1, 1, 1, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0, 1000.0], [1, 1, 2, 2])?;
    /// let y = x.conv_transpose2d(&weight, Taps::PLAIN, [0, 0])?;
    /// assert_eq!((y.dims(), y.to_vec::<f64>()?), (&[1, 1, 2, 3][..], vec![1.0, 12.0, 20.0, 100.0, 1200.0, 2000.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose2d(&self, weight: &Tensor, taps: Taps, output_padding: [usize; 2]) -> Result<Tensor> {
        const OP: &str = "conv_transpose2d";
        let (x, w) = (extents(self, "x").in_op(OP)?, extents(weight, "the weight").in_op(OP)?);
        let (op, _) = spread((self, x), (weight, w), taps, output_padding).in_op(OP)?;
        Tensor::apply1(op, &[self, weight])
    }

    /// Transposed convolution over three axes, as [`Tensor::conv_transpose2d`]: `self: [n, c, d, h, w]`,
    /// `weight: [c, k / groups, t, r, s]`, to `[n, k, od, oh, ow]`. Errors: Axis, Shape, DType, Value.
    ///
    /// Each input frame spreads over `t` frames, which are then added where they meet: in between they have about
    /// `t / stride` times the bytes of the result.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Taps;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [1, 1, 2, 1, 1])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0, 1000.0], [1, 1, 2, 1, 2])?;
    /// let y = x.conv_transpose3d(&weight, Taps::PLAIN, [0, 0, 0])?;
    /// assert_eq!((y.dims(), y.to_vec::<f64>()?), (&[1, 1, 3, 1, 2][..], vec![1.0, 10.0, 102.0, 1020.0, 200.0, 2000.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose3d(&self, weight: &Tensor, taps: Taps<3>, output_padding: [usize; 3]) -> Result<Tensor> {
        const OP: &str = "conv_transpose3d";
        let [n, c, d, h, w] = extents(self, "x").in_op(OP)?;
        let [weight_c, group_k, t, r, s] = extents(weight, "the weight").in_op(OP)?;
        let [more, plane @ ..] = output_padding;
        let depth = [weight_c, group_k, t, 1];
        let (_, [_, k, od, _]) = spread((self, [n, c, d, 1]), (weight, depth), taps.down(), [more, 0]).in_op(OP)?;
        let (frames, kernel) = ([n.saturating_mul(d), c, h, w], [weight_c, group_k.saturating_mul(t), r, s]);
        let (op, [_, _, oh, ow]) = spread((self, frames), (weight, kernel), taps.plane(), plane).in_op(OP)?;
        let x = self.permute(&[0, 2, 1, 3, 4])?.shaped(frames)?;
        let y = Tensor::apply_owned(op, [x, weight.shaped(kernel)?])?.shaped([n, d, k, t, oh, ow])?;
        y.added_up(taps.down(), od, more)
    }

    /// Of `[n, d, k, t, h, w]`, the sums `[n, k, od, h, w]` of what each tap `t` of each `d` adds to an output frame.
    #[track_caller]
    fn added_up(&self, down: Taps, od: usize, more: usize) -> Result<Tensor> {
        let ([stride, _], [padding, _], [dilation, _]) = (down.stride, down.padding, down.dilation);
        let [n, d, k, t, h, w] = extents(self, "y")?;
        let y = if (stride, dilation) == (t, 1) {
            // no two taps meet
            let y = self.permute(&[0, 2, 1, 3, 4, 5])?.shaped([n, k, d * t, h, w])?;
            if more == 0 { y } else { y.pad(&[(0, 0), (0, 0), (0, more), (0, 0), (0, 0)], 0)? }
        } else {
            let step = isize::try_from(stride).map_err(|_| Error::new(ErrorKind::Shape, "the stride is too large"))?;
            let extent = od + 2 * padding;
            let tap = |i: usize| {
                let frames = self.narrow(3, i as isize, 1)?.shaped([n, d, k, h, w])?.permute(&[0, 2, 1, 3, 4])?;
                Tensor::apply_owned(SliceGrad { axis: 2, start: i * dilation, step, extent }, [frames])
            };
            (1..t).try_fold(tap(0)?, |y, i| Tensor::apply_owned(Binary { f: BinaryFn::Add }, [y, tap(i)?]))?
        };
        if padding == 0 { Ok(y) } else { y.narrow(2, padding as isize, od) }
    }
}
