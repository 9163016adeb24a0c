//! A model as it was read, of either format.

use remat_graph::ir::symbolic::Symbolic;
use remat_graph::ir::{Graph, GraphFile, GraphForm, Key, Patch, ValueId};
use remat_onnx::{Extent, Port, Unsupported, ValueType};
use remat_runtime::control_flow::registry;
use remat_types::{Error, ErrorKind, Fact, Result};

use crate::About;

/// Who wrote files of graphs, if they do not say.
const PRODUCER: &str = "remat";

/// A model: ONNX, or a graph of Remat's own.
#[derive(Clone, Debug)]
pub(crate) enum Model {
    Onnx(remat_onnx::Model),
    Graph(Box<GraphFile>),
}

/// True for the first bytes of a `.remat` file, as of any safetensors file: the header's length, of less than 2^32, and the header.
// An ONNX model does not begin so: the bytes of zeros are keys of fields there, and a field of number 0 is none.
pub fn is_graph_file(start: &[u8]) -> bool {
    matches!(start, [_, _, _, _, 0, 0, 0, 0, b'{', ..])
}

/// Bytes that [`is_graph_file`] looks at.
pub(crate) const START_BYTES: u64 = 9;

impl Model {
    /// A model of the bytes of a file of either format.
    pub(crate) fn from_bytes(bytes: Vec<u8>, key: Option<&Key>) -> Result<Model> {
        match is_graph_file(&bytes) {
            true => Ok(Model::Graph(Box::new(GraphFile::from_bytes(&bytes, key, &registry())?))),
            false => remat_onnx::Model::from_bytes(bytes).map(Model::Onnx),
        }
    }

    /// Errors (Value): a graph with states, such as a training step.
    pub(crate) fn check(&self) -> Result<()> {
        let Model::Graph(f) = self else { return Ok(()) };
        let g = f.form.example();
        g.states().first().map_or(Ok(()), |s| {
            let text = format!(
                "the graph has states, such as `{}`: a step of training, which `remat plan` takes",
                g.label(s.value)
            );
            Err(Error::new(ErrorKind::Value, text))
        })
    }

    /// The inputs that have to be given.
    pub(crate) fn inputs(&self) -> Vec<Port> {
        match self {
            // those with a default are constants of the model
            Model::Onnx(m) => m.inputs().into_iter().filter(|p| !p.has_default).collect(),
            Model::Graph(f) => {
                let g = f.form.example();
                g.inputs().iter().map(|v| port(f, &g.label(*v), *v)).collect()
            }
        }
    }

    pub(crate) fn outputs(&self) -> Vec<Port> {
        match self {
            Model::Onnx(m) => m.outputs(),
            Model::Graph(f) => f.form.example().outputs().iter().map(|o| port(f, &o.name, o.value)).collect(),
        }
    }

    pub(crate) fn about(&self) -> About {
        match self {
            Model::Onnx(m) => About {
                name: m.name().to_owned(),
                producer: m.producer().to_owned(),
                opsets: m.opsets().to_vec(),
                metadata: m.metadata().to_vec(),
            },
            Model::Graph(f) => {
                let of = |key: &str| f.metadata.get(key).cloned();
                let rest = f.metadata.iter().filter(|(k, _)| !matches!(k.as_str(), "name" | "producer"));
                About {
                    name: of("name").unwrap_or_default(),
                    producer: of("producer").unwrap_or_else(|| PRODUCER.to_owned()),
                    opsets: Vec::new(),
                    metadata: rest.map(|(k, v)| (k.clone(), v.clone())).collect(),
                }
            }
        }
    }

    /// How often each operator is there, with its domain.
    pub(crate) fn operators(&self) -> Vec<(String, String, usize)> {
        match self {
            Model::Onnx(m) => m.operators(),
            Model::Graph(f) => {
                let mut all = std::collections::BTreeMap::new();
                for n in f.form.example().nodes() {
                    *all.entry(n.op.label()).or_default() += 1;
                }
                all.into_iter().map(|(op, n)| ("remat".to_owned(), op.to_string(), n)).collect()
            }
        }
    }

    pub(crate) fn unsupported(&self) -> Vec<Unsupported> {
        match self {
            Model::Onnx(m) => m.unsupported(),
            // a file with an op that is not known here is not read
            Model::Graph(_) => Vec::new(),
        }
    }

    /// See [`remat_onnx::Model::trace`].
    pub(crate) fn trace(&self, facts: &[Fact]) -> Result<Option<Graph>> {
        match self {
            Model::Onnx(m) => m.trace(facts),
            Model::Graph(f) => {
                let graph = match &f.form {
                    GraphForm::Fixed(g) => g.clone(),
                    GraphForm::Symbolic(s) => s.instantiate(&sizes(s, facts)?)?,
                };
                Ok(Some(graph))
            }
        }
    }
}

/// What a file of a graph says of a value.
fn port(file: &GraphFile, name: &str, v: ValueId) -> Port {
    let fact = file.form.example().fact(v);
    let extents = match &file.form {
        GraphForm::Fixed(_) => fact.shape.iter().map(|n| Extent::Fixed(*n)).collect(),
        GraphForm::Symbolic(s) => (0..fact.rank()).map(|axis| extent(s, v, axis)).collect(),
    };
    Port { name: name.to_owned(), ty: ValueType::Tensor(Some(fact.dtype), Some(extents)), has_default: false }
}

fn extent(s: &Symbolic, v: ValueId, axis: usize) -> Extent {
    let p = &s.extents(v)[axis];
    match (p.constant().and_then(|n| usize::try_from(n).ok()), p.symbol()) {
        (Some(n), _) => Extent::Fixed(n),
        (None, Some(k)) => Extent::Named(s.dims()[k].name.to_string()),
        // a polynomial has no name of its own
        (None, None) => Extent::Open,
    }
}

/// The size of each symbol in inputs of these types. Errors: Shape for one of two sizes; Value for one that no input has.
fn sizes(s: &Symbolic, facts: &[Fact]) -> Result<Vec<usize>> {
    let mut sizes: Vec<Option<usize>> = vec![None; s.dims().len()];
    for (v, fact) in s.example().inputs().iter().zip(facts) {
        for (p, n) in s.extents(*v).iter().zip(fact.shape.iter()) {
            let Some(k) = p.symbol() else { continue };
            if let Some(other) = sizes[k].replace(*n).filter(|other| other != n) {
                let text = format!("`{}` is {other} in one input and {n} in another", s.dims()[k].name);
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
    }
    let named = sizes.iter().zip(s.dims()).map(|(n, d)| {
        n.ok_or_else(|| Error::new(ErrorKind::Value, format!("no input has an axis of the size `{}`", d.name)))
    });
    named.collect()
}

/// The graph with these outputs of its own, in this order. Errors: Internal for one that it has not.
pub(crate) fn with_outputs(graph: &Graph, outputs: &[Port]) -> Result<Graph> {
    let mut patch = Patch::new();
    let all: Vec<_> = graph.outputs().iter().map(|o| (o.name.clone(), o.value)).collect();
    if all.iter().map(|(name, _)| &**name).eq(outputs.iter().map(|p| &*p.name)) {
        return Ok(graph.clone());
    }
    all.iter().for_each(|(name, _)| patch.remove_output(name));
    for port in outputs {
        let found = all.iter().find(|(name, _)| **name == *port.name);
        let (name, value) = found.ok_or_else(|| Error::new(ErrorKind::Internal, "an output that is not there"))?;
        patch.add_output(name, *value);
    }
    graph.patched(&patch)
}
