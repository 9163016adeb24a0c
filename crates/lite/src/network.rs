//! A model that was read.

use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use remat_graph::ir::symbolic::{Dim, Symbolic};
use remat_graph::ir::{Graph, GraphFile, GraphForm};
use remat_onnx::{Port, Trace, Unsupported, ValueType};
use remat_runtime::compile::SharedConstants;
use remat_runtime::control_flow::registry;
use remat_types::{Error, ErrorKind, Fact, Result};

use crate::affinity::Affinity;
use crate::eager::Eager;
use crate::form::{Form, Program};
use crate::model::{About, Model, Source};
use crate::plan::{Plan, lock};
use crate::session::Session;
use crate::{Options, Shapes};

/// The largest model that is taken from memory or a reader: protobuf's lengths are of 32 bits.
const MOST_BYTES: u64 = 1 << 31;

/// A model, and its prepared forms; see the crate's example.
///
/// Threads share networks by reference. Each thread may have its own sessions.
#[derive(Debug)]
pub struct Network {
    /// Nothing once no further shapes can come, of bytes.
    source: Mutex<Option<Source>>,
    options: Options,
    affinity: Affinity,
    inputs: Arc<[Port]>,
    outputs: Vec<Port>,
    about: About,
    operators: Vec<(String, String, usize)>,
    unsupported: Vec<Unsupported>,
    /// The model as it was read, until the first session takes it.
    model: Mutex<Option<Model>>,
    forms: Mutex<Vec<Form>>,
    /// The weights of all forms.
    weights: Arc<SharedConstants>,
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
    /// have, and for an output that the model has not, and for processors that the process has not; Device for processors on another system than
    /// Linux. Operators without a rule are errors of [`Network::session`];
    /// [`Network::unsupported`] lists them.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Network> {
        Network::new(Source::File(path.as_ref().to_owned()), options)
    }

    /// A model of the bytes of a file. Errors: as [`Network::open`].
    pub fn from_bytes(bytes: impl Into<Vec<u8>>, options: Options) -> Result<Network> {
        Network::from_shared(bytes.into(), options)
    }

    /// A model of bytes that are not copied: those of the program itself, or of whatever keeps them, as a mapping does. They are let go
    /// when nothing can need them any more: with the first session of a model that is one graph and leaves no extent open, and at the
    /// latest with the network and its sessions. Weights are read from them into memory of their own. Errors: as [`Network::open`].
    ///
    /// ```no_run
    /// use remat_lite::{Bytes, Network, Options};
    /// # fn main() -> remat_lite::Result<()> {
    /// static MODEL: &[u8] = &[/* include_bytes!("resnet18.onnx") */];
    /// let network = Network::from_shared(Bytes::from_static(MODEL), Options::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_shared(bytes: impl Into<Bytes>, options: Options) -> Result<Network> {
        Network::new(Source::Bytes(bytes.into()), options)
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

    fn new(source: Source, options: Options) -> Result<Network> {
        options.check()?;
        let options = options.opened()?;
        let affinity = Affinity::new(options.affinity.as_deref())?;
        let model = Model::whole(&source, &options)?;
        let operators = model.operators();
        let model = model.narrowed(&options)?;
        let outputs = model.outputs();
        Ok(Network {
            source: Mutex::new(Some(source)),
            options,
            affinity,
            inputs: model.inputs().into(),
            outputs,
            about: model.about(),
            operators,
            unsupported: model.unsupported(),
            model: Mutex::new(Some(model)),
            forms: Mutex::default(),
            weights: Arc::default(),
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

    /// The metadata of the file.
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
        let _here = self.affinity.enter()?;
        let form = self.form(&facts)?;
        Session::new(form, &self.options.session, self.affinity.clone())
    }

    /// The model's graph for inputs of these shapes, before passes, with its weights as constants. `None` if sizes follow from
    /// values, or an input or output is no tensor. The model is read again if there was a session before.
    ///
    /// Errors: as [`Network::session`], but for those of memory; Value if the model came as bytes, its shapes are fixed, and there was
    /// a session before.
    pub fn graph(&self, shapes: &Shapes) -> Result<Option<Graph>> {
        self.with_model(|model| Ok(self.traced(model, shapes)?.map(|t| t.graph)))
    }

    fn with_model<T>(&self, f: impl FnOnce(&Model) -> Result<T>) -> Result<T> {
        match &*lock(&self.model) {
            Some(model) => f(model),
            None => f(&self.read()?),
        }
    }

    fn traced(&self, model: &Model, shapes: &Shapes) -> Result<Option<Trace>> {
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
            let at = |shapes: &Shapes| match self.traced(model, shapes)? {
                Some(t) if t.labels.iter().all(Option::is_none) => Ok(t.graph),
                Some(_) => {
                    Err(Error::new(ErrorKind::Value, "an output is of strings, which a file of a graph does not have"))
                }
                None => Err(not_one()),
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
        let facts: Arc<[Option<Fact>]> = facts.into();
        let program = self.program(model, &facts)?;
        if self.inputs.iter().all(is_fixed) {
            lock(&self.source).take_if(|s| matches!(s, Source::Bytes(_)));
        }
        let outputs = self.outputs.iter().map(|p| p.name.clone()).collect();
        let form = Form { inputs: self.inputs.clone(), facts, outputs, program };
        forms.push(form.clone());
        Ok(form)
    }

    fn program(&self, model: Model, facts: &Arc<[Option<Fact>]>) -> Result<Program> {
        let tensors: Option<Vec<Fact>> = facts.iter().cloned().collect();
        let trace = match tensors {
            Some(facts) => model.trace(&facts)?,
            None => None,
        };
        let trace = match (trace, model) {
            (Some(trace), _) => trace,
            (None, Model::Onnx(model)) => {
                // operators without a rule are errors of this call
                model.check_supported()?;
                let source = lock(&self.source).clone().ok_or_else(gone)?;
                let eager = Eager::new(model, source, &self.inputs, facts.clone(), &self.options);
                return Ok(Program::Eager(Arc::new(eager)));
            }
            (None, Model::Graph(_)) => return Err(Error::new(ErrorKind::Internal, "a graph without a graph")),
        };
        Plan::new(trace, &self.options, Some(self.weights.clone())).map(Program::Compiled)
    }

    /// The model again. Errors: those of reading it, of a file that has changed or gone since.
    fn read(&self) -> Result<Model> {
        match &*lock(&self.source) {
            Some(source) => Model::read(source, &self.options),
            None => Err(gone()),
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Value, "the bytes of the model went when its one session was made")
}
