use remat_kernels::order::{Key, sort, sort_workspace};
use remat_types::{DType, ErrorKind, Fact, Facts, Result, for_storage, smallvec};

use super::{axis_in, lanes, sort_flops};
use crate::args::outputs;
use crate::host::arity;
use crate::index::{PutFn, Scatter, added_to_zeros};
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The elements along `axis` in ascending order, and their places as I64: equal ones stay in their order.
///
/// NaN is the largest, so the last; the first if `descending`, which changes no order of equal ones. The gradient goes where the
/// elements came from. Errors: Axis if out of range.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Sort {
    /// The axis.
    pub axis: usize,
    /// From the largest to the smallest.
    #[param(default = false)]
    pub descending: bool,
}

impl Op for Sort {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        axis_in(self.axis, &x[0].shape)?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone()), Fact::new(DType::I64, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Key>(op: &Sort, cx: &mut EvalCx<'_>) -> Result<()> {
            let (lanes, x) = (lanes(cx.x[0].shape(), op.axis), cx.x[0].slice::<T>()?);
            let [y, at] = outputs::<2>(cx.y)?;
            sort(cx.pool, lanes, op.descending, x, y.slice_mut()?, at.slice_mut()?, cx.workspace);
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let fact = cx.fact(cx.x(0));
        let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) else { return Ok(smallvec![None]) };
        let back = Scatter { f: PutFn::Set, axis: self.axis };
        Ok(smallvec![Some(added_to_zeros(cx, back, &fact, dy, &[cx.y(1)])?)])
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        if x[0].elems() == 0 {
            return 0;
        }
        for_storage!(x[0].dtype, T => sort_workspace::<T>(x[0].shape[self.axis], threads))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(sort_flops(x[0].elems(), x[0].shape[self.axis]))
    }
}

impl OpDef for Sort {
    const NAME: &'static str = "sort";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, descending| Sort { axis, descending };
        let x = || t(&[3.0f32, 1., 2., -1., 5., 4.], [2, 3]);
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let special = || t(&[nan, 1.0, 0.0, -0.0, inf, 1.0, -inf], [7]);
        vec![
            Sample::new(op(1, false), vec![x()])
                .gives(vec![t(&[1.0f32, 2., 3., -1., 4., 5.], [2, 3]), t(&[1i64, 2, 0, 0, 2, 1], [2, 3])]),
            Sample::new(op(0, true), vec![x()])
                .gives(vec![t(&[3.0f32, 5., 4., -1., 1., 2.], [2, 3]), t(&[0i64, 1, 1, 1, 0, 0], [2, 3])]),
            Sample::new(op(0, false), vec![special()])
                .gives(vec![t(&[-inf, 0.0, -0.0, 1.0, 1.0, inf, nan], [7]), t(&[6i64, 2, 3, 1, 5, 4, 0], [7])])
                .no_grad("ties"),
            Sample::new(op(0, true), vec![special()])
                .gives(vec![t(&[nan, inf, 1.0, 1.0, 0.0, -0.0, -inf], [7]), t(&[0i64, 4, 1, 5, 2, 3, 6], [7])])
                .no_grad("ties"),
            Sample::new(op(0, false), vec![t(&[true, false, true], [3])])
                .gives(vec![t(&[false, true, true], [3]), t(&[1i64, 0, 2], [3])]),
            Sample::new(op(0, false), vec![t(&[i64::MAX, i64::MIN, -1], [3])])
                .gives(vec![t(&[i64::MIN, -1, i64::MAX], [3]), t(&[1i64, 2, 0], [3])]),
            Sample::new(op(0, true), vec![t(&[1u8, 255, 7], [3])])
                .gives(vec![t(&[255u8, 7, 1], [3]), t(&[1i64, 2, 0], [3])]),
            Sample::new(op(1, false), vec![t::<f64>(&[], [2, 0])])
                .gives(vec![t::<f64>(&[], [2, 0]), t::<i64>(&[], [2, 0])]),
            Sample::new(op(2, false), vec![x()]).fails(ErrorKind::Axis),
        ]
    }
}
