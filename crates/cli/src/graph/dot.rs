//! A graph in the DOT language, in the blocks in which people know a network.
//!
//! A box is a layer: the nodes of one scope that follow each other, with the nodes that depend on weights alone, and
//! the weights themselves as figures of the box. Boxes of a block (a scope up to its first number) share a frame.
//! Graphviz draws it: `dot -Tsvg graph.dot`.

use std::collections::BTreeMap;
use std::fmt::Write;

use remat::graph::ir::{Graph, NodeId, Origin, ValueId};

use crate::sizes::show;

/// Kinds of ops that a box names.
const OPS_SHOWN: usize = 3;

/// Nodes that are drawn as one.
#[derive(Default)]
struct Layer {
    scope: String,
    /// The block in whose frame it stands; without a scope, the block of its last input.
    block: String,
    ops: Vec<&'static str>,
    weights: Vec<ValueId>,
    /// The output of the last of its nodes.
    gives: String,
    is_result: bool,
}

/// The graph called `title`.
pub(super) fn text(title: &str, g: &Graph) -> String {
    let folded = Folded::new(g);
    let mut s = format!(
        "digraph {} {{\n  bgcolor=white; rankdir=TB; node [shape=box, style=\"rounded,filled\", fillcolor=\"#fff3d6\", \
         fontname=\"sans-serif\", fontsize=11]; edge [color=\"#666666\", fontname=\"sans-serif\", fontsize=9];\n",
        quoted(title)
    );
    for v in g.inputs().iter().filter(|v| folded.is_read(**v)) {
        let f = g.fact(*v);
        let label = format!("{}\n{}{}", g.label(*v), f.dtype, f.shape);
        put(&mut s, format_args!("  i{} [label={}, fillcolor=\"#d6e8ff\"];\n", v.index(), quoted(&label)));
    }
    let mut blocks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, layer) in folded.layers.iter().enumerate() {
        blocks.entry(&layer.block).or_default().push(i);
    }
    for (k, (name, layers)) in blocks.iter().enumerate() {
        let is_framed = !name.is_empty() && layers.len() > 1;
        if is_framed {
            put(&mut s, format_args!("  subgraph cluster_{k} {{ label={}; color=\"#aaaaaa\";\n", quoted(name)));
        }
        layers.iter().for_each(|&i| folded.draw(&mut s, g, i));
        s.push_str(if is_framed { "  }\n" } else { "" });
    }
    for ((from, to), what) in &folded.edges {
        put(&mut s, format_args!("  {from} -> n{to} [tooltip={}];\n", quoted(what)));
    }
    s.push_str("}\n");
    s
}

struct Folded {
    layers: Vec<Layer>,
    /// From a box to a layer, with the type of the first value that goes there.
    edges: BTreeMap<(String, usize), String>,
}

impl Folded {
    fn new(g: &Graph) -> Folded {
        let (is_weight, weights) = of_weights(g);
        let (mut layers, mut edges): (Vec<Layer>, _) = (Vec::new(), BTreeMap::new());
        let mut layer_of: Vec<Option<usize>> = vec![None; g.nodes().len()];
        let ids: Vec<NodeId> = g.node_ids().collect();
        for id in ids.into_iter().filter(|id| !is_weight[id.index()]) {
            let n = g.node(id);
            let scope = scope(g, id, &is_weight);
            let goes_on = !scope.is_empty() && layers.last().is_some_and(|l| l.scope == scope);
            if !goes_on {
                layers.push(Layer { block: block(&scope).to_owned(), scope, ..Layer::default() });
            }
            let at = layers.len() - 1;
            layer_of[id.index()] = Some(at);
            let mut last_read = None;
            for v in &n.x {
                match g.producer(*v) {
                    Some(from) if is_weight[from.index()] => push_new(&mut layers[at].weights, &weights[from.index()]),
                    None if !matches!(g.value(*v).origin, Origin::Input(_)) => push_new(&mut layers[at].weights, &[*v]),
                    from => {
                        let read = from.and_then(|f| layer_of[f.index()]);
                        last_read = last_read.max(read.filter(|layer| *layer != at));
                        let name = match read {
                            Some(layer) if layer == at => continue,
                            Some(layer) => format!("n{layer}"),
                            None => format!("i{}", v.index()),
                        };
                        let f = g.fact(*v);
                        edges.entry((name, at)).or_insert_with(|| format!("{}{}", f.dtype, f.shape));
                    }
                }
            }
            if let Some(read) = last_read.filter(|_| layers[at].scope.is_empty()) {
                layers[at].block = layers[read].block.clone();
            }
            let layer = &mut layers[at];
            layer.ops.push(n.op.label());
            layer.gives = n.y.first().map_or(String::new(), |v| format!("{}{}", g.fact(*v).dtype, g.fact(*v).shape));
            layer.is_result |= n.y.iter().any(|v| g.outputs().iter().any(|o| o.value == *v));
        }
        Folded { layers, edges }
    }

