use remat_ops::spectral::{Fft, Irfft, Rfft};
use remat_types::{DType, Error, ErrorKind, Result, axis_of};

use super::Complex;
use crate::Tensor;
use crate::site::InOp;

/// The divisor of transforms, as NumPy's and PyTorch's `norm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FftNorm {
    /// The inverse by the number of elements.
    #[default]
    Backward,
    /// Both by its root, so that they keep lengths.
    Ortho,
    /// The forward one by the number of elements.
    Forward,
}

impl FftNorm {
    fn factor(self, n: usize, inverse: bool) -> f64 {
        let n = n.max(1) as f64;
        match (self, inverse) {
            (FftNorm::Backward, true) | (FftNorm::Forward, false) => 1.0 / n,
            (FftNorm::Ortho, _) => 1.0 / n.sqrt(),
            _ => 1.0,
        }
    }
}

/// As many elements along `axis`: the first ones, or with zeros behind. Errors: Value for none.
#[track_caller]
fn resized(x: &Tensor, n: Option<usize>, axis: usize) -> Result<Tensor> {
    let have = x.dims()[axis];
    match n {
        Some(0) => Err(Error::new(ErrorKind::Value, "a transform of 0 numbers")),
        Some(n) if n < have => x.narrow(axis as isize, 0, n),
        Some(n) if n > have => {
            let mut amounts = vec![(0, 0); x.rank()];
            amounts[axis] = (0, n - have);
            x.pad(&amounts, 0.0)
        }
        _ => Ok(x.clone()),
    }
}

#[track_caller]
fn scaled(x: Tensor, by: f64) -> Result<Tensor> {
    if by == 1.0 { Ok(x) } else { x.mul(by) }
}

impl Tensor {
    /// The transform of real numbers along `axis`, `n` of them: the first `n / 2 + 1` numbers, which tell the others. `n` cuts the
    /// axis or fills it with zeros; `None` is its extent. As `rfft` of NumPy and PyTorch. Errors: Axis; DType for other than f32 and
    /// f64; Value and Shape for no numbers.
    ///
    /// ```
    /// # use remat_tensor::{FftNorm, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [4])?;
    /// let y = x.rfft(None, -1, FftNorm::Backward)?;
    /// assert_eq!(y.re()?.to_vec::<f32>()?, [10.0, -2.0, -2.0]);
    /// assert_eq!(y.irfft(Some(4), -1, FftNorm::Backward)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rfft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Complex> {
        let axis = axis_of(axis, self.rank()).in_op("rfft")?;
        let x = resized(self, n, axis).in_op("rfft")?;
        let n = x.dims()[axis];
        let y = Tensor::apply1(Rfft {}, &[&x.movedim(axis as isize, -1)?])?;
        let y = scaled(y, norm.factor(n, false))?;
        Complex::from_pairs(y.movedim(-2, axis as isize)?)
    }

    /// [`Tensor::rfft`] along the last of `axes`, [`Complex::fft`] along the others. Errors: as those.
    ///
    /// ```
    /// # use remat_tensor::{FftNorm, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.rfftn(&[0, 1], FftNorm::Backward)?.re()?.to_vec::<f32>()?, [10.0, -2.0, -4.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "rfft2")]
    #[track_caller]
    pub fn rfftn(&self, axes: &[isize], norm: FftNorm) -> Result<Complex> {
        remat_types::axes_of(axes, self.rank()).in_op("rfftn")?;
        let Some((last, others)) = axes.split_last() else {
            return Err(Error::new(ErrorKind::Axis, "no axis to transform")).in_op("rfftn");
        };
        let first = self.rfft(None, *last, norm)?;
        others.iter().try_fold(first, |y, a| y.fft(None, axis_of(*a, self.rank())? as isize, norm))
    }

    /// The frequencies of the `n` numbers of a transform whose points are `d` apart: `0, 1, .., -2, -1` over `n d`. Errors: DType for
    /// other than floats; Value for a distance that is not positive.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::fftfreq(&device, 4, 0.25, DType::F32)?.to_vec::<f32>()?, [0.0, 1.0, -2.0, -1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn fftfreq(device: &remat_runtime::Device, n: usize, d: f64, dtype: DType) -> Result<Tensor> {
        let half = n.div_ceil(2);
        let at = Tensor::arange(device, 0, n as i64, 1, DType::F64).called("fftfreq")?;
        let behind = at.ge(half as f64)?.cast(DType::F64)?.mul(n as f64)?;
        spaced(at.sub(behind)?, n, d, dtype).in_op("fftfreq")
    }

    /// The frequencies of the `n / 2 + 1` numbers of [`Tensor::rfft`], whose points are `d` apart. Errors: as [`Tensor::fftfreq`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::rfftfreq(&device, 4, 0.25, DType::F32)?.to_vec::<f32>()?, [0.0, 1.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rfftfreq(device: &remat_runtime::Device, n: usize, d: f64, dtype: DType) -> Result<Tensor> {
        let at = Tensor::arange(device, 0, (n / 2 + 1) as i64, 1, DType::F64).called("rfftfreq")?;
        spaced(at, n, d, dtype).in_op("rfftfreq")
    }

    /// The zero frequency in the middle of each of `axes`, where a transform has it first. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0, 1, 2, -2, -1], [5])?;
    /// assert_eq!(x.fftshift(&[0])?.to_vec::<i32>()?, [-2, -1, 0, 1, 2]);
    /// assert_eq!(x.fftshift(&[0])?.ifftshift(&[0])?.to_vec::<i32>()?, [0, 1, 2, -2, -1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn fftshift(&self, axes: &[isize]) -> Result<Tensor> {
        let shift = |x: Tensor, a: usize| x.roll((x.dims()[a] / 2) as isize, a as isize);
        remat_types::axes_of(axes, self.rank()).in_op("fftshift")?.into_iter().try_fold(self.clone(), shift)
    }

    /// The inverse of [`Tensor::fftshift`]. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-1, 0, 1], [3])?;
    /// assert_eq!(x.ifftshift(&[0])?.to_vec::<i32>()?, [0, 1, -1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn ifftshift(&self, axes: &[isize]) -> Result<Tensor> {
        let shift = |x: Tensor, a: usize| x.roll(-((x.dims()[a] / 2) as isize), a as isize);
        remat_types::axes_of(axes, self.rank()).in_op("ifftshift")?.into_iter().try_fold(self.clone(), shift)
    }
}

