//! Parts of a tensor: by ranges (views), by index tensors, by masks.
//!
//! Positions and axes may count from the end; index tensors may not, since an index of -1 is more often a bug than a wish.

use remat_ops::compose;
use remat_ops::index::{OneHot, Take, TakeAlong};
use remat_ops::pointwise::Where;
use remat_ops::shape::Slice;
use remat_types::{DType, Error, ErrorKind, Result, axes_of, axis_of};

use super::pointwise::promoted;
use super::{IntoOperand, Span};
use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// The elements of `axis` in a range, as `x[a..b]` of Python: bounds may be left out, count from the end if negative,
    /// and are cut to the extent. A view. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.slice(1, 1..)?.to_vec::<i32>()?, [2, 3, 5, 6]);
    /// assert_eq!(x.slice(-1, ..-1)?.to_vec::<i32>()?, [1, 2, 4, 5]);
    /// assert_eq!(x.slice(0, 1..=1)?.dims(), [1, 3]);
    /// assert_eq!(x.slice(0, 5..)?.dims(), [0, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn slice(&self, axis: isize, range: impl Into<Span>) -> Result<Tensor> {
        self.sliced(axis, range.into(), 1, "slice")
    }

    /// Every `step`-th element of a range of `axis`, as `x[a..b..step]` of Python: a negative step goes from the end of
    /// the axis to its start. A view. Errors: Axis; Value for a step of 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0, 1, 2, 3, 4, 5], [6])?;
    /// assert_eq!(x.slice_step(0, 1.., 2)?.to_vec::<i32>()?, [1, 3, 5]);
    /// assert_eq!(x.slice_step(0, .., -1)?.to_vec::<i32>()?, [5, 4, 3, 2, 1, 0]);
    /// assert_eq!(x.slice_step(0, -2..1, -2)?.to_vec::<i32>()?, [4, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn slice_step(&self, axis: isize, range: impl Into<Span>, step: isize) -> Result<Tensor> {
        self.sliced(axis, range.into(), step, "slice_step")
    }

    #[track_caller]
    fn sliced(&self, axis: isize, span: Span, step: isize, op: &str) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op(op)?;
        let (start, len) = span.resolve(self.dims()[axis], step).in_op(op)?;
        Tensor::apply1(Slice { axis, start, len, step }, &[self])
    }

    /// `len` elements of `axis` from `start` on. A view. Errors: Axis; Index if they are not all there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.narrow(1, 1, 2)?.to_vec::<i32>()?, [2, 3, 5, 6]);
    /// assert_eq!(x.narrow(1, -1, 1)?.to_vec::<i32>()?, [3, 6]);
    /// assert!(x.narrow(1, 2, 2).is_err());
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: isize, len: usize) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("narrow")?;
        let extent = self.dims()[axis];
        let from = if start < 0 { start.saturating_add_unsigned(extent) } else { start };
        let inside = |from: &usize| from.checked_add(len).is_some_and(|end| end <= extent);
        let Some(start) = usize::try_from(from).ok().filter(inside) else {
            let text = format!("{len} elements from {start} on leave axis {axis} of extent {extent}");
            return Err(Error::new(ErrorKind::Index, text)).in_op("narrow");
        };
        Tensor::apply1(Slice { axis, start, len, step: 1 }, &[self]).called("narrow")
    }

    /// Element `index` of `axis`, which is gone from the result. A view. Errors: Axis; Index outside of the axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.select(0, 1)?.to_vec::<i32>()?, [4, 5, 6]);
    /// assert_eq!(x.select(0, 0)?.select(0, -1)?.item::<i32>()?, 3);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn select(&self, axis: isize, index: isize) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("select")?;
        let extent = self.dims()[axis];
        let at = if index < 0 { index.saturating_add_unsigned(extent) } else { index };
        let Some(start) = usize::try_from(at).ok().filter(|at| *at < extent) else {
            let text = format!("index {index} is outside axis {axis} of extent {extent}");
            return Err(Error::new(ErrorKind::Index, text)).in_op("select");
        };
        compose::select(&TapeCx::of(self), self.clone(), axis, start)
    }

    /// Reversed along `axes`. A view. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// assert_eq!(x.flip(&[1])?.to_vec::<i32>()?, [2, 1, 4, 3]);
    /// assert_eq!(x.flip(&[0, 1])?.to_vec::<i32>()?, [4, 3, 2, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, axes: &[isize]) -> Result<Tensor> {
        let axes = axes_of(axes, self.rank()).in_op("flip")?;
        compose::flip(&TapeCx::of(self), self.clone(), &axes)
    }

    /// The elements of `axis` that an index tensor of any shape names, as NumPy's `take`: the axes of `index` stand in the
    /// place of `axis`. With `axis` 0 this is an embedding.
    ///
    /// Errors: Axis; DType for indices that are no integers; at run time, Index for one outside the axis, negative ones
    /// included.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let table = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [3, 2])?;
    /// let index = Tensor::new(&device, &[2, 0, 2, 1], [2, 2])?;
    /// let rows = table.take(0, &index)?;
    /// assert_eq!(rows.dims(), [2, 2, 2]);
    /// assert_eq!(rows.to_vec::<i32>()?, [5, 6, 1, 2, 5, 6, 3, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "embedding")]
    #[track_caller]
    pub fn take(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("take")?;
        Tensor::apply1(Take { axis }, &[self, index])
    }

    /// [`Tensor::take`] with a vector of indices: the rank stays. Errors: as there, and Axis for an index of another rank.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// let columns = Tensor::new(&device, &[2, 0], [2])?;
    /// assert_eq!(x.index_select(1, &columns)?.to_vec::<i32>()?, [3, 1, 6, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        if index.rank() != 1 {
            let text = format!("the index has shape {}: rank {}, not 1", index.shape(), index.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("index_select");
        }
        let axis = axis_of(axis, self.rank()).in_op("index_select")?;
        Tensor::apply1(Take { axis }, &[self, index]).called("index_select")
    }

    /// One element along `axis` for each index: `y[.., i, ..] = x[.., index[.., i, ..], ..]`, of the shape of `index`,
    /// whose other extents are those of `self` or smaller (NumPy's `take_along_axis`).
    ///
    /// Errors: Axis; Shape; DType for indices that are no integers; at run time, Index for one outside the axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// let label = Tensor::new(&device, &[2, 0], [2, 1])?;
    /// assert_eq!(x.gather(1, &label)?.to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "take_along_axis")]
    #[track_caller]
    pub fn gather(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("gather")?;
        Tensor::apply1(TakeAlong { axis }, &[self, index]).called("gather")
    }

    /// `y[.., k] = 1` where `k` is the index, else 0: a new last axis of extent `depth`, of the given dtype.
    ///
    /// Errors: DType for indices that are no integers; at run time, Index for one not in `0..depth`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let labels = Tensor::new(&device, &[2, 0], [2])?;
    /// assert_eq!(labels.one_hot(3, DType::F32)?.to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot(&self, depth: usize, dtype: DType) -> Result<Tensor> {
        Tensor::apply1(OneHot { depth, dtype }, &[self])
    }

    /// `self ? a : b`, element by element, with broadcasting; `self` is of bools, `a` and `b` are promoted (NumPy's
    /// `where`, which is a word of Rust). The value that is not taken does not matter, nor does its gradient.
    ///
    /// Errors: DType, Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, -2.0, 3.0], [3])?;
    /// assert_eq!(x.gt(0.0)?.where_cond(&x, 0.5)?.to_vec::<f32>()?, [1.0, 0.5, 3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "where")]
    #[track_caller]
    pub fn where_cond(&self, a: &Tensor, b: impl IntoOperand) -> Result<Tensor> {
        let ab = promoted(a.clone(), b.operand(a).in_op("where")?)?;
        Tensor::apply_owned(Where, std::iter::once(self.clone()).chain(ab))
    }

    /// `value` where `mask` is true, else `self`; `mask` broadcasts to the shape of `self`, and the dtype stays.
    ///
    /// Errors: DType for a mask that is not of bools, or a value that promotes; Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// let mask = Tensor::new(&device, &[true, false], [2])?;
    /// let y = x.masked_fill(&mask, f32::NEG_INFINITY)?;
    /// assert_eq!(y.to_vec::<f32>()?, [f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl IntoOperand) -> Result<Tensor> {
        let value = value.operand(self).in_op("masked_fill")?;
        if value.dtype() != self.dtype() {
            let text = format!("a value of {} for a tensor of {}; cast one of them", value.dtype(), self.dtype());
            return Err(Error::new(ErrorKind::DType, text)).in_op("masked_fill");
        }
        for (what, shape) in [("mask", mask.shape()), ("value", value.shape())] {
            if self.shape().broadcast(shape).ok().as_ref() != Some(self.shape()) {
                let text = format!("a {what} of shape {shape} does not broadcast to {}", self.shape());
                return Err(Error::new(ErrorKind::Shape, text)).in_op("masked_fill");
            }
        }
        Tensor::apply_owned(Where, [mask.clone(), value, self.clone()]).called("masked_fill")
    }

    /// The lower triangle of the last two axes: elements `[i, j]` with `j <= i + diagonal`, and 0 elsewhere.
    /// Errors: Axis below rank 2.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.tril(0)?.to_vec::<i32>()?, [1, 0, 0, 4, 5, 0]);
    /// assert_eq!(x.tril(1)?.to_vec::<i32>()?, [1, 2, 0, 4, 5, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        compose::tril(&TapeCx::of(self), self.clone(), diagonal).in_op("tril")
    }

    /// The upper triangle of the last two axes: elements `[i, j]` with `j >= i + diagonal`, and 0 elsewhere.
    /// Errors: Axis below rank 2.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.triu(0)?.to_vec::<i32>()?, [1, 2, 3, 0, 5, 6]);
    /// assert_eq!(x.triu(1)?.to_vec::<i32>()?, [0, 2, 3, 0, 0, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        compose::triu(&TapeCx::of(self), self.clone(), diagonal).in_op("triu")
    }
}
