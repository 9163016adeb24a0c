//! Pointwise ops: rows of one table.

use remat_types::{Error, ErrorKind, Fact, Facts, Result, Storage, for_storage, smallvec};
use serde::{Deserialize, Serialize};

use crate::host::arity;
use crate::sample::t;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// A binary function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BinaryFn {
    /// `a + b`.
    Add,
}

/// `y = f(a, b)` with broadcasting; both inputs have one dtype.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binary {
    /// The function.
    pub f: BinaryFn,
}

impl Op for Binary {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        if x[0].dtype != x[1].dtype {
            return Err(Error::new(ErrorKind::DType, format!("dtypes {} and {} differ", x[0].dtype, x[1].dtype)));
        }
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.broadcast(&x[1].shape)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(cx: &mut EvalCx<'_>) -> Result<()> {
            let _ = cx.x[0].slice::<T>()?;
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![cx.dy(0), cx.dy(0)])
    }
}

impl OpDef for Binary {
    const NAME: &'static str = "binary";
    fn samples() -> Vec<Sample<Self>> {
        vec![Sample::new(Binary { f: BinaryFn::Add }, vec![t(&[1.0f32], [1]), t(&[2.0f32], [1])])]
    }
}
