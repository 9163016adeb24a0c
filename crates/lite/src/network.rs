//! A model that was read.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use remat_graph::ir::Graph;
use remat_onnx::{Model, Port, Unsupported, ValueType};
use remat_types::{Error, ErrorKind, Fact, Result};

use crate::eager::Eager;
use crate::form::{Form, Plan, Program, lock};
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
    /// Domains and versions of the operators that it imports; the standard's domain is empty.
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
    /// Reads an ONNX model. Weights in files beside it are read from its folder and below.
    ///
    /// Errors: those of [`Model::open`], which name the path; Value for options that nothing can have, and for an output that the
    /// model has not. Operators without a rule are errors of [`Network::session`]; [`Network::unsupported`] lists them.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Network> {
        let path = path.as_ref();
        Network::new(Source::File(path.to_owned()), Model::open(path)?, options)
    }

    /// A model of the bytes of a file. Errors: as [`Network::open`].
    pub fn from_bytes(bytes: impl Into<Vec<u8>>, options: Options) -> Result<Network> {
        let bytes = bytes.into();
        let model = Model::from_bytes(bytes.clone())?;
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
        let operators = model.operators();
        let model = narrowed(model, &options)?;
        let outputs = model.outputs();
        // those with a default are constants of the model
        let inputs: Arc<[Port]> = model.inputs().into_iter().filter(|p| !p.has_default).collect();
        Ok(Network {
            source: Mutex::new(Some(source)),
            options,
            inputs,
            outputs,
            about: About {
                name: model.name().to_owned(),
                producer: model.producer().to_owned(),
                opsets: model.opsets().to_vec(),
                metadata: model.metadata().to_vec(),
            },
            operators,
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
        let facts: Option<Vec<Fact>> = shapes.facts(&self.inputs)?.into_iter().collect();
        let Some(facts) = facts else { return Ok(None) };
        let trace = match &*lock(&self.model) {
            Some(model) => model.trace(&facts),
            None => self.read()?.trace(&facts),
        };
        Ok(trace?.map(|t| t.graph))
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
        let Some(trace) = trace else {
            // operators without a rule are errors of this call
            model.check_supported()?;
            return Ok(Program::Eager(Arc::new(Eager::new(model, &self.inputs, facts.clone(), &self.options))));
        };
        // the weights are the graph's alone now: those that passes make others of are freed
        drop(model);
        Plan::new(trace, &self.options).map(Program::Compiled)
    }

    /// The model again. Errors: those of reading it, of a file that has changed or gone since.
    fn read(&self) -> Result<Model> {
        let model = match &*lock(&self.source) {
            Some(Source::File(path)) => Model::open(path),
            Some(Source::Bytes(bytes)) => Model::from_bytes(bytes.clone()),
            None => Err(Error::new(ErrorKind::Value, "the bytes of the model went when its one session was made")),
        };
        narrowed(model?, &self.options)
    }
}

/// The model with the inputs that are fixed, and the outputs that are wanted alone. Errors (Value): unknown names, one twice; those of
/// [`Model::with_input`].
fn narrowed(mut model: Model, options: &Options) -> Result<Model> {
    for (i, (name, value)) in options.fixed.iter().enumerate() {
        let inputs = model.inputs();
        if !inputs.iter().any(|p| p.name == *name) {
            return Err(unknown("input", name, inputs.iter().map(|p| &*p.name)));
        }
        if options.fixed[..i].iter().any(|(before, _)| before == name) {
            return Err(Error::new(ErrorKind::Value, format!("input `{name}` is fixed twice")));
        }
        model = model.with_input(name, value)?;
    }
    match options.outputs.as_deref() {
        None => Ok(model),
        Some(names) => {
            check_outputs(&model.outputs(), names)?;
            model.with_outputs(&names.iter().map(|n| &**n).collect::<Vec<_>>())
        }
    }
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
