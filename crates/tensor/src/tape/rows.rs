//! Gradients of tables that name the rows they have: what lookups of a table leave in a backward pass, in the place of a gradient as
//! large as the table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use remat_ops::OpRef;
use remat_ops::index::TakeGrad;
use remat_ops::pointwise::{Binary, BinaryFn, Cast};
use remat_runtime::Kind;
use remat_types::{CallSite, DType, Fact, Result, SmallVec, smallvec};

use super::{Edge, Leaf, Node, NodeKind, Saved, capture_gradient, guard_hooks, lock, no_grad};
use crate::Tensor;

/// A part of the gradient of a table: of each row that `index` names the row of `rows` at the same place; rows of the same one add up.
#[derive(Clone, Debug)]
pub struct RowGrad {
    /// Rows of the table, of any integer dtype and shape `[n..]`.
    pub index: Tensor,
    /// `[n.., table.shape[1..]]`, of the table's dtype.
    pub rows: Tensor,
}

/// Marks the lookup that gave `y`: in a backward pass to a leaf, its gradient stays rows.
pub(crate) fn mark_lookup(y: &Tensor) {
    if let Some(NodeKind::Op { keeps_rows, .. }) = y.edge.as_ref().map(|e| &e.node.kind) {
        keeps_rows.store(true, Ordering::Relaxed);
    }
}

/// Gives a lookup's gradient to the leaf of its table, as rows, where that is the only form in which it will be read: there are no
/// hooks, which see a tensor, and no other gradient so far. False if it did not, and nothing happened.
pub(crate) fn keep_rows(
    node: &Node,
    edges: &[Option<Edge>],
    dy: &mut SmallVec<[Option<Tensor>; 2]>,
    retain_graph: bool,
) -> Result<bool> {
    let NodeKind::Op { keeps_rows, saved, .. } = &node.kind else { return Ok(false) };
    let Some(NodeKind::Leaf(leaf)) = edges.first().and_then(Option::as_ref).map(|e| &e.node.kind) else {
        return Ok(false);
    };
    if !keeps_rows.load(Ordering::Relaxed) || !lock(&leaf.hooks).is_empty() {
        return Ok(false);
    }
    guard_hooks(leaf, &[]);
    capture_gradient(leaf);
    if lock(&leaf.grad).is_some() {
        return Ok(false);
    }
    let mut saved = lock(saved);
    let Some(index) = saved.as_ref().and_then(|s: &Saved| s.x.get(1)).and_then(Clone::clone) else { return Ok(false) };
    let Some(rows) = dy.first_mut().and_then(Option::take) else { return Ok(false) };
    if !retain_graph {
        saved.take();
    }
    drop(saved);
    rows.handle.channel().tag(&rows.handle, Kind::Gradient)?;
    let mut all = lock(&leaf.rows);
    if all.is_empty() {
        leaf.is_grad_reduced.store(false, Ordering::Relaxed);
    }
    all.push(RowGrad { index: index.detach(), rows: rows.detach() });
    Ok(true)
}

impl Leaf {
    /// Makes one gradient, as large as the table, of the rows there are, for a leaf whose data are of this type.
    pub(crate) fn fold_rows(self: &Arc<Self>, of: &Fact, site: CallSite) -> Result<()> {
        let mut rows = lock(&self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        let whole = whole(&rows, of, site)?;
        rows.clear();
        drop(rows);
        let Some(whole) = whole else { return Ok(()) };
        whole.handle.channel().tag(&whole.handle, Kind::Gradient)?;
        *lock(&self.grad) = Some(whole);
        Ok(())
    }
}

/// The sum of `terms` as a gradient of this type; nothing of none.
fn whole(terms: &[RowGrad], of: &Fact, site: CallSite) -> Result<Option<Tensor>> {
    let _quiet = no_grad();
    let mut sum: Option<Tensor> = None;
    for t in terms {
        let apply =
            |op: OpRef, x: SmallVec<[Tensor; 4]>| -> Result<Tensor> { Ok(super::apply(op, x, site)?.swap_remove(0)) };
        let is_narrow = matches!(of.dtype, DType::F16 | DType::BF16);
        let cast = |x: Tensor, dtype| match is_narrow {
            true => apply(OpRef::new(Cast { dtype }), smallvec![x]),
            false => Ok(x),
        };
        let rows = cast(t.rows.clone(), DType::F32)?;
        let op = OpRef::new(TakeGrad { axis: 0, extent: of.shape[0] });
        let one = cast(apply(op, smallvec![rows, t.index.clone()])?, of.dtype)?;
        sum = Some(match sum {
            None => one,
            Some(have) => apply(OpRef::new(Binary { f: BinaryFn::Add }), smallvec![have, one])?,
        });
    }
    Ok(sum)
}
