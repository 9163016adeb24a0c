//! Problems: of files, of benchmarks, and of what runs here.

use std::path::Path;

use remat::runtime::DeviceOptions;
use remat::types::{Error, ErrorKind, Result};
use remat_graph::plan::generate::generate;
use remat_graph::plan::problem::Problem;

use crate::budget::MemoryBudget;
use crate::device::On;
use crate::input;
use crate::model::inputs::made_up;
use crate::model::{PassOptions, RunOptions, ShapeOptions, SpillOptions, load, no_single_graph, open};
use crate::workload::Workload;

pub(super) fn problem(path: &Path) -> Result<Problem> {
    Problem::from_json(&input::file_or_standard(path)?).map_err(|e| e.context(path.display()))
}

pub(super) fn generated(name: &str) -> Result<Problem> {
    Problem::new(generate(name)?)
}

/// Timed runs; the first warms caches, and the least time of each operator counts.
const RUNS: usize = 5;

/// The work as a problem, in which parameters, optimiser state and data count. Errors: those of the network.
pub(super) fn traced(work: Workload, batch: Option<usize>, on: On<'_>, is_estimated: bool) -> Result<Problem> {
    let runs = if is_estimated { 0 } else { RUNS };
    let executable = work.timed(batch, on, runs)?;
    if runs > 0 && !executable.is_timed() {
        return Err(Error::new(ErrorKind::Internal, "the step was run and has no times"));
    }
    Problem::new(executable.problem(&executable.fastest_times())?)
}

/// A model in a file as a problem, in which weights, inputs and outputs count. Errors: those of loading and running it; Value for one
/// that is no single graph.
pub(super) fn model(path: &Path, shapes: &ShapeOptions, on: On<'_>, is_estimated: bool) -> Result<Problem> {
    let threads = on.threads.unwrap_or(DeviceOptions::default().threads);
    let options = RunOptions::new(threads, MemoryBudget::Unlimited, PassOptions::default(), SpillOptions::default());
    let options = options.on(on.device);
    let network = open(path, &options, shapes, None)?;
    let shapes = shapes.or_ones(network.inputs())?;
    let mut session = load(path, network, &options, &shapes)?.session;
    if !is_estimated {
        let unset = vec![None; session.inputs().len()];
        let values = made_up(&session, unset)?;
        let names: Vec<String> = session.inputs().iter().map(|p| p.name.clone()).collect();
        names.iter().zip(&values).try_for_each(|(name, x)| session.set_input(name, x))?;
        (0..RUNS).try_for_each(|_| session.run())?;
    }
    let run = session.runtime().ok_or_else(|| no_single_graph(path))?;
    let executable = run.executable()?;
    Problem::new(executable.problem(&executable.fastest_times())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_step_is_a_problem_whose_states_count() {
        let of = |is_estimated| {
            let mlp = "train:mlp".parse().expect("known");
            traced(mlp, Some(4), On { threads: Some(1), ..On::CPU }, is_estimated).expect("it runs")
        };
        let (measured, estimated) = (of(false), of(true));
        assert_eq!(measured.ops().len(), estimated.ops().len());
        assert!(measured.base_time_ns() > 0 && estimated.base_time_ns() > 0);
        assert_ne!(measured.base_time_ns(), estimated.base_time_ns(), "one of them was measured");
        // 784-512-512-10 with biases, and the momentum of each
        let numbers = 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10;
        assert!(measured.given_bytes() >= 2 * 4 * numbers, "{} bytes", measured.given_bytes());
    }
}
