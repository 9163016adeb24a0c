//! What of a network runs for one set of input types.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_onnx::{Model, Port, Value};
use remat_runtime::compile::CompiledGraph;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::no_grad;
use remat_types::{Fact, Result};

use crate::Options;

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
    Compiled(Arc<Mutex<CompiledGraph>>),
    /// A function of tensors: sizes follow from values, or an output is no tensor.
    Eager(Arc<Eager>),
}

/// A function of tensors with the device that it runs on.
#[derive(Debug)]
pub(crate) struct Eager {
    pub(crate) network: remat_onnx::Network,
    /// The model's outputs that are wanted, by index.
    wanted: Vec<usize>,
}

impl Eager {
    pub(crate) fn new(model: &Model, outputs: &[Port], options: &Options) -> Result<Eager> {
        let device = DeviceOptions {
            threads: options.threads,
            budget_bytes: options.memory_budget,
            spill: options.spill()?,
            ..DeviceOptions::default()
        };
        let all = model.outputs();
        let wanted = outputs.iter().filter_map(|o| all.iter().position(|p| p.name == o.name)).collect();
        Ok(Eager { network: model.on(&Device::cpu(device)?)?, wanted })
    }

    /// The wanted outputs. Errors: those of operators; Budget.
    pub(crate) fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let _quiet = no_grad();
        let all = self.network.run(inputs)?;
        let y: Vec<Value> = self.wanted.iter().filter_map(|i| all.get(*i).cloned()).collect();
        // an error of an operator is this run's, and not of whoever reads a value later
        self.network.device().channel().sync()?;
        Ok(y)
    }
}
