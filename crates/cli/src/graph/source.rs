//! Where a graph comes from.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use remat::graph::ir::{Graph, GraphFile, GraphForm};
use remat::nn::InitCx;
use remat::runtime::{Device, DeviceOptions, Executable, ExecutableOptions};
use remat::tensor::{Tensor, compile, no_grad};
use remat::types::{Error, Result, open_file};

use crate::budget::MemoryBudget;
use crate::device::On;
use crate::model::ShapeOptions;
use crate::networks::{Model, Network, TrainTask};
use crate::workload::{Source, Workload};
use crate::{chars, digits, input, model, train};

/// A graph made ready to run.
pub(super) struct Traced {
    pub(super) executable: Arc<Executable>,
    /// Trained numbers; `None` where they are not told from other states: in a file, and in the step of a network.
    pub(super) parameters: Option<usize>,
}

/// The graph, made ready within the budget; of a model, as a session runs it. Errors: Io and Format for files; Budget.
pub(super) fn graph(
    source: &Source,
    batch: Option<usize>,
    shapes: &ShapeOptions,
    budget: MemoryBudget,
) -> Result<Traced> {
    let whole = match source {
        Source::File(path) => match read(path)? {
            Some(graph) if shapes.is_empty() => ready(graph, None, None)?,
            Some(_) | None => return deployed(path, shapes, budget),
        },
        Source::Workload(Workload::Task(TrainTask::Digits)) => task::<digits::Options>(batch)?,
        Source::Workload(Workload::Task(TrainTask::Chars)) => task::<chars::Options>(batch)?,
        Source::Workload(Workload::Network(Network::Infer(model))) => traced(*model, batch.unwrap_or(1))?,
        Source::Workload(Workload::Network(step)) => {
            Traced { executable: step.timed(batch, On::CPU, 0)?, parameters: None }
        }
    };
    let f = whole.executable.figures();
    let beside = f.state_bytes + f.input_bytes + f.output_bytes;
    match budget.bytes(|| Ok::<_, Error>(beside + f.arena_bytes))? {
        None => Ok(whole),
        Some(bytes) => {
            let limit = bytes.saturating_sub(beside);
            ready(whole.executable.graph().clone(), whole.parameters, Some(limit))
        }
    }
}

fn ready(graph: impl Into<Arc<Graph>>, parameters: Option<usize>, workspace_limit: Option<usize>) -> Result<Traced> {
    let options = ExecutableOptions { workspace_limit, ..ExecutableOptions::default() };
    let executable = Arc::new(Executable::with(graph.into(), threads(), &options)?);
    Ok(Traced { executable, parameters })
}

/// Compute threads, which decide an op's workspace.
pub(super) fn threads() -> usize {
    DeviceOptions::default().threads
}

/// How a graph in words begins.
const TEXT_START: &[u8] = b"remat.graph";

/// Reads a graph in words, or one with fixed sizes in a file of its own; `None` for a model, whose sizes may be open.
fn read(path: &Path) -> Result<Option<Graph>> {
    let in_file = |e: Error| e.context(path.display());
    let registry = remat::runtime::control_flow::registry();
    let mut start = Vec::new();
    let (file, _) = open_file(path)?;
    file.take(TEXT_START.len() as u64).read_to_end(&mut start).map_err(|e| in_file(e.into()))?;
    if start == TEXT_START {
        return Graph::parse(&input::file(path)?, &registry).map(Some).map_err(in_file);
    }
    if !remat_lite::is_graph_file(&start) {
        return Ok(None);
    }
    match GraphFile::open(path, None, &registry)?.form {
        GraphForm::Fixed(graph) => Ok(Some(graph)),
        GraphForm::Symbolic(_) => Ok(None),
    }
}

/// A model as a session runs it. Errors: those of loading it; Value for one that is no single graph.
fn deployed(path: &Path, shapes: &ShapeOptions, budget: MemoryBudget) -> Result<Traced> {
    let options =
        model::RunOptions::new(threads(), budget, model::PassOptions::default(), model::SpillOptions::default());
    let network = model::open(path, &options, shapes, None)?;
    let shapes = shapes.or_ones(network.inputs())?;
    let mut session = model::load(path, network, &options, &shapes)?.session;
    let run = session.runtime().ok_or_else(|| model::no_single_graph(path))?;
    Ok(Traced { executable: run.executable()?.clone(), parameters: None })
}

/// The training step of a task.
pub(super) fn task<O: train::TaskOptions>(batch: Option<usize>) -> Result<Traced> {
    let (executable, parameters) = train::traced::<O>(batch)?;
    Ok(Traced { executable, parameters: Some(parameters) })
}

/// The forward pass on a batch, as evaluation runs it, on a device without memory.
fn traced(model: Model, batch: usize) -> Result<Traced> {
    let device = Device::dry(DeviceOptions::default())?;
    let (net, x) = model.build(&mut InitCx::new(&device, 1), batch)?;
    net.eval();
    let parameters = net.parameter_count();
    let mut f = compile(&device, move |x: &[Tensor]| {
        let _quiet = no_grad();
        Ok(vec![net.forward(&x[0])?])
    });
    Ok(Traced { executable: f.executable(&[&x])?, parameters: Some(parameters) })
}
