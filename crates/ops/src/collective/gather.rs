use remat_comm::Communicator;
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{ScatterFrom, call, want_axis, with_extent};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y` is all ranks' `x`, one behind the other along axis 0, on rank `root`: `[n, ..]` becomes `[ranks n, ..]` there, and `[0, ..]` on
/// the others.
///
/// Errors: Axis for a number; Value for a root that does not exist; Peer if a rank failed, does not come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct GatherTo {
    /// The rank that gets the values.
    pub root: usize,
    /// The ranks.
    pub group: Communicator,
}

impl Op for GatherTo {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_axis(x[0])?;
        self.group.check_rank(self.root, "root")?;
        let extent = x[0].shape[0].saturating_mul(self.group.size());
        // all ranks refuse what one cannot hold
        let whole = with_extent(x[0], extent)?;
        let shape = if self.group.rank() == self.root { whole } else { with_extent(x[0], 0)? };
        Ok(smallvec![Fact::new(x[0].dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = &cx.x[0];
        let call = call(Self::NAME, format!("to {}", self.root), &Fact::new(x.dtype(), x.shape().clone()));
        self.group.gather(&call, self.root, x.element_bytes()?, cx.y[0].bytes_mut())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let extent = cx.fact(cx.x(0)).shape[0];
        let back = ScatterFrom { root: self.root, extent, group: self.group.clone() };
        Ok(smallvec![Some(cx.apply(back, &[dy])?)])
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for GatherTo {
    const NAME: &'static str = "gather_to";

    fn samples() -> Vec<Sample<Self>> {
        let op = |root| GatherTo { root, group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        vec![
            Sample::new(op(0), vec![x()]).gives(vec![x()]),
            Sample::new(op(0), vec![t(&[true], [1])]).gives(vec![t(&[true], [1])]),
            Sample::new(op(0), vec![t::<i16>(&[], [0, 3])]).gives(vec![t::<i16>(&[], [0, 3])]),
            Sample::new(op(0), vec![t(&[1.0f32], [])]).fails(ErrorKind::Axis),
            Sample::new(op(1), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(0), vec![]).fails(ErrorKind::Arity),
        ]
    }
}
