use remat_comm::{Communicator, Reduction};
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{AllGather, call, in_front};
use crate::host::arity;
use crate::reduce::{Reduce, ReduceFn};
use crate::sample::t;
use crate::schema::Params;
use crate::shape::Reshape;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y` is the reduction of all ranks' `x`, element by element in the order of ranks, on all ranks.
///
/// Errors: DType if there is no such reduction; Peer if a rank failed, does not come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct AllReduce {
    /// How elements of several ranks become one.
    pub reduction: Reduction,
    /// The ranks.
    pub group: Communicator,
}

impl Op for AllReduce {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        self.reduction.check(x[0].dtype)?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = &cx.x[0];
        let call = call(Self::NAME, self.reduction.name(), &Fact::new(x.dtype(), x.shape().clone()));
        let x_bytes = if cx.y[0].holds().is_some() { None } else { Some(x.element_bytes()?) };
        self.group.all_reduce(&call, self.reduction, x.dtype(), x_bytes, cx.y[0].bytes_mut(), cx.workspace)
    }

    fn overwrite(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let f = match self.reduction {
            Reduction::Sum | Reduction::Mean => return Ok(smallvec![Some(cx.apply(self.clone(), &[dy])?)]),
            Reduction::Max => ReduceFn::Max,
            Reduction::Min => ReduceFn::Min,
            Reduction::Product => ReduceFn::Prod,
        };
        cx.grad_via_composite(|cx, x| {
            let row = cx.apply(Reshape { shape: in_front(&cx.fact(x[0])) }, &[x[0]])?;
            let rows = cx.apply(AllGather { group: self.group.clone() }, &[row])?;
            Ok(smallvec![cx.apply(Reduce { f, axes: smallvec![0], keepdims: false }, &[rows])?])
        })
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        self.group.reduce_workspace(x[0].dtype, x[0].bytes())
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }
}

impl OpDef for AllReduce {
    const NAME: &'static str = "all_reduce";

    fn samples() -> Vec<Sample<Self>> {
        let op = |reduction| AllReduce { reduction, group: Communicator::alone() };
        let x = || t(&[1.0f32, -2., 3., 4.], [2, 2]);
        let mut samples: Vec<Sample<Self>> =
            [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product]
                .map(|r| Sample::new(op(r), vec![x()]).gives(vec![x()]))
                .into();
        samples.extend([
            Sample::new(op(Reduction::Max), vec![t(&[true, false], [2])]).gives(vec![t(&[true, false], [2])]),
            Sample::new(op(Reduction::Sum), vec![t(&[7u8], [])]).gives(vec![t(&[7u8], [])]),
            Sample::new(op(Reduction::Sum), vec![t::<f64>(&[], [0])]).gives(vec![t::<f64>(&[], [0])]),
            Sample::new(op(Reduction::Sum), vec![t(&[true], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Reduction::Mean), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Reduction::Sum), vec![]).fails(ErrorKind::Arity),
        ]);
        samples
    }
}
