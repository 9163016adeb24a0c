//! Random numbers of more distributions, pure functions of a key: evaluated twice they give the same bits.

use remat_ops::random::{GammaSample, PoissonSample};
use remat_types::{DType, Error, ErrorKind, Result, Scalar, Shape};

use crate::Tensor;
use crate::site::InOp;

/// The least number above 0 by which uniform numbers are kept from a logarithm of 0.
const TINY: f64 = 1e-37;

impl Tensor {
    /// The `n`-th key that follows from this one.
    #[track_caller]
    fn key_of(&self, n: i64) -> Result<Tensor> {
        self.fold_in(&Tensor::full(&self.device(), [], DType::I64, n)?)
    }

    /// Whole numbers `lo <= x < hi`, each as likely up to 2^-53 of the span; a pure function of `key: u64 [2]`. Errors: DType for
    /// bools; Value for an empty range, a span of more than 2^53, or numbers that `dtype` does not hold.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::randint(&key, [1000], DType::I64, -2, 3)?.to_vec::<i64>()?;
    /// assert!((-2..3).all(|v| x.contains(&v)) && x.iter().all(|v| (-2..3).contains(v)));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn randint(key: &Tensor, shape: impl Into<Shape>, dtype: DType, lo: i64, hi: i64) -> Result<Tensor> {
        let span = i128::from(hi) - i128::from(lo);
        if !(1..=1 << 53).contains(&span) || dtype == DType::Bool {
            let kind = if dtype == DType::Bool { ErrorKind::DType } else { ErrorKind::Value };
            let text = format!("from {lo} to below {hi} as {dtype}: 1 to 2^53 numbers are possible");
            return Err(Error::new(kind, text)).in_op("randint");
        }
        if !(Scalar::Int(lo).fits(dtype) && Scalar::Int(hi - 1).fits(dtype)) {
            let text = format!("from {lo} to below {hi}: {dtype} does not hold these numbers; choose a wider dtype");
            return Err(Error::new(ErrorKind::Value, text)).in_op("randint");
        }
        let share = Tensor::uniform(key, shape, DType::F64, 0.0, 1.0).called("randint")?;
        let at = share.mul(span as f64)?.floor()?.minimum((span - 1) as f64)?;
        at.cast(DType::I64)?.add(lo)?.cast(dtype)
    }

    /// Normal numbers in this tensor's shape and dtype. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// assert_eq!(Tensor::new(&device, &[1.0, 2.0], [1, 2])?.normal_like(&key, 0.0, 1.0)?.dims(), [1, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "randn_like")]
    #[track_caller]
    pub fn normal_like(&self, key: &Tensor, mean: f64, std: f64) -> Result<Tensor> {
        Tensor::normal(key, self.shape(), self.dtype(), mean, std)
    }

    /// Uniform numbers in this tensor's shape and dtype. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// assert_eq!(Tensor::new(&device, &[1.0, 2.0], [1, 2])?.uniform_like(&key, 0.0, 1.0)?.dims(), [1, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "rand_like")]
    #[track_caller]
    pub fn uniform_like(&self, key: &Tensor, lo: f64, hi: f64) -> Result<Tensor> {
        Tensor::uniform(key, self.shape(), self.dtype(), lo, hi)
    }

    /// Normal numbers of `mean` and `std` within `lo ..= hi`, by the inverse of the distribution function. Errors: DType for other
    /// than floats; Value for an empty range or a deviation that is not positive.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::truncated_normal(&key, [1000], DType::F32, 0.0, 1.0, -0.5, 2.0)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|v| (-0.5..=2.0).contains(v)));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn truncated_normal(
        key: &Tensor,
        shape: impl Into<Shape>,
        dtype: DType,
        mean: f64,
        std: f64,
        lo: f64,
        hi: f64,
    ) -> Result<Tensor> {
        if !(lo < hi && std > 0.0 && std.is_finite() && mean.is_finite()) {
            let text = format!("mean {mean}, deviation {std}, from {lo} to {hi}: no such distribution");
            return Err(Error::new(ErrorKind::Value, text)).in_op("truncated_normal");
        }
        let scale = std * std::f64::consts::SQRT_2;
        let end = |v: f64| Tensor::full(&key.device(), [], DType::F64, (v - mean) / scale)?.erf();
        let (from, to) = (end(lo)?, end(hi)?);
        let share = Tensor::uniform(key, shape, DType::F64, 0.0, 1.0).called("truncated_normal")?;
        let at = share.mul(to.sub(&from)?)?.add(&from)?;
        at.erfinv()?.mul(scale)?.add(mean)?.clamp(lo, hi)?.cast(dtype)
    }

    /// Exponential numbers of this tensor's rates. The gradient for the rates is that at an unchanged uniform number. Errors: DType for other than
    /// floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let rate = Tensor::full(&device, [10_000], DType::F32, 2.0)?;
    /// assert!((rate.exponential_sample(&key)?.mean()?.item::<f32>()? - 0.5).abs() < 0.02);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn exponential_sample(&self, key: &Tensor) -> Result<Tensor> {
        self.uniform_like(key, 0.0, 1.0).called("exponential_sample")?.neg()?.log1p()?.neg()?.div(self)
    }

    /// Gamma numbers of this tensor's shapes and scale 1 (Marsaglia and Tsang, 2000), with a gradient for the shapes (Figurnov, Mohamed and
    /// Mnih, 2018); NaN for a shape that is not positive. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let alpha = Tensor::full(&device, [10_000], DType::F32, 2.5)?;
    /// assert!((alpha.gamma_sample(&key)?.mean()?.item::<f32>()? - 2.5).abs() < 0.06);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "standard_gamma")]
    #[track_caller]
    pub fn gamma_sample(&self, key: &Tensor) -> Result<Tensor> {
        Tensor::apply1(GammaSample { log: false }, &[key, self])
    }

    /// The logarithms of what [`Tensor::gamma_sample`] gives, which for small shapes is too small for any float; of 16-bit floats in f32.
    #[track_caller]
    fn log_gamma_sample(&self, key: &Tensor) -> Result<Tensor> {
        let wide = if matches!(self.dtype(), DType::F16 | DType::BF16) { self.cast(DType::F32)? } else { self.clone() };
        Tensor::apply1(GammaSample { log: true }, &[key, &wide])
    }

    /// Beta numbers of this tensor's first shapes and the second ones `b`; shapes broadcast. Errors: Shape, DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let a = Tensor::full(&device, [10_000], DType::F32, 1.0)?;
    /// assert!((a.beta_sample(&a.mul(3.0)?, &key)?.mean()?.item::<f32>()? - 0.25).abs() < 0.01);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn beta_sample(&self, b: &Tensor, key: &Tensor) -> Result<Tensor> {
        let shape = self.shape().broadcast(b.shape()).in_op("beta_sample")?;
        let first = self.broadcast_to(shape.clone())?.log_gamma_sample(&key.key_of(0)?).called("beta_sample")?;
        let second = b.broadcast_to(shape)?.log_gamma_sample(&key.key_of(1)?).called("beta_sample")?;
        first.sub(second)?.sigmoid()?.cast(self.dtype())
    }

    /// Shares that add up to 1 along the last axis, of Dirichlet's distribution with this tensor's concentrations. Errors: Axis for rank
    /// 0; DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0], [3])?.dirichlet_sample(&key)?;
    /// assert!((x.sum()?.item::<f32>()? - 1.0).abs() < 1e-6);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn dirichlet_sample(&self, key: &Tensor) -> Result<Tensor> {
        self.log_gamma_sample(key)
            .called("dirichlet_sample")?
            .softmax(-1)
            .called("dirichlet_sample")?
            .cast(self.dtype())
    }

    /// Poisson numbers of this tensor's means, whole numbers in its dtype; NaN for a negative mean. No gradient. Errors: DType for other
    /// than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let rate = Tensor::full(&device, [10_000], DType::F32, 20.0)?;
    /// assert!((rate.poisson_sample(&key)?.mean()?.item::<f32>()? - 20.0).abs() < 0.2);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn poisson_sample(&self, key: &Tensor) -> Result<Tensor> {
        Tensor::apply1(PoissonSample {}, &[key, self])
    }

    /// 1 with this tensor's probabilities, else 0, in its dtype. No gradient. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// assert_eq!(Tensor::new(&device, &[0.0, 1.0], [2])?.bernoulli_sample(&key)?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn bernoulli_sample(&self, key: &Tensor) -> Result<Tensor> {
        let share = self.uniform_like(key, 0.0, 1.0).called("bernoulli_sample")?;
        share.lt(self.detach())?.cast(self.dtype())
    }

    /// Laplace's numbers around 0 of scale 1, in this tensor's shape and dtype. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::zeros(&device, [10_000], DType::F32)?.laplace_like(&key)?;
    /// assert!((x.abs()?.mean()?.item::<f32>()? - 1.0).abs() < 0.05);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn laplace_like(&self, key: &Tensor) -> Result<Tensor> {
        let share = self.uniform_like(key, -1.0, 1.0).called("laplace_like")?;
        // the end, whose logarithm is infinite, comes up with 24 random bits
        let rest = share.abs()?.neg()?.add(1.0)?.maximum(TINY)?;
        share.sign()?.mul(rest.log()?)?.neg()
    }

    /// Gumbel's numbers, `-ln(-ln u)`, in this tensor's shape and dtype. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::zeros(&device, [10_000], DType::F32)?.gumbel_like(&key)?;
    /// assert!((x.mean()?.item::<f32>()? - 0.5772).abs() < 0.05);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn gumbel_like(&self, key: &Tensor) -> Result<Tensor> {
        let share = self.uniform_like(key, 0.0, 1.0).called("gumbel_like")?;
        share.neg()?.log1p()?.neg()?.maximum(TINY)?.log()?.neg()
    }

    /// Cauchy's numbers around 0 of scale 1, in this tensor's shape and dtype. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::zeros(&device, [10_001], DType::F32)?.cauchy_like(&key)?;
    /// assert!(x.median()?.item::<f32>()?.abs() < 0.05);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cauchy_like(&self, key: &Tensor) -> Result<Tensor> {
        let half = std::f64::consts::FRAC_PI_2;
        self.uniform_like(key, -half, half).called("cauchy_like")?.tan()
    }
}
