//! Tensors out of nothing.

use remat_ops::pointwise::{Arange, Fill};
use remat_ops::random::{Bernoulli, FoldIn, Normal, RandomPermutation, Uniform};
use remat_ops::{OpRef, compose};
use remat_runtime::Device;
use remat_types::{CallSite, DType, Error, ErrorKind, Result, Scalar, Shape, SmallVec};

use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    #[track_caller]
    fn source(device: &Device, op: impl Into<OpRef>) -> Result<Tensor> {
        let mut y = device.channel().apply_at(op.into(), SmallVec::new(), CallSite::here())?;
        Ok(Tensor::from_handle(y.swap_remove(0)))
    }

    /// Every element is `value`. Errors: Shape too large to address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::full(&device, [2, 2], DType::F32, 1.5)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.5; 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn full(device: &Device, shape: impl Into<Shape>, dtype: DType, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        if !value.fits(dtype) {
            let text = format!("{} does not fit {dtype}", value.to_f64());
            return Err(Error::new(ErrorKind::Value, text)).in_op("full");
        }
        Tensor::source(device, Fill { dtype, shape: shape.into(), value })
    }

    /// Zeros. Errors: Shape too large to address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::zeros(&device, [2], DType::I64)?.to_vec::<i64>()?, [0, 0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros(device: &Device, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::full(device, shape, dtype, 0i64)
    }

    /// Ones. Errors: Shape too large to address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::ones(&device, [2], DType::Bool)?.to_vec::<bool>()?, [true, true]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn ones(device: &Device, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::full(device, shape, dtype, 1i64)
    }

    /// Zeros of this tensor's shape and dtype.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [2])?;
    /// assert_eq!(x.zeros_like()?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::zeros(&self.device(), self.shape(), self.dtype())
    }

    /// Ones of this tensor's shape and dtype.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [2])?;
    /// assert_eq!(x.ones_like()?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        Tensor::ones(&self.device(), self.shape(), self.dtype())
    }

    /// Every element is `value`, in this tensor's shape and dtype.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0], [2])?;
    /// assert_eq!(x.full_like(7)?.to_vec::<f32>()?, [7.0, 7.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::full(&self.device(), self.shape(), self.dtype(), value)
    }

    /// The numbers from `start` on that do not reach `end`, `step` apart, as NumPy's `arange`; none if `step` leads away
    /// from `end`.
    ///
    /// Errors: DType for bools; Value for a step of 0, for numbers that are not finite, or for fractions in an integer
    /// dtype; Shape for more numbers than can be addressed.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::arange(&device, 2, 8, 3, DType::I64)?.to_vec::<i64>()?, [2, 5]);
    /// assert_eq!(Tensor::arange(&device, 1.0, 0.0, -0.5, DType::F32)?.to_vec::<f32>()?, [1.0, 0.5]);
    /// assert_eq!(Tensor::arange(&device, 0, -1, 1, DType::I64)?.elems(), 0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn arange(
        device: &Device,
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Result<Tensor> {
        let (start, step) = (start.into(), step.into());
        let len = steps(start, end.into(), step).in_op("arange")?;
        Tensor::source(device, Arange { dtype, start, step, len })
    }

    /// `n` numbers at equal distances, the first `start` and the last `end`; for integers each is cut to a whole number.
    /// Errors: DType for bools; Value for a number that is not finite.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::linspace(&device, 0.0, 1.0, 5, DType::F32)?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// assert_eq!(Tensor::linspace(&device, 3.0, 9.0, 1, DType::F32)?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace(device: &Device, start: f64, end: f64, n: usize, dtype: DType) -> Result<Tensor> {
        compose::linspace(&TapeCx::on(device), start, end, n, dtype).in_op("linspace")
    }

    /// The identity matrix of `n` rows. Errors: Shape too large to address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::eye(&device, 2, DType::F32)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(device: &Device, n: usize, dtype: DType) -> Result<Tensor> {
        compose::eye(&TapeCx::on(device), n, dtype)
    }

    /// The `n`-th of the keys that follow from a key, `self: u64 [2]`, `n: i64 []`: a key of its own for each step of a loop.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, fori_loop};
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::zeros(&device, [4], DType::F32)?;
    /// let walk = fori_loop(10, &[&x], |step, c| {
    ///     Ok(vec![(&c[0] + Tensor::normal(&key.fold_in(step)?, [4], DType::F32, 0.0, 1.0)?)?])
    /// })?;
    /// assert!(walk[0].to_vec::<f32>()?.iter().all(|v| v.abs() < 30.0));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn fold_in(&self, n: &Tensor) -> Result<Tensor> {
        Tensor::apply1(FoldIn {}, &[self, n])
    }

    /// Uniform in `lo .. hi`, a pure function of `key: u64 [2]`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::uniform(&key, [100], DType::F32, -1.0, 1.0)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|v| (-1.0..=1.0).contains(v)));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "rand")]
    #[track_caller]
    pub fn uniform(key: &Tensor, shape: impl Into<Shape>, dtype: DType, lo: f64, hi: f64) -> Result<Tensor> {
        Tensor::apply1(Uniform { dtype, shape: shape.into(), lo: lo.into(), hi: hi.into() }, &[key])
    }

    /// Normal with `mean` and standard deviation `std`, a pure function of `key: u64 [2]`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::normal(&key, [10_000], DType::F32, 5.0, 2.0)?;
    /// assert!((x.mean()?.item::<f32>()? - 5.0).abs() < 0.1);
    /// assert!((x.std(0)?.item::<f32>()? - 2.0).abs() < 0.1);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "randn")]
    #[track_caller]
    pub fn normal(key: &Tensor, shape: impl Into<Shape>, dtype: DType, mean: f64, std: f64) -> Result<Tensor> {
        Tensor::apply1(Normal { dtype, shape: shape.into(), mean: mean.into(), std: std.into() }, &[key])
    }

    /// 1 with probability `p`, else 0; a pure function of `key: u64 [2]`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::bernoulli(&key, [10_000], DType::F32, 0.25)?;
    /// assert!((x.mean()?.item::<f32>()? - 0.25).abs() < 0.02);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn bernoulli(key: &Tensor, shape: impl Into<Shape>, dtype: DType, p: f64) -> Result<Tensor> {
        Tensor::apply1(Bernoulli { dtype, shape: shape.into(), p: p.into() }, &[key])
    }

    /// The numbers `0 .. n` in an order that is a pure function of `key: u64 [2]`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let mut order = Tensor::permutation(&key, 5)?.to_vec::<i64>()?;
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "randperm")]
    #[track_caller]
    pub fn permutation(key: &Tensor, n: usize) -> Result<Tensor> {
        Tensor::apply1(RandomPermutation { n }, &[key])
    }
}

