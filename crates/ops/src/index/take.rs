use remat_kernels::index::{take, take_grad};
use remat_kernels::reduce::Num;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, Storage, for_storage, smallvec};

use super::{addable, axis_in, bad_index, indices, is_index, scatter_add};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[a.., i.., c..] = x[a.., index[i..], c..]`: rows of `x` along `axis`, as the index tensor names them (an embedding).
///
/// Inputs `x` and `index`, of any integer dtype; `y.shape = x.shape[..axis] ++ index.shape ++ x.shape[axis + 1..]`.
/// Errors: Axis if out of range, DType for indices that are no integers, Index for one not in `0..x.shape[axis]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any, index: int), gradient(x))]
pub struct Take {
    /// The axis.
    pub axis: usize,
}

impl Op for Take {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        axis_in(self.axis, &x[0].shape)?;
        is_index(x[1])?;
        let (before, after) = (&x[0].shape[..self.axis], &x[0].shape[self.axis + 1..]);
        let shape: Shape = before.iter().chain(x[1].shape.iter()).chain(after).copied().collect();
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(x[0].dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(axis: usize, cx: &mut EvalCx<'_>) -> Result<()> {
            let shape = cx.x[0].shape();
            let (n, inner) = (shape[axis], shape[axis + 1..].iter().product());
            let index = indices(&cx.x[1])?;
            take(cx.pool, cx.x[0].slice::<T>()?, n, inner, index, cx.y[0].slice_mut()?).map_err(|e| bad_index(e, n))
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self.axis, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let fact = cx.fact(cx.x(0));
        let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) else { return Ok(smallvec![None, None]) };
        let op = TakeGrad { axis: self.axis, extent: fact.shape[self.axis] };
        Ok(smallvec![Some(scatter_add(cx, op, dy, cx.x(1))?), None])
    }
}

