use remat_ops::OpRef;
use remat_types::Result;

use super::PassCx;
use crate::ir::{Graph, Node, Patch, PatchValue, ValueId};

/// Permutations, reshapes, broadcasts, slices and casts that follow one another become one, or nothing.
pub fn cancel_layout(g: &Graph, _cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    for id in g.node_ids() {
        let n = g.node(id);
        let ([x], [y]) = (&n.x[..], &n.y[..]) else { continue };
        if g.readers(*y).is_empty() && !g.is_result(*y) {
            continue;
        }
        if n.op.is_identity(g.fact(*x)) {
            patch.replace(*y, PatchValue::Old(*x));
        } else if let Some((op, from)) = at_once(g, n, *x) {
            let new = patch.node(op, &[PatchValue::Old(from)], Some(id));
            patch.replace(*y, new);
        }
    }
    Ok(patch)
}

/// The op that does the work of the node and of its input's producer at once, and its operand.
fn at_once(g: &Graph, n: &Node, x: ValueId) -> Option<(OpRef, ValueId)> {
    let first = g.node(g.producer(x)?);
    let [from] = first.x[..] else { return None };
    Some((n.op.after(&*first.op, g.fact(from))?, from))
}
