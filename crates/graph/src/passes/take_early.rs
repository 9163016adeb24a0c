use remat_ops::index::Take;
use remat_ops::pointwise::Pointwise;
use remat_ops::shape::Reshape;
use remat_types::{Result, Shape, SmallVec};

use super::PassCx;
use crate::ir::{Graph, Node, NodeId, Origin, Patch, PatchValue, ValueId};

/// Takes rows of a constant table before a function is applied to the table: `take(f(table), index)` becomes
/// `f(take(table, index))`.
///
/// A table of words that is kept in integers with a scale a row is an example: as floats it is larger than what
/// [`fold`](super::fold()) stores, and a call reads a few of its rows. Nothing else may read the table, and no more than half as
/// many elements may be taken as it has.
pub fn take_early(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    let early = Early { g, fixed: fixed(g), most_bytes: cx.options.fold_bytes };
    for id in g.node_ids() {
        let n = g.node(id);
        let Some(take) = n.op.downcast::<Take>().filter(|_| n.after.is_empty()) else { continue };
        let (table, y) = (g.fact(n.x[0]).elems(), g.fact(n.y[0]));
        if early.inner(n.x[0], id).is_some() && y.elems().saturating_mul(2) <= table {
            let taken = early.taken(&mut patch, n.x[0], take.axis, id, id);
            patch.replace(n.y[0], taken);
        }
    }
    Ok(patch)
}

/// For each value: true if it follows from constants alone.
fn fixed(g: &Graph) -> Vec<bool> {
    let mut fixed = vec![false; g.value_ids().len()];
    for v in g.value_ids() {
        fixed[v.index()] = matches!(g.value(v).origin, Origin::Constant(_));
    }
    for n in g.nodes() {
        if n.op.repeatable() && n.after.is_empty() && n.x.iter().all(|v| fixed[v.index()]) {
            n.y.iter().for_each(|v| fixed[v.index()] = true);
        }
    }
    fixed
}

struct Early<'g> {
    g: &'g Graph,
    fixed: Vec<bool>,
    /// The most bytes that folding makes a constant of.
    most_bytes: usize,
}

impl<'g> Early<'g> {
    /// The pointwise op that computes `v` for `reader` alone.
    fn inner(&self, v: ValueId, reader: NodeId) -> Option<(NodeId, &'g Node)> {
        let g = self.g;
        let id = g.producer(v)?;
        let n = g.node(id);
        let alone = g.readers(v) == [reader] && !g.is_result(v) && g.fact(v).bytes() > self.most_bytes;
        let total = n.x.first().is_some_and(|x| Pointwise::fusible(&n.op, g.fact(*x).dtype).is_some());
        (alone && total && self.fixed[v.index()] && n.after.is_empty()).then_some((id, n))
    }

    /// The rows of `v`, which `reader` reads, along an axis, as the take `take` chooses them.
    fn taken(&self, patch: &mut Patch, v: ValueId, axis: usize, reader: NodeId, take: NodeId) -> PatchValue {
        let g = self.g;
        let index = g.node(take).x[1];
        let Some((id, n)) = self.inner(v, reader) else {
            return patch.node(Take { axis }, &[PatchValue::Old(v), PatchValue::Old(index)], Some(take));
        };
        let whole = &g.fact(v).shape;
        let mut x: SmallVec<[PatchValue; 4]> = SmallVec::new();
        for u in &n.x {
            let shape = &g.fact(*u).shape;
            // shapes agree from the right
            let own = (axis + shape.rank()).checked_sub(whole.rank());
            x.push(match own {
                None => PatchValue::Old(*u),
                Some(own) if shape[own] == whole[axis] => self.taken(patch, *u, own, id, take),
                Some(own) => {
                    let ones = std::iter::repeat_n(1, g.fact(index).shape.rank());
                    let shape: Shape =
                        shape[..own].iter().copied().chain(ones).chain(shape[own + 1..].iter().copied()).collect();
                    patch.node(Reshape { shape }, &[PatchValue::Old(*u)], Some(take))
                }
            });
        }
        patch.node(n.op.clone(), &x, Some(take))
    }
}
