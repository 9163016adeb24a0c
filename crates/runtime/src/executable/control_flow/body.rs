use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use remat_graph::ir::Graph;
use remat_ops::schema::{ParamType, ParamValue};
use remat_ops::{Cost, Op};
use remat_types::{Error, ErrorKind, Fact, Facts, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::registry;
use crate::executable::{Executable, ExecutableOptions, HOST};
use remat_device::KernelSet;
use remat_device::program::Program;

/// A graph within an op. Bodies with equal texts are equal.
#[derive(Clone)]
pub struct Body(Arc<Inner>);

struct Inner {
    graph: Arc<Graph>,
    text: String,
    /// The programs that were asked for: one for each device and number of threads.
    ready: Mutex<Vec<(String, Arc<Program>)>>,
}

impl Body {
    /// A body of a graph without states. Errors: Value for one with states; Format for an op without a serial form.
    pub fn new(graph: Graph) -> Result<Body> {
        if !graph.states().is_empty() {
            return Err(Error::new(ErrorKind::Value, "a graph within a graph has no states of its own"));
        }
        let text = graph.to_text()?;
        Ok(Body(Arc::new(Inner { graph: Arc::new(graph), text, ready: Mutex::default() })))
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// The facts of the graph's inputs.
    pub fn x(&self) -> impl DoubleEndedIterator<Item = &Fact> + ExactSizeIterator {
        self.graph().inputs().iter().map(|v| self.graph().fact(*v))
    }

    /// The facts of the graph's outputs.
    pub fn y(&self) -> impl DoubleEndedIterator<Item = &Fact> + ExactSizeIterator {
        self.graph().outputs().iter().map(|o| self.graph().fact(o.value))
    }

    /// The facts of the outputs, without values. Errors: Arity or Shape for inputs that are not as the graph's.
    pub(super) fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.graph().check_inputs(x)?;
        Ok(self.y().map(plain).collect())
    }

    /// The graph ready to run on the host with so many threads. Errors: those of [`Executable::new`].
    pub(super) fn program(&self, threads: usize) -> Result<Arc<Program>> {
        self.ready(HOST, threads, || Executable::new(self.0.graph.clone(), threads))
    }

    /// The graph ready to run on these kernels. Errors: those of [`Executable::new`].
    pub(super) fn program_for(&self, kernels: &Arc<dyn KernelSet>) -> Result<Arc<Program>> {
        let make = || Executable::for_kernels(self.0.graph.clone(), kernels, &ExecutableOptions::default());
        self.ready(kernels.device(), kernels.threads(), make)
    }

    fn ready(&self, device: &str, threads: usize, make: impl FnOnce() -> Result<Executable>) -> Result<Arc<Program>> {
        let mut ready = self.0.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, p)) = ready.iter().find(|(d, p)| d == device && p.threads == threads) {
            return Ok(p.clone());
        }
        let p = Arc::new(make()?.into_program());
        ready.push((device.to_owned(), p.clone()));
        Ok(p)
    }

    /// Bytes of a run's workspace; 0 for a graph that cannot run, whose error comes when it should run.
    pub(super) fn workspace(&self, threads: usize) -> usize {
        self.program(threads).map_or(0, |p| p.workspace_bytes)
    }

    /// Calls `see` with each op of the graph.
    pub(super) fn for_each_part(&self, see: &mut dyn FnMut(&dyn Op)) {
        self.graph().nodes().iter().for_each(|n| see(&*n.op));
    }

    pub(super) fn cost(&self) -> Cost {
        self.graph().cost()
    }

    pub(super) fn repeatable(&self) -> bool {
        self.graph().nodes().iter().all(|n| n.op.repeatable())
    }

    pub(super) fn may_fail(&self) -> bool {
        self.graph().nodes().iter().any(|n| n.op.may_fail())
    }

    /// The body for inputs of these facts; `None` if it takes them as it is. Errors: those of [`Graph::with_inputs`],
    /// with a note that they are of a body.
    pub(super) fn with_input_shapes(&self, x: &[Fact]) -> Result<Option<Body>> {
        if x.len() == self.x().len() && self.x().zip(x).all(|(own, x)| own.same_type(x)) {
            return Ok(None);
        }
        let graph = self.graph().with_inputs(x).map_err(|e| e.context("a graph within a graph at another size"))?;
        Body::new(graph).map(Some)
    }
}

/// The fact's type, without its value.
pub(super) fn plain(f: &Fact) -> Fact {
    Fact::new(f.dtype, f.shape.clone())
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
    }
}
impl Eq for Body {}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({:?})", self.0.text)
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_seq(self.0.text.lines())
    }
}

impl ParamValue for Body {
    fn param_type() -> ParamType {
        ParamType::Graph
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let lines = Vec::<String>::deserialize(d)?;
        let graph = Graph::parse(&lines.join("\n"), &registry());
        graph.and_then(Body::new).map_err(serde::de::Error::custom)
    }
}
