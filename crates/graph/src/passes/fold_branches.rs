use remat_types::{HostTensor, Result, SmallVec};

use super::PassCx;
use crate::ir::{Graph, NodeId, Origin, Patch, PatchValue};

/// An op that runs one of several graphs, where a constant says which, becomes the nodes of that graph.
pub fn fold_branches(g: &Graph, _: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    for (id, n) in g.node_ids().zip(g.nodes()) {
        let known = |v: &_| match &g.value(*v).origin {
            Origin::Constant(data) => Some(&**data),
            _ => None,
        };
        let x: SmallVec<[Option<&HostTensor>; 4]> = n.x.iter().map(known).collect();
        // an order that the op kept would be lost with it
        let ordered = !n.after.is_empty() || g.nodes().iter().any(|o| o.after.contains(&id));
        if let Some((inner, first)) = n.op.selected_subgraph(&x).filter(|_| !ordered)
            && let Some(inner) = inner.downcast_ref::<Graph>()
        {
            inlined(g, id, inner, first, &mut patch);
        }
    }
    Ok(patch)
}

/// Replaces the outputs of a node by those of a graph on its inputs from `first` on.
fn inlined(g: &Graph, id: NodeId, inner: &Graph, first: usize, patch: &mut Patch) {
    let outer = g.node(id);
    let mut at: Vec<Option<PatchValue>> = vec![None; inner.values().len()];
    for v in inner.value_ids() {
        at[v.index()] = match &inner.value(v).origin {
            Origin::Input(i) => outer.x.get(first + i).map(|x| PatchValue::Old(*x)),
            Origin::Constant(data) => Some(patch.constant((**data).clone())),
            Origin::State(_) | Origin::Node { .. } => None,
        };
    }
    for n in inner.nodes() {
        // a graph within an op has no states, so whatever a node reads is there
        let x: SmallVec<[PatchValue; 4]> = n.x.iter().filter_map(|v| at[v.index()]).collect();
        if let PatchValue::New { node, .. } = patch.node(n.op.clone(), &x, Some(id)) {
            n.y.iter().enumerate().for_each(|(output, v)| at[v.index()] = Some(PatchValue::New { node, output }));
        }
    }
    for (old, o) in outer.y.iter().zip(inner.outputs()) {
        if let Some(new) = at[o.value.index()] {
            patch.replace(*old, new);
        }
    }
}
