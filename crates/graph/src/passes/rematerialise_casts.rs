use std::collections::BTreeMap;

use remat_types::Result;
use rustc_hash::FxHashMap;

use super::PassCx;
use crate::ir::{Graph, NodeId, Patch, PatchValue, ValueId};

/// Nodes between two readers of a cast value from which on the later one counts as far: less, and its bytes would hardly
/// be of use to anything in between.
const FAR_NODES: usize = 8;
/// Bytes from which on a cast value is worth a second call.
const WORTH_BYTES: usize = 4096;

/// A cast value that waits for a reader far behind the others is cast again there, if its source lives that long
/// anyway or is smaller. This costs a call, and frees memory in between.
pub fn rematerialise_casts(g: &Graph, _cx: &PassCx<'_>) -> Result<Patch> {
    let ordered: Vec<NodeId> = g.nodes().iter().flat_map(|n| n.after.iter().copied()).collect();
    let stays = |id: NodeId| !g.node(id).after.is_empty() || ordered.contains(&id);
    // for each reader, the casts that it makes anew
    let mut anew: BTreeMap<NodeId, Vec<ValueId>> = BTreeMap::new();
    for id in g.node_ids() {
        let n = g.node(id);
        if n.op.class().casts_to().is_none() || stays(id) || g.is_result(n.y[0]) {
            continue;
        }
        let mut last = id;
        for r in g.readers(n.y[0]) {
            let far = r.index() - last.index() > FAR_NODES;
            if far && !stays(*r) && g.node(*r).op.repeatable() && saves(g, id, *r) {
                anew.entry(*r).or_default().push(n.y[0]);
            }
            last = *r;
        }
    }
    let mut patch = Patch::new();
    let mut new = FxHashMap::default();
    for (reader, casts) in anew {
        again(g, reader, &casts, &mut patch, &mut new);
    }
    Ok(patch)
}

/// True if more bytes die earlier than live longer.
fn saves(g: &Graph, cast: NodeId, reader: NodeId) -> bool {
    let n = g.node(cast);
    let (x, y) = (n.x[0], n.y[0]);
    let lives = g.producer(x).is_none() || g.is_result(x) || g.readers(x).iter().any(|r| *r >= reader);
    let longer = if lives { 0 } else { g.fact(x).bytes() };
    g.fact(y).bytes() >= WORTH_BYTES && g.fact(y).bytes() > longer
}

/// The reader once more, with casts of its own; `new` has the replacements of the values of readers before it.
fn again(g: &Graph, reader: NodeId, casts: &[ValueId], patch: &mut Patch, new: &mut FxHashMap<ValueId, PatchValue>) {
    let n = g.node(reader);
    let now = |v: &ValueId, new: &FxHashMap<ValueId, PatchValue>| *new.get(v).unwrap_or(&PatchValue::Old(*v));
    let mut x: Vec<PatchValue> = n.x.iter().map(|v| now(v, new)).collect();
    for v in casts {
        let Some(cast) = g.producer(*v).map(|p| g.node(p)) else { return };
        let own = patch.node(cast.op.clone(), &[now(&cast.x[0], new)], Some(reader));
        x.iter_mut().zip(&n.x).filter(|(_, old)| *old == v).for_each(|(x, _)| *x = own);
    }
    let PatchValue::New { node, .. } = patch.node(n.op.clone(), &x, Some(reader)) else { return };
    for (output, y) in n.y.iter().enumerate() {
        let by = PatchValue::New { node, output };
        patch.replace(*y, by);
        new.insert(*y, by);
    }
}
