//! Factorisations of the matrices in the last two axes, and solutions by them.

use remat_ops::OpRef;
use remat_ops::factor::{Cholesky, Eigh, Pinv, Qr, SlogDet, Solve, SolveTriangular, Svd};
use remat_types::{DType, Error, ErrorKind, Result, Shape};

use crate::Tensor;
use crate::site::InOp;

/// Which triangle [`Tensor::solve_triangular`] reads, and how. The default: the lower one, as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TriangleOptions {
    /// The upper triangle, not the lower one.
    pub upper: bool,
    /// The diagonal counts as ones and is not read.
    pub unit: bool,
    /// `a^T x = b` is solved.
    pub transpose: bool,
}

impl Tensor {
    /// The outputs of an op, as an array.
    #[track_caller]
    fn outputs<const N: usize>(op: impl Into<OpRef>, x: &[&Tensor]) -> Result<[Tensor; N]> {
        let y = Tensor::apply(op, x)?.into_iter().collect::<Vec<_>>();
        y.try_into().map_err(|_| Error::new(ErrorKind::Internal, "another number of outputs"))
    }

    /// `a` and `b` with the batch to which both broadcast; `b` a column if it is a vector. Errors: Axis, Shape.
    #[track_caller]
    fn system(&self, b: &Tensor) -> Result<(Tensor, Tensor)> {
        let b = if b.rank() == 1 { b.unsqueeze(1)? } else { b.clone() };
        let ([in_a @ .., m, n], [in_b @ .., rows, k]) = (self.dims(), b.dims()) else {
            let text = format!("a has shape {}, b {}: a is a matrix, b a matrix or a vector", self.shape(), b.shape());
            return Err(Error::new(ErrorKind::Axis, text));
        };
        let batch = Shape::from(in_a).broadcast(&Shape::from(in_b))?;
        let of = |m: usize, n: usize| -> Shape { batch.dims().iter().copied().chain([m, n]).collect() };
        Ok((self.broadcast_to(of(*m, *n))?, b.broadcast_to(of(*rows, *k))?))
    }

    #[track_caller]
    fn solved(&self, b: &Tensor, op: impl Into<OpRef>, method: &str) -> Result<Tensor> {
        let (a, columns) = self.system(b).in_op(method)?;
        let x = Tensor::apply1(op, &[&a, &columns])?;
        if b.rank() == 1 { x.squeeze(&[-1]) } else { Ok(x) }
    }

