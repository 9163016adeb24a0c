use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Fused, FusedMatMul};
use remat_types::{DType, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::PassCx;
use super::fuse_reduce::{held_longer, is_needed, steps};
use crate::ir::{Graph, NodeId, Patch, PatchValue, ValueId};

/// A product of matrices takes on the pointwise work behind it, which alone reads it: a bias, an activation, a residual. Its
/// elements go through that while they are in the cache.
///
/// The product moves to where the pointwise work stands, and its operands live on until then. It joins only if they are
/// smaller than the product, which need not be kept that long, or if nothing but views lies between.
pub fn fuse_matmul(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    // what the patch gives in place of values that later products read
    let mut new: FxHashMap<ValueId, PatchValue> = FxHashMap::default();
    let ordered: Vec<NodeId> = g.nodes().iter().flat_map(|n| n.after.iter().copied()).collect();
    for id in g.node_ids() {
        let n = g.node(id);
        let Some(work) = steps(g, id).filter(|_| !ordered.contains(&id) && n.y.iter().any(|y| is_needed(g, *y))) else {
            continue;
        };
        let joins = |(i, v): (usize, &ValueId)| {
            let product = g.producer(*v).filter(|p| joins(g, *p, id) && !ordered.contains(p));
            product.map(|p| (i, p))
        };
        // the last of several: the others are inputs of the steps then
        let Some((i, product)) = n.x.iter().enumerate().filter_map(joins).max_by_key(|(_, p)| *p) else { continue };
        let others = n.x.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, v)| v);
        let x: SmallVec<[ValueId; 4]> = g.node(product).x.iter().chain(others).copied().collect();
        let op = FusedMatMul { steps: with_first(work, i as u16) };
        if !cx.supports(g, &op, &x) {
            continue;
        }
        let x: SmallVec<[PatchValue; 4]> = x.iter().map(|v| *new.get(v).unwrap_or(&PatchValue::Old(*v))).collect();
        let node = patch.node(op, &x, Some(id));
        let PatchValue::New { node, .. } = node else { continue };
        for (output, v) in n.y.iter().enumerate() {
            let by = PatchValue::New { node, output };
            patch.replace(*v, by);
            new.insert(*v, by);
        }
    }
    Ok(patch)
}

/// The steps with input `i` as the first.
fn with_first(mut steps: Fused, i: u16) -> Fused {
    for x in steps.steps.iter_mut().flat_map(|s| &mut s.x) {
        *x = match *x {
            x if x == i => 0,
            x if x < i => x + 1,
            x => x,
        };
    }
    steps
}

/// True if `product` is a product of floats that `work` alone reads, once, and may be made where that stands.
fn joins(g: &Graph, product: NodeId, work: NodeId) -> bool {
    let (p, w) = (g.node(product), g.node(work));
    let v = p.y[0];
    let fact = g.fact(v);
    let once = w.x.iter().filter(|x| **x == v).count() == 1;
    p.op.downcast::<MatMul>().is_some()
        && p.after.is_empty()
        && matches!(fact.dtype, DType::F32 | DType::F64)
        && once
        && g.readers(v) == [work]
        && !g.is_result(v)
        && fact.shape == g.fact(w.y[0]).shape
        && w.y.iter().any(|y| g.fact(*y).dtype == fact.dtype)
        && (held_longer(g, product) <= fact.bytes() || is_near(g, product, work))
}

/// True if only views lie between the two.
fn is_near(g: &Graph, product: NodeId, work: NodeId) -> bool {
    let is_view = |id: NodeId| {
        let n = g.node(id);
        n.x.len() == 1 && n.op.view(&g.fact(n.x[0]).layout()).is_some()
    };
    g.node_ids().skip(product.index() + 1).take_while(|n| *n < work).all(is_view)
}
