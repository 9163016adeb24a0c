//! Functions of elements that are made of others, and other arrangements of them.

use remat_types::{Error, ErrorKind, Result, Scalar, axis_of};

use super::pointwise::IntoOperand;
use crate::Tensor;
use crate::site::InOp;

/// Of [`Tensor::multigammaln`].
const MOST_VARIABLES: usize = 1 << 16;

impl Tensor {
    /// Rounded to `decimals` places after the point, before it if negative; halves go to the even digit. Errors: DType for bools; Value
    /// for more places than a float has.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.25, 14.0], [2])?;
    /// assert_eq!(x.round_to(1)?.to_vec::<f32>()?, [1.2, 14.0]);
    /// assert_eq!(x.round_to(-1)?.to_vec::<f32>()?, [0.0, 10.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn round_to(&self, decimals: i32) -> Result<Tensor> {
        if decimals.abs() > 300 {
            let text = format!("{decimals} decimals; -300 to 300 are possible");
            return Err(Error::new(ErrorKind::Value, text)).in_op("round_to");
        }
        let scale = 10f64.powi(decimals.abs());
        if decimals >= 0 { self.mul(scale)?.round()?.div(scale) } else { self.div(scale)?.round()?.mul(scale) }
    }

    /// NaN, infinity and minus infinity replaced by numbers: 0 and the largest and the least number of the dtype where nothing is given.
    /// Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[f32::NAN, f32::INFINITY, 1.0], [3])?;
    /// assert_eq!(x.nan_to_num(0.5, None, None)?.to_vec::<f32>()?, [0.5, f32::MAX, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, infinite: Option<f64>, negative: Option<f64>) -> Result<Tensor> {
        let most = super::limits::largest(self.dtype()).in_op("nan_to_num")?;
        let (high, low) = (infinite.unwrap_or(most), negative.unwrap_or(-most));
        let number = self.masked_fill(&self.is_nan()?, nan)?;
        let number = number.masked_fill(&self.eq(f64::INFINITY)?, high)?;
        number.masked_fill(&self.eq(f64::NEG_INFINITY)?, low)
    }

    /// Whether `|a - b| <= atol + rtol |b|`, element by element, as NumPy's `isclose`: a NaN is close to nothing, or to a NaN if
    /// `equal_nan`. Shapes broadcast. Errors: Shape, DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (a, b) = (Tensor::new(&device, &[1.0, f32::NAN], [2])?, Tensor::new(&device, &[1.0 + 1e-7, f32::NAN], [2])?);
    /// assert_eq!(a.isclose(&b, 1e-5, 1e-8, false)?.to_vec::<bool>()?, [true, false]);
    /// assert_eq!(a.isclose(&b, 1e-5, 1e-8, true)?.to_vec::<bool>()?, [true, true]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn isclose(&self, b: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
        // equal infinities differ by NaN, and a finite number is within an infinite tolerance
        let near = self.sub(b)?.abs()?.le(b.abs()?.mul(rtol)?.add(atol)?)?.logical_and(b.is_finite()?)?;
        let close = near.logical_or(self.eq(b)?)?;
        if equal_nan { close.logical_or(self.is_nan()?.logical_and(b.is_nan()?)?) } else { Ok(close) }
    }

    /// `max(x, lo)`: [`Tensor::clamp`] with one side, a number or a tensor that broadcasts. NaN stays. Errors: Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-2.0, 0.5], [2])?;
    /// assert_eq!(x.clamp_min(0.0)?.to_vec::<f32>()?, [0.0, 0.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp_min(&self, lo: impl IntoOperand) -> Result<Tensor> {
        self.maximum(lo)
    }

    /// `min(x, hi)`: [`Tensor::clamp`] with one side, a number or a tensor that broadcasts. NaN stays. Errors: Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (x, hi) = (Tensor::new(&device, &[2.0, 0.5], [2])?, Tensor::new(&device, &[1.0, 0.0], [2])?);
    /// assert_eq!(x.clamp_max(&hi)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp_max(&self, hi: impl IntoOperand) -> Result<Tensor> {
        self.minimum(hi)
    }

    /// `ln(x / (1 - x))`, the inverse of the sigmoid, of `x` clamped to `eps ..= 1 - eps`; `eps = 0` clamps nothing. Errors: DType for
    /// other than floats; Value for an `eps` outside 0 ..= 0.5.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.5, 1.0], [2])?;
    /// assert_eq!(x.logit(0.0)?.to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn logit(&self, eps: f64) -> Result<Tensor> {
        if !(0.0..=0.5).contains(&eps) {
            return Err(Error::new(ErrorKind::Value, format!("eps is {eps}; it must be within 0 ..= 0.5")))
                .in_op("logit");
        }
        let x = if eps > 0.0 { self.clamp(eps, 1.0 - eps)? } else { self.clone() };
        x.log()?.sub(x.neg()?.log1p()?)
    }

    /// `x ln y`, 0 where `x` is 0 unless `y` is NaN. Shapes broadcast. Errors: Shape, DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (x, y) = (Tensor::new(&device, &[0.0, 2.0], [2])?, Tensor::new(&device, &[0.0, 1.0], [2])?);
    /// assert_eq!(x.xlogy(&y)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn xlogy(&self, y: &Tensor) -> Result<Tensor> {
        // where the logarithm is infinite or none, and for a positive y the slope stays ln y
        let nothing = self.eq(0.0)?.logical_and(y.le(0.0)?.logical_or(y.eq(f64::INFINITY)?)?)?;
        self.mul(nothing.where_cond(&y.ones_like()?, y)?.log()?)
    }

    /// `sin(pi x) / (pi x)`, 1 at 0. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 0.5], [2])?;
    /// assert_eq!(x.sinc()?.to_vec::<f32>()?, [1.0, std::f32::consts::FRAC_2_PI]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn sinc(&self) -> Result<Tensor> {
        let zero = self.eq(0.0)?;
        let at = self.masked_fill(&zero, 1.0)?.mul(std::f64::consts::PI)?;
        at.sin()?.div(&at)?.masked_fill(&zero, 1.0)
    }

    /// `-x ln x`, 0 at 0 and minus infinity below. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 1.0, -1.0], [3])?;
    /// assert_eq!(x.entr()?.to_vec::<f32>()?, [0.0, 0.0, f32::NEG_INFINITY]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn entr(&self) -> Result<Tensor> {
        let (zero, below) = (self.eq(0.0)?, self.lt(0.0)?);
        let x = self.masked_fill(&zero.logical_or(&below)?, 1.0)?;
        let y = x.mul(x.log()?)?.neg()?;
        // 0 ln 0 and what lies below have no slope
        y.masked_fill(&zero, 0.0)?.masked_fill(&below, f64::NEG_INFINITY)
    }

    /// The logarithm of the gamma function of `p` variables, `p (p - 1) / 4 ln pi + sum ln gamma(x - i / 2) : i < p`. Errors: DType for
    /// other than floats; Value for a `p` above 65,536, because the sum takes one operation for each variable.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0], [1])?;
    /// assert_eq!(x.multigammaln(1)?.to_vec::<f32>()?, [2f32.ln()]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "mvlgamma")]
    #[track_caller]
    pub fn multigammaln(&self, p: usize) -> Result<Tensor> {
        if p > MOST_VARIABLES {
            let text = format!("p is {p}, must be at most {MOST_VARIABLES}");
            return Err(Error::new(ErrorKind::Value, text)).in_op("multigammaln");
        }
        let constant = p as f64 * (p as f64 - 1.0) / 4.0 * std::f64::consts::PI.ln();
        let mut y = self.mul(0.0)?.add(constant)?;
        for i in 0..p {
            y = y.add(self.sub(i as f64 / 2.0)?.lgamma()?)?;
        }
        Ok(y)
    }

    /// The `n`-th derivative of [`Tensor::digamma`], itself for `n = 0`. Errors: DType for other than floats; Value for an `n` above 150,
    /// whose factorial leaves the floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0], [1])?;
    /// assert_eq!(x.polygamma(1)?.to_vec::<f32>()?, [1.644_934_1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn polygamma(&self, n: u32) -> Result<Tensor> {
        if n > 150 {
            return Err(Error::new(ErrorKind::Value, format!("derivative {n}; at most 150"))).in_op("polygamma");
        }
        if n == 0 {
            return self.digamma();
        }
        let factorial: f64 = (1..=n).map(f64::from).product();
        let order = Tensor::scalar(&self.device(), 0.0)?.cast(self.dtype())?.add(f64::from(n) + 1.0)?;
        order.zeta(self)?.mul(if n.is_multiple_of(2) { -factorial } else { factorial })
    }

    /// 0 below 0, 1 above, `at_zero` at 0; NaN stays. No gradient. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-2.0, 0.0, 3.0], [3])?;
    /// assert_eq!(x.heaviside(0.5)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn heaviside(&self, at_zero: impl IntoOperand) -> Result<Tensor> {
        let step = self.sign()?.add(1.0)?.mul(0.5)?;
        step.masked_fill(&self.eq(0.0)?, at_zero)
    }

    /// From degrees to radians. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[180.0], [1])?;
    /// assert_eq!(x.deg2rad()?.to_vec::<f32>()?, [std::f32::consts::PI]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn deg2rad(&self) -> Result<Tensor> {
        self.mul(std::f64::consts::PI / 180.0)
    }

    /// From radians to degrees. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[std::f32::consts::PI], [1])?;
    /// assert_eq!(x.rad2deg()?.to_vec::<f32>()?, [180.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rad2deg(&self) -> Result<Tensor> {
        self.mul(180.0 / std::f64::consts::PI)
    }

    /// The parts along `axis`, without it. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// assert_eq!(x.unbind(1)?[0].to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn unbind(&self, axis: isize) -> Result<Vec<Tensor>> {
        let at = axis_of(axis, self.rank()).in_op("unbind")?;
        (0..self.dims()[at]).map(|i| self.select(axis, i as isize)).collect()
    }

    /// `self` side by side as often as `counts` says along each axis, the last ones if there are fewer; more of them than axes
    /// make new ones at the front. As NumPy's `tile`. Errors: Shape for a result that is too large to address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [2])?;
    /// assert_eq!(x.tile(&[2])?.to_vec::<i32>()?, [1, 2, 1, 2]);
    /// assert_eq!(x.tile(&[2, 1])?.dims(), [2, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn tile(&self, counts: &[usize]) -> Result<Tensor> {
        let missing = self.rank().saturating_sub(counts.len());
        self.repeat(&[vec![1; missing], counts.to_vec()].concat()).called("tile")
    }

    /// Axes exchanged, of the name that NumPy has. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0; 6], [1, 2, 3])?;
    /// assert_eq!(x.swapaxes(0, -1)?.dims(), [3, 2, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn swapaxes(&self, a: isize, b: isize) -> Result<Tensor> {
        self.transpose(a, b).called("swapaxes")
    }

    /// The differences of neighbours along `axis`, `n` times: `[.., k - n, ..]`. Errors: Axis, DType for bools.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 4, 9, 16], [4])?;
    /// assert_eq!(x.diff(1, 0)?.to_vec::<i32>()?, [3, 5, 7]);
    /// assert_eq!(x.diff(2, 0)?.to_vec::<i32>()?, [2, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn diff(&self, n: usize, axis: isize) -> Result<Tensor> {
        let at = axis_of(axis, self.rank()).in_op("diff")?;
        let mut x = self.clone();
        for _ in 0..n.min(self.dims()[at]) {
            let len = x.dims()[at].saturating_sub(1);
            if len == 0 {
                return x.narrow(axis, 0, 0);
            }
            x = x.narrow(axis, 1, len)?.sub(x.narrow(axis, 0, len)?)?;
        }
        Ok(x)
    }

    /// The integral by trapezoids along `axis`, whose points are `dx` apart. Errors: Axis, DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 1.0, 4.0], [3])?;
    /// assert_eq!(x.trapezoid(1.0, 0)?.item::<f32>()?, 3.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn trapezoid(&self, dx: f64, axis: isize) -> Result<Tensor> {
        let at = axis_of(axis, self.rank()).in_op("trapezoid")?;
        let len = self.dims()[at];
        if len < 2 {
            return self.narrow(axis, 0, 0)?.sum_over(&[axis], false);
        }
        let ends = self.narrow(axis, 0, len - 1)?.add(self.narrow(axis, 1, len - 1)?)?;
        ends.sum_over(&[axis], false)?.mul(dx / 2.0)
    }

    /// Numbers at equal ratios: `base^start` to `base^end`, `n` of them. Errors: DType for bools; Value for a number that is not finite.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::logspace(&device, 0.0, 2.0, 3, 10.0, DType::F32)?.to_vec::<f32>()?, [1.0, 10.0, 100.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn logspace(
        device: &remat_runtime::Device,
        start: f64,
        end: f64,
        n: usize,
        base: f64,
        dtype: remat_types::DType,
    ) -> Result<Tensor> {
        let at = Tensor::linspace(device, start, end, n, remat_types::DType::F64).called("logspace")?;
        let base = Tensor::full(device, [], remat_types::DType::F64, Scalar::Float(base))?;
        base.pow(&at)?.cast(dtype)
    }

    /// Whether every element of every tensor is finite, as one operator: a bool of rank 0. For the gradients of a model whose loss
    /// was scaled up. Errors: Arity for no tensor; DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (a, b) = (Tensor::new(&device, &[1.0], [1])?, Tensor::new(&device, &[f32::NAN], [1])?);
    /// assert!(Tensor::all_finite(&[&a])?.item::<bool>()?);
    /// assert!(!Tensor::all_finite(&[&a, &b])?.item::<bool>()?);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "check_non_finite")]
    #[track_caller]
    pub fn all_finite(x: &[&Tensor]) -> Result<Tensor> {
        Tensor::apply1(remat_ops::reduce::AllFinite {}, x)
    }
}