    fn is_read(&self, input: ValueId) -> bool {
        let name = format!("i{}", input.index());
        self.edges.keys().any(|(from, _)| *from == name)
    }

    fn draw(&self, s: &mut String, g: &Graph, i: usize) {
        let layer = &self.layers[i];
        let within = layer.scope.strip_prefix(block(&layer.scope)).unwrap_or(&layer.scope).trim_start_matches('.');
        let mut ops = layer.ops.clone();
        ops.truncate(OPS_SHOWN);
        let more = if layer.ops.len() > OPS_SHOWN { ", .." } else { "" };
        let mut label = format!("{within}\n{}{more}", ops.join(", "));
        let bytes: usize = layer.weights.iter().map(|v| g.fact(*v).bytes()).sum();
        if let Some(largest) = layer.weights.iter().max_by_key(|v| g.fact(**v).bytes()) {
            put(&mut label, format_args!("\nweights {} {}", g.fact(*largest).shape, show(bytes)));
        }
        put(&mut label, format_args!("\n{}", layer.gives));
        let border = if layer.is_result { ", color=\"#cc0000\", penwidth=2" } else { "" };
        put(s, format_args!("  n{i} [label={}{border}];\n", quoted(label.trim_start())));
    }
}

/// For each node, whether nothing but weights goes into it, and which.
fn of_weights(g: &Graph) -> (Vec<bool>, Vec<Vec<ValueId>>) {
    let (mut is_weight, mut weights) = (Vec::new(), Vec::<Vec<ValueId>>::new());
    for n in g.nodes() {
        let mut of = Vec::new();
        let mut all = !n.x.is_empty();
        for v in &n.x {
            match g.producer(*v) {
                Some(from) if is_weight[from.index()] => push_new(&mut of, &weights[from.index()]),
                Some(_) => all = false,
                None if matches!(g.value(*v).origin, Origin::Input(_)) => all = false,
                None => push_new(&mut of, &[*v]),
            }
        }
        // an output of the graph is more than a part of a layer
        let is_result = n.y.iter().any(|v| g.outputs().iter().any(|o| o.value == *v));
        is_weight.push(all && !is_result);
        weights.push(of);
    }
    (is_weight, weights)
}

/// Where a node stands; of one that was fused across scopes, where its weights do.
fn scope(g: &Graph, id: NodeId, is_weight: &[bool]) -> String {
    let n = g.node(id);
    let of_weights = || {
        let makers = n.x.iter().filter_map(|v| g.producer(*v)).filter(|from| is_weight[from.index()]);
        makers.filter_map(|from| g.node(from).scope.clone()).next()
    };
    n.scope.clone().or_else(of_weights).map_or_else(String::new, |s| s.to_string())
}

/// The part of a scope up to its first number: `gpt.body.blocks.0`; empty if there is none.
fn block(scope: &str) -> &str {
    let mut end = 0;
    for part in scope.split('.') {
        end += part.len();
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            return &scope[..end];
        }
        end += 1;
    }
    ""
}

fn push_new(list: &mut Vec<ValueId>, more: &[ValueId]) {
    more.iter().for_each(|v| {
        if !list.contains(v) {
            list.push(*v);
        }
    });
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn put(s: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = s.write_fmt(args);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_scope_up_to_its_first_number() {
        assert_eq!(block("gpt.body.blocks.0.attention.qkv"), "gpt.body.blocks.0");
        assert_eq!(block("resnet.blocks.12"), "resnet.blocks.12");
        assert_eq!([block("resnet.stem.conv"), block(""), block("layer1")], ["", "", ""]);
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a\"b\\\nc"), "\"a\\\"b\\\\\\nc\"");
    }
}
