//! A model as it was read, of either format.

use bytes::Bytes;
use remat_graph::ir::symbolic::Symbolic;
use remat_graph::ir::{Graph, GraphFile, GraphForm, Patch, ValueId};
use remat_onnx::{Extent, Port, Trace, Unsupported, ValueType};
use remat_runtime::control_flow::registry;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, open_file};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Options;
use crate::shapes::unknown;

/// Who wrote files of graphs, if they do not say.
const PRODUCER: &str = "remat";

/// The metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The name of the graph.
    pub name: String,
    /// The program that wrote it, and its version.
    pub producer: String,
    /// Domains and versions of the operators that an ONNX model imports; the standard's domain is empty.
    pub opsets: Vec<(String, i64)>,
    /// Further entries, by name.
    pub metadata: Vec<(String, String)>,
}

/// Where the model can be read again, for other shapes than those of the first session.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    File(PathBuf),
    Bytes(Bytes),
}

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
const START_BYTES: u64 = 9;

/// Errors, naming the path: Io; Format for a path that is no file.
fn graph_file_is_at(path: &Path) -> Result<bool> {
    let (file, _) = open_file(path)?;
    let mut start = Vec::new();
    file.take(START_BYTES).read_to_end(&mut start).map_err(|e| Error::from(e).context(path.display()))?;
    Ok(is_graph_file(&start))
}

impl Model {
    /// The model, narrowed as the options say. Errors: those of reading it, and of [`Model::narrowed`].
    pub(crate) fn read(source: &Source, options: &Options) -> Result<Model> {
        Model::whole(source, options)?.narrowed(options)
    }

    /// The model as the file has it. Errors, which name a path: those of reading it; Value for a graph with states.
    pub(crate) fn whole(source: &Source, options: &Options) -> Result<Model> {
        let key = options.key.as_ref();
        let graph = |file: GraphFile| Model::Graph(Box::new(file));
        let model = match source {
            Source::File(path) if graph_file_is_at(path)? => graph(GraphFile::open(path, key, &registry())?),
            Source::File(path) => Model::Onnx(remat_onnx::Model::open(path)?),
            Source::Bytes(bytes) if is_graph_file(bytes) => graph(GraphFile::from_bytes(bytes, key, &registry())?),
            Source::Bytes(bytes) => Model::Onnx(remat_onnx::Model::from_bytes(bytes.clone())?),
        };
        model.check()?;
        Ok(model)
    }

    /// Errors (Value): a graph with states, such as a training step.
    fn check(&self) -> Result<()> {
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

    /// The model with the inputs that are fixed, and the outputs that are wanted alone. Errors (Value): unknown names, one twice, and
    /// inputs of a graph file; those of [`remat_onnx::Model::with_input`].
    pub(crate) fn narrowed(self, options: &Options) -> Result<Model> {
        if let Some(names) = &options.outputs {
            check_outputs(&self.outputs(), names)?;
        }
        match self {
            Model::Onnx(mut model) => {
                check_fixed(&model.inputs(), &options.fixed)?;
                for (name, value) in &options.fixed {
                    model = model.with_input(name, value)?;
                }
                if let Some(names) = &options.outputs {
                    model = model.with_outputs(&names.iter().map(|n| &**n).collect::<Vec<_>>())?;
                }
                Ok(Model::Onnx(model))
            }
            Model::Graph(_) if !options.fixed.is_empty() => {
                let text = "inputs of a .remat file are fixed when it is made of an ONNX model";
                Err(Error::new(ErrorKind::Value, text))
            }
            Model::Graph(mut file) => {
                if let Some(names) = &options.outputs {
                    file.form = match &file.form {
                        GraphForm::Fixed(g) => GraphForm::Fixed(with_outputs(g, names)?),
                        GraphForm::Symbolic(s) => {
                            let sizes = Symbolic::corners(s.dims())?;
                            let corners = sizes.iter().map(|n| with_outputs(&s.instantiate(n)?, names));
                            let corners = corners.collect::<Result<Vec<Graph>>>()?;
                            GraphForm::Symbolic(Symbolic::of_corners(s.dims(), &corners, &registry())?)
                        }
                    };
                }
                Ok(Model::Graph(file))
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
    pub(crate) fn trace(&self, facts: &[Fact]) -> Result<Option<Trace>> {
        match self {
            Model::Onnx(m) => m.trace(facts),
            Model::Graph(f) => {
                let graph = match &f.form {
                    GraphForm::Fixed(g) => g.clone(),
                    GraphForm::Symbolic(s) => s.instantiate(&sizes(s, facts)?)?,
                };
                let labels = vec![None; graph.outputs().len()];
                Ok(Some(Trace { graph, labels }))
            }
        }
    }
}

/// The declaration of a value in a graph file.
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
fn with_outputs(graph: &Graph, names: &[String]) -> Result<Graph> {
    let mut patch = Patch::new();
    let all: Vec<_> = graph.outputs().iter().map(|o| (o.name.clone(), o.value)).collect();
    all.iter().for_each(|(name, _)| patch.remove_output(name));
    for wanted in names {
        let found = all.iter().find(|(name, _)| **name == **wanted);
        let (name, value) = found.ok_or_else(|| Error::new(ErrorKind::Internal, "an output that is not there"))?;
        patch.add_output(name, *value);
    }
    graph.patched(&patch)
}

/// Errors (Value): an output that is not there, or one twice.
fn check_outputs(all: &[Port], names: &[String]) -> Result<()> {
    for (i, name) in names.iter().enumerate() {
        if !all.iter().any(|p| p.name == *name) {
            return Err(unknown("output", name, all.iter().map(|p| &*p.name)));
        }
        if names[..i].contains(name) {
            return Err(Error::new(ErrorKind::Value, format!("output `{name}` is asked for twice")));
        }
    }
    Ok(())
}

/// Errors (Value): an input that is not there, or one twice.
fn check_fixed(all: &[Port], fixed: &[(String, HostTensor)]) -> Result<()> {
    for (i, (name, _)) in fixed.iter().enumerate() {
        if !all.iter().any(|p| p.name == *name) {
            return Err(unknown("input", name, all.iter().map(|p| &*p.name)));
        }
        if fixed[..i].iter().any(|(before, _)| before == name) {
            return Err(Error::new(ErrorKind::Value, format!("input `{name}` is fixed twice")));
        }
    }
    Ok(())
}
