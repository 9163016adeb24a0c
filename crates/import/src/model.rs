//! A model that was read and checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use remat_runtime::{AsyncLevel, Device, DeviceOptions};
use remat_types::{Error, ErrorKind, Fact, Result};

use crate::build::Builder;
use crate::foreign::ForeignModel;
use crate::graph::{Entry, Graph, Kind, Ref, ValueType};
use crate::network::Network;
use crate::table::Rules;
use crate::trace::Trace;

/// The most bytes that a trace uses to compute known values, which are mostly sizes.
const MOST_FOLDED_BYTES: usize = 64 << 20;

/// A model: its graph with names resolved, rules found, constants checked.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) graph: Arc<Graph>,
    /// The number of graphs, inner ones and functions included.
    graphs: usize,
}

/// An input or an output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The type that the file declares.
    pub ty: ValueType,
    /// An input with a default may be left out.
    pub has_default: bool,
}

/// A node for which there is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The node's name, or that of its first output.
    pub node: String,
    /// The domain of its operator; the standard's is empty.
    pub domain: String,
    /// The operator.
    pub op: String,
    /// The version of the operator set that the model imports; 0 in a format without versions.
    pub version: i64,
    /// The supported operator of the most similar name.
    pub nearest: Option<&'static str>,
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dot = if self.domain.is_empty() { "" } else { "." };
        write!(f, "node `{}`: {}{dot}{}", self.node, self.domain, self.op)?;
        if self.version != 0 {
            write!(f, " of version {}", self.version)?;
        }
        f.write_str(" is not supported")?;
        match self.nearest {
            Some(name) => write!(f, " (the nearest name is {name})"),
            None => Ok(()),
        }
    }
}

impl Model {
    /// The model that a reader made of a file, with the rules of its format.
    ///
    /// Errors, naming the node: Format for a model that contradicts itself, such as a name that is read before it is computed or
    /// computed twice, and for functions that would be too much once their calls are written out; those of the format's schemas,
    /// and of functions that could not be read.
    pub fn new(foreign: ForeignModel, rules: &Rules) -> Result<Model> {
        let (graph, graphs) = Builder::build(&foreign, rules)?;
        Ok(Model { graph: Arc::new(graph), graphs })
    }

    /// The name of the graph.
    pub fn name(&self) -> &str {
        &self.graph.name
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> Vec<Port> {
        let port = |e: &Entry| Port { name: e.name.clone(), ty: e.ty.clone(), has_default: e.default.is_some() };
        self.graph.inputs.iter().map(port).collect()
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> Vec<Port> {
        let port = |o: &(String, Ref, ValueType)| Port { name: o.0.clone(), ty: o.2.clone(), has_default: false };
        self.graph.outputs.iter().map(port).collect()
    }

    /// Every node for which there is no rule, those of inner graphs and functions too.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        let mut all = Vec::new();
        collect_unsupported(&self.graph, &mut all);
        all
    }

    /// How often each operator is there, with its domain, those of inner graphs and functions too.
    pub fn operators(&self) -> Vec<(String, String, usize)> {
        let mut all = BTreeMap::new();
        count_operators(&self.graph, &mut all);
        all.into_iter().map(|((domain, op), n)| (domain, op, n)).collect()
    }

    /// The model with its constants on `device`. Errors: Value if there are nodes without a rule, with all their operators; Closed.
    pub fn on(&self, device: &Device) -> Result<Network> {
        self.check_supported()?;
        Network::new(self.graph.clone(), self.graphs, device, device)
    }

    /// The model for inputs of these types, as one graph. The weights are constants that share the model's memory. Inputs and
    /// outputs have the model's names, and nodes are in scopes of the names of its nodes. For strings from a list, such as class
    /// labels, the graph gives places in the list. `None` if sizes follow from values, if random numbers are drawn, or if a value
    /// is no tensor: a [`Network`] runs such a model.
    ///
    /// Errors: as [`Network::run`] and [`Model::on`].
    pub fn trace(&self, inputs: &[Fact]) -> Result<Option<Trace>> {
        // computes nothing, so that the weights are not copied
        let dry = Device::dry(DeviceOptions::default())?;
        // each call waits, so that the rule learns at once if a value is too large to be computed
        let options = DeviceOptions {
            threads: 1,
            budget_bytes: Some(MOST_FOLDED_BYTES),
            async_level: AsyncLevel::Sync,
            ..Default::default()
        };
        self.check_supported()?;
        Network::new(self.graph.clone(), self.graphs, &dry, &Device::cpu(options)?)?.trace(inputs)
    }

    /// Errors: Value if there are nodes without a rule, with the first of them.
    pub fn check_supported(&self) -> Result<()> {
        let missing = self.unsupported();
        if missing.is_empty() {
            return Ok(());
        }
        let shown: Vec<String> = missing.iter().take(5).map(ToString::to_string).collect();
        let more = if missing.len() > 5 { format!(", and {} more", missing.len() - 5) } else { String::new() };
        Err(Error::new(ErrorKind::Value, format!("{}{more}", shown.join("; "))))
    }
}

fn collect_unsupported(graph: &Graph, all: &mut Vec<Unsupported>) {
    for node in &graph.nodes {
        if let Kind::Unknown(nearest) = node.kind {
            all.push(Unsupported {
                node: node.name.clone(),
                domain: node.domain.clone(),
                op: node.op.clone(),
                version: node.version.unwrap_or(0),
                nearest,
            });
        }
        node.graphs().for_each(|g| collect_unsupported(g, all));
    }
}

fn count_operators(graph: &Graph, all: &mut BTreeMap<(String, String), usize>) {
    for node in &graph.nodes {
        *all.entry((node.domain.clone(), node.op.clone())).or_default() += 1;
        node.graphs().for_each(|g| count_operators(g, all));
    }
}
