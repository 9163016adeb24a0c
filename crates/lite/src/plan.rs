//! A planned graph, and the memory of its sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_graph::ir::{Origin, ValueId};
use remat_onnx::{Labels, Trace, Value};
use remat_runtime::compile::{CompileCx, CompiledGraph, SharedConstants, stored_constant_bytes};
use remat_runtime::{Alignment, Executable, Session};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::Options;

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Weights and other constants, which all sessions of these shapes share, and those of other shapes as far as their plans have them.
    pub constant_bytes: usize,
    /// Inputs and outputs.
    pub io_bytes: usize,
    /// Bytes that live only within a run. For a model that is no single graph: the most bytes that the device held.
    pub workspace_bytes: usize,
    /// Weights that do not fit the budget and that runs read from a file when they need them; no part of the memory.
    pub stored_bytes: usize,
    /// Calls that a run makes again to keep to the budget. Of a model that is no single graph: those of all runs so far, of all
    /// sessions.
    pub recomputed_calls: usize,
}

impl Memory {
    /// All of them: what the budget is compared with.
    pub fn total_bytes(&self) -> usize {
        self.constant_bytes + self.io_bytes + self.workspace_bytes
    }
}

/// A graph that was planned.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) compiled: Arc<Mutex<CompiledGraph>>,
    /// For each output of strings: the list in which the output gives places.
    labels: Arc<[Option<Arc<Vec<String>>>]>,
}

impl Plan {
    /// Errors: Budget, with figures; Io for a spill folder that cannot be written to.
    pub(crate) fn new(trace: Trace, options: &Options, shared: Option<Arc<SharedConstants>>) -> Result<Plan> {
        let compile = options.compile();
        let spill = options.spill()?;
        let mut cx = CompileCx { spill, shared, ..CompileCx::alone(options.threads, &compile) };
        match &options.session.device {
            Some(device) => cx.kernels = device.kernels().clone(),
            None => cx = cx.with_kernels(options.kernels.clone()),
        }
        let compiled = CompiledGraph::new(trace.graph, &cx, &compile).map_err(|e| match (e.kind(), &cx.spill) {
            (ErrorKind::Budget, None) => e.context("weights stay in memory, for there is no folder to spill to"),
            _ => e,
        })?;
        let compiled = Arc::new(Mutex::new(compiled));
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

/// Takes over a better plan that was made from measured times.
pub(crate) fn settle(run: &mut Session, plan: &Mutex<CompiledGraph>) -> Result<()> {
    let mut plan = lock(plan);
    plan.before_run();
    if !Arc::ptr_eq(run.executable()?, plan.executable()) {
        run.replan(plan.executable().clone())?;
    }
    Ok(())
}

/// The memory of a session of an executable.
pub(crate) fn memory_of(e: &Executable) -> Memory {
    let (g, f) = (e.graph(), e.figures());
    // in whole units of the arena, as the budget counts them
    let of = |v: ValueId| Alignment::HOST.pad(g.fact(v).bytes());
    let is_constant = |v: &ValueId| matches!(g.value(*v).origin, Origin::Constant(_));
    Memory {
        constant_bytes: g.value_ids().filter(is_constant).map(of).sum(),
        io_bytes: g.inputs().iter().copied().chain(g.outputs().iter().map(|o| o.value)).map(of).sum(),
        workspace_bytes: f.arena_bytes,
        stored_bytes: stored_constant_bytes(g),
        recomputed_calls: f.recomputed_calls,
    }
}
