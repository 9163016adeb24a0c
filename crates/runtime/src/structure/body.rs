use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use remat_graph::ir::Graph;
use remat_ops::{Cost, EvalCx, In, Op};
use remat_types::{Error, ErrorKind, Fact, Facts, Layout, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::registry;
use crate::Executable;

/// A graph within an op. Equal bodies have equal texts.
#[derive(Clone)]
pub struct Body(Arc<Inner>);

struct Inner {
    graph: Arc<Graph>,
    text: String,
    /// Ready to run, one for each number of threads that was asked for.
    ready: Mutex<Vec<Arc<Executable>>>,
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
        Ok(self.y().map(|f| Fact::new(f.dtype, f.shape.clone())).collect())
    }

    /// The graph ready to run on so many threads. Errors: those of [`Executable::new`].
    pub(super) fn ready(&self, threads: usize) -> Result<Arc<Executable>> {
        let mut ready = self.0.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(e) = ready.iter().find(|e| e.threads() == threads) {
            return Ok(e.clone());
        }
        let e = Arc::new(Executable::new(self.0.graph.clone(), threads)?);
        ready.push(e.clone());
        Ok(e)
    }

    /// Bytes of the workspace of a run; none for a graph that cannot run, which says so when it should.
    pub(super) fn workspace(&self, threads: usize) -> usize {
        self.ready(threads).map_or(0, |e| e.figures().arena_bytes)
    }

    pub(super) fn cost(&self) -> Cost {
        self.graph().cost()
    }

    pub(super) fn repeatable(&self) -> bool {
        self.graph().nodes().iter().all(|n| n.op.repeatable())
    }

    /// Runs the graph once. The inputs are whole and contiguous.
    pub(super) fn run(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.ready(cx.pool.threads())?.eval(cx)
    }
}

/// The elements of a contiguous input.
pub(super) fn elements<'a>(x: &In<'a>) -> Result<&'a [u8]> {
    let size = x.dtype().size_bytes();
    let at = x.layout().offset() * size;
    let all = x.bytes().get(at..at + x.layout().elems() * size).filter(|_| x.layout().is_contiguous());
    all.ok_or_else(|| Error::new(ErrorKind::Internal, "an input of a graph within a graph has gaps"))
}

/// Contiguous layouts of these facts.
pub(super) fn layouts<'f>(facts: impl Iterator<Item = &'f Fact>) -> Vec<Layout> {
    facts.map(Fact::layout).collect()
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

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let lines = Vec::<String>::deserialize(d)?;
        let graph = Graph::parse(&lines.join("\n"), &registry());
        graph.and_then(Body::new).map_err(serde::de::Error::custom)
    }
}
