use remat_comm::{Communicator, Reduction};
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{AllReduce, Broadcast, call};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y` is the reduction of all ranks' `x`, element by element in the order of ranks, on rank `root`, and zeros on the others.
///
/// Errors: DType if there is no such reduction; Value for a root that does not exist; Peer if a rank failed, does not come, or makes
/// another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct ReduceTo {
    /// How elements of several ranks become one.
    pub reduction: Reduction,
    /// The rank that gets the result.
    pub root: usize,
    /// The ranks.
    pub group: Communicator,
}

impl Op for ReduceTo {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        self.reduction.check(x[0].dtype)?;
        self.group.check_rank(self.root, "root")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (x, y) = (&cx.x[0], cx.y[0].bytes_mut());
        let detail = format!("{} to {}", self.reduction.name(), self.root);
        let call = call(Self::NAME, detail, &Fact::new(x.dtype(), x.shape().clone()));
        if self.group.rank() != self.root {
            y.fill(0);
        }
        self.group.reduce(&call, (self.reduction, x.dtype()), self.root, x.element_bytes()?, y, cx.workspace)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let is_root = self.group.rank() == self.root;
        if matches!(self.reduction, Reduction::Sum | Reduction::Mean) {
            let dx = cx.apply(Broadcast { root: self.root, group: self.group.clone() }, &[dy])?;
            let share = if self.reduction == Reduction::Mean { 1.0 / self.group.size() as f64 } else { 1.0 };
            return Ok(smallvec![Some(cx.build().scale(dx, share)?)]);
        }
        // every rank gets the result, and only the root's counts
        cx.grad_via_composite(|cx, x| {
            let y = cx.apply(AllReduce { reduction: self.reduction, group: self.group.clone() }, &[x[0]])?;
            Ok(smallvec![cx.build().scale(y, if is_root { 1.0 } else { 0.0 })?])
        })
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        self.group.reduce_workspace(x[0].dtype, x[0].bytes())
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for ReduceTo {
    const NAME: &'static str = "reduce_to";

    fn samples() -> Vec<Sample<Self>> {
        let op = |reduction, root| ReduceTo { reduction, root, group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        let mut samples: Vec<Sample<Self>> =
            [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product]
                .map(|r| Sample::new(op(r, 0), vec![x()]).gives(vec![x()]))
                .into();
        samples.extend([
            Sample::new(op(Reduction::Max, 0), vec![t(&[true], [1])]).gives(vec![t(&[true], [1])]),
            Sample::new(op(Reduction::Sum, 0), vec![t::<f64>(&[], [0])]).gives(vec![t::<f64>(&[], [0])]),
            Sample::new(op(Reduction::Sum, 0), vec![t(&[true], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Reduction::Sum, 1), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(Reduction::Sum, 0), vec![]).fails(ErrorKind::Arity),
        ]);
        samples
    }
}