impl OpDef for Take {
    const NAME: &'static str = "take";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis| Take { axis };
        let x = || t(&[1.0f32, 2., 3., 4., 5., 6.], [3, 2]);
        vec![
            Sample::new(op(0), vec![x(), t(&[2i64, 0, 2], [3])]).gives(vec![t(&[5.0f32, 6., 1., 2., 5., 6.], [3, 2])]),
            Sample::new(op(1), vec![x(), t(&[1i32, 1, 0, 0], [2, 2])])
                .gives(vec![t(&[2.0f32, 2., 1., 1., 4., 4., 3., 3., 6., 6., 5., 5.], [3, 2, 2])]),
            Sample::new(op(0), vec![x(), t(&[1u8], [])]).gives(vec![t(&[3.0f32, 4.], [2])]),
            Sample::new(op(0), vec![t(&[true, false], [2]), t(&[1u32, 0], [2])]).gives(vec![t(&[false, true], [2])]),
            Sample::new(op(0), vec![x(), t::<i64>(&[], [0])]).gives(vec![t::<f32>(&[], [0, 2])]).no_grad("empty"),
            Sample::new(op(1), vec![t::<f32>(&[], [0, 2]), t(&[1i64], [1])]).gives(vec![t::<f32>(&[], [0, 1])]),
            Sample::new(op(0), vec![x(), t(&[0i64, 3], [2])]).fails(ErrorKind::Index),
            Sample::new(op(0), vec![x(), t(&[-1i32], [1])]).fails(ErrorKind::Index),
            Sample::new(op(0), vec![t::<f32>(&[], [0, 2]), t(&[0i64], [1])]).fails(ErrorKind::Index),
            Sample::new(op(0), vec![x(), t(&[0.0f32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(2), vec![x(), t(&[0i64], [1])]).fails(ErrorKind::Axis),
        ]
    }
}

/// The gradient of [`Take`]: `dx[a.., n, c..] = sum of dy[a.., i.., c..] over all i with index[i..] = n`.
///
/// Inputs `dy` and `index`; terms are added in the order of the indices, so the bits do not depend on the threads.
/// Errors: Axis if out of range, Shape where `dy` and `index` disagree or `dx` is too large, DType for bools or indices
/// that are no integers, Index for one not in `0..extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(dy: number, index: int), gradient(dy))]
pub struct TakeGrad {
    /// The axis.
    pub axis: usize,
    /// The extent of `axis` in `dx`.
    pub extent: usize,
}

impl Op for TakeGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        addable(x[0])?;
        is_index(x[1])?;
        let (dy, index) = (&x[0].shape, &x[1].shape);
        if self.axis > dy.rank() {
            return Err(Error::new(ErrorKind::Axis, format!("axis {} is out of range for {dy}", self.axis)));
        }
        let (before, rest) = dy.split_at(self.axis);
        let Some(after) = rest.strip_prefix(index.dims()) else {
            let text = format!("cotangent {dy} does not have the axes of the index {index} from axis {}", self.axis);
            return Err(Error::new(ErrorKind::Shape, text));
        };
        let shape: Shape = before.iter().chain([&self.extent]).chain(after).copied().collect();
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(x[0].dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num>(op: &TakeGrad, cx: &mut EvalCx<'_>) -> Result<()> {
            let n = op.extent;
            let inner = cx.y[0].shape()[op.axis + 1..].iter().product();
            let index = indices(&cx.x[1])?;
            let dy = cx.x[0].slice::<T>()?;
            take_grad(cx.pool, dy, n, inner, index, cx.y[0].slice_mut()?).map_err(|e| bad_index(e, n))
        }
        if cx.x[0].dtype() == DType::Bool {
            return Err(Error::new(ErrorKind::Internal, "bools do not add up"));
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let float = cx.fact(cx.x(0)).dtype.is_float();
        let Some(d) = cx.dy(0).filter(|_| float) else { return Ok(smallvec![None, None]) };
        Ok(smallvec![Some(cx.apply(Take { axis: self.axis }, &[d, cx.x(1)])?), None])
    }
}

impl OpDef for TakeGrad {
    const NAME: &'static str = "take_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, extent| TakeGrad { axis, extent };
        let dy = || t(&[1.0f32, 2., 3., 4., 5., 6.], [3, 2]);
        vec![
            Sample::new(op(0, 4), vec![dy(), t(&[2i64, 0, 2], [3])])
                .gives(vec![t(&[3.0f32, 4., 0., 0., 6., 8., 0., 0.], [4, 2])]),
            Sample::new(op(1, 2), vec![dy(), t(&[1u8, 1], [2])]).gives(vec![t(&[0.0f32, 3., 0., 7., 0., 11.], [3, 2])]),
            Sample::new(op(1, 2), vec![t(&[1.0f32, 2.], [2]), t(&[0u16], [])])
                .gives(vec![t(&[1.0f32, 0., 2., 0.], [2, 2])]),
            Sample::new(op(0, 2), vec![t::<f32>(&[], [0]), t::<i64>(&[], [0])]).gives(vec![t(&[0.0f32, 0.], [2])]),
            Sample::new(op(0, 2), vec![t(&[1i8, 127, 1], [3]), t(&[0i32, 1, 1], [3])])
                .gives(vec![t(&[1i8, -128], [2])]),
            Sample::new(op(0, 2), vec![dy(), t(&[2i64, 0, 2], [3])]).fails(ErrorKind::Index),
            Sample::new(op(0, 4), vec![dy(), t(&[2i64], [1])]).fails(ErrorKind::Shape),
            Sample::new(op(3, 4), vec![dy(), t(&[2i64], [])]).fails(ErrorKind::Axis),
            Sample::new(op(0, usize::MAX), vec![dy(), t(&[2i64, 0, 2], [3])]).fails(ErrorKind::Shape),
            Sample::new(op(0, 2), vec![t(&[true], [1]), t(&[0i64], [1])]).fails(ErrorKind::DType),
            Sample::new(op(0, 2), vec![t(&[1.0f32], [1]), t(&[true], [1])]).fails(ErrorKind::DType),
        ]
    }
}
