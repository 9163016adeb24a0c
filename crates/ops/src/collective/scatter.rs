use remat_comm::Communicator;
use remat_types::{Error, ErrorKind, Fact, Facts, Result, smallvec};

use super::{GatherTo, call, want_axis, with_extent};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Axis 0 of rank `root`'s `x`, `[ranks extent, ..]`, is a block for each rank: `y` is this rank's, `[extent, ..]`. Other ranks' `x`
/// only says dtype and the axes behind the first, whose extent is 0 there.
///
/// Errors: Axis for a number; Shape for another extent of axis 0; Value for a root that does not exist; Peer if a rank failed, does
/// not come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct ScatterFrom {
    /// The rank whose values are given out.
    pub root: usize,
    /// The extent of axis 0 that each rank gets.
    pub extent: usize,
    /// The ranks.
    pub group: Communicator,
}

impl Op for ScatterFrom {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_axis(x[0])?;
        self.group.check_rank(self.root, "root")?;
        let whole = self.extent.saturating_mul(self.group.size());
        let (rank, want) = (self.group.rank(), if self.group.rank() == self.root { whole } else { 0 });
        if x[0].shape[0] != want {
            let text =
                format!("axis 0 of {} is not {want}, on rank {rank} of a scatter from {}", x[0].shape, self.root);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        Ok(smallvec![Fact::new(x[0].dtype, with_extent(x[0], self.extent)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (x, y) = (&cx.x[0], &mut cx.y[0]);
        let call = call(Self::NAME, format!("from {}", self.root), &Fact::new(x.dtype(), y.shape().clone()));
        self.group.scatter(&call, self.root, x.element_bytes()?, y.bytes_mut())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(cx.apply(GatherTo { root: self.root, group: self.group.clone() }, &[dy])?)])
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for ScatterFrom {
    const NAME: &'static str = "scatter_from";

    fn samples() -> Vec<Sample<Self>> {
        let op = |root, extent| ScatterFrom { root, extent, group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        vec![
            Sample::new(op(0, 2), vec![x()]).gives(vec![x()]),
            Sample::new(op(0, 1), vec![t(&[true], [1])]).gives(vec![t(&[true], [1])]),
            Sample::new(op(0, 0), vec![t::<i16>(&[], [0, 3])]).gives(vec![t::<i16>(&[], [0, 3])]),
            Sample::new(op(0, 1), vec![x()]).fails(ErrorKind::Shape),
            Sample::new(op(0, 1), vec![t(&[1.0f32], [])]).fails(ErrorKind::Axis),
            Sample::new(op(1, 2), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(0, 2), vec![]).fails(ErrorKind::Arity),
        ]
    }
}
