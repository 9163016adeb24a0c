//! Products of several kinds, diagonals, and grids.

use remat_ops::shape::{Reshape, SliceGrad};
use remat_types::{DType, Error, ErrorKind, Result, Shape, axes_of, axis_of, promote};

use crate::Tensor;
use crate::site::InOp;

impl Tensor {
    /// The sum of the products of elements over pairs of axes, `(axis of self, axis of b)`: the axes of `self` that stay, then those
    /// of `b`. Errors: Axis, Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
    /// let b = Tensor::new(&device, &[1.0, 0.0, 1.0, 0.0, 1.0, 1.0], [3, 2])?;
    /// assert_eq!(a.tensordot(&b, &[(1, 0)])?.to_vec::<f32>()?, [6.0, 3.0, 15.0, 6.0]);
    /// assert_eq!(a.tensordot(&b, &[(1, 0), (0, 1)])?.item::<f32>()?, 12.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn tensordot(&self, b: &Tensor, axes: &[(isize, isize)]) -> Result<Tensor> {
        let (of_a, of_b): (Vec<isize>, Vec<isize>) = axes.iter().copied().unzip();
        let sides = [(self, &of_a), (b, &of_b)];
        for (t, axes) in sides {
            axes_of(axes, t.rank()).in_op("tensordot")?;
        }
        let labels_a: Vec<u32> = (0..self.rank() as u32).collect();
        let mut labels_b: Vec<u32> = (0..b.rank() as u32).map(|i| 1000 + i).collect();
        for (x, y) in of_a.iter().zip(&of_b) {
            let (x, y) = (axis_of(*x, self.rank())?, axis_of(*y, b.rank())?);
            if self.dims()[x] != b.dims()[y] {
                let text = format!("axis {x} of {} and axis {y} of {} have other extents", self.shape(), b.shape());
                return Err(Error::new(ErrorKind::Shape, text)).in_op("tensordot");
            }
            labels_b[y] = labels_a[x];
        }
        let stays = |l: &u32| !(labels_a.contains(l) && labels_b.contains(l));
        let out: Vec<u32> = labels_a.iter().chain(&labels_b).copied().filter(stays).collect();
        super::einsum::contract_all(vec![(self.clone(), labels_a), (b.clone(), labels_b)], &out).called("tensordot")
    }

    /// The sum of the products of the elements of two vectors. Errors: Axis for another rank; Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 2.0], [2])?;
    /// assert_eq!(a.dot(&a)?.item::<f32>()?, 5.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn dot(&self, b: &Tensor) -> Result<Tensor> {
        if let Some(t) = [self, b].into_iter().find(|t| t.rank() != 1) {
            let text = format!("a factor has shape {}: rank {}, not 1", t.shape(), t.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("dot");
        }
        self.matmul(b).called("dot")
    }

    /// The vector product along `axis`, of vectors of three elements, at right angles to both; other axes broadcast. Errors: Axis;
    /// Shape for another extent than 3.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 0.0, 0.0], [3])?;
    /// let b = Tensor::new(&device, &[0.0, 1.0, 0.0], [3])?;
    /// assert_eq!(a.cross(&b, -1)?.to_vec::<f32>()?, [0.0, 0.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cross(&self, b: &Tensor, axis: isize) -> Result<Tensor> {
        for t in [self, b] {
            let at = axis_of(axis, t.rank()).in_op("cross")?;
            if t.dims()[at] != 3 {
                let text = format!("shape {}: axis {at} has {} elements, not 3", t.shape(), t.dims()[at]);
                return Err(Error::new(ErrorKind::Shape, text)).in_op("cross");
            }
        }
        let turned = |t: &Tensor, by: isize| t.roll(by, axis);
        turned(self, -1)?.mul(turned(b, -2)?)?.sub(turned(self, -2)?.mul(turned(b, -1)?)?)
    }

    /// Kronecker's product: each element of `self` times all of `b`, side by side along every axis; a shorter shape is filled up
    /// with axes of extent 1 at its front. Errors: DType; Shape for a result that is too large to address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1, 2], [1, 2])?;
    /// let b = Tensor::new(&device, &[1, 10], [2])?;
    /// assert_eq!(a.kron(&b)?.to_vec::<i32>()?, [1, 10, 2, 20]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn kron(&self, b: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(b.rank());
        let filled = |t: &Tensor| -> Vec<usize> { [vec![1; rank - t.rank()], t.dims().to_vec()].concat() };
        let (of_a, of_b) = (filled(self), filled(b));
        let spread = |dims: &[usize], first: bool| -> Shape {
            dims.iter().flat_map(|d| if first { [*d, 1] } else { [1, *d] }).collect()
        };
        let a = Tensor::apply1(Reshape { shape: spread(&of_a, true) }, &[self])?;
        let b = Tensor::apply1(Reshape { shape: spread(&of_b, false) }, &[b])?;
        let shape: Shape = of_a.iter().zip(&of_b).map(|(a, b)| a.saturating_mul(*b)).collect();
        Tensor::apply_owned(Reshape { shape }, [a.mul(&b).called("kron")?])
    }

    /// The elements whose places along two axes differ by `offset`: `[.., k]`, a new last axis in the place of the two. Errors: Axis
    /// for axes out of range or equal; Index for an offset beyond the matrix.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.diagonal(0, 0, 1)?.to_vec::<i32>()?, [1, 5]);
    /// assert_eq!(x.diagonal(1, -2, -1)?.to_vec::<i32>()?, [2, 6]);
    /// assert_eq!(x.diagonal(-1, 0, 1)?.to_vec::<i32>()?, [4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn diagonal(&self, offset: isize, axis1: isize, axis2: isize) -> Result<Tensor> {
        axes_of(&[axis1, axis2], self.rank()).in_op("diagonal")?;
        let (first, second) = (axis_of(axis1, self.rank())?, axis_of(axis2, self.rank())?);
        let (m, n) = (self.dims()[first], self.dims()[second]);
        let is_beyond = if offset < 0 { offset.unsigned_abs() >= m.max(1) } else { offset.unsigned_abs() >= n.max(1) };
        if is_beyond {
            let text = format!("shape {}: a matrix of {m} rows and {n} columns has no diagonal {offset}", self.shape());
            return Err(Error::new(ErrorKind::Index, text)).in_op("diagonal");
        }
        let (down, across) = if offset < 0 { (offset.unsigned_abs(), 0) } else { (0, offset.unsigned_abs()) };
        let len = (m - down.min(m)).min(n - across.min(n));
        let order: Vec<isize> = (0..self.rank())
            .filter(|a| *a != first && *a != second)
            .chain([first, second])
            .map(|a| a as isize)
            .collect();
        let last = self.permute(&order)?;
        let mut shape: Vec<usize> = last.dims()[..self.rank() - 2].to_vec();
        shape.push(m * n);
        let flat = Tensor::apply1(Reshape { shape: shape.into() }, &[&last])?;
        if len == 0 {
            return flat.narrow(-1, 0, 0);
        }
        let (start, step) = ((down * n + across) as isize, n as isize + 1);
        flat.slice_step(-1, start..start + (len as isize - 1) * step + 1, step)
    }

    /// Vectors in the last axis as the diagonals of square matrices that are 0 elsewhere: `[.., n]` to `[.., n + |offset|, n +
    /// |offset|]`. Errors: Axis for rank 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [2])?;
    /// assert_eq!(x.diag_embed(0)?.to_vec::<i32>()?, [1, 0, 0, 2]);
    /// assert_eq!(x.diag_embed(-1)?.to_vec::<i32>()?, [0, 0, 0, 1, 0, 0, 0, 2, 0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn diag_embed(&self, offset: isize) -> Result<Tensor> {
        let [batch @ .., len] = self.dims() else {
            return Err(Error::new(ErrorKind::Axis, "a tensor of rank 0 has no vectors")).in_op("diag_embed");
        };
        let too_large = || Error::new(ErrorKind::Shape, format!("diagonal {offset} is too far out to address"));
        let n = len.checked_add(offset.unsigned_abs()).ok_or_else(too_large).in_op("diag_embed")?;
        let extent = n.checked_mul(n).ok_or_else(too_large).in_op("diag_embed")?;
        let start = if offset < 0 { offset.unsigned_abs() * n } else { offset.unsigned_abs() };
        let axis = self.rank() - 1;
        let flat = if *len == 0 {
            let shape: Shape = batch.iter().copied().chain([extent]).collect();
            Tensor::zeros(&self.device(), shape, self.dtype())?
        } else {
            Tensor::apply1(SliceGrad { axis, start, step: n as isize + 1, extent }, &[self]).called("diag_embed")?
        };
        let shape: Shape = batch.iter().copied().chain([n, n]).collect();
        Tensor::apply_owned(Reshape { shape }, [flat])
    }

    /// Of a vector the matrix with it as a diagonal, of a matrix that diagonal. Errors: Axis for another rank; Index.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [2])?;
    /// assert_eq!(x.diag(0)?.to_vec::<i32>()?, [1, 0, 0, 2]);
    /// assert_eq!(x.diag(0)?.diag(0)?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn diag(&self, offset: isize) -> Result<Tensor> {
        match self.rank() {
            1 => self.diag_embed(offset).called("diag"),
            2 => self.diagonal(offset, 0, 1).called("diag"),
            rank => {
                let text = format!("shape {} has rank {rank}; it must be 1 or 2", self.shape());
                Err(Error::new(ErrorKind::Axis, text)).in_op("diag")
            }
        }
    }

    /// The sum of the diagonal of the matrices in the last two axes. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.trace()?.item::<f32>()?, 5.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn trace(&self) -> Result<Tensor> {
        self.diagonal(0, -2, -1).called("trace")?.sum_over(&[-1], false)
    }

    /// Vectors as the coordinates of a grid: one tensor of shape `[x[0].len, x[1].len, ..]` for each vector. The `i`-th tensor
    /// varies along axis `i` alone (`indexing="ij"` elsewhere). Errors: Axis for other than vectors.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (a, b) = (Tensor::new(&device, &[1, 2], [2])?, Tensor::new(&device, &[5, 6], [2])?);
    /// let grid = Tensor::meshgrid(&[&a, &b])?;
    /// assert_eq!(grid[0].to_vec::<i32>()?, [1, 1, 2, 2]);
    /// assert_eq!(grid[1].to_vec::<i32>()?, [5, 6, 5, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn meshgrid(x: &[&Tensor]) -> Result<Vec<Tensor>> {
        if let Some(t) = x.iter().find(|t| t.rank() != 1) {
            let text = format!("a coordinate has shape {}: rank {}, not 1", t.shape(), t.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("meshgrid");
        }
        let all: Shape = x.iter().map(|t| t.dims()[0]).collect();
        let one = |(i, t): (usize, &&Tensor)| {
            let mut along = vec![1; x.len()];
            along[i] = t.dims()[0];
            Tensor::apply1(Reshape { shape: along.into() }, &[t])?.broadcast_to(all.clone())
        };
        x.iter().enumerate().map(one).collect()
    }

    /// All pairs of elements of two vectors, as rows `[n m, 2]`: the first one varies slowest. Errors: Axis for other than vectors, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (a, b) = (Tensor::new(&device, &[1, 2], [2])?, Tensor::new(&device, &[5, 6], [2])?);
    /// assert_eq!(Tensor::cartesian_prod(&[&a, &b])?.to_vec::<i32>()?, [1, 5, 1, 6, 2, 5, 2, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cartesian_prod(x: &[&Tensor]) -> Result<Tensor> {
        let grid = Tensor::meshgrid(x).called("cartesian_prod")?;
        let flat: Vec<Tensor> = grid.iter().map(|t| t.reshape(&[-1])).collect::<Result<_>>()?;
        Tensor::stack(&flat.iter().collect::<Vec<_>>(), -1)
    }

    /// The `p`-norm of the differences of all rows of `self: [.., n, d]` from all of `b: [.., m, d]`, as `[.., n, m]`; batches
    /// broadcast. With `p = 2` by a product of matrices, whose rounding may move distances far below the norms of the rows.
    /// Errors: Axis, Shape, DType; Value for a `p` that is not positive.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[0.0, 0.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(a.cdist(&a, 2.0)?.to_vec::<f32>()?, [0.0, 5.0, 5.0, 0.0]);
    /// assert_eq!(a.cdist(&a, 1.0)?.to_vec::<f32>()?, [0.0, 7.0, 7.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cdist(&self, b: &Tensor, p: f64) -> Result<Tensor> {
        let ([.., d], [.., e]) = (self.dims(), b.dims()) else {
            let text = format!("shapes {} and {}: both need rows", self.shape(), b.shape());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("cdist");
        };
        if self.rank() < 2 || b.rank() < 2 || d != e {
            let text = format!("shapes {} and {}: rows need one extent", self.shape(), b.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("cdist");
        }
        if p != 2.0 {
            let difference = self.unsqueeze(-2)?.sub(b.unsqueeze(-3)?)?;
            return difference.norm_of(p, &[-1], false).called("cdist");
        }
        if matches!(promote(self.dtype(), b.dtype()), DType::F16 | DType::BF16) {
            // squares are beyond 16 bits where distances are not
            let wide = self.cast(DType::F32)?.cdist(&b.cast(DType::F32)?, p).called("cdist")?;
            return wide.cast(promote(self.dtype(), b.dtype()));
        }
        let by = Tensor::scale_of_squares(self, b).called("cdist")?;
        let (x, y) = (self.div(&by)?, b.div(&by)?);
        let squares = |t: &Tensor| t.square()?.sum_over(&[-1], true);
        let both = squares(&x)?.add(squares(&y)?.transpose(-2, -1)?)?;
        let near = both.sub(x.matmul(&y.transpose(-2, -1)?)?.mul(2.0)?)?;
        // the derivative of a distance of 0 is 0, and rounding may go below it
        let positive = near.relu()?;
        let at_zero = positive.le(0.0)?;
        positive.masked_fill(&at_zero, 1.0)?.sqrt()?.masked_fill(&at_zero, 0.0)?.mul(&by)
    }

    /// The divisor of two tensors that keeps sums of their squares from over- and underflow: 1, unless their largest element is
    /// far from 1. It has no gradient, since the caller multiplies by it again.
    #[track_caller]
    fn scale_of_squares(a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let largest = |t: &Tensor| match t.elems() {
            0 => Tensor::zeros(&t.device(), [], t.dtype()),
            _ => t.detach().abs()?.max(),
        };
        let most = largest(a)?.maximum(&largest(b)?)?;
        let (low, high) = if most.dtype() == DType::F64 { (1e-100, 1e100) } else { (1e-12, 1e12) };
        let is_far = most.gt(high)?.logical_or(most.lt(low)?.logical_and(most.gt(0.0)?)?)?;
        is_far.logical_and(most.is_finite()?)?.where_cond(&most, 1.0)
    }

    /// The `p`-norm over axes, `(sum |x|^p)^(1/p)`: `p` may be infinite (the largest), minus infinite (the smallest), 0 (how many are not 0)
    /// or negative. The derivative at 0 is 0. Errors: DType, Axis; Value for NaN.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, -4.0], [2])?;
    /// assert_eq!(x.norm_of(2.0, &[0], false)?.item::<f32>()?, 5.0);
    /// assert_eq!(x.norm_of(1.0, &[0], false)?.item::<f32>()?, 7.0);
    /// assert_eq!(x.norm_of(f64::INFINITY, &[0], false)?.item::<f32>()?, 4.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "vector_norm")]
    #[track_caller]
    pub fn norm_of(&self, p: f64, axes: &[isize], keepdims: bool) -> Result<Tensor> {
        if p.is_nan() {
            return Err(Error::new(ErrorKind::Value, "a norm of order NaN")).in_op("norm_of");
        }
        if p == 2.0 {
            return self.norm_over(axes, keepdims).called("norm_of");
        }
        let size = self.abs().called("norm_of")?;
        if p == f64::INFINITY {
            return size.max_over(axes, keepdims);
        }
        if p == f64::NEG_INFINITY {
            return size.min_over(axes, keepdims);
        }
        if p == 1.0 {
            return size.sum_over(axes, keepdims);
        }
        if p == 0.0 {
            return self.ne(0.0)?.cast(self.dtype())?.sum_over(axes, keepdims);
        }
        // of the sizes relative to the largest, so that no power overflows; its derivatives cancel
        let most = size.detach().max_over(axes, true)?;
        let usable = most.gt(0.0)?.logical_and(most.is_finite()?)?;
        let most = usable.where_cond(&most, 1.0)?;
        let share = size.div(&most)?;
        let zero = share.eq(0.0)?;
        let power =
            if p > 0.0 { share.masked_fill(&zero, 1.0)?.pow(p)?.masked_fill(&zero, 0.0)? } else { share.pow(p)? };
        let sum = power.sum_over(axes, true)?;
        let none = sum.eq(0.0)?;
        let root = sum.masked_fill(&none, 1.0)?.pow(1.0 / p)?.masked_fill(&none, 0.0)?.mul(&most)?;
        if keepdims { Ok(root) } else { root.squeeze(&self.axes_or_all(axes)?) }
    }

    fn axes_or_all(&self, axes: &[isize]) -> Result<Vec<isize>> {
        if axes.is_empty() {
            return Ok((0..self.rank() as isize).collect());
        }
        Ok(axes_of(axes, self.rank())?.iter().map(|a| *a as isize).collect())
    }

    /// A norm of the matrices in the last two axes. Errors: those of [`Tensor::svdvals`] for what needs singular values; Axis.
    ///
    /// ```
    /// # use remat_tensor::{MatrixNorm, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 0.0, 0.0, -4.0], [2, 2])?;
    /// assert_eq!(x.matrix_norm(MatrixNorm::Frobenius)?.item::<f32>()?, 5.0);
    /// assert_eq!(x.matrix_norm(MatrixNorm::Nuclear)?.item::<f32>()?, 7.0);
    /// assert_eq!(x.matrix_norm(MatrixNorm::Spectral)?.item::<f32>()?, 4.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn matrix_norm(&self, of: MatrixNorm) -> Result<Tensor> {
        if self.rank() < 2 {
            let text = format!("shape {} has rank {}; it must be 2 or more", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("matrix_norm");
        }
        let done = match of {
            MatrixNorm::Frobenius => self.norm_over(&[-2, -1], false),
            MatrixNorm::Nuclear => self.svdvals().and_then(|s| s.sum_over(&[-1], false)),
            MatrixNorm::Spectral => self.svdvals().and_then(|s| s.max_over(&[-1], false)),
            MatrixNorm::Columns => self.abs().and_then(|a| a.sum_over(&[-2], false)?.max_over(&[-1], false)),
            MatrixNorm::Rows => self.abs().and_then(|a| a.sum_over(&[-1], false)?.max_over(&[-1], false)),
        };
        done.called("matrix_norm")
    }

    /// Divided by the `p`-norm along `axis`, or by `eps` if that is larger. Errors: DType, Axis; Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, -4.0], [2])?;
    /// assert_eq!(x.normalize(2.0, 0, 1e-12)?.to_vec::<f32>()?, [0.6, -0.8]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn normalize(&self, p: f64, axis: isize, eps: f64) -> Result<Tensor> {
        self.div(self.norm_of(p, &[axis], true).called("normalize")?.maximum(eps)?)
    }
}

/// The norms that [`Tensor::matrix_norm`] computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixNorm {
    /// The root of the sum of squares.
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// The largest singular value.
    Spectral,
    /// The largest sum of sizes in a column: of order 1.
    Columns,
    /// The largest sum of sizes in a row: of infinite order.
    Rows,
}
