use remat_comm::{Communicator, Reduction};
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{AllGather, AllToAll, block_of, call, with_extent};
use crate::host::arity;
use crate::reduce::{Reduce, ReduceFn};
use crate::sample::t;
use crate::schema::Params;
use crate::shape::Reshape;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Axis 0 of `x` is as many equal blocks as there are ranks: `y` is the reduction of this rank's block over all ranks, element by
/// element in the order of ranks. `[ranks n, ..]` becomes `[n, ..]`.
///
/// Errors: DType if there is no such reduction; Axis for a number; Shape if axis 0 is not divisible; Peer if a rank failed, does not
/// come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct ReduceScatter {
    /// How elements of several ranks become one.
    pub reduction: Reduction,
    /// The ranks.
    pub group: Communicator,
}

impl Op for ReduceScatter {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        self.reduction.check(x[0].dtype)?;
        let block = block_of(x[0], self.group.size())?;
        Ok(smallvec![Fact::new(x[0].dtype, with_extent(x[0], block)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = &cx.x[0];
        let call = call(Self::NAME, self.reduction.name(), &Fact::new(x.dtype(), x.shape().clone()));
        let (dtype, y) = (x.dtype(), cx.y[0].bytes_mut());
        self.group.reduce_scatter(&call, self.reduction, dtype, x.element_bytes()?, y, cx.workspace)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let (group, size) = (&self.group, self.group.size());
        let f = match self.reduction {
            Reduction::Sum | Reduction::Mean => {
                let dx = cx.apply(AllGather { group: group.clone() }, &[dy])?;
                let share = if self.reduction == Reduction::Mean { 1.0 / size as f64 } else { 1.0 };
                return Ok(smallvec![Some(cx.build().scale(dx, share)?)]);
            }
            Reduction::Max => ReduceFn::Max,
            Reduction::Min => ReduceFn::Min,
            Reduction::Product => ReduceFn::Prod,
        };
        cx.grad_via_composite(|cx, x| {
            let fact = cx.fact(x[0]);
            let rows = cx.apply(AllToAll { group: group.clone() }, &[x[0]])?;
            let block = with_extent(&fact, fact.shape[0] / size)?;
            let shape = [size].into_iter().chain(block.iter().copied()).collect();
            let rows = cx.apply(Reshape { shape }, &[rows])?;
            Ok(smallvec![cx.apply(Reduce { f, axes: smallvec![0], keepdims: false }, &[rows])?])
        })
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        self.group.reduce_scatter_workspace(x[0].dtype, x[0].bytes() / self.group.size())
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for ReduceScatter {
    const NAME: &'static str = "reduce_scatter";

    fn samples() -> Vec<Sample<Self>> {
        let op = |reduction| ReduceScatter { reduction, group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        let mut samples: Vec<Sample<Self>> =
            [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product]
                .map(|r| Sample::new(op(r), vec![x()]).gives(vec![x()]))
                .into();
        samples.extend([
            Sample::new(op(Reduction::Min), vec![t(&[true], [1])]).gives(vec![t(&[true], [1])]),
            Sample::new(op(Reduction::Sum), vec![t::<i64>(&[], [0])]).gives(vec![t::<i64>(&[], [0])]),
            Sample::new(op(Reduction::Sum), vec![t(&[true], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Reduction::Sum), vec![t(&[1.0f32], [])]).fails(ErrorKind::Axis),
            Sample::new(op(Reduction::Sum), vec![]).fails(ErrorKind::Arity),
        ]);
        samples
    }
}
