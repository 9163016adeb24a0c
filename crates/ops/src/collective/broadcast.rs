use remat_comm::{Communicator, Reduction};
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{ReduceTo, call};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y` is rank `root`'s `x`, on all ranks. Other ranks' `x` only says dtype and shape.
///
/// Errors: Value for a root that does not exist; Peer if a rank failed, does not come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Broadcast {
    /// The rank whose values all get.
    pub root: usize,
    /// The ranks.
    pub group: Communicator,
}

impl Op for Broadcast {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        self.group.check_rank(self.root, "root")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = &cx.x[0];
        let call = call(Self::NAME, format!("from {}", self.root), &Fact::new(x.dtype(), x.shape().clone()));
        let y = cx.y[0].bytes_mut();
        if self.group.rank() == self.root && !x.is_donated() {
            y.copy_from_slice(x.element_bytes()?);
        }
        self.group.broadcast(&call, self.root, y)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let back = ReduceTo { reduction: Reduction::Sum, root: self.root, group: self.group.clone() };
        Ok(smallvec![Some(cx.apply(back, &[dy])?)])
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for Broadcast {
    const NAME: &'static str = "broadcast_from";

    fn samples() -> Vec<Sample<Self>> {
        let op = |root| Broadcast { root, group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        vec![
            Sample::new(op(0), vec![x()]).gives(vec![x()]),
            Sample::new(op(0), vec![t(&[true], [])]).gives(vec![t(&[true], [])]),
            Sample::new(op(0), vec![t::<i16>(&[], [0, 3])]).gives(vec![t::<i16>(&[], [0, 3])]),
            Sample::new(op(1), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(0), vec![]).fails(ErrorKind::Arity),
        ]
    }
}