/// How many steps from `start` on do not reach `end`. Errors: Value, Shape.
fn steps(start: Scalar, end: Scalar, step: Scalar) -> Result<usize> {
    let bad = |why: &str| Error::new(ErrorKind::Value, format!("from {start:?} to {end:?} by {step:?}: {why}"));
    let whole = |v: Scalar| match v {
        Scalar::Int(v) => Some(i128::from(v)),
        Scalar::Uint(v) => Some(i128::from(v)),
        _ => None,
    };
    if step.to_f64() == 0.0 {
        return Err(bad("a step of 0"));
    }
    let too_many = || Error::new(ErrorKind::Shape, "more numbers than can be addressed");
    if let (Some(start), Some(end), Some(step)) = (whole(start), whole(end), whole(step)) {
        let way = if step > 0 { end - start } else { start - end }.max(0) as u128;
        return usize::try_from(way.div_ceil(step.unsigned_abs())).map_err(|_| too_many());
    }
    let steps = (end.to_f64() - start.to_f64()) / step.to_f64();
    // an infinite end or step leaves no valid count
    if !(steps.is_finite() && start.to_f64().is_finite() && step.to_f64().is_finite()) {
        return Err(bad("not finite"));
    }
    if steps >= isize::MAX as f64 { Err(too_many()) } else { Ok(steps.ceil().max(0.0) as usize) }
}
