//! When the gradient of a leaf with hooks is complete: as soon as the pass has come to the last use of the leaf.

use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{ByAge, NodeId};
use crate::tape::{Edge, Node, NodeKind, lock};

/// How many uses of each leaf with hooks a pass has still to come to. They are counted when it comes to the first of all: a pass to
/// leaves without hooks counts nothing.
#[derive(Default)]
pub(super) struct Watched(Option<FxHashMap<NodeId, usize>>);

fn is_watched(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Leaf(leaf) if !lock(&leaf.hooks).is_empty())
}

impl Watched {
    /// The pass is at a node with these inputs, and will come to what can be reached from them and from `queue`.
    pub(super) fn come_to(&mut self, inputs: &[Option<Edge>], queue: &BinaryHeap<ByAge>) {
        if self.0.is_some() || !inputs.iter().flatten().any(|e| is_watched(&e.node)) {
            return;
        }
        let mut uses: FxHashMap<NodeId, usize> = FxHashMap::default();
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let mut stack: Vec<Arc<Node>> = queue.iter().map(|n| n.0.clone()).collect();
        let mut use_of = |edge: &Edge, stack: &mut Vec<Arc<Node>>| match edge.node.kind {
            NodeKind::Leaf(_) if is_watched(&edge.node) => *uses.entry(Arc::as_ptr(&edge.node)).or_default() += 1,
            NodeKind::Leaf(_) => {}
            _ => stack.push(edge.node.clone()),
        };
        inputs.iter().flatten().for_each(|e| use_of(e, &mut stack));
        while let Some(node) = stack.pop() {
            if seen.insert(Arc::as_ptr(&node)) {
                lock(&node.inputs).iter().flatten().for_each(|e| use_of(e, &mut stack));
            }
        }
        self.0 = Some(uses);
    }

    /// One use of this input is done; true if it was the last of a leaf with hooks.
    pub(super) fn is_last_use(&mut self, input: &Edge) -> bool {
        let Some(uses) = self.0.as_mut().and_then(|all| all.get_mut(&Arc::as_ptr(&input.node))) else { return false };
        *uses = uses.saturating_sub(1);
        *uses == 0
    }
}
