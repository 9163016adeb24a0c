//! Tensors out of nothing.

use remat_ops::OpRef;
use remat_ops::pointwise::{Arange, Fill};
use remat_ops::random::{Bernoulli, Normal, RandomPermutation, Uniform};
use remat_runtime::Device;
use remat_types::{CallSite, DType, Result, Scalar, Shape, SmallVec};

use crate::Tensor;

impl Tensor {
    #[track_caller]
    fn source(device: &Device, op: impl Into<OpRef>) -> Result<Tensor> {
        let mut y = device.channel().apply_at(op.into(), SmallVec::new(), SmallVec::new(), CallSite::here())?;
        Ok(Tensor::from_handle(y.swap_remove(0)))
    }

    /// Every element is `value`. Errors: Shape too large to address.
    #[track_caller]
    pub fn full(device: &Device, shape: impl Into<Shape>, dtype: DType, value: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::source(device, Fill { dtype, shape: shape.into(), value: value.into() })
    }

    /// Zeros. Errors: Shape too large to address.
    #[track_caller]
    pub fn zeros(device: &Device, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::full(device, shape, dtype, 0i64)
    }

    /// Ones. Errors: Shape too large to address.
    #[track_caller]
    pub fn ones(device: &Device, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::full(device, shape, dtype, 1i64)
    }

    /// Zeros of this tensor's shape and dtype.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::zeros(&self.device(), self.shape(), self.dtype())
    }

    /// Ones of this tensor's shape and dtype.
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        Tensor::ones(&self.device(), self.shape(), self.dtype())
    }

    /// `start, start + step, ..`: `len` numbers.
    #[track_caller]
    pub fn arange(
        device: &Device,
        start: impl Into<Scalar>,
        step: impl Into<Scalar>,
        len: usize,
        dtype: DType,
    ) -> Result<Tensor> {
        Tensor::source(device, Arange { dtype, start: start.into(), step: step.into(), len })
    }

    /// Uniform in `lo .. hi`, a pure function of `key: u64 [2]`.
    #[track_caller]
    pub fn uniform(key: &Tensor, shape: impl Into<Shape>, dtype: DType, lo: f64, hi: f64) -> Result<Tensor> {
        Tensor::apply1(Uniform { dtype, shape: shape.into(), lo: lo.into(), hi: hi.into() }, &[key])
    }

    /// Normal with `mean` and standard deviation `std`, a pure function of `key: u64 [2]`.
    #[track_caller]
    pub fn normal(key: &Tensor, shape: impl Into<Shape>, dtype: DType, mean: f64, std: f64) -> Result<Tensor> {
        Tensor::apply1(Normal { dtype, shape: shape.into(), mean: mean.into(), std: std.into() }, &[key])
    }

    /// 1 with probability `p`, else 0; a pure function of `key: u64 [2]`.
    #[track_caller]
    pub fn bernoulli(key: &Tensor, shape: impl Into<Shape>, dtype: DType, p: f64) -> Result<Tensor> {
        Tensor::apply1(Bernoulli { dtype, shape: shape.into(), p: p.into() }, &[key])
    }

    /// The numbers `0 .. n` in an order that is a pure function of `key: u64 [2]`.
    #[track_caller]
    pub fn permutation(key: &Tensor, n: usize) -> Result<Tensor> {
        Tensor::apply1(RandomPermutation { n }, &[key])
    }
}
