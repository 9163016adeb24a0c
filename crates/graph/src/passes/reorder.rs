use remat_ops::pointwise::{Binary, BinaryFn};
use remat_types::{Result, Shape};

use super::PassCx;
use crate::ir::{Graph, NodeId, Origin, Patch, PatchValue, ValueId};

/// Sums and products of several integers are taken in the order that costs least: constants first, which folding then
/// makes one, and small shapes before large ones. Integers wrap, so that no bit depends on the order.
pub fn reorder(g: &Graph, _cx: &PassCx<'_>) -> Result<Patch> {
    Ok(reordered(g, |g, v| g.fact(v).dtype.is_int()))
}

/// [`reorder`] for floats, whose last digits change, and which may overflow in between where they did not.
pub fn reorder_floats(g: &Graph, _cx: &PassCx<'_>) -> Result<Patch> {
    Ok(reordered(g, |g, v| g.fact(v).dtype.is_float()))
}

fn reordered(g: &Graph, takes: fn(&Graph, ValueId) -> bool) -> Patch {
    let mut patch = Patch::new();
    let mut within = vec![false; g.nodes().len()];
    for id in g.node_ids().rev() {
        let Some(f) = function(g, id).filter(|_| takes(g, g.node(id).y[0])) else { continue };
        if within[id.index()] {
            continue;
        }
        let mut chain = Chain { g, f, terms: Vec::new(), nodes: Vec::new(), elems: 0 };
        chain.collect(id, &mut within);
        if let Some(order) = chain.better() {
            chain.rewrite(id, &order, &mut patch);
        }
    }
    patch
}

/// The function of a node that may be part of a chain.
fn function(g: &Graph, id: NodeId) -> Option<BinaryFn> {
    let n = g.node(id);
    let f = n.op.downcast::<Binary>()?.f;
    let y = n.y[0];
    let needed = g.is_result(y) || !g.readers(y).is_empty();
    (matches!(f, BinaryFn::Add | BinaryFn::Mul) && n.after.is_empty() && needed).then_some(f)
}

/// A tree of one function, whose inner values nothing else reads.
struct Chain<'g> {
    g: &'g Graph,
    f: BinaryFn,
    /// The summands, from left to right.
    terms: Vec<ValueId>,
    /// The nodes of the tree.
    nodes: Vec<NodeId>,
    /// Elements that the tree computes as it stands.
    elems: usize,
}

impl Chain<'_> {
    fn collect(&mut self, id: NodeId, within: &mut [bool]) {
        within[id.index()] = true;
        self.nodes.push(id);
        let g = self.g;
        let n = g.node(id);
        if !n.x.iter().all(|v| is_constant(g, *v)) {
            self.elems = self.elems.saturating_add(g.fact(n.y[0]).elems());
        }
        for v in &n.x {
            let inner = g.producer(*v).filter(|p| function(g, *p) == Some(self.f));
            let alone = g.readers(*v) == [id] && n.x[0] != n.x[1] && !g.is_result(*v);
            match inner.filter(|_| alone) {
                Some(p) => self.collect(p, within),
                None => self.terms.push(*v),
            }
        }
    }

    /// The terms in an order that computes fewer elements, if there is one.
    fn better(&self) -> Option<Vec<ValueId>> {
        let g = self.g;
        let elems = |v: &ValueId| g.fact(*v).elems();
        let mut by_size = self.terms.clone();
        by_size.sort_by_key(elems);
        let mut constants_first = by_size.clone();
        constants_first.sort_by_key(|v| !is_constant(g, *v));
        let orders = [constants_first, by_size];
        let best = orders.into_iter().min_by_key(|o| self.cost(o))?;
        (self.cost(&best) < self.elems).then_some(best)
    }

    /// Elements computed from left to right; results of constants alone are computed beforehand.
    fn cost(&self, order: &[ValueId]) -> usize {
        let mut shape = Shape::scalar();
        let (mut sum, mut constant) = (0usize, true);
        for (i, v) in order.iter().enumerate() {
            let Ok(wider) = shape.broadcast(&self.g.fact(*v).shape) else { return usize::MAX };
            shape = wider;
            constant &= is_constant(self.g, *v);
            if i > 0 && !constant {
                sum = sum.saturating_add(shape.elems());
            }
        }
        sum
    }

    /// Each sum takes the place of the first node of the tree at which its terms exist. So values that die early still do,
    /// and a product can still take over the ops after it.
    fn rewrite(&self, root: NodeId, order: &[ValueId], patch: &mut Patch) {
        let Some((first, rest)) = order.split_first() else { return };
        let op = Binary { f: self.f };
        let mut ready = self.g.producer(*first);
        let mut y = PatchValue::Old(*first);
        for v in rest {
            ready = ready.max(self.g.producer(*v));
            let place = self.nodes.iter().filter(|n| Some(**n) > ready).min().copied();
            y = patch.node(op.clone(), &[y, PatchValue::Old(*v)], place.or(Some(root)));
        }
        patch.replace(self.g.node(root).y[0], y);
    }
}

fn is_constant(g: &Graph, v: ValueId) -> bool {
    matches!(g.value(v).origin, Origin::Constant(_))
}
