use remat_ops::pointwise::{Fused, FusedReduce, FusedStep, Pointwise};
use remat_ops::reduce::Reduce;
use remat_types::{Result, SmallVec};

use super::PassCx;
use crate::ir::{Graph, NodeId, Patch, PatchValue, ValueId};

/// A reduction over the last axes, the leading ones, or all but the channels of images joins the pointwise work before it,
/// whose result nothing else reads: a tile at a time is computed and folded, and the whole is never in memory.
///
/// What dies with the pointwise op lives on until the reduction runs; it joins only if that is less than it saves.
pub fn fuse_reduce(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    let ordered: Vec<NodeId> = g.nodes().iter().flat_map(|n| n.after.iter().copied()).collect();
    for id in g.node_ids() {
        let n = g.node(id);
        let Some(reduce) = n.op.downcast::<Reduce>().filter(|_| is_needed(g, n.y[0])) else { continue };
        let Some(before) = g.producer(n.x[0]) else { continue };
        let steps = steps(g, before).filter(|f| f.outputs.len() == 1 && joins(g, before, id, reduce));
        let free = n.after.is_empty() && !ordered.contains(&id) && !ordered.contains(&before);
        let op = steps.filter(|_| free).map(|steps| FusedReduce { steps, reduce: reduce.clone() });
        if let Some(op) = op.filter(|op| cx.supports(g, op, &g.node(before).x)) {
            let x: SmallVec<[PatchValue; 4]> = g.node(before).x.iter().map(|v| PatchValue::Old(*v)).collect();
            let y = patch.node(op, &x, Some(id));
            patch.replace(n.y[0], y);
        }
    }
    Ok(patch)
}

pub(super) fn is_needed(g: &Graph, v: ValueId) -> bool {
    g.is_result(v) || !g.readers(v).is_empty()
}

/// The node as a list of steps, if it is pointwise and has no order but that of its inputs.
pub(super) fn steps(g: &Graph, id: NodeId) -> Option<Fused> {
    let n = g.node(id);
    if let Some(f) = n.op.downcast::<Fused>() {
        return Some(f.clone()).filter(|_| n.after.is_empty());
    }
    let op = Pointwise::fusible(&n.op, g.fact(*n.x.first()?).dtype)?;
    let inputs = u16::try_from(n.x.len()).ok()?;
    let steps = vec![FusedStep { op, x: (0..inputs).collect() }];
    Some(Fused { inputs, steps, outputs: SmallVec::from_elem(0, 1) }).filter(|_| n.after.is_empty())
}

fn joins(g: &Graph, before: NodeId, reduce: NodeId, op: &Reduce) -> bool {
    let v = g.node(before).y[0];
    let fits = FusedReduce::fits(&g.fact(v).shape, &op.axes);
    fits && g.readers(v) == [reduce] && !g.is_result(v) && held_longer(g, before) <= g.fact(v).bytes()
}

/// Bytes of what dies with `before`, which lives on if that is put off.
pub(super) fn held_longer(g: &Graph, before: NodeId) -> usize {
    let n = g.node(before);
    let dies = |(i, x): (usize, &ValueId)| {
        let last = g.producer(*x).is_some() && !g.is_result(*x) && g.readers(*x).iter().all(|r| *r <= before);
        if last && !n.x[..i].contains(x) { g.fact(*x).bytes() } else { 0 }
    };
    n.x.iter().enumerate().map(dies).sum()
}
