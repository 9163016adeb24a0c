//! Another order of the same nodes.

use remat_types::{Error, ErrorKind, Result};

use super::{Graph, NodeId, Origin, Parts};

impl Graph {
    /// The graph with its nodes in consecutive parts, and the number of nodes up to the end of each. `parts` names the
    /// outputs that each part gives, by index: a node belongs to the first part with an output that needs it, and to the
    /// last if none does. Within a part the order stays.
    ///
    /// Errors: Value for an output that does not exist or that two parts give.
    pub fn in_parts(&self, parts: &[Vec<usize>]) -> Result<(Graph, Vec<usize>)> {
        let last = parts.len().saturating_sub(1);
        let mut of = vec![last; self.nodes().len()];
        let mut given = vec![false; self.outputs().len()];
        // backwards, so that the entry of the first part that needs a node stays
        for (k, outputs) in parts.iter().enumerate().rev() {
            for &j in outputs {
                let output = self.outputs().get(j);
                let output = output.ok_or_else(|| value(format!("part {k} gives output {j}, which there is not")))?;
                if std::mem::replace(&mut given[j], true) {
                    return Err(value(format!("output `{}` is given by two parts", output.name)));
                }
                self.assign(self.producer(output.value), k, &mut of);
            }
        }
        let mut order: Vec<NodeId> = self.node_ids().collect();
        order.sort_by_key(|n| of[n.index()]);
        let ends = (0..parts.len().max(1)).map(|k| of.iter().filter(|p| **p <= k).count()).collect();
        Ok((self.reordered(&order)?, ends))
    }

    /// Assigns part `k` to a node and to all that must run before it.
    fn assign(&self, node: Option<NodeId>, k: usize, of: &mut [usize]) {
        let mut seen = vec![false; self.nodes().len()];
        let mut open: Vec<NodeId> = node.into_iter().collect();
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            of[id.index()] = of[id.index()].min(k);
            let n = self.node(id);
            open.extend(n.x.iter().filter_map(|v| self.producer(*v)).chain(n.after.iter().copied()));
        }
    }

    /// The same nodes in this order. Errors (Format) if a node would stand before one that it needs.
    fn reordered(&self, order: &[NodeId]) -> Result<Graph> {
        let mut now = vec![NodeId(0); order.len()];
        order.iter().enumerate().for_each(|(i, old)| now[old.index()] = NodeId(i as u32));
        let mut values = self.values().to_vec();
        for v in &mut values {
            if let Origin::Node { node, .. } = &mut v.origin {
                *node = now[node.index()];
            }
        }
        let mut nodes: Vec<_> = order.iter().map(|n| self.node(*n).clone()).collect();
        nodes.iter_mut().for_each(|n| n.after.iter_mut().for_each(|a| *a = now[a.index()]));
        let (inputs, states, outputs) = (self.inputs().to_vec(), self.states().to_vec(), self.outputs().to_vec());
        Graph::assemble(Parts { values, nodes, inputs, states, outputs })
    }
}

fn value(text: String) -> Error {
    Error::new(ErrorKind::Value, text)
}
