use remat_kernels::philox::dropout;
use remat_types::{ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};

use super::{stream, want_key};
use crate::args::{not_taken, probability, want_float};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `(x, key) -> y`: each element is 0 with probability `p`, else `x / (1 - p)`.
///
/// `x, y` of one shape and float dtype, `key: u64 [2]`. What is dropped depends on the key and the position only, so the
/// gradient is dropout of `dy` with the same key, and no mask is kept. (Srivastava et al., JMLR 2014.)
///
/// Errors: DType for an `x` that is no float, DType or Shape for a wrong key, Value for a `p` outside 0 ..= 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, key: key), gradient(x))]
pub struct Dropout {
    /// The probability of zero.
    pub p: Scalar,
}

impl Op for Dropout {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        probability(self.p, "p")?;
        want_float(x[0], "x")?;
        want_key(x[1])?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (p, s, dtype) = (probability(self.p, "p")?, stream(&cx.x[1])?, cx.x[0].dtype());
        let pool = cx.pool;
        for_float!(dtype, T => {
            dropout(pool, s, p, cx.output_from::<T>(0, 0)?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        Ok(smallvec![Some(cx.apply(self.clone(), &[dy, cx.x(1)])?), None])
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

impl OpDef for Dropout {
    const NAME: &'static str = "dropout";

    fn samples() -> Vec<Sample<Self>> {
        let op = |p: f64| Dropout { p: p.into() };
        let x = t(&[1.0f32, -2., 3., 4.], [2, 2]);
        let key = t(&[0u64, 0], [2]);
        vec![
            // the key's first words are 0.40, 0.88, 0.74 and 0.61 of 2^32
            Sample::new(op(0.5), vec![x.clone(), key.clone()]).gives(vec![t(&[0.0f32, -4., 6., 8.], [2, 2])]),
            Sample::new(op(0.75), vec![x.clone(), key.clone()]).gives(vec![t(&[0.0f32, -8., 0., 0.], [2, 2])]),
            Sample::new(op(0.0), vec![x.clone(), key.clone()]).gives(vec![x.clone()]),
            Sample::new(op(1.0), vec![t(&[1.0f32, f32::INFINITY], [2]), key.clone()])
                .gives(vec![t(&[0.0f32, 0.0], [2])])
                .no_grad("all is dropped"),
            Sample::new(op(0.1), vec![t(&[1.0f32; 9000], [9000]), t(&[1u64, 2], [2])]).no_grad("large"),
            Sample::new(op(0.5), vec![t::<f64>(&[], [0]), key.clone()]).gives(vec![t::<f64>(&[], [0])]),
            Sample::new(op(-0.1), vec![x.clone(), key.clone()]).fails(ErrorKind::Value),
            Sample::new(op(f64::NAN), vec![x.clone(), key.clone()]).fails(ErrorKind::Value),
            Sample::new(op(0.5), vec![t(&[1i32], [1]), key]).fails(ErrorKind::DType),
            Sample::new(op(0.5), vec![x.clone(), t(&[0i64, 0], [2])]).fails(ErrorKind::DType),
            Sample::new(op(0.5), vec![x]).fails(ErrorKind::Arity),
        ]
    }
}
