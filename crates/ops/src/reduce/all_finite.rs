use remat_types::{DType, Element, Error, ErrorKind, Fact, Facts, Result, Shape, for_float, smallvec};

use crate::args::{not_taken, want_float};
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Whether every element of every input is finite: floats of any dtypes and shapes to one bool of rank 0.
///
/// One operator for all gradients of a model, as MegEngine's check before an update of scaled gradients. Errors: Arity for no input; DType for
/// other than floats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x..: float))]
pub struct AllFinite {}

/// Elements that are looked at before the answer may end the walk.
const BLOCK: usize = 1024;

fn finite<T: Element>(x: &[T]) -> bool {
    // without a branch in a block, so that it is vector code
    x.chunks(BLOCK).all(|x| x.iter().fold(true, |all, v| all & v.to_f64().is_finite()))
}

impl Op for AllFinite {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        if x.is_empty() {
            return Err(Error::new(ErrorKind::Arity, "takes one input or more"));
        }
        x.iter().try_for_each(|x| want_float(x, "an input"))?;
        Ok(smallvec![Fact::new(DType::Bool, Shape::scalar())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let mut all = true;
        for x in cx.x {
            let dtype = x.dtype();
            all = all && for_float!(dtype, T => Ok(finite(x.slice::<T>()?)), else Err(not_taken(dtype)))?;
        }
        cx.y[0].slice_mut::<u8>()?.fill(u8::from(all));
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok((0..cx.x_count()).map(|_| None).collect())
    }
}

impl OpDef for AllFinite {
    const NAME: &'static str = "all_finite";

    fn samples() -> Vec<Sample<Self>> {
        let (op, why) = (AllFinite {}, "bools");
        let good = || t(&[1.0f32, -2.0, 0.0], [3]);
        let long = |bad: f32| {
            let mut x = vec![1.0f32; 3000];
            x[2999] = bad;
            t(&x, [3000])
        };
        let y = |v: bool| vec![t(&[v], [])];
        vec![
            Sample::new(op.clone(), vec![good()]).gives(y(true)).no_grad(why),
            Sample::new(op.clone(), vec![good(), t(&[1.0f64, f64::NAN], [2, 1])]).gives(y(false)).no_grad(why),
            Sample::new(op.clone(), vec![long(f32::NEG_INFINITY), good()]).gives(y(false)).no_grad(why),
            Sample::new(op.clone(), vec![long(f32::MAX)]).gives(y(true)).no_grad(why),
            Sample::new(op.clone(), vec![t::<f32>(&[], [0])]).gives(y(true)).no_grad(why),
            Sample::new(op.clone(), vec![]).fails(ErrorKind::Arity),
            Sample::new(op, vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
        ]
    }
}
