//! Elements put where index tensors say, and read where they say together.
//!
//! All of them are deterministic: places that are named several times get their elements in row-major order.

use remat_ops::compose::{self, ScatterReduce};
use remat_ops::index::PutFn;
use remat_ops::shape::Reshape;
use remat_types::{DType, Error, ErrorKind, Result, Shape, axis_of};

use super::IntoOperand;
use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// `self` with each element of `src` put where its index says along `axis`: `y[.., index[.., m, ..], ..] = src[.., m, ..]`.
    /// Of several at one place the last one stays. `src` may be a number.
    ///
    /// `index` may have smaller extents than `src`, and beside `axis` than `self`. The gradient of a `src` that another one
    /// overwrites is 0.
    ///
    /// Errors: Axis; Shape or DType for a `src` or `index` that do not fit; at run time, Index for one outside the axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let index = Tensor::new(&device, &[1, 0], [2, 1])?;
    /// let src = Tensor::new(&device, &[10, 20], [2, 1])?;
    /// assert_eq!(x.scatter(1, &index, &src)?.to_vec::<i32>()?, [1, 10, 20, 4]);
    /// assert_eq!(x.scatter(1, &index, 0)?.to_vec::<i32>()?, [1, 0, 0, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "put_along_axis")]
    #[doc(alias = "index_set")]
    #[track_caller]
    pub fn scatter(&self, axis: isize, index: &Tensor, src: impl IntoOperand) -> Result<Tensor> {
        let src = self.source_like(src, index).in_op("scatter")?;
        let axis = axis_of(axis, self.rank()).in_op("scatter")?;
        compose::scatter(&TapeCx::of(self), PutFn::Set, self.clone(), axis, index.clone(), src).in_op("scatter")
    }

    /// Under another shape of as many elements.
    #[track_caller]
    pub(super) fn shaped(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::apply1(Reshape { shape: shape.into() }, &[self])
    }

    /// A number spread to the shape of `index`; a tensor as it is.
    #[track_caller]
    fn source_like(&self, src: impl IntoOperand, index: &Tensor) -> Result<Tensor> {
        let src = src.operand(self)?;
        if src.rank() == 0 && index.rank() > 0 { src.broadcast_to(index.shape()) } else { Ok(src) }
    }

    /// `self` with each element of `src` added where its index says along `axis`: the reverse of [`Tensor::gather`].
    /// A place that is named twice gets both; the order of additions is fixed.
    ///
    /// Errors: as [`Tensor::scatter`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[10.0, 20.0, 30.0, 40.0], [2, 2])?;
    /// let index = Tensor::new(&device, &[1, 1, 0, 1], [2, 2])?;
    /// let src = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.scatter_add(1, &index, &src)?.to_vec::<f32>()?, [10.0, 23.0, 33.0, 44.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("scatter_add")?;
        let cx = TapeCx::of(self);
        compose::scatter(&cx, PutFn::Add, self.clone(), axis, index.clone(), src.clone()).in_op("scatter_add")
    }

    /// `self`, with each element combined with the elements of `src` that go there: their sum, product, mean, largest or
    /// smallest. Without `include_self`, an element of `self` does not count if any element of `src` goes there. The gradient
    /// of an extreme is shared equally among equal ones; that of a product is right where factors are zero.
    ///
    /// Errors: as [`Tensor::scatter`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_ops::compose::ScatterReduce;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[4.0, 20.0, 30.0], [3])?;
    /// let index = Tensor::new(&device, &[0, 0, 2], [3])?;
    /// let src = Tensor::new(&device, &[1.0, 4.0, 3.0], [3])?;
    /// let reduced = |f, own| x.scatter_reduce(0, &index, &src, f, own)?.to_vec::<f32>();
    /// assert_eq!(reduced(ScatterReduce::Mean, true)?, [3.0, 20.0, 16.5]);
    /// assert_eq!(reduced(ScatterReduce::Prod, false)?, [4.0, 20.0, 3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        axis: isize,
        index: &Tensor,
        src: &Tensor,
        f: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("scatter_reduce")?;
        let (x, index, src) = (self.clone(), index.clone(), src.clone());
        compose::scatter_reduce(&TapeCx::of(self), f, x, axis, index, src, include_self).in_op("scatter_reduce")
    }

    /// `self` with the slices of `src` added where a vector of indices names places along `axis`: the reverse of
    /// [`Tensor::take`]. A place that is named twice gets both; the order of additions is fixed.
    ///
    /// Errors: Axis; Shape or DType for a `src` or `index` that do not fit; at run time, Index for one outside the axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[10.0, 20.0, 30.0], [3])?;
    /// let index = Tensor::new(&device, &[0, 2, 0], [3])?;
    /// let src = Tensor::new(&device, &[1.0, 2.0, 3.0], [3])?;
    /// assert_eq!(x.index_add(0, &index, &src)?.to_vec::<f32>()?, [14.0, 20.0, 32.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn index_add(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.put_slices(PutFn::Add, axis, index, src.clone(), "index_add")
    }

    #[track_caller]
    fn put_slices(&self, f: PutFn, axis: isize, index: &Tensor, src: Tensor, op: &str) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op(op)?;
        compose::put_slices(&TapeCx::of(self), f, self.clone(), axis, index.clone(), src).in_op(op)
    }

    /// `self` with the slices of `src` in the places along `axis` that a vector of indices names; the last one stays where
    /// several go. Errors: as [`Tensor::index_add`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let index = Tensor::new(&device, &[1], [1])?;
    /// let src = Tensor::new(&device, &[8, 9], [2, 1])?;
    /// assert_eq!(x.index_copy(1, &index, &src)?.to_vec::<i32>()?, [1, 8, 3, 9]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn index_copy(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.put_slices(PutFn::Set, axis, index, src.clone(), "index_copy")
    }

    /// `self` with `value`, a number or a tensor of one, in the places along `axis` that a vector of indices names.
    /// Errors: as [`Tensor::index_add`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let index = Tensor::new(&device, &[1], [1])?;
    /// assert_eq!(x.index_fill(0, &index, 7)?.to_vec::<i32>()?, [1, 2, 7, 7]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn index_fill(&self, axis: isize, index: &Tensor, value: impl IntoOperand) -> Result<Tensor> {
        let at = axis_of(axis, self.rank()).in_op("index_fill")?;
        let value = value.operand(self).in_op("index_fill")?;
        let mut shape = self.shape().clone();
        shape.dims_mut()[at] = index.elems();
        if index.rank() != 1 || value.rank() != 0 {
            let text = format!("an index of rank {} and a value of rank {}, not 1 and 0", index.rank(), value.rank());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("index_fill");
        }
        self.put_slices(PutFn::Set, axis, index, value.broadcast_to(&shape)?, "index_fill")
    }

    /// The elements that the last axis of `indices: [batch.., n.., k]` names along `k` axes, after `batch` axes that both have:
    /// `[batch.., n.., rest..]` (ONNX's GatherND). Negative indices count from the end.
    ///
    /// Errors: Axis, Shape, DType; at run time, Index for one outside its axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let indices = Tensor::new(&device, &[0, 0, 1, -1], [2, 2])?;
    /// assert_eq!(x.gather_nd(&indices, 0)?.to_vec::<i32>()?, [1, 4]);
    /// let column = Tensor::new(&device, &[1, 0], [2, 1])?;
    /// assert_eq!(x.gather_nd(&column, 1)?.to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn gather_nd(&self, indices: &Tensor, batch: usize) -> Result<Tensor> {
        compose::gather_nd(&TapeCx::of(self), self.clone(), indices.clone(), batch).in_op("gather_nd")
    }

    /// `self` with `updates` put where [`Tensor::gather_nd`] without a batch reads (ONNX's ScatterND). Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_ops::index::PutFn;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [4])?;
    /// let indices = Tensor::new(&device, &[0, 2, 0], [3, 1])?;
    /// let updates = Tensor::new(&device, &[10, 20, 30], [3])?;
    /// assert_eq!(x.scatter_nd(&indices, &updates, PutFn::Add)?.to_vec::<i32>()?, [41, 2, 23, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_nd(&self, indices: &Tensor, updates: &Tensor, f: PutFn) -> Result<Tensor> {
        compose::scatter_nd(&TapeCx::of(self), f, self.clone(), indices.clone(), updates.clone()).in_op("scatter_nd")
    }

    /// The elements that `index`, of any shape, names in row-major order (PyTorch's `take`).
    /// Errors: DType; at run time, Index for one that is not there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let index = Tensor::new(&device, &[3, 0], [2])?;
    /// assert_eq!(x.take_flat(&index)?.to_vec::<i32>()?, [4, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn take_flat(&self, index: &Tensor) -> Result<Tensor> {
        compose::take_flat(&TapeCx::of(self), self.clone(), index.clone()).in_op("take_flat")
    }

    /// `self` with the elements of `src` put, or added if `accumulate`, where `index` of the same shape names them in row-major
    /// order (PyTorch's `put`). Errors: Shape, DType; at run time, Index for one that is not there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let index = Tensor::new(&device, &[3, 3], [2])?;
    /// let src = Tensor::new(&device, &[10, 20], [2])?;
    /// assert_eq!(x.put(&index, &src, true)?.to_vec::<i32>()?, [1, 2, 3, 34]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn put(&self, index: &Tensor, src: &Tensor, accumulate: bool) -> Result<Tensor> {
        if index.shape() != src.shape() {
            let text = format!("an index of shape {} for a source of shape {}", index.shape(), src.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("put");
        }
        let f = if accumulate { PutFn::Add } else { PutFn::Set };
        let flat = |t: &Tensor| t.shaped([t.elems()]);
        let (x, index, src) = (flat(self)?, flat(index)?, flat(src)?);
        compose::scatter(&TapeCx::of(self), f, x, 0, index, src).in_op("put")?.shaped(self.shape().clone())
    }

    /// `self` with the elements of `src`, in row-major order, in the places where `mask` is true, in the same order; `mask`
    /// broadcasts. Errors: DType, Shape; at run time, Index where `src` has fewer elements than there are places.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let mask = Tensor::new(&device, &[false, true, true, false], [2, 2])?;
    /// let src = Tensor::new(&device, &[7, 8, 9], [3])?;
    /// assert_eq!(x.masked_scatter(&mask, &src)?.to_vec::<i32>()?, [1, 7, 8, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, src: &Tensor) -> Result<Tensor> {
        const NAME: &str = "masked_scatter";
        if mask.dtype() != DType::Bool || src.dtype() != self.dtype() {
            let text = format!("a mask of {} and a source of {} for {}", mask.dtype(), src.dtype(), self.dtype());
            return Err(Error::new(ErrorKind::DType, text)).in_op(NAME);
        }
        if self.shape().broadcast(mask.shape()).ok().as_ref() != Some(self.shape()) {
            let text = format!("a mask of shape {} does not broadcast to {}", mask.shape(), self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op(NAME);
        }
        let mask = mask.broadcast_to(self.shape())?;
        // element 0 is for the places that keep their own
        let flat = mask.shaped([mask.elems()])?.cast(DType::I64)?;
        let order = (flat.cumsum(0)? * &flat)?;
        let nothing = Tensor::zeros(&self.device(), [1], src.dtype())?;
        let src = Tensor::concat(&[&nothing, &src.shaped([src.elems()])?], 0)?;
        let given = src.take(0, &order).in_op(NAME)?.shaped(self.shape().clone())?;
        mask.where_cond(&given, self)
    }

    /// `self` with `src` in place of element `index` of `axis`. Errors: Axis; Index; Shape or DType for another `src`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// let src = Tensor::new(&device, &[8, 9], [2])?;
    /// assert_eq!(x.select_scatter(&src, 1, -1)?.to_vec::<i32>()?, [1, 8, 3, 9]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn select_scatter(&self, src: &Tensor, axis: isize, index: isize) -> Result<Tensor> {
        let at = axis_of(axis, self.rank()).in_op("select_scatter")?;
        let place = self.place_in(at, index, "select_scatter")?;
        let mut one = self.shape().clone();
        one.dims_mut()[at] = 1;
        let fits = self.rank() == src.rank() + 1 && src.elems() == one.elems();
        if !fits {
            let text = format!("a source of shape {} for {} without axis {at}", src.shape(), self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("select_scatter");
        }
        self.put_slices(PutFn::Set, axis, &place, src.shaped(one)?, "select_scatter")
    }

    /// The index as a vector of one, counted from the start. Errors: Index.
    #[track_caller]
    fn place_in(&self, axis: usize, index: isize, op: &str) -> Result<Tensor> {
        let extent = self.dims()[axis];
        let at = if index < 0 { index.saturating_add_unsigned(extent) } else { index };
        if !usize::try_from(at).is_ok_and(|at| at < extent) {
            let text = format!("index {index} is outside axis {axis} of extent {extent}");
            return Err(Error::new(ErrorKind::Index, text)).in_op(op);
        }
        Tensor::full(&self.device(), [1], DType::I64, at as i64)
    }
}
