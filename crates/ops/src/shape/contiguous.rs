use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample};

/// `y = x`, in row-major order without gaps: an explicit copy of a view.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Contiguous;

impl Op for Contiguous {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        if cx.y[0].holds() == Some(0) {
            return Ok(());
        }
        crate::shape::copy_view(cx, cx.x[0].layout())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![cx.dy(0)])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

impl OpDef for Contiguous {
    const NAME: &'static str = "contiguous";

    fn samples() -> Vec<Sample<Self>> {
        let x = || t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3]);
        vec![
            Sample::new(Contiguous, vec![x()]).gives(vec![x()]),
            Sample::new(Contiguous, vec![t(&[true], [])]).gives(vec![t(&[true], [])]),
            Sample::new(Contiguous, vec![t::<u64>(&[], [0])]).gives(vec![t::<u64>(&[], [0])]),
            Sample::new(Contiguous, vec![]).fails(ErrorKind::Arity),
        ]
    }
}
