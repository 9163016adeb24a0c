use remat_ops::eval_on_host;
use remat_types::{HostTensor, Result};
use rustc_hash::FxHashMap;

use super::PassCx;
use crate::ir::{Graph, Origin, Patch, ValueId};

/// Bytes up to which what needs no input is stored too: less than a call costs.
const MADE_BYTES: usize = 64;

/// What is computed from constants alone becomes a constant, as long as it has at most
/// [`fold_bytes`](super::PassOptions::fold_bytes). What fails stays, and fails when it runs.
pub fn fold(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    let mut known: FxHashMap<ValueId, HostTensor> = FxHashMap::default();
    for v in g.value_ids() {
        if let Origin::Constant(data) = &g.value(v).origin {
            known.insert(v, (**data).clone());
        }
    }
    for n in g.nodes() {
        let small = n.y.iter().all(|v| g.fact(*v).bytes() <= cx.options.fold_bytes);
        let x: Option<Vec<HostTensor>> = n.x.iter().map(|v| known.get(v).cloned()).collect();
        // a large tensor of an op without inputs, a fill, is cheaper to make than to store
        let stored = n.y.iter().all(|v| g.fact(*v).bytes() <= MADE_BYTES) || !n.x.is_empty();
        let Some(x) = x.filter(|_| stored && small && n.op.repeatable() && n.after.is_empty()) else { continue };
        let Ok(y) = eval_on_host(&*n.op, &x, cx.pool) else { continue };
        for (v, y) in n.y.iter().zip(y) {
            known.insert(*v, y);
        }
    }
    // Only what others need: the links of a chain of constants go with it.
    for v in g.value_ids() {
        let wanted = |g: &Graph| {
            g.is_result(v) || g.readers(v).iter().any(|n| g.node(*n).y.iter().any(|y| !known.contains_key(y)))
        };
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
