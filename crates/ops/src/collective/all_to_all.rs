use remat_comm::Communicator;
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{block_of, call};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Axis 0 of `x` consists of one equal block per rank; block `r` goes to rank `r`. `y` has the received blocks in the order of
/// ranks. The shape stays.
///
/// Errors: Axis for a number; Shape if axis 0 is not divisible; Peer if a rank failed, does not come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct AllToAll {
    /// The ranks.
    pub group: Communicator,
}

impl Op for AllToAll {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        block_of(x[0], self.group.size())?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = &cx.x[0];
        let call = call(Self::NAME, "", &Fact::new(x.dtype(), x.shape().clone()));
        self.group.all_to_all(&call, x.element_bytes()?, cx.y[0].bytes_mut())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(cx.apply(self.clone(), &[dy])?)])
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for AllToAll {
    const NAME: &'static str = "all_to_all";

    fn samples() -> Vec<Sample<Self>> {
        let op = || AllToAll { group: Communicator::alone() };
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
