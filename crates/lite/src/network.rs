//! A model that was read.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use remat_graph::ir::symbolic::{Dim, Symbolic};
use remat_graph::ir::{Graph, GraphFile, GraphForm};
use remat_onnx::{Port, Unsupported, ValueType};
use remat_runtime::compile::{CompileCx, CompiledGraph};
use remat_runtime::control_flow::registry;
use remat_types::{Error, ErrorKind, Fact, Result, open_file};

use crate::form::{Eager, Form, Program, lock};
use crate::model::{Model, START_BYTES, is_graph_file, with_outputs};
use crate::session::Session;
use crate::shapes::unknown;
use crate::{Options, Shapes};

/// The largest model that is taken from memory or a reader: protobuf's lengths are of 32 bits.
const MOST_BYTES: u64 = 1 << 31;

/// What a file says about itself.
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
#[derive(Debug)]
enum Source {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// A model, and what of it was made ready to run; see the crate's example.
///
/// Networks are shared by reference between threads, each of which may have sessions of its own.
#[derive(Debug)]
pub struct Network {
    /// Nothing once no further shapes can come, of bytes.
    source: Mutex<Option<Source>>,
    options: Options,
    inputs: Arc<[Port]>,
    outputs: Vec<Port>,
    about: About,
    operators: Vec<(String, String, usize)>,
    unsupported: Vec<Unsupported>,
    /// The model as it was read, until the first session takes it.
    model: Mutex<Option<Model>>,
    forms: Mutex<Vec<Form>>,
}

fn is_fixed(port: &Port) -> bool {
    match &port.ty {
        ValueType::Tensor(_, extents) => extents.iter().flatten().all(|e| e.fixed().is_some()) && extents.is_some(),
        _ => true,
    }
}

impl Network {
    /// Reads a model: ONNX, or `.remat`, which the first bytes tell. Weights of an ONNX model in files beside it are read from its
    /// folder and below.
    ///
    /// Errors, which name the path: those of [`remat_onnx::Model::open`] and [`GraphFile::open`]; Value for options that nothing can
    /// have, and for an output that the model has not. Operators without a rule are errors of [`Network::session`];
    /// [`Network::unsupported`] lists them.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Network> {
        let path = path.as_ref();
        let model = opened(path, &options)?;
        Network::new(Source::File(path.to_owned()), model, options)
    }

    /// A model of the bytes of a file. Errors: as [`Network::open`].
    pub fn from_bytes(bytes: impl Into<Vec<u8>>, options: Options) -> Result<Network> {
        let bytes = bytes.into();
        let model = Model::from_bytes(bytes.clone(), options.key.as_ref())?;
        Network::new(Source::Bytes(bytes), model, options)
    }

