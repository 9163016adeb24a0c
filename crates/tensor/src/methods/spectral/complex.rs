use remat_types::{Error, ErrorKind, Result, Shape};

use crate::Tensor;
use crate::site::InOp;

/// A tensor of complex numbers: real and imaginary part side by side in the last axis of a tensor of floats.
///
/// Axes are named without that last one, so [`Complex::dims`] of pairs `[3, 4, 2]` is `[3, 4]`. Gradients are those of the
/// two parts, as in PyTorch: of a real loss they are `dL/dre + i dL/dim`.
///
/// ```
/// # use remat_tensor::{Complex, Tensor};
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let i = Complex::new(&Tensor::new(&device, &[0.0], [1])?, &Tensor::new(&device, &[1.0], [1])?)?;
/// assert_eq!(i.mul(&i)?.re()?.to_vec::<f32>()?, [-1.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Complex {
    pairs: Tensor,
}

impl Complex {
    /// `re + i im`; shapes broadcast. Errors: Shape; DType for other than floats.
    #[track_caller]
    pub fn new(re: &Tensor, im: &Tensor) -> Result<Complex> {
        let shape = re.shape().broadcast(im.shape()).in_op("complex")?;
        let (re, im) = (re.broadcast_to(shape.clone())?, im.broadcast_to(shape)?);
        Complex::from_pairs(Tensor::stack(&[&re, &im], -1).called("complex")?)
    }

