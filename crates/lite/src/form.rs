//! What of a network runs for one set of input types.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_onnx::{Labels, Port, Trace, Value};
use remat_runtime::Session;
use remat_runtime::compile::{CompileCx, CompiledGraph};
use remat_types::{Fact, HostTensor, Result};

use crate::Options;
use crate::eager::Eager;

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A network for one set of input types.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) inputs: Arc<[Port]>,
    /// Of inputs that are tensors.
    pub(crate) facts: Arc<[Option<Fact>]>,
    pub(crate) outputs: Arc<[String]>,
    pub(crate) program: Program,
}

/// What runs.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// One graph, planned ahead.
    Compiled(Plan),
    /// A function of tensors: sizes follow from values, or an output is no tensor.
    Eager(Arc<Eager>),
}

/// A graph that was planned.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) compiled: Arc<Mutex<CompiledGraph>>,
    /// For each output that is of strings, those of which it gives the places.
    labels: Arc<[Option<Arc<Vec<String>>>]>,
}

impl Plan {
    /// Errors: Budget, with figures; Io for a spill folder that cannot be written to.
    pub(crate) fn new(trace: Trace, options: &Options) -> Result<Plan> {
        let compile = options.compile();
        let cx = CompileCx { spill: options.spill()?, ..CompileCx::alone(options.threads, &compile) };
        let compiled = Arc::new(Mutex::new(CompiledGraph::new(trace.graph, &cx, &compile)?));
        Ok(Plan { compiled, labels: trace.labels.into() })
    }

    /// The strings that output `j` of a run is, if it is of strings. Errors: those of [`Session::output`].
    pub(crate) fn text(&self, run: &mut Session, j: usize) -> Result<Option<Value>> {
        let Some(Some(names)) = self.labels.get(j) else { return Ok(None) };
        let y = run.output(j)?;
        let places = HostTensor::from_bytes(y.dtype, y.shape.clone(), y.bytes)?;
        Ok(Some(Value::Text(Labels::at(names, &places))))
    }

    /// True if output `j` is of strings.
    pub(crate) fn is_text(&self, j: usize) -> bool {
        self.labels.get(j).is_some_and(Option::is_some)
    }
}
