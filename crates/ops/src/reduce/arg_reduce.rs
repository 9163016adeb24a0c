use remat_kernels::reduce::{Extreme, arg_extreme};
use remat_types::{DType, ErrorKind, Fact, Facts, Result, for_storage, smallvec};
use serde::{Deserialize, Serialize};

use super::{not_empty, reduced_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Which element an [`ArgReduce`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgReduceFn {
    /// The largest.
    Argmax,
    /// The smallest.
    Argmin,
}

/// `y[k]` = the index along `axis` of the largest (smallest) element of `x`, as I64: the first of equal ones, or the first
/// NaN if there is one.
///
/// `y` has the axes of `x` without `axis`, or with extent 1 there if `keepdims`. Not differentiable. Errors: Axis if out
/// of range, Shape for an axis of extent 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any))]
pub struct ArgReduce {
    /// The function.
    pub f: ArgReduceFn,
    /// The reduced axis.
    pub axis: usize,
    /// Whether it stays with extent 1.
    #[param(default = false)]
    pub keepdims: bool,
}

impl Op for ArgReduce {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let y = reduced_shape(&x[0].shape, &[self.axis], self.keepdims)?;
        not_empty(&x[0].shape, &[self.axis], &y, "extreme")?;
        Ok(smallvec![Fact::new(DType::I64, y)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let shape = cx.x[0].shape();
        let (n, inner) = (shape[self.axis], shape[self.axis + 1..].iter().product());
        let which = match self.f {
            ArgReduceFn::Argmax => Extreme::Max,
            ArgReduceFn::Argmin => Extreme::Min,
        };
        for_storage!(cx.x[0].dtype(), T => {
            arg_extreme(cx.pool, which, cx.x[0].slice::<T>()?, n, inner, cx.y[0].slice_mut()?);
        });
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

impl OpDef for ArgReduce {
    const NAME: &'static str = "arg_reduce";

    fn label(&self) -> &'static str {
        match self.f {
            ArgReduceFn::Argmax => "argmax",
            ArgReduceFn::Argmin => "argmin",
        }
    }

    fn samples() -> Vec<Sample<Self>> {
        use ArgReduceFn::*;
        let op = |f, axis, keepdims| ArgReduce { f, axis, keepdims };
        let x = || t(&[1.0f32, 3., 3., 2., 0., 0.], [2, 3]);
        let samples = vec![
            Sample::new(op(Argmax, 1, false), vec![x()]).gives(vec![t(&[1i64, 0], [2])]),
            Sample::new(op(Argmin, 1, true), vec![x()]).gives(vec![t(&[0i64, 1], [2, 1])]),
            Sample::new(op(Argmax, 0, false), vec![x()]).gives(vec![t(&[1i64, 0, 0], [3])]),
            Sample::new(op(Argmin, 0, false), vec![t(&[1.0f64, f64::NAN, f64::NEG_INFINITY, f64::NAN], [4])])
                .gives(vec![t(&[1i64], [])]),
            Sample::new(op(Argmax, 1, false), vec![t(&[false, true, true, true], [2, 2])])
                .gives(vec![t(&[1i64, 0], [2])]),
            Sample::new(op(Argmax, 1, false), vec![t::<u8>(&[], [0, 2])]).gives(vec![t::<i64>(&[], [0])]),
            Sample::new(op(Argmax, 1, false), vec![t::<f32>(&[], [2, 0])]).fails(ErrorKind::Shape),
            Sample::new(op(Argmax, 2, false), vec![x()]).fails(ErrorKind::Axis),
        ];
        samples.into_iter().map(|s| s.no_grad("an index")).collect()
    }
}
