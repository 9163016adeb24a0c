use remat_kernels::order::{Key, top_k, top_k_workspace};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, for_storage, smallvec};

use super::{axis_in, lanes};
use crate::args::outputs;
use crate::host::arity;
use crate::index::{PutFn, Scatter, added_to_zeros};
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The `k` largest (smallest, if not) elements along `axis`, and their places as I64.
///
/// In order if `sorted`, else in that of their places; of equal ones the first are taken, and come first. NaN is the largest. The
/// gradient goes where the elements came from. Errors: Axis if out of range; Value for a `k` above the extent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct TopK {
    /// How many.
    pub k: usize,
    /// The axis.
    pub axis: usize,
    /// The largest, or the smallest.
    #[param(default = true)]
    pub largest: bool,
    /// Whether they are in order.
    #[param(default = true)]
    pub sorted: bool,
}

impl Op for TopK {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        axis_in(self.axis, &x[0].shape)?;
        let mut shape = x[0].shape.clone();
        if self.k > shape[self.axis] {
            let text = format!("there are no {} elements along axis {} of {shape}", self.k, self.axis);
            return Err(Error::new(ErrorKind::Value, text));
        }
        shape.dims_mut()[self.axis] = self.k;
        Ok(smallvec![Fact::new(x[0].dtype, shape.clone()), Fact::new(DType::I64, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Key>(op: &TopK, cx: &mut EvalCx<'_>) -> Result<()> {
            let (lanes, x) = (lanes(cx.x[0].shape(), op.axis), cx.x[0].slice::<T>()?);
            let [y, at] = outputs::<2>(cx.y)?;
            let order = (op.largest, op.sorted);
            top_k(cx.pool, lanes, op.k, order, x, y.slice_mut()?, at.slice_mut()?, cx.workspace);
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
        if x[0].elems() == 0 || self.k == 0 {
            return 0;
        }
        for_storage!(x[0].dtype, T => top_k_workspace::<T>(x[0].shape[self.axis], self.k, threads))
    }
}

impl OpDef for TopK {
    const NAME: &'static str = "top_k";

    fn samples() -> Vec<Sample<Self>> {
        let op = |k, axis, largest, sorted| TopK { k, axis, largest, sorted };
        let x = || t(&[3.0f32, 1., 2., -1., 5., 4.], [2, 3]);
        vec![
            Sample::new(op(2, 1, true, true), vec![x()])
                .gives(vec![t(&[3.0f32, 2., 5., 4.], [2, 2]), t(&[0i64, 2, 1, 2], [2, 2])]),
            Sample::new(op(2, 1, false, true), vec![x()])
                .gives(vec![t(&[1.0f32, 2., -1., 4.], [2, 2]), t(&[1i64, 2, 0, 2], [2, 2])]),
            Sample::new(op(1, 0, true, true), vec![x()])
                .gives(vec![t(&[3.0f32, 5., 4.], [1, 3]), t(&[0i64, 1, 1], [1, 3])]),
            Sample::new(op(2, 1, false, false), vec![t(&[4.0f32, 9., 3.], [1, 3])])
                .gives(vec![t(&[4.0f32, 3.], [1, 2]), t(&[0i64, 2], [1, 2])]),
            Sample::new(op(3, 0, true, true), vec![t(&[1.0f32, f32::NAN, 2., 2., 2.], [5])])
                .gives(vec![t(&[f32::NAN, 2., 2.], [3]), t(&[1i64, 2, 3], [3])])
                .no_grad("ties"),
            Sample::new(op(1, 0, true, true), vec![t(&[false, true], [2])])
                .gives(vec![t(&[true], [1]), t(&[1i64], [1])]),
            Sample::new(op(2, 0, false, true), vec![t(&[7u64, u64::MAX, 0], [3])])
                .gives(vec![t(&[0u64, 7], [2]), t(&[2i64, 0], [2])]),
            Sample::new(op(0, 1, true, true), vec![x()])
                .gives(vec![t::<f32>(&[], [2, 0]), t::<i64>(&[], [2, 0])])
                .no_grad("empty"),
            Sample::new(op(1, 1, true, true), vec![t::<f64>(&[], [0, 2])])
                .gives(vec![t::<f64>(&[], [0, 1]), t::<i64>(&[], [0, 1])]),
            Sample::new(op(4, 1, true, true), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(1, 2, true, true), vec![x()]).fails(ErrorKind::Axis),
        ]
    }
}
