use remat_ops::pointwise::Cast;
use remat_ops::shape::{BroadcastTo, Permute, Reshape, Slice};
use remat_ops::{Op, OpRef};
use remat_types::{DType, Result, SmallVec};

use super::PassCx;
use crate::ir::{Graph, Node, NodeId, Patch, PatchValue, ValueId};

/// Permutations, reshapes, broadcasts, slices and casts that follow one another become one, or nothing.
pub fn cancel(g: &Graph, _cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    for id in g.node_ids() {
        let n = g.node(id);
        let ([x], [y]) = (&n.x[..], &n.y[..]) else { continue };
        if g.readers(*y).is_empty() && !g.is_result(*y) {
            continue;
        }
        if is_identity(g, n, *x) {
            patch.replace(*y, PatchValue::Old(*x));
        } else if let Some((op, from)) = joined(g, n, *x) {
            let new = patch.node(op, &[PatchValue::Old(from)], Some(id));
            patch.replace(*y, new);
        }
    }
    Ok(patch)
}

/// True if the node gives its input, under the same dtype and shape.
fn is_identity(g: &Graph, n: &Node, x: ValueId) -> bool {
    if !g.fact(x).same_type(g.fact(n.y[0])) {
        return false;
    }
    if let Some(p) = n.op.downcast::<Permute>() {
        return p.order.iter().enumerate().all(|(i, a)| i == *a);
    }
    if let Some(s) = n.op.downcast::<Slice>() {
        return s.start == 0 && s.step == 1;
    }
    n.op.downcast::<Reshape>().is_some()
        || n.op.downcast::<BroadcastTo>().is_some()
        || n.op.downcast::<Cast>().is_some()
}

/// The op that does at once what the node and the producer of its input do, and what it is applied to.
fn joined(g: &Graph, n: &Node, x: ValueId) -> Option<(OpRef, ValueId)> {
    let first: &Node = g.producer(x).map(|p: NodeId| g.node(p))?;
    let [from] = first.x[..] else { return None };
    if let (Some(a), Some(b)) = (first.op.downcast::<Permute>(), n.op.downcast::<Permute>()) {
        let order: SmallVec<[usize; 4]> = b.order.iter().map(|i| a.order[*i]).collect();
        return Some((Permute { order }.into(), from));
    }
    if let (Some(_), Some(b)) = (first.op.downcast::<Reshape>(), n.op.downcast::<Reshape>()) {
        return Some((b.clone().into(), from));
    }
    if let (Some(_), Some(b)) = (first.op.downcast::<BroadcastTo>(), n.op.downcast::<BroadcastTo>()) {
        return Some((b.clone().into(), from));
    }
    if let (Some(a), Some(b)) = (first.op.downcast::<Slice>(), n.op.downcast::<Slice>())
        && a.axis == b.axis
    {
        let start = a.start as isize + b.start as isize * a.step;
        let step = a.step * b.step;
        let joined = Slice { axis: a.axis, start: usize::try_from(start).ok()?, len: b.len, step };
        // a slice of at most one element may step by anything, even beyond its axis
        return joined.infer(&[g.fact(from)]).is_ok().then(|| (joined.into(), from));
    }
    if let (Some(a), Some(b)) = (first.op.downcast::<Cast>(), n.op.downcast::<Cast>())
        && holds(a.dtype, g.fact(from).dtype)
    {
        return Some((b.clone().into(), from));
    }
    None
}

/// True if every number of `narrow` is one of `wide`, so that a cast to `wide` loses nothing.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::{BF16, F16, F32, F64};
    wide == narrow || matches!((wide, narrow), (F32, F16 | BF16) | (F64, F16 | BF16 | F32))
}
