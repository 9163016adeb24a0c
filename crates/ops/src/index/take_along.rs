use remat_kernels::index::{take_along, take_along_grad};
use remat_kernels::reduce::Num;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, Storage, for_storage, smallvec};

use super::{addable, axis_in, bad_index, indices, is_index, scatter_add};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[a.., m, c..] = x[a.., index[a.., m, c..], c..]`: one element of `x` along `axis` for each index (torch's gather).
///
/// Inputs `x` and `index`, of any integer dtype, with the extents of `x` on all axes but `axis`; `y` has the shape of
/// `index`. Errors: Axis if out of range, Shape where `x` and `index` disagree, DType for indices that are no integers,
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
        let (shape, index) = (&x[0].shape, &x[1].shape);
        axis_in(self.axis, shape)?;
        is_index(x[1])?;
        let fits = shape.rank() == index.rank() && (0..shape.rank()).all(|a| a == self.axis || shape[a] == index[a]);
        if !fits {
            let text = format!("index {index} does not have the extents of {shape} beside axis {}", self.axis);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        Ok(smallvec![Fact::new(x[0].dtype, index.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(axis: usize, cx: &mut EvalCx<'_>) -> Result<()> {
            let shape = cx.x[0].shape();
            let (n, m, inner) = (shape[axis], cx.x[1].shape()[axis], shape[axis + 1..].iter().product());
            let (x, index) = (cx.x[0].slice::<T>()?, indices(&cx.x[1])?);
            take_along(cx.pool, x, n, m, inner, index, cx.y[0].slice_mut()?).map_err(|e| bad_index(e, n))
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self.axis, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let fact = cx.fact(cx.x(0));
        let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) else { return Ok(smallvec![None, None]) };
        let op = TakeAlongGrad { axis: self.axis, extent: fact.shape[self.axis] };
        Ok(smallvec![Some(scatter_add(cx, op, dy, cx.x(1))?), None])
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
            Sample::new(op(1), vec![x(), t::<i64>(&[], [2, 0])]).gives(vec![t::<f32>(&[], [2, 0])]).no_grad("empty"),
            Sample::new(op(1), vec![x(), t(&[3i64, 0], [2, 1])]).fails(ErrorKind::Index),
            Sample::new(op(1), vec![x(), t(&[0i64, -1], [2, 1])]).fails(ErrorKind::Index),
            Sample::new(op(1), vec![x(), t(&[0i64], [1, 1])]).fails(ErrorKind::Shape),
            Sample::new(op(1), vec![x(), t(&[0i64, 0], [2])]).fails(ErrorKind::Shape),
            Sample::new(op(1), vec![x(), t(&[0.0f32, 0.], [2, 1])]).fails(ErrorKind::DType),
            Sample::new(op(2), vec![x(), t(&[0i64, 0], [2, 1])]).fails(ErrorKind::Axis),
        ]
    }
}

/// The gradient of [`TakeAlong`]: `dx[a.., n, c..] = sum of dy[a.., m, c..] over all m with index[a.., m, c..] = n`.
///
/// Inputs `dy` and `index`, of one shape; terms are added in the order of `m`. Errors: Axis if out of range, Shape where
/// the inputs disagree or `dx` is too large, DType for bools or indices that are no integers, Index for one not in
/// `0..extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(dy: number, index: int), gradient(dy))]
pub struct TakeAlongGrad {
    /// The axis.
    pub axis: usize,
    /// The extent of `axis` in `dx`.
    pub extent: usize,
}

impl Op for TakeAlongGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        addable(x[0])?;
        is_index(x[1])?;
        axis_in(self.axis, &x[0].shape)?;
        if x[0].shape != x[1].shape {
            let text = format!("cotangent {} and index {} have different shapes", x[0].shape, x[1].shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let mut shape: Shape = x[0].shape.clone();
        shape.dims_mut()[self.axis] = self.extent;
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(x[0].dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num>(op: &TakeAlongGrad, cx: &mut EvalCx<'_>) -> Result<()> {
            let (n, shape) = (op.extent, cx.x[0].shape());
            let (m, inner) = (shape[op.axis], shape[op.axis + 1..].iter().product());
            let (dy, index) = (cx.x[0].slice::<T>()?, indices(&cx.x[1])?);
            take_along_grad(cx.pool, dy, n, m, inner, index, cx.y[0].slice_mut()?).map_err(|e| bad_index(e, n))
        }
        if cx.x[0].dtype() == DType::Bool {
            return Err(Error::new(ErrorKind::Internal, "bools do not add up"));
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let float = cx.fact(cx.x(0)).dtype.is_float();
        let Some(d) = cx.dy(0).filter(|_| float) else { return Ok(smallvec![None, None]) };
        Ok(smallvec![Some(cx.apply(TakeAlong { axis: self.axis }, &[d, cx.x(1)])?), None])
    }
}

impl OpDef for TakeAlongGrad {
    const NAME: &'static str = "take_along_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, extent| TakeAlongGrad { axis, extent };
        let dy = || t(&[1.0f32, 2., 3., 4.], [2, 2]);
        vec![
            Sample::new(op(1, 3), vec![dy(), t(&[2i64, 2, 0, 1], [2, 2])])
                .gives(vec![t(&[0.0f32, 0., 3., 3., 4., 0.], [2, 3])]),
            Sample::new(op(0, 1), vec![dy(), t(&[0u8, 0, 0, 0], [2, 2])]).gives(vec![t(&[4.0f32, 6.], [1, 2])]),
            Sample::new(op(0, 2), vec![t::<f32>(&[], [0]), t::<i64>(&[], [0])]).gives(vec![t(&[0.0f32, 0.], [2])]),
            Sample::new(op(1, 2), vec![dy(), t(&[2i64, 1, 0, 1], [2, 2])]).fails(ErrorKind::Index),
            Sample::new(op(1, 2), vec![dy(), t(&[0i64], [1, 1])]).fails(ErrorKind::Shape),
            Sample::new(op(1, usize::MAX), vec![dy(), t(&[0i64; 4], [2, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(2, 2), vec![dy(), t(&[0i64; 4], [2, 2])]).fails(ErrorKind::Axis),
            Sample::new(op(0, 2), vec![t(&[true], [1]), t(&[0i64], [1])]).fails(ErrorKind::DType),
        ]
    }
}
