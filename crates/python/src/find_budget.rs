//! Searches for the smallest budget of a Python program, and for the largest batch within a budget.

use pyo3::prelude::*;
use remat::Result;
use remat::runtime::{
    Device, DeviceOptions, largest_batch as batch, smallest_budget as smallest, smallest_budget_within as within,
};
use remat::types::{BudgetShortfall, Error};

use crate::call;
use crate::device::PyDevice;

/// The outcome of a Python program on a dry device. The program returns `None`, or the bytes that would suffice
/// according to the error that refused it.
fn told(budget: Option<usize>, told: PyResult<Option<usize>>) -> PyResult<Result<()>> {
    Ok(match told? {
        None => Ok(()),
        Some(bytes) => Err(Error::budget(BudgetShortfall {
            op: String::new(),
            needed_bytes: bytes,
            budget_bytes: budget.unwrap_or(0),
            pinned: Vec::new(),
            least_bytes: 0,
            smallest_feasible_bytes: bytes,
            is_of_run: true,
            recompute_limit: None,
        })),
    })
}

fn options(device: &PyDevice) -> DeviceOptions {
    device.0.options().clone()
}

/// The smallest budget under which `program(device)` succeeds on dry devices of these options, and takes at most
/// `times` as long as without a budget.
#[pyfunction]
pub(crate) fn smallest_budget(
    py: Python<'_>,
    device: &Bound<'_, PyDevice>,
    program: Py<PyAny>,
    times: Option<f64>,
) -> PyResult<usize> {
    let options = options(device.get());
    let found = call::run(py, move || {
        let run = |dry: &Device| {
            let budget = dry.budget_bytes();
            let dry = PyDevice(dry.clone());
            call::back(|py| told(budget, program.call1(py, (dry,))?.extract(py))).and_then(|done| done)
        };
        match times {
            None => smallest(&options, run),
            Some(times) => within(&options, times, run),
        }
    })?;
    Ok(found.bytes)
}

/// The largest batch with which `program(device, batch)` succeeds under a budget; 0 if none does.
#[pyfunction]
pub(crate) fn largest_batch(
    py: Python<'_>,
    device: &Bound<'_, PyDevice>,
    program: Py<PyAny>,
    budget: usize,
    most: usize,
) -> PyResult<usize> {
    let options = options(device.get());
    let found = call::run(py, move || {
        batch(&options, budget, most, |dry, n| {
            let dry = PyDevice(dry.clone());
            call::back(|py| told(Some(budget), program.call1(py, (dry, n))?.extract(py))).and_then(|done| done)
        })
    })?;
    Ok(found.unwrap_or(0))
}
