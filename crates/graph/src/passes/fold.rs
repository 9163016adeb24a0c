use remat_ops::eval_on_host;
use remat_types::{HostTensor, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{PassCx, PassOptions};
use crate::ir::{Graph, Node, NodeId, Origin, Patch, ValueId};

/// Bytes up to which what needs no input is stored too: less than a call costs.
const MADE_BYTES: usize = 64;

/// A weight of 8 bits that becomes f32 takes so many times its bytes.
const MOST_GROWTH: usize = 4;

/// Replaces a value that is computed from constants alone by a constant, if it has at most
/// [`fold_bytes`](super::PassOptions::fold_bytes), or is a weight within [`weight_bytes`](super::PassOptions::weight_bytes). A
/// node that fails stays, and fails when it runs.
pub fn fold(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    let mut known: FxHashMap<ValueId, HostTensor> = FxHashMap::default();
    for v in g.value_ids() {
        if let Origin::Constant(data) = &g.value(v).origin {
            known.insert(v, (**data).clone());
        }
    }
    // links of chains, whose bytes are not needed any more
    let mut passed: FxHashSet<ValueId> = FxHashSet::default();
    for id in g.node_ids() {
        let n = g.node(id);
        let x: Option<Vec<HostTensor>> = n.x.iter().map(|v| known.get(v).cloned()).collect();
        // a large tensor of an op without inputs, a fill, is cheaper to make than to store
        let stored = n.y.iter().all(|v| g.fact(*v).bytes() <= MADE_BYTES) || !n.x.is_empty();
        let fits = stored && (is_small(g, n, cx.options) || is_weight(g, id, cx.options));
        let Some(x) = x.filter(|_| fits && n.op.repeatable() && n.after.is_empty()) else { continue };
        let Ok(y) = eval_on_host(&*n.op, &x, cx.pool) else { continue };
        for (v, y) in n.y.iter().zip(y) {
            known.insert(*v, y);
        }
        for v in n.x.iter().filter(|v| g.producer(**v).is_some() && is_alone(g, **v, id)) {
            known.remove(v);
            passed.insert(*v);
        }
    }
    // Only what others need: the links of a chain of constants go with it.
    for v in g.value_ids() {
        let is_known = |v: &ValueId| known.contains_key(v) || passed.contains(v);
        let wanted =
            |g: &Graph| g.is_result(v) || g.readers(v).iter().any(|n| g.node(*n).y.iter().any(|y| !is_known(y)));
        if g.producer(v).is_some()
            && wanted(g)
            && let Some(data) = known.get(&v)
        {
            let c = patch.constant(data.clone());
            patch.replace(v, c);
        }
    }
    Ok(patch)
}

fn is_small(g: &Graph, n: &Node, options: &PassOptions) -> bool {
    n.y.iter().all(|v| g.fact(*v).bytes() <= options.fold_bytes)
}

/// True if nothing but this node reads `v`.
fn is_alone(g: &Graph, v: ValueId, reader: NodeId) -> bool {
    g.readers(v) == [reader] && !g.is_result(v)
}

/// True if the results stand for inputs of nearly as many bytes, which go: nothing else reads those.
fn is_weight(g: &Graph, id: NodeId, options: &PassOptions) -> bool {
    let n = g.node(id);
    let bytes = |all: &[ValueId]| all.iter().map(|v| g.fact(*v).bytes()).sum::<usize>();
    let mut large = n.x.iter().filter(|v| g.fact(**v).bytes() > options.fold_bytes);
    let mut read = n.x.to_vec();
    read.sort_unstable();
    read.dedup();
    bytes(&n.y) <= options.weight_bytes
        && bytes(&n.y) <= bytes(&read).saturating_mul(MOST_GROWTH)
        && large.all(|v| is_alone(g, *v, id))
}