    /// A model of what a reader gives until it ends. Errors: as [`Network::open`]; Io; Format for more than 2 GiB.
    pub fn from_reader(reader: impl Read, options: Options) -> Result<Network> {
        let mut bytes = Vec::new();
        reader.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(Error::new(ErrorKind::Format, format!("a model of more than {MOST_BYTES} bytes")));
        }
        Network::from_bytes(bytes, options)
    }

    fn new(source: Source, model: Model, options: Options) -> Result<Network> {
        options.check()?;
        model.check()?;
        let outputs = selected(&model.outputs(), options.outputs.as_deref())?;
        Ok(Network {
            source: Mutex::new(Some(source)),
            options,
            inputs: model.inputs().into(),
            outputs,
            about: model.about(),
            operators: model.operators(),
            unsupported: model.unsupported(),
            model: Mutex::new(Some(model)),
            forms: Mutex::default(),
        })
    }

    /// The inputs, in order; those with a default are not among them.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The outputs that sessions compute, in order.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// What the file says about itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// How often each operator is in the model, with its domain; the standard's is empty.
    pub fn operators(&self) -> &[(String, String, usize)] {
        &self.operators
    }

    /// The nodes that cannot run, each with the most similar operator that can.
    pub fn unsupported(&self) -> &[Unsupported] {
        &self.unsupported
    }

    /// The options it was loaded with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The network for inputs of these shapes, with memory of its own. The first session of a set of shapes plans it; further ones
    /// share plan and weights.
    ///
    /// Errors: Value for extents that are open, unknown names, and operators without a rule; Shape, DType for what the model does
    /// not take; Budget, with figures, if no order of calls keeps to the budget; Io without memory.
    pub fn session(&self, shapes: &Shapes) -> Result<Session> {
        let facts = shapes.facts(&self.inputs)?;
        let form = self.form(&facts)?;
        Session::new(form, &self.options.session)
    }

    /// What the model computes for inputs of these shapes, as it is written: before passes, with its weights as constants. `None` if
    /// sizes follow from values, or an input or output is no tensor. The model is read again if there was a session before.
    ///
    /// Errors: as [`Network::session`], but for those of memory; Value if the model came as bytes, its shapes are fixed, and there was
    /// a session before.
    pub fn graph(&self, shapes: &Shapes) -> Result<Option<Graph>> {
        self.with_model(|model| self.traced(model, shapes))
    }

    fn with_model<T>(&self, f: impl FnOnce(&Model) -> Result<T>) -> Result<T> {
        match &*lock(&self.model) {
            Some(model) => f(model),
            None => f(&self.read()?),
        }
    }

    fn traced(&self, model: &Model, shapes: &Shapes) -> Result<Option<Graph>> {
        let facts: Option<Vec<Fact>> = shapes.facts(&self.inputs)?.into_iter().collect();
        facts.map_or(Ok(None), |facts| model.trace(&facts))
    }

    /// The network as a graph file, which [`GraphFile::to_bytes`] writes as `.remat`: before passes, with the outputs that sessions
    /// compute. The extents that are `symbols` stay open between their bounds; `shapes` has all others.
    ///
    /// Errors: as [`Network::graph`]; Value for a model that is not one graph; those of [`Symbolic::new`] for an extent on which the
    /// model depends by more than numbers.
    pub fn graph_file(&self, shapes: &Shapes, symbols: &[Dim]) -> Result<GraphFile> {
        let not_one = || {
            let text = "sizes of the model follow from values, or it draws random numbers: it is no graph that a file could keep";
            Error::new(ErrorKind::Value, text)
        };
        let form = self.with_model(|model| {
            let at = |shapes: &Shapes| {
                let graph = self.traced(model, shapes)?.ok_or_else(not_one)?;
                with_outputs(&graph, &self.outputs)
            };
            if symbols.is_empty() {
                return at(shapes).map(GraphForm::Fixed);
            }
            let sized = |sizes: &[usize]| {
                let named = symbols.iter().zip(sizes);
                at(&named.fold(shapes.clone(), |all, (d, n)| all.extent(&d.name, *n)))
            };
            Symbolic::new(symbols, &registry(), sized).map(GraphForm::Symbolic)
        })?;
        let own = [("name", &self.about.name), ("producer", &self.about.producer)];
        let mut metadata: std::collections::BTreeMap<String, String> = self.about.metadata.iter().cloned().collect();
        metadata.extend(own.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), v.clone())));
        Ok(GraphFile { form, metadata })
    }

    fn form(&self, facts: &[Option<Fact>]) -> Result<Form> {
        let mut forms = lock(&self.forms);
        let is_same = |(a, b): (&Option<Fact>, &Option<Fact>)| match (a, b) {
            (Some(a), Some(b)) => a.same_type(b),
            _ => true,
        };
        let same = |f: &&Form| f.facts.iter().zip(facts).all(is_same);
        if let Some(form) = forms.iter().find(same) {
            return Ok(form.clone());
        }
        let model = match lock(&self.model).take() {
            Some(model) => model,
            None => self.read()?,
        };
        let program = self.program(model, facts)?;
        if self.inputs.iter().all(is_fixed) {
            lock(&self.source).take_if(|s| matches!(s, Source::Bytes(_)));
        }
        let outputs = self.outputs.iter().map(|p| p.name.clone()).collect();
        let form = Form { inputs: self.inputs.clone(), facts: facts.into(), outputs, program };
        forms.push(form.clone());
        Ok(form)
    }

    fn program(&self, model: Model, facts: &[Option<Fact>]) -> Result<Program> {
        let tensors: Option<Vec<Fact>> = facts.iter().cloned().collect();
        let graph = match tensors {
            Some(facts) => model.trace(&facts)?,
            None => None,
        };
        let graph = match (graph, &model) {
            (Some(graph), _) => graph,
            (None, Model::Onnx(model)) => {
                return Ok(Program::Eager(Arc::new(Eager::new(model, &self.outputs, &self.options)?)));
            }
            (None, Model::Graph(_)) => return Err(Error::new(ErrorKind::Internal, "a graph without a graph")),
        };
        // the weights are the graph's alone now: those that passes make others of are freed
        drop(model);
        Ok(Program::Compiled(Arc::new(Mutex::new(self.compiled(graph)?))))
    }

    /// The model again. Errors: those of reading it, of a file that has changed or gone since.
    fn read(&self) -> Result<Model> {
        match &*lock(&self.source) {
            Some(Source::File(path)) => opened(path, &self.options),
            Some(Source::Bytes(bytes)) => Model::from_bytes(bytes.clone(), self.options.key.as_ref()),
            None => Err(Error::new(ErrorKind::Value, "the bytes of the model went when its one session was made")),
        }
    }

    fn compiled(&self, graph: Graph) -> Result<CompiledGraph> {
        let graph = with_outputs(&graph, &self.outputs)?;
        let options = self.options.compile();
        let cx = CompileCx { spill: self.options.spill()?, ..CompileCx::alone(self.options.threads, &options) };
        CompiledGraph::new(graph, &cx, &options)
    }
}

fn opened(path: &Path, options: &Options) -> Result<Model> {
    let (file, _) = open_file(path)?;
    let mut start = Vec::new();
    file.take(START_BYTES).read_to_end(&mut start).map_err(|e| Error::from(e).context(path.display()))?;
    match is_graph_file(&start) {
        true => Ok(Model::Graph(Box::new(GraphFile::open(path, options.key.as_ref(), &registry())?))),
        false => remat_onnx::Model::open(path).map(Model::Onnx),
    }
}

/// The outputs of these names. Errors (Value): none of that name, or one twice.
fn selected(all: &[Port], names: Option<&[String]>) -> Result<Vec<Port>> {
    let Some(names) = names else { return Ok(all.to_vec()) };
    let mut found: Vec<Port> = Vec::new();
    for name in names {
        let port = all.iter().find(|p| p.name == *name);
        let port = port.ok_or_else(|| unknown("output", name, all.iter().map(|p| &*p.name)))?;
        if found.iter().any(|p| p.name == *name) {
            return Err(Error::new(ErrorKind::Value, format!("output `{name}` is asked for twice")));
        }
        found.push(port.clone());
    }
    Ok(found)
}
