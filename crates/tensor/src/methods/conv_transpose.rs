//! Transposed convolution over one, two and three axes.

use remat_ops::compose;
use remat_ops::conv::ConvParams;
use remat_types::Result;

use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// Transposed convolution over one axis, as [`Tensor::conv_transpose2d`]: `self: [n, c, l]`,
    /// `weight: [c, k / groups, s]`, to `[n, k, ol]`. Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::ConvParams;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [1, 1, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0], [1, 1, 3])?;
    /// let taps = ConvParams { stride: [2], ..ConvParams::PLAIN };
    /// let y = x.conv_transpose1d(&weight, taps, [1])?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 10.0, 102.0, 20.0, 200.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose1d(&self, weight: &Tensor, taps: ConvParams<1>, output_padding: [usize; 1]) -> Result<Tensor> {
        let (cx, x) = (TapeCx::of(self), self.clone());
        compose::conv_transpose1d(&cx, x, weight.clone(), taps, output_padding).in_op("conv_transpose1d")
    }

    /// Transposed convolution: each input place spreads over the outputs that its taps reach, the gradient of
    /// [`Tensor::conv2d`] with respect to its input. `self: [n, c, h, w]`, `weight: [c, k / groups, r, s]`, to
    /// `[n, k, oh, ow]` with `oh = (h - 1) stride - padding + dilation (r - 1) + 1 + output_padding`, where `padding` is that of
    /// both sides, and `ow` likewise.
    ///
    /// A convolution under a stride has one output size for several input sizes; `output_padding`, less than the stride,
    /// says which of them is meant. Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::ConvParams;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [1, 1, 1, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0, 1000.0], [1, 1, 2, 2])?;
    /// let y = x.conv_transpose2d(&weight, ConvParams::PLAIN, [0, 0])?;
    /// assert_eq!((y.dims(), y.to_vec::<f32>()?), (&[1, 1, 2, 3][..], vec![1.0, 12.0, 20.0, 100.0, 1200.0, 2000.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose2d(&self, weight: &Tensor, taps: ConvParams, output_padding: [usize; 2]) -> Result<Tensor> {
        let (cx, x) = (TapeCx::of(self), self.clone());
        compose::conv_transpose2d(&cx, x, weight.clone(), taps, output_padding).in_op("conv_transpose2d")
    }

    /// Transposed convolution over three axes, as [`Tensor::conv_transpose2d`]: `self: [n, c, d, h, w]`,
    /// `weight: [c, k / groups, t, r, s]`, to `[n, k, od, oh, ow]`. Errors: Axis, Shape, DType, Value.
    ///
    /// Each input frame spreads over `t` frames, which are then added where they meet: in between they have about
    /// `t / stride` times the bytes of the result.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::ConvParams;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [1, 1, 2, 1, 1])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0, 1000.0], [1, 1, 2, 1, 2])?;
    /// let y = x.conv_transpose3d(&weight, ConvParams::PLAIN, [0, 0, 0])?;
    /// assert_eq!((y.dims(), y.to_vec::<f32>()?), (&[1, 1, 3, 1, 2][..], vec![1.0, 10.0, 102.0, 1020.0, 200.0, 2000.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv_transpose3d(&self, weight: &Tensor, taps: ConvParams<3>, output_padding: [usize; 3]) -> Result<Tensor> {
        let (cx, x) = (TapeCx::of(self), self.clone());
        compose::conv_transpose3d(&cx, x, weight.clone(), taps, output_padding).in_op("conv_transpose3d")
    }
}
