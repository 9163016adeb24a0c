//! Over axes. Axes may count from the end; no axes means all of them.

use remat_ops::OpDef;
use remat_ops::reduce::{ArgReduce, ArgReduceFn, LogSumExp, Reduce, ReduceFn, Var};
use remat_types::{Result, SmallVec, axes_of, axis_of};

use crate::Tensor;
use crate::site::At;

macro_rules! reduce_methods {
    ($($(#[$doc:meta])* $all:ident, $over:ident => $f:ident;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// Over all elements; rank 0.
            #[track_caller]
            pub fn $all(&self) -> Result<Tensor> {
                self.reduce(ReduceFn::$f, &[], false)
            }

            $(#[$doc])*
            /// Over `axes`, which stay with extent 1 if `keepdims`. Errors: Axis, DType.
            #[track_caller]
            pub fn $over(&self, axes: &[isize], keepdims: bool) -> Result<Tensor> {
                self.reduce(ReduceFn::$f, axes, keepdims)
            }
        )* }
    };
}

reduce_methods! {
    /// The sum.
    sum, sum_over => Sum;
    /// The mean.
    mean, mean_over => Mean;
    /// The product.
    prod, prod_over => Prod;
    /// The largest; ties share the gradient.
    max, max_over => Max;
    /// The smallest; ties share the gradient.
    min, min_over => Min;
    /// Whether any is true.
    any, any_over => Any;
    /// Whether all are true.
    all, all_over => All;
    /// The sum of squares.
    sum_sqr, sum_sqr_over => SumSqr;
}

impl Tensor {
    #[track_caller]
    fn axes(&self, axes: &[isize], op: &str) -> Result<SmallVec<[usize; 4]>> {
        if axes.is_empty() { Ok((0..self.rank()).collect()) } else { axes_of(axes, self.rank()).at(op) }
    }

    #[track_caller]
    fn reduce(&self, f: ReduceFn, axes: &[isize], keepdims: bool) -> Result<Tensor> {
        let mut op = Reduce { f, axes: SmallVec::new(), keepdims };
        op.axes = self.axes(axes, OpDef::label(&op))?;
        Tensor::apply1(op, &[self])
    }

    /// `ln sum e^x` over `axes` without overflow. Errors: Axis, DType.
    #[track_caller]
    pub fn log_sum_exp(&self, axes: &[isize], keepdims: bool) -> Result<Tensor> {
        Tensor::apply1(LogSumExp { axes: self.axes(axes, "log_sum_exp")?, keepdims }, &[self])
    }

    /// The variance over `axes`, with the sum of squares divided by the count less `correction`. Errors: Axis, DType.
    #[track_caller]
    pub fn var(&self, axes: &[isize], keepdims: bool, correction: usize) -> Result<Tensor> {
        Tensor::apply1(Var { axes: self.axes(axes, "var")?, keepdims, correction }, &[self])
    }

    /// Index of the first largest along `axis`, as i64. Errors: Axis; Shape along an empty axis.
    #[track_caller]
    pub fn argmax(&self, axis: isize, keepdims: bool) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).at("argmax")?;
        Tensor::apply1(ArgReduce { f: ArgReduceFn::Argmax, axis, keepdims }, &[self])
    }

    /// Index of the first smallest along `axis`, as i64. Errors: Axis; Shape along an empty axis.
    #[track_caller]
    pub fn argmin(&self, axis: isize, keepdims: bool) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).at("argmin")?;
        Tensor::apply1(ArgReduce { f: ArgReduceFn::Argmin, axis, keepdims }, &[self])
    }
}
