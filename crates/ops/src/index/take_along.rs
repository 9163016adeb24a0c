use remat_kernels::index::gather;
use remat_types::{ErrorKind, Fact, Facts, Result, Storage, for_storage, smallvec};

use super::places::{Along, fits_beside};
use super::put_fn::added_to_zeros;
use super::{PutFn, Scatter, axis_in, is_index};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample};

/// `y[a.., m, c..] = x[a.., index[a.., m, c..], c..]`: one element of `x` along `axis` for each index (torch's gather).
///
/// Inputs `x` and `index`, of any integer dtype, with extents no larger than those of `x` on all axes but `axis`; `y` has the
/// shape of `index`. Errors: Axis if out of range, Shape where `index` is not within `x`, DType for indices that are no integers,
/// Index for one not in `0..x.shape[axis]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any, index: int), gradient(x))]
pub struct TakeAlong {
    /// The axis.
    pub axis: usize,
}

impl Op for TakeAlong {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        axis_in(self.axis, &x[0].shape)?;
        is_index(x[1])?;
        fits_beside(&x[0].shape, &x[1].shape, self.axis, "the tensor")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[1].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(axis: usize, cx: &mut EvalCx<'_>) -> Result<()> {
            let along = Along::new(cx.x[0].layout(), axis, &cx.x[1])?;
            gather(cx.pool, cx.x[0].storage::<T>()?, &along.places(), &Along::row(), cx.y[0].slice_mut()?);
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self.axis, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let fact = cx.fact(cx.x(0));
        let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) else { return Ok(smallvec![None, None]) };
        let op = Scatter { f: PutFn::Add, axis: self.axis };
        Ok(smallvec![Some(added_to_zeros(cx, op, &fact, dy, &[cx.x(1)])?), None])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }
}

impl OpDef for TakeAlong {
    const NAME: &'static str = "take_along";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis| TakeAlong { axis };
        let x = || t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3]);
        vec![
            Sample::new(op(1), vec![x(), t(&[2i64, 2, 0, 1], [2, 2])]).gives(vec![t(&[3.0f32, 3., 4., 5.], [2, 2])]),
            Sample::new(op(0), vec![x(), t(&[1u8, 0, 1], [1, 3])]).gives(vec![t(&[4.0f32, 2., 6.], [1, 3])]),
            Sample::new(op(0), vec![t(&[true, false], [2]), t(&[1i32], [1])]).gives(vec![t(&[false], [1])]),
            // smaller beside the axis
            Sample::new(op(1), vec![x(), t(&[2i64, 0, 1, 1], [1, 4])]).gives(vec![t(&[3.0f32, 1., 2., 2.], [1, 4])]),
            Sample::new(op(0), vec![x(), t(&[1i64, 0, 0, 1, 1, 1], [3, 2])])
                .gives(vec![t(&[4.0f32, 2., 1., 5., 4., 5.], [3, 2])]),
            Sample::new(op(1), vec![x(), t::<i64>(&[], [2, 0])]).gives(vec![t::<f32>(&[], [2, 0])]).no_grad("empty"),
            Sample::new(op(1), vec![x(), t(&[3i64, 0], [2, 1])]).fails(ErrorKind::Index),
            Sample::new(op(1), vec![x(), t(&[0i64, -1], [2, 1])]).fails(ErrorKind::Index),
            Sample::new(op(1), vec![x(), t(&[0i64, 0, 0], [3, 1])]).fails(ErrorKind::Shape),
            Sample::new(op(1), vec![x(), t(&[0i64, 0], [2])]).fails(ErrorKind::Shape),
            Sample::new(op(1), vec![x(), t(&[0.0f32, 0.], [2, 1])]).fails(ErrorKind::DType),
            Sample::new(op(2), vec![x(), t(&[0i64, 0], [2, 1])]).fails(ErrorKind::Axis),
        ]
    }
}
