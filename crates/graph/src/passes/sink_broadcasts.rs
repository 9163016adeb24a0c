use remat_ops::pointwise::{Binary, BinaryFn, Cast, Pointwise};
use remat_ops::reduce::{Reduce, ReduceFn};
use remat_ops::shape::{BroadcastTo, Reshape};
use remat_ops::{Class, OpRef, eval_on_host};
use remat_types::{DType, Fact, HostTensor, Result, Shape, SmallVec};

use super::PassCx;
use crate::ir::{Graph, Node, NodeId, Patch, PatchValue, ValueId};

/// Broadcasts move behind pointwise ops and reductions, where these then work on fewer elements: `f(broadcast(x))` becomes
/// `broadcast(f(x))`. Pointwise ops broadcast by themselves, so that in front of one a broadcast goes altogether.
///
/// Sums of floats stay where they are, for the order of a sum follows from its shape; see [`sink_broadcasts_in_sums`].
pub fn sink_broadcasts(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    for id in g.node_ids() {
        let n = g.node(id);
        if !is_free(g, n) {
            continue;
        }
        pointwise(g, id, &mut patch);
        if let Some(r) = n.op.downcast::<Reduce>().filter(|r| is_exact(r.f, g.fact(n.x[0]))) {
            reduction(g, cx, id, r, &mut patch);
        }
    }
    Ok(patch)
}

/// [`sink_broadcasts`] for sums and products of floats, whose last digits change: `sum(broadcast(x))` becomes `n sum(x)`.
pub fn sink_broadcasts_in_sums(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    for id in g.node_ids() {
        let n = g.node(id);
        if let Some(r) = n.op.downcast::<Reduce>().filter(|_| is_free(g, n)) {
            reduction(g, cx, id, r, &mut patch);
        }
    }
    Ok(patch)
}

/// True if something needs the node's one value, and its place is its own affair.
fn is_free(g: &Graph, n: &Node) -> bool {
    let [y] = n.y[..] else { return false };
    n.after.is_empty() && g.fact(y).elems() > 0 && (g.is_result(y) || !g.readers(y).is_empty())
}

/// True if the order of the elements does not matter to a single bit.
fn is_exact(f: ReduceFn, x: &Fact) -> bool {
    !x.dtype.is_float() && f != ReduceFn::Mean
}

/// The value that `v` is a broadcast of.
fn source(g: &Graph, v: ValueId) -> Option<ValueId> {
    let n = g.node(g.producer(v)?);
    (matches!(n.op.class(), Class::Broadcast) && n.after.is_empty()).then(|| n.x[0])
}

fn pointwise(g: &Graph, id: NodeId, patch: &mut Patch) {
    let n = g.node(id);
    let total = n.x.first().is_some_and(|x| Pointwise::fusible(&n.op, g.fact(*x).dtype).is_some());
    let x: SmallVec<[ValueId; 4]> = n.x.iter().map(|v| source(g, *v).unwrap_or(*v)).collect();
    if !total || x == n.x {
        return;
    }
    let Some(shape) = joint(g, &x) else { return };
    let y = g.fact(n.y[0]);
    // a broadcast that only adds axes of extent 1 saves nothing behind the op
    if shape.elems() == y.elems() && shape != y.shape {
        return;
    }
    let x: SmallVec<[PatchValue; 4]> = x.into_iter().map(PatchValue::Old).collect();
    let small = patch.node(n.op.clone(), &x, Some(id));
    let by = if shape == y.shape { small } else { patch.node(broadcast_to(y), &[small], Some(id)) };
    patch.replace(n.y[0], by);
}

fn broadcast_to(y: &Fact) -> OpRef {
    BroadcastTo { shape: y.shape.clone() }.into()
}

/// The shape of a pointwise op's result on these.
fn joint(g: &Graph, x: &[ValueId]) -> Option<Shape> {
    x.iter().try_fold(Shape::scalar(), |s, v| s.broadcast(&g.fact(*v).shape).ok())
}

/// `f` over the axes that the source has, then what repetition makes of it, then the broadcast along the axes that stay.
fn reduction(g: &Graph, cx: &PassCx<'_>, id: NodeId, r: &Reduce, patch: &mut Patch) {
    let n = g.node(id);
    let Some(x) = source(g, n.x[0]) else { return };
    let (from, whole, y) = (&g.fact(x).shape, &g.fact(n.x[0]).shape, g.fact(n.y[0]));
    if from.elems() >= whole.elems() {
        return;
    }
    let lead = whole.rank() - from.rank();
    let extent = |a: usize| if a < lead { 1 } else { from[a - lead] };
    let repeated = |a: &usize| extent(*a) != whole[*a];
    let times: usize = r.axes.iter().filter(|a| repeated(a)).map(|a| whole[*a]).product();
    if times != 1 && matches!(r.f, ReduceFn::Prod | ReduceFn::Norm | ReduceFn::SumWide | ReduceFn::ProdWide) {
        return;
    }
    let own = r.axes.iter().filter(|a| **a >= lead).map(|a| a - lead).collect();
    let small = Reduce { f: r.f, axes: own, keepdims: true };
    let mut v = patch.node(small, &[PatchValue::Old(x)], Some(id));
    if times != 1 && matches!(r.f, ReduceFn::Sum | ReduceFn::SumSqr) {
        let Some(count) = count(times, y.dtype, cx) else { return };
        let count = patch.constant(count);
        v = patch.node(Binary { f: BinaryFn::Mul }, &[v, count], Some(id));
    }
    let left = (0..whole.rank()).filter(|a| r.keepdims || !r.axes.contains(a));
    let shape: Shape = left.map(|a| if r.axes.contains(&a) { 1 } else { extent(a) }).collect();
    v = patch.node(Reshape { shape }, &[v], Some(id));
    v = patch.node(broadcast_to(y), &[v], Some(id));
    patch.replace(n.y[0], v);
}

/// A number as the dtype has it: integers wrap, as sums of them do. `None` where it is beyond a float's range.
fn count(n: usize, dtype: DType, cx: &PassCx<'_>) -> Option<HostTensor> {
    let y = eval_on_host(&Cast { dtype }, &[HostTensor::scalar(n as i64)], cx.pool).ok()?.pop()?;
    y.to_f64_vec()[0].is_finite().then_some(y)
}
