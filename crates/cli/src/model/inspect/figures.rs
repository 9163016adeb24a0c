//! The figures of a model, for people and for programs.

use std::collections::HashMap;

use remat::graph::ir::{Graph, Origin};
use remat_lite::{About, Memory, Network, Port, Unsupported};
use serde_json::{Value, json};

use crate::sizes::show;

/// The figures of one node of the model.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    pub(super) name: String,
    /// The operators that it became, in order.
    pub(super) ops: Vec<&'static str>,
    /// Of its last result.
    pub(super) result: String,
    pub(super) result_bytes: usize,
    pub(super) weights: usize,
    pub(super) weight_bytes: usize,
    pub(super) flops: u64,
    /// Read and written.
    pub(super) moved_bytes: u64,
}

/// The figures of a model.
pub(super) struct Figures {
    pub(super) title: String,
    file_bytes: u64,
    about: About,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    operators: Vec<(String, String, usize)>,
    unsupported: Vec<Unsupported>,
    pub(super) planned: Option<Planned>,
}

/// The figures of a plan.
pub(super) struct Planned {
    /// In the order in which they run.
    pub(super) layers: Vec<Layer>,
    parameters: usize,
    flops: u64,
    moved_bytes: u64,
    memory: Memory,
    calls: usize,
}

impl Planned {
    /// Of a graph as the model is written, which runs in so many calls. Passes join layers, and kernels may make fewer operations than
    /// are counted here, as Winograd's convolution does.
    pub(super) fn of(graph: &Graph, calls: usize, memory: Memory) -> Planned {
        let cost = graph.cost();
        let numbers = |v| match &graph.value(v).origin {
            Origin::Constant(c) if c.dtype().is_float() => c.elems(),
            _ => 0,
        };
        Planned {
            layers: layers(graph),
            parameters: graph.value_ids().map(numbers).sum(),
            flops: cost.flops,
            moved_bytes: cost.bytes,
            memory,
            calls,
        }
    }
}

impl Figures {
    pub(super) fn unplanned(title: &str, file_bytes: u64, network: &Network) -> Figures {
        Figures {
            title: title.to_owned(),
            file_bytes,
            about: network.about().clone(),
            inputs: network.inputs().to_vec(),
            outputs: network.outputs().to_vec(),
            operators: network.operators().to_vec(),
            unsupported: network.unsupported().to_vec(),
            planned: None,
        }
    }

    pub(super) fn json(&self) -> Value {
        let ports = |all: &[Port]| -> Vec<Value> {
            all.iter().map(|p| json!({ "name": p.name, "type": p.ty.to_string() })).collect()
        };
        let operators: Vec<Value> = self
            .operators
            .iter()
            .map(|(domain, op, n)| json!({ "domain": domain, "operator": op, "nodes": n }))
            .collect();
        let unsupported: Vec<Value> = self
            .unsupported
            .iter()
            .map(|u| json!({ "node": u.node, "domain": u.domain, "operator": u.op, "version": u.version, "nearest": u.nearest }))
            .collect();
        let mut all = json!({
            "model": self.title,
            "file_bytes": self.file_bytes,
            "name": self.about.name,
            "producer": self.about.producer,
            "opsets": self.about.opsets.iter().cloned().collect::<std::collections::BTreeMap<String, i64>>(),
            "inputs": ports(&self.inputs),
            "outputs": ports(&self.outputs),
            "operators": operators,
            "unsupported": unsupported,
        });
        if let Some(p) = &self.planned {
            let layer = |l: &Layer| {
                json!({
                    "name": l.name, "operators": l.ops, "result": l.result, "result_bytes": l.result_bytes,
                    "parameters": l.weights, "parameter_bytes": l.weight_bytes, "flops": l.flops, "moved_bytes": l.moved_bytes,
                })
            };
            all["parameters"] = p.parameters.into();
            all["flops"] = p.flops.into();
            all["moved_bytes"] = p.moved_bytes.into();
            all["calls"] = p.calls.into();
            all["memory"] = json!({
                "constant_bytes": p.memory.constant_bytes,
                "io_bytes": p.memory.io_bytes,
                "workspace_bytes": p.memory.workspace_bytes,
                "total_bytes": p.memory.total_bytes(),
                "recomputed_calls": p.memory.recomputed_calls,
            });
            all["layers"] = p.layers.iter().map(layer).collect::<Vec<_>>().into();
        }
        all
    }

