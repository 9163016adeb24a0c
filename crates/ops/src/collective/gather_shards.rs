use std::ops::Range;

use remat_comm::Communicator;
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::call;
use crate::args::{not_differentiable, want_dtype, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y` has the shape of `x` and, in row-major order, the elements of all ranks' `shard`, one behind the other: `[k]` on each,
/// where `k` is the number of elements of `x` over the number of ranks, rounded up; surplus elements are left out. `x` only gives
/// dtype and shape, and its storage.
///
/// It may not fail once all ranks have come, which the updates of an optimiser make sure of before the first one.
///
/// Errors: DType, Shape; Peer if a rank failed, does not come, or makes another call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any, shard: any))]
pub struct GatherShards {
    /// The ranks.
    pub group: Communicator,
}

impl GatherShards {
    /// The elements of a tensor of so many that are rank `rank`'s of `ranks`.
    pub fn range(elems: usize, rank: usize, ranks: usize) -> Range<usize> {
        let k = elems.div_ceil(ranks);
        (k * rank).min(elems)..(k * (rank + 1)).min(elems)
    }
}

impl Op for GatherShards {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        want_dtype(x[1], x[0].dtype, "shard")?;
        want_shape(x[1], &[x[0].elems().div_ceil(self.group.size())], "shard")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (y, shard) = (&mut cx.y[0], cx.x[1].element_bytes()?);
        let call = call(Self::NAME, "", &Fact::new(cx.x[0].dtype(), y.shape().clone()));
        let (elems, size) = (y.shape().elems(), cx.x[0].dtype().size_bytes());
        let parts: Vec<Range<usize>> = (0..self.group.size())
            .map(|r| GatherShards::range(elems, r, self.group.size()))
            .map(|r| r.start * size..r.end * size)
            .collect();
        let mine = parts[self.group.rank()].len();
        self.group.all_gather_parts(&call, &shard[..mine], y.bytes_mut(), &parts)
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn ranks(&self) -> Option<&Communicator> {
        Some(&self.group)
    }

    // all ranks have arrived by then, and later ops may overwrite states
    fn may_fail(&self) -> bool {
        false
    }
}

impl OpDef for GatherShards {
    const NAME: &'static str = "gather_shards";

    fn samples() -> Vec<Sample<Self>> {
        let op = || GatherShards { group: Communicator::alone() };
        let x = || t(&[0.0f32; 4], [2, 2]);
        let shard = || t(&[1.0f32, -2., 3., 4.], [4]);
        vec![
            Sample::new(op(), vec![x(), shard()])
                .gives(vec![t(&[1.0f32, -2., 3., 4.], [2, 2])])
                .no_grad("an optimiser step"),
            Sample::new(op(), vec![t(&[true], []), t(&[false], [1])])
                .gives(vec![t(&[false], [])])
                .no_grad("an optimiser step"),
            Sample::new(op(), vec![t::<u8>(&[], [0]), t::<u8>(&[], [0])])
                .gives(vec![t::<u8>(&[], [0])])
                .no_grad("an optimiser step"),
            Sample::new(op(), vec![x(), t(&[1.0f64; 4], [4])]).fails(ErrorKind::DType),
            Sample::new(op(), vec![x(), t(&[1.0f32; 3], [3])]).fails(ErrorKind::Shape),
            Sample::new(op(), vec![x()]).fails(ErrorKind::Arity),
        ]
    }
}
