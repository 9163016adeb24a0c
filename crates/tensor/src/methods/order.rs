//! Along an axis in order: running functions, sorting, selection, quantiles and search.

use remat_ops::compose::{self, Interpolation};
use remat_ops::order::{Cumulate, CumulateFn, OrderFn, OrderStatistic, SearchSorted, Sort, TopK};
use remat_ops::{OpDef, OpRef};
use remat_types::{DType, Error, ErrorKind, Result, axis_of};

use super::pointwise::promoted;
use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// A running function along `axis`, of [`Cumulate`]: without the element itself if `exclusive`, from the end if `reverse`.
    /// Sums and products of integers are I64, of unsigned ones U64. Errors: Axis, DType; Value for an exclusive extreme.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_ops::order::CumulateFn;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3], [3])?;
    /// assert_eq!(x.cumulate(CumulateFn::Sum, 0, true, false)?.to_vec::<i64>()?, [0, 1, 3]);
    /// assert_eq!(x.cumulate(CumulateFn::Prod, 0, false, true)?.to_vec::<i64>()?, [6, 6, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cumulate(&self, f: CumulateFn, axis: isize, exclusive: bool, reverse: bool) -> Result<Tensor> {
        let mut op = Cumulate { f, axis: 0, exclusive, reverse };
        op.axis = axis_of(axis, self.rank()).in_op(OpDef::label(&op))?;
        let wide = if self.dtype().is_signed_int() { DType::I64 } else { DType::U64 };
        if matches!(f, CumulateFn::Sum | CumulateFn::Prod) && self.dtype().is_int() && self.dtype() != wide {
            return Tensor::apply1(op, &[&self.cast(wide)?]);
        }
        Tensor::apply1(op, &[self])
    }

    /// Running sums along `axis`: of integers as I64, of unsigned ones as U64; bools are counted, as I64. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [2, 2])?;
    /// assert_eq!(x.cumsum(-1)?.to_vec::<i64>()?, [1, 3, 3, 7]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Tensor> {
        self.cumulate(CumulateFn::Sum, axis, false, false)
    }

    /// Running products along `axis`: of integers as I64, of unsigned ones as U64. Gradients of all orders are right where elements are zero. Errors: Axis; DType for bool.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [4])?;
    /// assert_eq!(x.cumprod(0)?.to_vec::<i64>()?, [1, 2, 6, 24]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Tensor> {
        self.cumulate(CumulateFn::Prod, axis, false, false)
    }

    /// Running `ln sum e^x` along `axis`, without overflow. Errors: Axis; DType for other dtypes than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, f32::NEG_INFINITY], [2])?;
    /// assert_eq!(x.logcumsumexp(0)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn logcumsumexp(&self, axis: isize) -> Result<Tensor> {
        self.cumulate(CumulateFn::LogSumExp, axis, false, false)
    }

    /// The largest so far along `axis`, and its place as I64: the last of equal ones. NaN stays. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 3, 2, 3], [4])?;
    /// let (values, places) = x.cummax(0)?;
    /// assert_eq!((values.to_vec::<i32>()?, places.to_vec::<i64>()?), (vec![1, 3, 3, 3], vec![0, 1, 1, 3]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cummax(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let axis = axis_of(axis, self.rank()).in_op("cummax")?;
        self.pair(Cumulate { f: CumulateFn::Max, axis, exclusive: false, reverse: false })
    }

    /// The smallest so far, as [`Tensor::cummax`]. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 2], [3])?;
    /// assert_eq!(x.cummin(0)?.0.to_vec::<i32>()?, [3, 1, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cummin(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let axis = axis_of(axis, self.rank()).in_op("cummin")?;
        self.pair(Cumulate { f: CumulateFn::Min, axis, exclusive: false, reverse: false })
    }

    /// The two outputs of an op.
    #[track_caller]
    fn pair(&self, op: impl Into<OpRef>) -> Result<(Tensor, Tensor)> {
        let mut y = Tensor::apply(op, &[self])?.into_iter();
        let both = y.next().zip(y.next());
        both.ok_or_else(|| Error::new(ErrorKind::Internal, "the op does not have two outputs"))
    }

    /// The elements along `axis` in order, and their places as I64; equal ones stay in their order. NaN is the largest. The
    /// gradient goes where the elements came from. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 2], [3])?;
    /// let (values, places) = x.sort(0, false)?;
    /// assert_eq!((values.to_vec::<i32>()?, places.to_vec::<i64>()?), (vec![1, 2, 3], vec![1, 2, 0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        let axis = axis_of(axis, self.rank()).in_op("sort")?;
        self.pair(Sort { axis, descending })
    }

    /// The places of the elements along `axis` in order: [`Tensor::sort`]. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 2], [3])?;
    /// assert_eq!(x.argsort(0, true)?.to_vec::<i64>()?, [0, 2, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("argsort")?;
        Ok(self.detach().pair(Sort { axis, descending })?.1)
    }

    /// The `k` largest (smallest, if not) elements along `axis` and their places as I64: in order if `sorted`, else in that of
    /// their places. Of equal ones the first are taken. Errors: Axis; Value for a `k` above the extent.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 4, 2], [4])?;
    /// let (values, places) = x.topk(2, 0, true, true)?;
    /// assert_eq!((values.to_vec::<i32>()?, places.to_vec::<i64>()?), (vec![4, 3], vec![2, 0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize, largest: bool, sorted: bool) -> Result<(Tensor, Tensor)> {
        let axis = axis_of(axis, self.rank()).in_op("topk")?;
        self.pair(TopK { k, axis, largest, sorted }).called("topk")
    }

    /// The `k`-th smallest element along `axis`, counted from 1, and its place as I64. Errors: Axis; Value for a `k` of 0 or
    /// above the extent; Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 4, 2], [4])?;
    /// assert_eq!(x.kthvalue(3, 0, false)?.0.item::<i32>()?, 3);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn kthvalue(&self, k: usize, axis: isize, keepdims: bool) -> Result<(Tensor, Tensor)> {
        let Some(k) = k.checked_sub(1) else {
            return Err(Error::new(ErrorKind::Value, "ranks are counted from 1")).in_op("kthvalue");
        };
        let axis = axis_of(axis, self.rank()).in_op("kthvalue")?;
        self.pair(OrderStatistic { f: OrderFn::Kth, k, axis, keepdims })
    }

    #[track_caller]
    fn statistic(&self, f: OrderFn, axis: isize, keepdims: bool, op: &str) -> Result<(Tensor, Tensor)> {
        let axis = axis_of(axis, self.rank()).in_op(op)?;
        self.pair(OrderStatistic { f, k: 0, axis, keepdims })
    }

    /// The element in the middle of `axis`, the lower one of two, and its place as I64. NaN where there is one.
    /// Errors: Axis; Shape along an empty axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 4, 2], [4])?;
    /// assert_eq!(x.median_over(0, false)?.0.item::<i32>()?, 2);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn median_over(&self, axis: isize, keepdims: bool) -> Result<(Tensor, Tensor)> {
        self.statistic(OrderFn::Median, axis, keepdims, "median")
    }

    /// The element in the middle of all, the lower one of two. NaN if there is one. Errors: Shape of nothing.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 1.0, 4.0, 1.0], [2, 2])?;
    /// assert_eq!(x.median()?.item::<f32>()?, 1.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn median(&self) -> Result<Tensor> {
        Ok(self.shaped([self.elems()])?.median_over(0, false).called("median")?.0)
    }

    /// [`Tensor::median_over`] of the elements that are not NaN. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, f32::NAN, 4.0], [3])?;
    /// assert_eq!(x.nanmedian_over(0, false)?.0.item::<f32>()?, 3.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmedian_over(&self, axis: isize, keepdims: bool) -> Result<(Tensor, Tensor)> {
        self.statistic(OrderFn::NanMedian, axis, keepdims, "nanmedian")
    }

    /// [`Tensor::median`] of the elements that are not NaN. Errors: Shape for an empty tensor.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 1.0, 4.0, 1.0], [2, 2])?;
    /// assert_eq!(x.nanmedian()?.item::<f32>()?, 1.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn nanmedian(&self) -> Result<Tensor> {
        Ok(self.shaped([self.elems()])?.nanmedian_over(0, false).called("nanmedian")?.0)
    }

    /// The element that `axis` has most often, the smallest of several, and its last place as I64. Errors: Axis; Shape along an
    /// empty axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 3, 2], [4])?;
    /// let (value, place) = x.mode_over(0, false)?;
    /// assert_eq!((value.item::<i32>()?, place.item::<i64>()?), (3, 2));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn mode_over(&self, axis: isize, keepdims: bool) -> Result<(Tensor, Tensor)> {
        self.statistic(OrderFn::Mode, axis, keepdims, "mode")
    }

    /// The element that there is most often, the smallest of several. Errors: Shape of nothing.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 1.0, 4.0, 1.0], [2, 2])?;
    /// assert_eq!(x.mode()?.item::<f32>()?, 1.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn mode(&self) -> Result<Tensor> {
        Ok(self.shaped([self.elems()])?.mode_over(0, false).called("mode")?.0)
    }

    /// The value below which a share `q` of `axis` lies. NaN where there is one. Errors: Axis; DType for other dtypes than
    /// floats; Value for a `q` outside 0 ..= 1; Shape along an empty axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_ops::compose::Interpolation;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 1.0, 4.0, 2.0], [4])?;
    /// assert_eq!(x.quantile_over(0.5, 0, false, Interpolation::Linear)?.item::<f32>()?, 2.5);
    /// assert_eq!(x.quantile_over(0.5, 0, false, Interpolation::Higher)?.item::<f32>()?, 3.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn quantile_over(&self, q: f64, axis: isize, keepdims: bool, between: Interpolation) -> Result<Tensor> {
        let y = self.quantiles_over(&[q], axis, keepdims, between).called("quantile_over")?;
        y.shaped(&y.dims()[1..])
    }

    /// The value below which a share `q` of all elements lies: [`Tensor::quantile_over`]. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_ops::compose::Interpolation;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 1.0, 4.0, 2.0], [2, 2])?;
    /// assert_eq!(x.quantile(0.5, Interpolation::Linear)?.item::<f32>()?, 2.5);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn quantile(&self, q: f64, between: Interpolation) -> Result<Tensor> {
        self.shaped([self.elems()])?.quantile_over(q, 0, false, between).called("quantile")
    }

    /// Several quantiles, along a new first axis: [`Tensor::quantile_over`]. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_ops::compose::Interpolation;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 1.0, 4.0, 2.0], [4])?;
    /// let y = x.quantiles_over(&[0.0, 1.0], 0, true, Interpolation::Linear)?;
    /// assert_eq!((y.dims(), y.to_vec::<f32>()?), (&[2, 1][..], vec![1.0, 4.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn quantiles_over(&self, q: &[f64], axis: isize, keepdims: bool, between: Interpolation) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("quantiles_over")?;
        let y = compose::quantiles(&TapeCx::of(self), self.clone(), q, axis, between).in_op("quantiles_over")?;
        if keepdims { Ok(y) } else { y.squeeze(&[axis as isize + 1]) }
    }

    /// Where each of `values` belongs in `self`, whose last axis ascends: before equal elements, behind them if `right`; as I64.
    /// `self: [n]`, or `[b.., n]` for `values: [b.., m]`. NaN is the largest. Errors: Axis, Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 3, 3, 5], [4])?;
    /// let values = Tensor::new(&device, &[3, 0, 9], [3])?;
    /// assert_eq!(x.searchsorted(&values, false)?.to_vec::<i64>()?, [1, 0, 4]);
    /// assert_eq!(x.searchsorted(&values, true)?.to_vec::<i64>()?, [3, 0, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        let both = promoted(self.detach(), values.detach()).in_op("searchsorted")?;
        Tensor::apply_owned(SearchSorted { right }, both).called("searchsorted")
    }

    /// The bucket of each element between ascending `boundaries: [n]`: bucket `i` ends with boundary `i`, or before it if
    /// `right`; as I64. Errors: Axis for boundaries of another rank.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 0.5, 9.0], [3])?;
    /// let boundaries = Tensor::new(&device, &[1.0, 3.0, 5.0], [3])?;
    /// assert_eq!(x.bucketize(&boundaries, false)?.to_vec::<i64>()?, [1, 0, 3]);
    /// assert_eq!(x.bucketize(&boundaries, true)?.to_vec::<i64>()?, [2, 0, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "digitize")]
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Result<Tensor> {
        if boundaries.rank() != 1 {
            let text = format!("boundaries of shape {}: rank {}, not 1", boundaries.shape(), boundaries.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("bucketize");
        }
        boundaries.searchsorted(self, right).called("bucketize")
    }

    /// How many elements over `axes` are not 0, as I64. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0, 2, 3, 0, 0, 1], [2, 3])?;
    /// assert_eq!(x.count_nonzero_over(&[1], false)?.to_vec::<i64>()?, [2, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn count_nonzero_over(&self, axes: &[isize], keepdims: bool) -> Result<Tensor> {
        let x = self.detach();
        let is = if self.dtype() == DType::Bool { x } else { x.ne(0)? };
        is.sum_over(axes, keepdims).called("count_nonzero")
    }

    /// How many elements are not 0, as I64.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0, 2, 3, 0], [2, 2])?;
    /// assert_eq!(x.count_nonzero()?.item::<i64>()?, 2);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn count_nonzero(&self) -> Result<Tensor> {
        self.count_nonzero_over(&[], false)
    }

    /// The share of rows whose `target`, a class, is among the `k` largest of the last axis, as F32: top-k accuracy.
    /// `self: [n.., classes]`, `target: [n..]`. Errors: Axis, Shape; DType for a target that is no integer; Value for a `k` above
    /// the number of classes.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let logits = Tensor::new(&device, &[0.1, 0.5, 0.4, 0.9, 0.2, 0.3], [2, 3])?;
    /// let target = Tensor::new(&device, &[2, 1], [2])?;
    /// assert_eq!(logits.topk_accuracy(&target, 1)?.item::<f32>()?, 0.0);
    /// assert_eq!(logits.topk_accuracy(&target, 2)?.item::<f32>()?, 0.5);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn topk_accuracy(&self, target: &Tensor, k: usize) -> Result<Tensor> {
        const NAME: &str = "topk_accuracy";
        if !target.dtype().is_int() {
            return Err(Error::new(ErrorKind::DType, format!("targets of {}", target.dtype()))).in_op(NAME);
        }
        if self.rank() == 0 || self.dims()[..self.rank() - 1] != *target.dims() {
            let text = format!("targets of shape {} for {}", target.shape(), self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op(NAME);
        }
        let (_, best) = self.detach().topk(k, -1, true, true).called(NAME)?;
        best.eq(&target.cast(DType::I64)?.unsqueeze(-1)?)?.any_over(&[-1], false)?.cast(DType::F32)?.mean()
    }
}