    /// Of pairs in the last axis. Errors: Shape where that has another extent than 2; DType for other than floats.
    #[track_caller]
    pub fn from_pairs(pairs: Tensor) -> Result<Complex> {
        if pairs.dims().last() != Some(&2) {
            let text = format!("shape {}: its last axis is not of pairs of real and imaginary part", pairs.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("complex");
        }
        if !pairs.dtype().is_float() {
            return Err(Error::new(ErrorKind::DType, format!("parts of {}; floats are needed", pairs.dtype())))
                .in_op("complex");
        }
        Ok(Complex { pairs })
    }

    /// Real numbers as complex ones. Errors: DType for other than floats.
    #[track_caller]
    pub fn from_real(re: &Tensor) -> Result<Complex> {
        Complex::new(re, &re.zeros_like()?)
    }

    /// `abs e^(i angle)`; shapes broadcast. Errors: Shape; DType for other than floats.
    #[track_caller]
    pub fn from_polar(abs: &Tensor, angle: &Tensor) -> Result<Complex> {
        Complex::new(&abs.mul(angle.cos()?)?, &abs.mul(angle.sin()?)?)
    }

    /// The pairs `[.., 2]`, as PyTorch's `view_as_real`.
    pub fn pairs(&self) -> &Tensor {
        &self.pairs
    }

    /// The extents without the axis of the parts.
    pub fn dims(&self) -> &[usize] {
        let dims = self.pairs.dims();
        &dims[..dims.len() - 1]
    }

    /// The number of axes without that of the parts.
    pub fn rank(&self) -> usize {
        self.dims().len()
    }

    #[track_caller]
    fn part(&self, i: isize) -> Result<Tensor> {
        self.pairs.select(-1, i)
    }

    /// The real part.
    #[track_caller]
    pub fn re(&self) -> Result<Tensor> {
        self.part(0)
    }

    /// The imaginary part.
    #[track_caller]
    pub fn im(&self) -> Result<Tensor> {
        self.part(1)
    }

    /// The size `sqrt(re^2 + im^2)`, without overflow; its derivative at 0 is 0.
    #[track_caller]
    pub fn abs(&self) -> Result<Tensor> {
        self.re()?.hypot(self.im()?)
    }

    /// `re^2 + im^2`.
    #[track_caller]
    pub fn abs_square(&self) -> Result<Tensor> {
        self.pairs.square()?.sum_over(&[-1], false)
    }

    /// The angle in radians, in `-pi ..= pi`.
    #[track_caller]
    pub fn angle(&self) -> Result<Tensor> {
        self.im()?.atan2(self.re()?)
    }

    /// `re - i im`.
    #[track_caller]
    pub fn conj(&self) -> Result<Complex> {
        Complex::new(&self.re()?, &self.im()?.neg()?)
    }

    /// The sum; shapes broadcast. Errors: Shape, DType.
    #[track_caller]
    pub fn add(&self, b: &Complex) -> Result<Complex> {
        Ok(Complex { pairs: self.pairs.add(&b.pairs)? })
    }

    /// The difference; shapes broadcast. Errors: Shape, DType.
    #[track_caller]
    pub fn sub(&self, b: &Complex) -> Result<Complex> {
        Ok(Complex { pairs: self.pairs.sub(&b.pairs)? })
    }

    /// The product; shapes broadcast. Errors: Shape, DType.
    #[track_caller]
    pub fn mul(&self, b: &Complex) -> Result<Complex> {
        let (a, b) = ((self.re()?, self.im()?), (b.re()?, b.im()?));
        Complex::new(&a.0.mul(&b.0)?.sub(a.1.mul(&b.1)?)?, &a.0.mul(&b.1)?.add(a.1.mul(&b.0)?)?)
    }

    /// The quotient; shapes broadcast. Errors: Shape, DType.
    #[track_caller]
    pub fn div(&self, b: &Complex) -> Result<Complex> {
        let size = b.abs_square()?;
        self.mul(&b.conj()?)?.scale(&size.recip()?)
    }

    /// Times real numbers; shapes broadcast. Errors: Shape, DType.
    #[track_caller]
    pub fn scale(&self, by: &Tensor) -> Result<Complex> {
        Ok(Complex { pairs: self.pairs.mul(by.unsqueeze(-1)?)? })
    }

    /// Times one real number.
    #[track_caller]
    pub fn scale_by(&self, by: f64) -> Result<Complex> {
        Ok(Complex { pairs: self.pairs.mul(by)? })
    }

    /// `e^z`.
    #[track_caller]
    pub fn exp(&self) -> Result<Complex> {
        Complex::from_polar(&self.re()?.exp()?, &self.im()?)
    }

    /// The principal logarithm.
    #[track_caller]
    pub fn log(&self) -> Result<Complex> {
        Complex::new(&self.abs()?.log()?, &self.angle()?)
    }

    /// The principal square root.
    #[track_caller]
    pub fn sqrt(&self) -> Result<Complex> {
        Complex::from_polar(&self.abs()?.sqrt()?, &self.angle()?.mul(0.5)?)
    }

    /// The matrix product, by three products of real matrices. Errors: those of [`Tensor::matmul`].
    #[track_caller]
    pub fn matmul(&self, b: &Complex) -> Result<Complex> {
        let ((ar, ai), (br, bi)) = ((self.re()?, self.im()?), (b.re()?, b.im()?));
        let (first, second) = (ar.matmul(&br)?, ai.matmul(&bi)?);
        let both = ar.add(&ai)?.matmul(&br.add(&bi)?)?;
        Complex::new(&first.sub(&second)?, &both.sub(&first)?.sub(&second)?)
    }

    /// The sum over `axes`, all if none is named. Errors: Axis.
    #[track_caller]
    pub fn sum_over(&self, axes: &[isize], keepdims: bool) -> Result<Complex> {
        let axes: Vec<isize> = if axes.is_empty() {
            (0..self.rank() as isize).collect()
        } else {
            remat_types::axes_of(axes, self.rank()).in_op("sum_over")?.iter().map(|a| *a as isize).collect()
        };
        if axes.is_empty() {
            return Ok(self.clone());
        }
        Ok(Complex { pairs: self.pairs.sum_over(&axes, keepdims)? })
    }

    /// Another shape of as many numbers. Errors: Shape.
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Result<Complex> {
        Ok(Complex { pairs: self.pairs.reshape(&[shape, &[2]].concat())? })
    }

    /// Axes in another order. Errors: Axis.
    #[track_caller]
    pub fn permute(&self, order: &[isize]) -> Result<Complex> {
        let order = order.iter().map(|a| remat_types::axis_of(*a, self.rank()).map(|a| a as isize));
        let mut order: Vec<isize> = order.collect::<Result<_>>().in_op("permute")?;
        order.push(self.rank() as isize);
        Ok(Complex { pairs: self.pairs.permute(&order)? })
    }

    /// Two axes exchanged. Errors: Axis.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Complex> {
        let of = |a| remat_types::axis_of(a, self.rank());
        let (a, b) = (of(a).in_op("transpose")?, of(b).in_op("transpose")?);
        Ok(Complex { pairs: self.pairs.transpose(a as isize, b as isize)? })
    }

    /// A part along `axis`. Errors: Axis, Index.
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: isize, len: usize) -> Result<Complex> {
        let axis = remat_types::axis_of(axis, self.rank()).in_op("narrow")?;
        Ok(Complex { pairs: self.pairs.narrow(axis as isize, start, len)? })
    }

    /// The shape without the axis of the parts.
    pub fn shape(&self) -> Shape {
        self.dims().into()
    }
}
