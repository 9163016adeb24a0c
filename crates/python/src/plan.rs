//! The planner for any graph. Graphs and schedules are texts in the form that the book's chapter on planning describes.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat::graph::plan::check::check;
use remat::graph::plan::problem::Problem;
use remat::graph::plan::remat::{Effort, peak_bytes, plan};
use remat::graph::plan::schedule::Plan;
use remat::{Error, ErrorKind, Result};

use crate::call;

/// The longest search. A longer one is a mistake, and could overflow a clock.
const LONGEST_SECONDS: f64 = 86_400.0;

/// Bytes alive at once in a run without a budget, and the time of such a run. Errors: FormatError with the place.
#[pyfunction]
pub(crate) fn plan_figures(py: Python<'_>, graph: &str) -> PyResult<(u64, u64)> {
    call::run(py, || {
        let p = Problem::from_json(graph)?;
        Ok((peak_bytes(&p), p.base_time_ns()))
    })
}

/// The schedule of a graph within a budget, which the checker has replayed, or the reason why there is none.
#[pyfunction]
pub(crate) fn plan_graph(
    py: Python<'_>,
    graph: &str,
    budget: u64,
    time_limit: Option<f64>,
    seed: u64,
) -> PyResult<String> {
    if let Some(s) = time_limit.filter(|s| !(*s > 0.0 && *s <= LONGEST_SECONDS)) {
        return Err(PyValueError::new_err(format!("time_limit is {s}, must be seconds above 0 and at most 86400")));
    }
    call::run(py, || {
        let p = Problem::from_json(graph)?;
        let default = Effort::for_ops(p.ops().len());
        let time_limit = time_limit.map_or(default.time_limit, Duration::from_secs_f64);
        let found = plan(&p, budget, Effort { time_limit, seed, ..default });
        if let Plan::Feasible(s) = &found {
            let wrong =
                |e: Error| Error::new(ErrorKind::Internal, format!("the planner made an invalid schedule: {e}"));
            check(&p, s).map_err(wrong)?;
        }
        Ok(found.to_json_with_problem(&p))
    })
}

/// Replays a schedule on the graph that it carries, unless another one is given. Returns arena bytes, time, executions
/// and bytes moved. Errors: FormatError with the step.
#[pyfunction]
#[pyo3(signature = (schedule, graph = None))]
pub(crate) fn plan_check(py: Python<'_>, schedule: &str, graph: Option<&str>) -> PyResult<(u64, u64, usize, u64)> {
    call::run(py, || {
        let found = check_of(schedule, graph)?;
        Ok((found.arena_bytes, found.time_ns, found.computes, found.spilled_bytes))
    })
}

fn check_of(schedule: &str, graph: Option<&str>) -> Result<remat::graph::plan::check::Checked> {
    let no_graph = || Error::new(ErrorKind::Format, "the schedule carries no graph in `problem`");
    let p = match graph {
        Some(text) => Problem::from_json(text)?,
        None => Problem::in_schedule(schedule)?.ok_or_else(no_graph)?,
    };
    match Plan::from_json(schedule, &p)? {
        Plan::Feasible(s) => check(&p, &s),
        Plan::Infeasible(_) => Err(Error::new(ErrorKind::Format, "the text says that there is no schedule")),
    }
}
