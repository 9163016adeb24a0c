use remat_comm::{Communicator, Reduction};
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{ReduceScatter, call, want_axis, with_extent};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y` is all ranks' `x`, one behind the other along axis 0, on all ranks: `[n, ..]` becomes `[ranks n, ..]`.
///
/// Errors: Axis for a number; Peer if a rank failed, does not come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct AllGather {
    /// The ranks.
    pub group: Communicator,
}

impl Op for AllGather {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_axis(x[0])?;
        let extent = x[0].shape[0].saturating_mul(self.group.size());
        Ok(smallvec![Fact::new(x[0].dtype, with_extent(x[0], extent)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = &cx.x[0];
        let call = call(Self::NAME, "", &Fact::new(x.dtype(), x.shape().clone()));
        self.group.all_gather(&call, x.element_bytes()?, cx.y[0].bytes_mut())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let back = ReduceScatter { reduction: Reduction::Sum, group: self.group.clone() };
        Ok(smallvec![Some(cx.apply(back, &[dy])?)])
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for AllGather {
    const NAME: &'static str = "all_gather";

    fn samples() -> Vec<Sample<Self>> {
        let op = || AllGather { group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        vec![
            Sample::new(op(), vec![x()]).gives(vec![x()]),
            Sample::new(op(), vec![t(&[true], [1])]).gives(vec![t(&[true], [1])]),
            Sample::new(op(), vec![t::<i16>(&[], [0, 3])]).gives(vec![t::<i16>(&[], [0, 3])]),
            Sample::new(op(), vec![t(&[1.0f32], [])]).fails(ErrorKind::Axis),
            Sample::new(op(), vec![]).fails(ErrorKind::Arity),
        ]
    }
}