    /// The figures as text, with the layers that have the largest ones.
    pub(super) fn text(&self, rows: usize) -> String {
        let mut s = self.summary();
        if let Some(p) = &self.planned {
            s += &table("layers with most operations", &p.layers, rows, |l| l.flops, p.flops);
            s += &table("largest activations", &p.layers, rows, |l| l.result_bytes as u64, 0);
        }
        s
    }

    pub(super) fn summary(&self) -> String {
        let mut s = format!("{}  {}", self.title, show(self.file_bytes as usize));
        for (domain, v) in &self.about.opsets {
            s += &format!(", {} {v}", if domain.is_empty() { "opset" } else { domain });
        }
        if !self.about.producer.is_empty() {
            s += &format!(", by {}", self.about.producer);
        }
        s.push('\n');
        let port = |word: &str, p: &Port| format!("  {word} {}: {}\n", p.name, p.ty);
        self.inputs.iter().for_each(|p| s += &port("input ", p));
        self.outputs.iter().for_each(|p| s += &port("output", p));
        let mut operators = self.operators.clone();
        operators.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(&b.1)));
        let named: Vec<String> = operators
            .iter()
            .map(|(domain, op, n)| if domain.is_empty() { format!("{op} {n}") } else { format!("{domain}.{op} {n}") })
            .collect();
        s += &format!("  operators {}\n", named.join(", "));
        let Some(p) = &self.planned else { return s };
        s += &format!(
            "  {} parameters, {:.3} GFLOP, {} read and written; it runs in {} calls\n",
            p.parameters,
            p.flops as f64 / 1e9,
            show(p.moved_bytes as usize),
            p.calls,
        );
        s += &format!(
            "  memory {}: weights {}, inputs and outputs {}, workspace {}\n",
            show(p.memory.total_bytes()),
            show(p.memory.constant_bytes),
            show(p.memory.io_bytes),
            show(p.memory.workspace_bytes),
        );
        if p.memory.recomputed_calls > 0 {
            s += &format!("  {} calls run again to keep to the budget\n", p.memory.recomputed_calls);
        }
        s
    }
}

/// A table of the layers that have most of something; of a sum above 0 each has a share.
fn table(title: &str, layers: &[Layer], rows: usize, of: impl Fn(&Layer) -> u64, sum: u64) -> String {
    let mut order: Vec<&Layer> = layers.iter().filter(|l| of(l) > 0).collect();
    order.sort_by_key(|l| std::cmp::Reverse(of(l)));
    let mut s = format!("  {title}:\n");
    for l in order.iter().take(rows) {
        let figure = match sum {
            0 => format!("{:>10}", show(of(l) as usize)),
            _ => format!("{:>8.4} GFLOP {:>5.1} %", of(l) as f64 / 1e9, 100.0 * of(l) as f64 / sum as f64),
        };
        let weights = if l.weights > 0 { format!(", {} parameters", l.weights) } else { String::new() };
        s += &format!("    {figure}  {} ({}) {}{weights}\n", l.name, l.ops.join(" "), l.result);
    }
    if order.len() > rows {
        s += &format!("    {} more (--rows)\n", order.len() - rows);
    }
    s
}

/// The nodes of the model, in order.
fn layers(g: &Graph) -> Vec<Layer> {
    let (mut all, mut at): (Vec<Layer>, HashMap<&str, usize>) = (Vec::new(), HashMap::new());
    let mut counted = vec![false; g.values().len()];
    for n in g.nodes() {
        let name = n.scope.as_deref().unwrap_or("(no name)");
        let i = *at.entry(name).or_insert_with(|| {
            all.push(Layer { name: name.to_owned(), ..Layer::default() });
            all.len() - 1
        });
        let (layer, cost) = (&mut all[i], g.node_cost(n));
        layer.ops.push(n.op.label());
        layer.flops = layer.flops.saturating_add(cost.flops);
        layer.moved_bytes = layer.moved_bytes.saturating_add(cost.bytes);
        if let Some(y) = n.y.first() {
            let fact = g.fact(*y);
            (layer.result, layer.result_bytes) = (format!("{}{}", fact.dtype, fact.shape), fact.bytes());
        }
        for v in &n.x {
            // a weight that two layers share is the first one's
            if let Origin::Constant(c) = &g.value(*v).origin
                && c.dtype().is_float()
                && !std::mem::replace(&mut counted[v.index()], true)
            {
                layer.weights += c.elems();
                layer.weight_bytes += c.bytes().len();
            }
        }
    }
    all
}
