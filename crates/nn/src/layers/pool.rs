use remat_tensor::Tensor;
use remat_tensor::Windows;
use remat_types::{CallSite, Padding, Result, Scope};

use super::Extents;
use crate::{Layer, Module};

/// The largest of each window: `x: [n, c, h, w]` to `[n, c, oh, ow]`, see [`remat_ops::pooling::MaxPool2d`].
///
/// Errors: Axis for another rank; Value for a kernel or stride of 0, or padding not less than the kernel; Shape if no
/// window fits.
#[derive(Clone, Copy, Debug, Module)]
#[module(crate = crate)]
pub struct MaxPool2d {
    windows: Windows,
}

impl MaxPool2d {
    /// Windows side by side without padding.
    pub fn new(kernel: impl Into<Extents<2>>) -> Self {
        let Extents(kernel) = kernel.into();
        MaxPool2d { windows: Windows::sliding(kernel, kernel, [0, 0]) }
    }

    /// Any windows.
    pub fn with(kernel: impl Into<Extents<2>>, stride: impl Into<Extents<2>>, padding: impl Into<Padding>) -> Self {
        MaxPool2d { windows: Windows::sliding(kernel.into().0, stride.into().0, padding) }
    }
}

impl Layer for MaxPool2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("max_pool2d", CallSite::here());
        x.max_pool2d(self.windows)
    }
}

/// The mean of each window: `x: [n, c, h, w]` to `[n, c, oh, ow]`, see [`remat_ops::pooling::AvgPool2d`].
///
/// Errors: as [`MaxPool2d`], and DType for an `x` that is no float.
#[derive(Clone, Copy, Debug, Module)]
#[module(crate = crate)]
pub struct AvgPool2d {
    windows: Windows,
    count_include_pad: bool,
}

impl AvgPool2d {
    /// Windows side by side without padding.
    pub fn new(kernel: impl Into<Extents<2>>) -> Self {
        let Extents(kernel) = kernel.into();
        AvgPool2d { windows: Windows::sliding(kernel, kernel, [0, 0]), count_include_pad: true }
    }

    /// Any windows; zeros of the padding count if `count_include_pad`, which is PyTorch's default.
    pub fn with(
        kernel: impl Into<Extents<2>>,
        stride: impl Into<Extents<2>>,
        padding: impl Into<Padding>,
        count_include_pad: bool,
    ) -> Self {
        let windows = Windows::sliding(kernel.into().0, stride.into().0, padding);
        AvgPool2d { windows, count_include_pad }
    }
}

impl Layer for AvgPool2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("avg_pool2d", CallSite::here());
        x.avg_pool2d(self.windows, self.count_include_pad)
    }
}

/// The mean of each of `size` windows that cover the input: `x: [n, c, h, w]` to `[n, c, size..]`.
///
/// Window `o` of an axis is `floor(o h / size) .. ceil((o + 1) h / size)`. Errors: Axis for another rank, Shape for an
/// empty input, DType for an `x` that is no float.
#[derive(Clone, Copy, Debug, Module)]
#[module(crate = crate)]
pub struct AdaptiveAvgPool2d {
    windows: Windows,
}

impl AdaptiveAvgPool2d {
    /// To an output of `size`.
    pub fn new(size: impl Into<Extents<2>>) -> Self {
        AdaptiveAvgPool2d { windows: Windows::Adaptive { size: size.into().0 } }
    }
}

impl Layer for AdaptiveAvgPool2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("adaptive_avg_pool2d", CallSite::here());
        x.avg_pool2d(self.windows, false)
    }
}
