//! Pools over one to three axes, and images of another size. [`MaxPool2d`](crate::MaxPool2d) and its kin are shorter to make.

use remat_tensor::{Divisor, InterpolateOptions, Pooling, Sizes, Tensor};
use remat_types::{CallSite, Result, Scope};

use crate::{Layer, Module};

/// Layers of windows that call a method.
macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident, $short:literal => |$layer:ident, $x:ident| $call:expr, { $($(#[$field_doc:meta])* $field:ident: $ty:ty),* };)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Module)]
        #[module(crate = crate)]
        pub struct $name<const D: usize> {
            $( $(#[$field_doc])* #[module(skip)] pub $field: $ty, )*
        }

        impl<const D: usize> Layer for $name<D> {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let _scope = Scope::called($short, CallSite::here());
                let $layer = self;
                $call
            }
        }
    )* };
}

pools! {
    /// The largest element of each window of the last `D` axes, [`Tensor::max_pool`]: `x: [n, c, size..]` to `[n, c, out..]`.
    ///
    /// Errors: Axis, DType, Value, Shape.
    MaxPool, "max_pool" => |layer, x| x.max_pool(layer.pooling), {
        /// How the windows lie.
        pooling: Pooling<D>
    };
    /// The mean of each window of the last `D` axes, [`Tensor::avg_pool`]: `x: [n, c, size..]` to `[n, c, out..]`.
    ///
    /// Errors: Axis, DType, Value, Shape.
    AvgPool, "avg_pool" => |layer, x| x.avg_pool(layer.pooling, layer.divisor), {
        /// How the windows lie.
        pooling: Pooling<D>,
        /// The divisor of a mean.
        divisor: Divisor
    };
    /// The `p`-norm of each window of the last `D` axes, [`Tensor::lp_pool`]: `x: [n, c, size..]` to `[n, c, out..]`.
    ///
    /// Errors: Axis, DType, Value, Shape.
    LpPool, "lp_pool" => |layer, x| x.lp_pool(layer.p, layer.pooling), {
        /// The norm.
        p: f64,
        /// How the windows lie.
        pooling: Pooling<D>
    };
    /// The mean of each of so many windows that cover the last `D` axes, [`Tensor::adaptive_avg_pool`].
    ///
    /// Errors: Axis, DType, Shape.
    AdaptiveAvgPool, "adaptive_avg_pool" => |layer, x| x.adaptive_avg_pool(layer.size), {
        /// Extents of the output.
        size: [usize; D]
    };
    /// The largest element of each of so many windows that cover the last `D` axes, [`Tensor::adaptive_max_pool`].
    ///
    /// Errors: Axis, DType, Shape.
    AdaptiveMaxPool, "adaptive_max_pool" => |layer, x| x.adaptive_max_pool(layer.size).map(|(y, _)| y), {
        /// Extents of the output.
        size: [usize; D]
    };
}

/// [`MaxPool`] of `[n, c, l]`.
pub type MaxPool1d = MaxPool<1>;
/// [`MaxPool`] of `[n, c, d, h, w]`.
pub type MaxPool3d = MaxPool<3>;
/// [`AvgPool`] of `[n, c, l]`.
pub type AvgPool1d = AvgPool<1>;
/// [`AvgPool`] of `[n, c, d, h, w]`.
pub type AvgPool3d = AvgPool<3>;
/// [`AdaptiveAvgPool`] of `[n, c, l]`.
pub type AdaptiveAvgPool1d = AdaptiveAvgPool<1>;
/// [`AdaptiveAvgPool`] of `[n, c, d, h, w]`.
pub type AdaptiveAvgPool3d = AdaptiveAvgPool<3>;
/// [`AdaptiveMaxPool`] of `[n, c, l]`.
pub type AdaptiveMaxPool1d = AdaptiveMaxPool<1>;
/// [`AdaptiveMaxPool`] of `[n, c, h, w]`.
pub type AdaptiveMaxPool2d = AdaptiveMaxPool<2>;
/// [`AdaptiveMaxPool`] of `[n, c, d, h, w]`.
pub type AdaptiveMaxPool3d = AdaptiveMaxPool<3>;

impl<const D: usize> MaxPool<D> {
    /// Windows side by side.
    pub fn new(kernel: [usize; D]) -> Self {
        MaxPool { pooling: Pooling::new(kernel) }
    }
}
impl<const D: usize> AvgPool<D> {
    /// Windows side by side, whose padding counts.
    pub fn new(kernel: [usize; D]) -> Self {
        AvgPool { pooling: Pooling::new(kernel), divisor: Divisor::WithPadding }
    }
}
impl<const D: usize> LpPool<D> {
    /// Windows side by side.
    pub fn new(p: f64, kernel: [usize; D]) -> Self {
        LpPool { p, pooling: Pooling::new(kernel) }
    }
}
impl<const D: usize> AdaptiveAvgPool<D> {
    /// To an output of `size`.
    pub fn new(size: [usize; D]) -> Self {
        AdaptiveAvgPool { size }
    }
}
impl<const D: usize> AdaptiveMaxPool<D> {
    /// To an output of `size`.
    pub fn new(size: [usize; D]) -> Self {
        AdaptiveMaxPool { size }
    }
}

/// The elements in the places that [`Tensor::max_pool_with_indices`] gave, zeros elsewhere: [`Tensor::max_unpool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Module)]
#[module(crate = crate)]
pub struct MaxUnpool<const D: usize> {
    /// Extents of the output.
    #[module(skip)]
    pub size: [usize; D],
}

impl<const D: usize> MaxUnpool<D> {
    /// The output for `x` and the places of its elements. Errors: Axis, Shape, DType.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("max_unpool", CallSite::here());
        x.max_unpool(indices, self.size)
    }
}

/// The mean over all spatial axes, which stay with extent 1: [`Tensor::global_avg_pool`]. Errors: Axis, Shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Module)]
#[module(crate = crate)]
pub struct GlobalAvgPool;

impl Layer for GlobalAvgPool {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("global_avg_pool", CallSite::here());
        x.global_avg_pool()
    }
}

/// The largest element over all spatial axes, which stay with extent 1: [`Tensor::global_max_pool`]. Errors: Axis, Shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Module)]
#[module(crate = crate)]
pub struct GlobalMaxPool;

impl Layer for GlobalMaxPool {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("global_max_pool", CallSite::here());
        x.global_max_pool()
    }
}

/// Images of another size, [`Tensor::interpolate`]: `x: [n, c, size..]` to `[n, c, out..]`. Errors: Axis, DType, Shape, Value.
#[derive(Clone, Debug, PartialEq, Module)]
#[module(crate = crate)]
pub struct Upsample {
    /// Extents of the output, or factors.
    #[module(skip)]
    pub sizes: Sizes,
    /// The interpolation between pixels.
    #[module(skip)]
    pub options: InterpolateOptions,
}

impl Upsample {
    /// So many times as large along each axis, by the nearest pixel.
    pub fn new(factor: f64) -> Self {
        Upsample { sizes: Sizes::By(vec![factor]), options: InterpolateOptions::default() }
    }

    /// Any size in any way.
    pub fn with(sizes: Sizes, options: InterpolateOptions) -> Self {
        Upsample { sizes, options }
    }
}

impl Layer for Upsample {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("upsample", CallSite::here());
        x.interpolate(self.sizes.clone(), self.options)
    }
}
