//! The values that nodes read, and for how long.

use crate::graph::{Attribute, Graph, Node, Ref};

/// Slots of the graph `out` graphs out that a node's graphs read.
pub(crate) fn reads(node: &Node, out: usize, found: &mut Vec<usize>) {
    found.extend(node.inputs.iter().flatten().filter(|r| r.out == out).map(|r| r.slot));
    for a in node.attributes.values() {
        if let Attribute::Graph(g) = a {
            g.nodes.iter().for_each(|n| reads(n, out + 1, found));
            found.extend(g.outputs.iter().filter(|o| o.1.out == out + 1).map(|o| o.1.slot));
        }
    }
}

/// Notes for every node the values that it is the last to read.
pub(crate) fn find_last_uses(graph: &mut Graph) {
    let mut seen = vec![false; graph.slots];
    let stays = |r: &Ref| r.out == 0;
    graph.outputs.iter().map(|o| o.1).filter(stays).for_each(|r| seen[r.slot] = true);
    for node in graph.nodes.iter_mut().rev() {
        node.frees.clear();
        let mut read = Vec::new();
        reads(node, 0, &mut read);
        for slot in read.into_iter().chain(node.outputs.iter().flatten().copied().collect::<Vec<_>>()) {
            if !std::mem::replace(&mut seen[slot], true) {
                node.frees.push(slot);
            }
        }
    }
}