#[track_caller]
fn spaced(at: Tensor, n: usize, d: f64, dtype: DType) -> Result<Tensor> {
    if !(d > 0.0 && d.is_finite()) {
        return Err(Error::new(ErrorKind::Value, format!("a distance of {d}; it must be positive and finite")));
    }
    at.mul(1.0 / (n.max(1) as f64 * d))?.cast(dtype)
}

impl Complex {
    #[track_caller]
    fn along(&self, n: Option<usize>, axis: isize, norm: FftNorm, inverse: bool, name: &str) -> Result<Complex> {
        let axis = axis_of(axis, self.rank()).in_op(name)?;
        let x = resized(self.pairs(), n, axis).in_op(name)?;
        let n = x.dims()[axis];
        let y = Tensor::apply1(Fft { inverse }, &[&x.movedim(axis as isize, -2)?]).called(name)?;
        Complex::from_pairs(scaled(y, norm.factor(n, inverse))?.movedim(-2, axis as isize)?)
    }

    /// `y_k = sum of x_j e^(-2 pi i j k / n)` along `axis`, `n` numbers: cut off or filled up with zeros; `None` is the extent. Errors:
    /// Axis; DType for other than f32 and f64; Value for no numbers.
    #[track_caller]
    pub fn fft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Complex> {
        self.along(n, axis, norm, false, "fft")
    }

    /// The inverse of [`Complex::fft`]. Errors: as there.
    #[track_caller]
    pub fn ifft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Complex> {
        self.along(n, axis, norm, true, "ifft")
    }

    /// [`Complex::fft`] along several axes. Errors: as there.
    #[track_caller]
    pub fn fftn(&self, axes: &[isize], norm: FftNorm) -> Result<Complex> {
        remat_types::axes_of(axes, self.rank()).in_op("fftn")?;
        axes.iter().try_fold(self.clone(), |y, a| y.fft(None, *a, norm))
    }

    /// The inverse of [`Complex::fftn`]. Errors: as there.
    #[track_caller]
    pub fn ifftn(&self, axes: &[isize], norm: FftNorm) -> Result<Complex> {
        remat_types::axes_of(axes, self.rank()).in_op("ifftn")?;
        axes.iter().try_fold(self.clone(), |y, a| y.ifft(None, *a, norm))
    }

    /// `n` real numbers along `axis` out of the first `n / 2 + 1` of their transform: what undoes [`Tensor::rfft`]. `None` is twice the
    /// extent less 2. Errors: Axis; DType for other than f32 and f64; Value for no numbers.
    #[track_caller]
    pub fn irfft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("irfft")?;
        let n = n.unwrap_or_else(|| 2 * self.dims()[axis].saturating_sub(1));
        if n == 0 {
            return Err(Error::new(ErrorKind::Value, "a transform of 0 numbers")).in_op("irfft");
        }
        let x = resized(self.pairs(), Some(n / 2 + 1), axis).in_op("irfft")?;
        let y = Tensor::apply1(Irfft { n }, &[&x.movedim(axis as isize, -2)?])?;
        scaled(y, norm.factor(n, true))?.movedim(-1, axis as isize)
    }

    /// The inverse of [`Tensor::rfftn`], where the last of `axes` has `n` numbers. Errors: as [`Complex::irfft`].
    #[track_caller]
    pub fn irfftn(&self, n: Option<usize>, axes: &[isize], norm: FftNorm) -> Result<Tensor> {
        remat_types::axes_of(axes, self.rank()).in_op("irfftn")?;
        let Some((last, others)) = axes.split_last() else {
            return Err(Error::new(ErrorKind::Axis, "no axis to transform")).in_op("irfftn");
        };
        self.ifftn(others, norm)?.irfft(n, *last, norm)
    }
}