    /// The lower triangle `l` with `self = l l^T`, of symmetric positive definite matrices `[.., n, n]`. Only the lower triangle
    /// is read, and the gradient is that of its elements. Errors: DType for other than f32 and f64; Axis, Shape; Value for a
    /// matrix that is not positive definite.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[4.0, 2.0, 2.0, 10.0], [2, 2])?;
    /// assert_eq!(a.cholesky()?.to_vec::<f32>()?, [2.0, 0.0, 1.0, 3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky(&self) -> Result<Tensor> {
        Tensor::apply1(Cholesky {}, &[self])
    }

    /// `x` of `self x = b`, `self: [.., n, n]`, `b, x: [.., n, k]` or `[n]`; batches broadcast. Errors: DType for other than f32
    /// and f64; Axis, Shape; Value for a matrix that is singular.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[0.0, 2.0, 1.0, 1.0], [2, 2])?;
    /// let b = Tensor::new(&device, &[4.0, 3.0], [2])?;
    /// assert_eq!(a.solve(&b)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn solve(&self, b: &Tensor) -> Result<Tensor> {
        self.solved(b, Solve { transpose: false }, "solve")
    }

    /// `x` of `self x = b` with a triangle of `self: [.., n, n]`; the other triangle is not read. `b, x: [.., n, k]` or `[n]`;
    /// batches broadcast. A 0 on the diagonal gives infinities. Errors: DType for other than f32 and f64; Axis, Shape.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, TriangleOptions};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[2.0, 9.0, 5.0, 4.0], [2, 2])?;
    /// let b = Tensor::new(&device, &[4.0, 22.0], [2])?;
    /// assert_eq!(a.solve_triangular(&b, TriangleOptions::default())?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn solve_triangular(&self, b: &Tensor, how: TriangleOptions) -> Result<Tensor> {
        let TriangleOptions { upper, unit, transpose } = how;
        self.solved(b, SolveTriangular { upper, unit, transpose }, "solve_triangular")
    }

    /// `x` of `self self^T x = b` where `self` is the result of [`Tensor::cholesky`]. Errors: those of `solve_triangular`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[4.0, 2.0, 2.0, 10.0], [2, 2])?;
    /// let b = Tensor::new(&device, &[8.0, 22.0], [2])?;
    /// assert_eq!(a.cholesky()?.cholesky_solve(&b)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky_solve(&self, b: &Tensor) -> Result<Tensor> {
        let half = self.solve_triangular(b, TriangleOptions::default()).called("cholesky_solve")?;
        self.solve_triangular(&half, TriangleOptions { transpose: true, ..TriangleOptions::default() })
    }

    /// The inverse of matrices `[.., n, n]`. To solve a system, [`Tensor::solve`] is quicker and more exact. Errors: DType for other
    /// than f32 and f64; Axis, Shape; Value for a matrix that is singular.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[0.0, 2.0, 1.0, 1.0], [2, 2])?;
    /// assert_eq!(a.inverse()?.to_vec::<f32>()?, [-0.5, 1.0, 0.5, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "inv")]
    #[track_caller]
    pub fn inverse(&self) -> Result<Tensor> {
        let n = self.dims().last().copied().unwrap_or(0);
        self.solved(&Tensor::eye(&self.device(), n, self.dtype())?, Solve { transpose: false }, "inverse")
    }

    /// Sign and logarithm of the absolute value of the determinants of matrices `[.., n, n]`: 0 and minus infinity for one that
    /// is singular. Errors: DType for other than f32 and f64; Axis, Shape; Value for the gradient of a singular matrix.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[0.0, 2.0, 3.0, 0.0], [2, 2])?;
    /// let (sign, log) = a.slogdet()?;
    /// assert_eq!((sign.item::<f32>()?, log.item::<f32>()?), (-1.0, 6f32.ln()));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        let [sign, log] = Tensor::outputs(SlogDet {}, &[self])?;
        Ok((sign, log))
    }

    /// The determinants of matrices `[.., n, n]`. Errors: those of [`Tensor::slogdet`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[0.0, 2.0, 3.0, 0.0], [2, 2])?;
    /// assert!((a.det()?.item::<f32>()? + 6.0).abs() < 1e-5);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn det(&self) -> Result<Tensor> {
        let (sign, log) = self.slogdet().called("det")?;
        sign.mul(log.exp()?)
    }

    /// Orthonormal columns `q: [.., m, k]` and an upper triangle `r: [.., k, n]` of `self = q r: [.., m, n]`, `k = min(m, n)`.
    /// The signs of the diagonal of `r` are not normalised. Errors: DType for other than f32 and f64; Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[3.0, 1.0, 4.0, 1.0], [2, 2])?;
    /// let (q, r) = a.qr()?;
    /// assert!(q.matmul(&r)?.allclose(&a, 1e-5, 1e-6)?.item::<bool>()?);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn qr(&self) -> Result<(Tensor, Tensor)> {
        let [q, r] = Tensor::outputs(Qr { complete: false }, &[self])?;
        Ok((q, r))
    }

    /// As [`Tensor::qr`] with all `m` columns of `q`. More rows than columns have no gradient. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[3.0, 4.0], [2, 1])?;
    /// let (q, r) = a.qr_complete()?;
    /// assert_eq!((q.dims(), r.dims()), (&[2, 2][..], &[2, 1][..]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn qr_complete(&self) -> Result<(Tensor, Tensor)> {
        let [q, r] = Tensor::outputs(Qr { complete: true }, &[self])?;
        Ok((q, r))
    }

    /// `u: [.., m, k]`, `s: [.., k]` descending and `vt: [.., k, n]` with `self = u diag(s) vt: [.., m, n]`, `k = min(m, n)`. The
    /// gradient of the vectors is infinite where singular values are equal. Errors: DType for other than f32 and f64; Axis;
    /// Value for a matrix with NaN or an infinity.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[3.0, 0.0, 0.0, -4.0], [2, 2])?;
    /// let (u, s, vt) = a.svd()?;
    /// assert!(u.mul(&s)?.matmul(&vt)?.allclose(&a, 1e-5, 1e-6)?.item::<bool>()?);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn svd(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let [u, s, vt] = Tensor::outputs(Svd { vectors: true }, &[self])?;
        Ok((u, s, vt))
    }

    /// The singular values of matrices `[.., m, n]`, descending. Errors: those of [`Tensor::svd`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[3.0, 0.0, 0.0, -4.0], [2, 2])?;
    /// assert_eq!(a.svdvals()?.to_vec::<f32>()?, [4.0, 3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn svdvals(&self) -> Result<Tensor> {
        Tensor::apply1(Svd { vectors: false }, &[self]).called("svdvals")
    }

    /// Eigenvalues `w: [.., n]`, ascending, and eigenvectors as the columns of `v: [.., n, n]`, of symmetric matrices. Only the
    /// lower triangle is read. The gradient of the vectors is infinite where eigenvalues are equal. Errors: DType for other than
    /// f32 and f64; Axis, Shape; Value for a matrix with NaN or an infinity.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[2.0, 1.0, 1.0, 2.0], [2, 2])?;
    /// let (w, v) = a.eigh()?;
    /// assert!(a.matmul(&v)?.allclose(&v.mul(&w)?, 1e-5, 1e-5)?.item::<bool>()?);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn eigh(&self) -> Result<(Tensor, Tensor)> {
        let [w, v] = Tensor::outputs(Eigh { vectors: true }, &[self])?;
        Ok((w, v))
    }

    /// The eigenvalues of symmetric matrices, ascending. Errors: those of [`Tensor::eigh`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[2.0, 0.0, 0.0, 1.0], [2, 2])?;
    /// assert_eq!(a.eigvalsh()?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn eigvalsh(&self) -> Result<Tensor> {
        Tensor::apply1(Eigh { vectors: false }, &[self]).called("eigvalsh")
    }

    /// The share of the largest singular value from which a singular value counts: the larger extent times the distance of 1 to
    /// the next number.
    fn rcond(&self) -> f64 {
        let extent = self.dims().iter().rev().take(2).copied().max().unwrap_or(1);
        extent as f64 * if self.dtype() == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON }
    }

    /// The pseudoinverse `[.., n, m]` of matrices `[.., m, n]`; singular values below `max(m, n)` times the precision, of the largest,
    /// count as 0. Its gradient is that for changes which keep the rank. Errors: DType for other than f32 and f64; Axis; Value
    /// for a matrix with NaN or an infinity.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[2.0, 0.0, 0.0, 0.0], [2, 2])?;
    /// assert_eq!(a.pinv()?.to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn pinv(&self) -> Result<Tensor> {
        self.pinv_with(self.rcond())
    }

    /// As [`Tensor::pinv`], where singular values below `rcond` times the largest count as 0. Errors: also Value for an `rcond` outside
    /// 0 ..= 1.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[2.0, 0.0, 0.0, 0.1], [2, 2])?;
    /// assert_eq!(a.pinv_with(0.1)?.to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn pinv_with(&self, rcond: f64) -> Result<Tensor> {
        Tensor::apply1(Pinv { rcond: rcond.into() }, &[self])
    }

    /// The shortest `x` for which `self x` is nearest to `b`: `self: [.., m, n]`, `b: [.., m, k]` or `[m]`. By the pseudoinverse.
    /// Errors: those of [`Tensor::pinv`]; Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 0.0, 1.0, 1.0, 1.0, 2.0], [3, 2])?;
    /// let b = Tensor::new(&device, &[1.0, 3.0, 5.0], [3])?;
    /// assert!(a.lstsq(&b)?.allclose(&Tensor::new(&device, &[1.0, 2.0], [2])?, 1e-4, 1e-4)?.item::<bool>()?);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn lstsq(&self, b: &Tensor) -> Result<Tensor> {
        self.pinv().called("lstsq")?.matmul(b)
    }

    /// How many singular values of matrices `[.., m, n]` are above `max(m, n)` times the precision, of the largest, as I64. Errors:
    /// those of [`Tensor::svdvals`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 2.0, 2.0, 4.0], [2, 2])?;
    /// assert_eq!(a.matrix_rank()?.item::<i64>()?, 1);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn matrix_rank(&self) -> Result<Tensor> {
        let s = self.svdvals().called("matrix_rank")?;
        if s.dims().last() == Some(&0) {
            return Tensor::zeros(&self.device(), &self.dims()[..self.rank() - 2], DType::I64);
        }
        let least = s.narrow(-1, 0, 1)?.mul(self.rcond())?;
        s.gt(&least)?.sum_over(&[-1], false)
    }

    /// The product of `n` factors `self: [.., m, m]`, of the inverse if `n` is negative, and the identity if it is 0. Errors: Axis,
    /// Shape; those of [`Tensor::inverse`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 1.0, 0.0, 1.0], [2, 2])?;
    /// assert_eq!(a.matrix_power(5)?.to_vec::<f32>()?, [1.0, 5.0, 0.0, 1.0]);
    /// assert_eq!(a.matrix_power(-1)?.to_vec::<f32>()?, [1.0, -1.0, 0.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        let [.., rows, columns] = self.dims() else {
            let text = format!("shape {} has rank {}; it must be 2 or more", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("matrix_power");
        };
        if rows != columns {
            let text = format!("shape {}: its matrices are not square", self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("matrix_power");
        }
        if n == 0 {
            return Tensor::eye(&self.device(), *rows, self.dtype())?.broadcast_to(self.shape());
        }
        let mut square = if n < 0 { self.inverse().called("matrix_power")? } else { self.clone() };
        let (mut left, mut power) = (n.unsigned_abs(), None::<Tensor>);
        loop {
            if left & 1 == 1 {
                power = Some(match power {
                    Some(p) => p.matmul(&square)?,
                    None => square.clone(),
                });
            }
            left >>= 1;
            match power {
                Some(power) if left == 0 => return Ok(power),
                _ => square = square.matmul(&square)?,
            }
        }
    }
}
