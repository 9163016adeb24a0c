//! Convolution over one, two and three axes.

use remat_ops::compose;
use remat_ops::conv::{Conv2d, ConvParams};
use remat_types::Result;

use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// Cross-correlation over one axis: `self: [n, c, l]`, `weight: [k, c / groups, s]`, to `[n, k, ol]`; see [`Conv2d`].
    /// Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::ConvParams;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 4])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0], [1, 1, 2])?;
    /// assert_eq!(x.conv1d(&weight, ConvParams::PLAIN)?.to_vec::<f32>()?, [21.0, 32.0, 43.0]);
    /// let taps = ConvParams { stride: [2], padding: [1].into(), ..ConvParams::PLAIN };
    /// assert_eq!(x.conv1d(&weight, taps)?.to_vec::<f32>()?, [10.0, 32.0, 4.0]);
    /// // a place at the end alone, which is what keeps the length here
    /// let taps = ConvParams { padding: [[0, 1]].into(), ..ConvParams::PLAIN };
    /// assert_eq!(taps, ConvParams::PLAIN.with_same_padding([2])?);
    /// assert_eq!(x.conv1d(&weight, taps)?.to_vec::<f32>()?, [21.0, 32.0, 43.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, taps: ConvParams<1>) -> Result<Tensor> {
        compose::conv1d(&TapeCx::of(self), self.clone(), weight.clone(), taps).in_op("conv1d")
    }

    /// Cross-correlation: `self: [n, c, h, w]`, `weight: [k, c / groups, r, s]`, to `[n, k, oh, ow]`; see [`Conv2d`]. Errors:
    /// Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::ConvParams;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0], [1, 1, 1, 2])?;
    /// assert_eq!(x.conv2d(&weight, ConvParams::PLAIN)?.to_vec::<f32>()?, [21.0, 43.0]);
    /// let taps = ConvParams { padding: [0, 1].into(), ..ConvParams::PLAIN };
    /// assert_eq!(x.conv2d(&weight, taps)?.to_vec::<f32>()?, [10.0, 21.0, 2.0, 30.0, 43.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, taps: ConvParams) -> Result<Tensor> {
        Tensor::apply1(Conv2d { taps }, &[self, weight])
    }

    /// Cross-correlation over three axes: `self: [n, c, d, h, w]`, `weight: [k, c / groups, t, r, s]`, to
    /// `[n, k, od, oh, ow]`; depth, height, width, see [`Conv2d`]. Errors: Axis, Shape, DType, Value.
    ///
    /// The `t` input frames of an output frame are gathered as its channels, and one convolution of images follows. The
    /// gathered copy has about `t / stride` times the bytes of the input, as much again while it is made, and is kept for
    /// the weight's gradient; under a budget it is dropped and made again like any value. Kernels of `[t, 1, 1]` that leave
    /// height and width as they are gather nothing.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::ConvParams;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 1, 3, 1, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0, 1000.0], [1, 1, 2, 1, 2])?;
    /// let y = x.conv3d(&weight, ConvParams::PLAIN)?;
    /// assert_eq!((y.dims(), y.to_vec::<f32>()?), (&[1, 1, 2, 1, 1][..], vec![4321.0, 6543.0]));
    /// let taps = ConvParams { stride: [2, 1, 1], padding: [1, 0, 0].into(), ..ConvParams::PLAIN };
    /// assert_eq!(x.conv3d(&weight, taps)?.to_vec::<f32>()?, [2100.0, 6543.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv3d(&self, weight: &Tensor, taps: ConvParams<3>) -> Result<Tensor> {
        compose::conv3d(&TapeCx::of(self), self.clone(), weight.clone(), taps).in_op("conv3d")
    }
}
