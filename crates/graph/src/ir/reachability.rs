//! Which node depends on which.

use super::{Graph, NodeId};

/// The transitive closure of "runs after", as a row of bits a node.
#[derive(Clone, Debug)]
pub struct Reachability {
    words: usize,
    /// Row `n`: the nodes that `n` depends on, itself included.
    rows: Vec<u64>,
}

impl Reachability {
    pub(crate) fn of(g: &Graph) -> Reachability {
        let n = g.nodes().len();
        let words = n.div_ceil(64);
        let mut rows = vec![0u64; n * words];
        for (i, node) in g.nodes().iter().enumerate() {
            let (before, own) = rows.split_at_mut(i * words);
            let own = &mut own[..words];
            own[i / 64] |= 1 << (i % 64);
            for p in node.x.iter().filter_map(|v| g.producer(*v)).chain(node.after.iter().copied()) {
                let row = &before[p.index() * words..][..words];
                own.iter_mut().zip(row).for_each(|(a, b)| *a |= b);
            }
        }
        Reachability { words, rows }
    }

    /// True if `node` depends on `on`, directly or not; a node depends on itself.
    pub fn depends(&self, node: NodeId, on: NodeId) -> bool {
        self.rows[node.index() * self.words + on.index() / 64] >> (on.index() % 64) & 1 == 1
    }

    /// The nodes that `node` depends on, in order, itself included.
    pub fn dependencies(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let row = &self.rows[node.index() * self.words..][..self.words];
        row.iter().enumerate().flat_map(|(w, &bits)| {
            (0..64).filter(move |b| bits >> b & 1 == 1).map(move |b| NodeId((w * 64 + b) as u32))
        })
    }

    /// The nodes that depend on `node`, in order, itself included.
    pub fn dependents(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.rows.len().checked_div(self.words).unwrap_or(0) as u32;
        (node.0..nodes).map(NodeId).filter(move |n| self.depends(*n, node))
    }
}
