use remat_kernels::order::{Key, Statistic, order_statistic, statistic_workspace};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, for_storage, smallvec};
use serde::{Deserialize, Serialize};

use super::{axis_in, lanes};
use crate::args::outputs;
use crate::host::arity;
use crate::index::{PutFn, Scatter, added_to_zeros};
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Which element an [`OrderStatistic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderFn {
    /// The one of rank `k`; of equal ones the first has the least rank.
    Kth,
    /// The lower of those in the middle; the first NaN, if there is one.
    Median,
    /// The lower middle one of the elements that are not NaN; the first NaN, if there is nothing else.
    NanMedian,
    /// The one that is there most often, the smallest of several; its last place.
    Mode,
}

/// One element along `axis` by its place in the order, and that place as I64. NaN is the largest, and equals NaN.
///
/// `y` has the axes of `x` without `axis`, or with extent 1 there if `keepdims`. The gradient goes to the element. Errors: Axis if
/// out of range; Shape for an axis of extent 0; Value for a rank that is not below the extent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct OrderStatistic {
    /// Which.
    pub f: OrderFn,
    /// The rank of the `k`-th, from 0 on.
    #[param(default = 0)]
    pub k: usize,
    /// The axis.
    pub axis: usize,
    /// Whether it stays with extent 1.
    #[param(default = false)]
    pub keepdims: bool,
}

impl OrderStatistic {
    fn with_one(&self, x: &Shape) -> Shape {
        let mut shape = x.clone();
        shape.dims_mut()[self.axis] = 1;
        shape
    }
}

impl Op for OrderStatistic {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        axis_in(self.axis, &x[0].shape)?;
        let (n, mut shape) = (x[0].shape[self.axis], self.with_one(&x[0].shape));
        if n == 0 && shape.elems() > 0 {
            return Err(Error::new(ErrorKind::Shape, format!("axis {} of {} has no elements", self.axis, x[0].shape)));
        }
        if self.f == OrderFn::Kth && n > 0 && self.k >= n {
            let text = format!("there is no rank {} along axis {} of {}", self.k, self.axis, x[0].shape);
            return Err(Error::new(ErrorKind::Value, text));
        }
        if !self.keepdims {
            shape = shape.iter().enumerate().filter(|(a, _)| *a != self.axis).map(|(_, d)| *d).collect();
        }
        Ok(smallvec![Fact::new(x[0].dtype, shape.clone()), Fact::new(DType::I64, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Key>(op: &OrderStatistic, cx: &mut EvalCx<'_>) -> Result<()> {
            let (lanes, x) = (lanes(cx.x[0].shape(), op.axis), cx.x[0].slice::<T>()?);
            let [y, at] = outputs::<2>(cx.y)?;
            let f = match op.f {
                OrderFn::Kth => Statistic::Kth(op.k),
                OrderFn::Median => Statistic::Median,
                OrderFn::NanMedian => Statistic::NanMedian,
                OrderFn::Mode => Statistic::Mode,
            };
            order_statistic(cx.pool, lanes, f, x, y.slice_mut()?, at.slice_mut()?, cx.workspace);
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let fact = cx.fact(cx.x(0));
        let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) else { return Ok(smallvec![None]) };
        let (c, one) = (cx.build(), self.with_one(&fact.shape));
        let (dy, at) = (c.reshape(dy, &one)?, c.reshape(cx.y(1), &one)?);
        let back = Scatter { f: PutFn::Set, axis: self.axis };
        Ok(smallvec![Some(added_to_zeros(cx, back, &fact, dy, &[at])?)])
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        if x[0].elems() == 0 {
            return 0;
        }
        for_storage!(x[0].dtype, T => statistic_workspace::<T>(x[0].shape[self.axis], threads))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(16 * x[0].elems() as u64)
    }
}

impl OpDef for OrderStatistic {
    const NAME: &'static str = "order_statistic";

    fn label(&self) -> &'static str {
        match self.f {
            OrderFn::Kth => "kthvalue",
            OrderFn::Median => "median",
            OrderFn::NanMedian => "nanmedian",
            OrderFn::Mode => "mode",
        }
    }

    fn samples() -> Vec<Sample<Self>> {
        use OrderFn::*;
        let op = |f, k, axis, keepdims| OrderStatistic { f, k, axis, keepdims };
        let x = || t(&[3.0f32, 1., 2., 7., -1., 5., 4., 6.], [2, 4]);
        let nan = f32::NAN;
        vec![
            Sample::new(op(Kth, 1, 1, false), vec![x()]).gives(vec![t(&[2.0f32, 4.], [2]), t(&[2i64, 2], [2])]),
            Sample::new(op(Kth, 0, 0, true), vec![x()])
                .gives(vec![t(&[-1.0f32, 1., 2., 6.], [1, 4]), t(&[1i64, 0, 0, 1], [1, 4])]),
            Sample::new(op(Median, 0, 1, true), vec![x()]).gives(vec![t(&[2.0f32, 4.], [2, 1]), t(&[2i64, 2], [2, 1])]),
            Sample::new(op(Median, 0, 0, false), vec![t(&[1.0f32, nan, 0., nan], [4])])
                .gives(vec![t(&[nan], []), t(&[1i64], [])])
                .no_grad("NaN"),
            Sample::new(op(NanMedian, 0, 0, false), vec![t(&[1.0f32, nan, 0., nan, 4.], [5])])
                .gives(vec![t(&[1.0f32], []), t(&[0i64], [])])
                .no_grad("NaN"),
            Sample::new(op(Mode, 0, 0, false), vec![t(&[3i32, 1, 3, 1, 2], [5])])
                .gives(vec![t(&[1i32], []), t(&[3i64], [])]),
            Sample::new(op(Mode, 0, 0, false), vec![t(&[true, false, true], [3])])
                .gives(vec![t(&[true], []), t(&[2i64], [])]),
            Sample::new(op(Kth, 0, 1, false), vec![t::<u8>(&[], [0, 2])])
                .gives(vec![t::<u8>(&[], [0]), t::<i64>(&[], [0])]),
            Sample::new(op(Kth, 4, 1, false), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(Median, 0, 1, false), vec![t::<f32>(&[], [2, 0])]).fails(ErrorKind::Shape),
            Sample::new(op(Median, 0, 2, false), vec![x()]).fails(ErrorKind::Axis),
        ]
    }
}
