//! Devices: an arena of memory within a budget, and the threads that compute in it.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use remat::runtime::{Foresight, SpillTo};
use remat::{AsyncLevel, Device, DeviceOptions};

use crate::call;
use crate::communicator::{self, PyCommunicator};
use crate::exit::{self, keep_at_exit};

/// A device: an arena of memory that never grows past a budget, and the threads that compute in it.
///
/// `name` is `"cpu"`, the processor, by default; `"emulated"` behaves like an accelerator, for tests. A budget may
/// stand in its place: `Device("64MiB")`. `budget` is a number of bytes or a text such as `"512MiB"`; None is no limit.
/// Values that do not fit are computed again when they are needed. If a step cannot fit, it raises a `BudgetError` with
/// figures. `threads` is the number of cores by default. `spill` is a folder in which plans may keep values that do not
/// fit, in files of at most `spill_budget` bytes each. `host_budget` limits the host memory of staging buffers, on a device
/// with memory of its own. `ranks` is a group of a distributed program; this device is that of one rank, and updates are made on all ranks
/// or on none. `recompute_limit` bounds recomputation: the schedule of a step runs operators again at most this many
/// times as often as the step asks for one, and a step that would take more is refused. `foresight` says how steps that
/// repeat are planned: `"beside"` plans on a thread beside the steps, `"at_once"` makes the end of a step wait for its
/// plan, and `"off"` plans nothing. `async_level` says when a call returns. With `"full"` it returns before the device
/// has begun, with `"launched"` once the work is launched, and with `"sync"` once it is done, so that the call itself
/// raises its error. `always_record` keeps how results were made even without a budget. `kernels` maps names of
/// operators to functions `f(op, inputs, outputs)` that compute them on the processor. `op["params"]` has the
/// operator's parameters. Inputs and outputs are memory views, which NumPy's `asarray` accepts (16-bit floats as their
/// bits). Constants that a compiled function computes ahead use the operators' own kernels. Errors: ValueError for an
/// option outside its domain.
///
/// >>> import remat
/// >>> device = remat.Device(budget="64MiB", threads=2)
/// >>> device
/// Device(budget=67108864, threads=2)
/// >>> remat.ones(2, 2, device=device).sum().item()
/// 4.0
#[pyclass(name = "Device", module = "remat", frozen, eq, weakref)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyDevice(pub(crate) Device);

impl Drop for PyDevice {
    fn drop(&mut self) {
        keep_at_exit(|| self.0.clone());
    }
}

fn foresight(name: &str) -> PyResult<Foresight> {
    match name {
        "off" => Ok(Foresight::Off),
        "beside" => Ok(Foresight::Beside),
        "at_once" => Ok(Foresight::AtOnce),
        _ => Err(PyValueError::new_err(format!("foresight is `off`, `beside` or `at_once`, not `{name}`"))),
    }
}

fn async_level(name: &str) -> PyResult<AsyncLevel> {
    match name {
        "sync" => Ok(AsyncLevel::Sync),
        "launched" => Ok(AsyncLevel::Launched),
        "full" => Ok(AsyncLevel::Full),
        _ => Err(PyValueError::new_err(format!("async_level is `sync`, `launched` or `full`, not `{name}`"))),
    }
}

/// Units of a budget, the longer names first.
const UNITS: [(&str, f64); 9] = [
    ("tib", 1_099_511_627_776.0),
    ("gib", 1_073_741_824.0),
    ("mib", 1_048_576.0),
    ("kib", 1024.0),
    ("tb", 1e12),
    ("gb", 1e9),
    ("mb", 1e6),
    ("kb", 1e3),
    ("b", 1.0),
];

/// Bytes of a budget: an integer, a text such as `512MiB`, or None. Errors: ValueError, which lists the forms that are
/// valid.
pub(crate) fn budget(x: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    let Some(x) = x else { return Ok(None) };
    let wrong = |text: &str| {
        let forms = match text.ends_with('%') {
            // a share is of a run's peak, which only a run can tell
            true => {
                "a share is of the peak of a run without a budget: take that from `device.peak_bytes` or from `remat.smallest_budget`, and give bytes"
            }
            false => "give bytes as an integer, a text such as \"512MiB\" or \"0.5GB\", or None for no limit",
        };
        PyValueError::new_err(format!("{text} is no budget: {forms}"))
    };
    // a bool is an integer in Python, but no size
    if x.is_instance_of::<PyBool>() {
        return Err(wrong(&x.to_string()));
    }
    if let Ok(bytes) = x.extract::<usize>() {
        return if bytes == 0 { Err(wrong("0 bytes")) } else { Ok(Some(bytes)) };
    }
    let text: String = x.extract().map_err(|_| wrong(&x.to_string()))?;
    let lower = text.trim().to_ascii_lowercase();
    if lower == "unlimited" {
        return Ok(None);
    }
    let (unit, scale) = UNITS.iter().find(|(u, _)| lower.ends_with(u)).ok_or_else(|| wrong(&text))?;
    let number: f64 = lower[..lower.len() - unit.len()].trim().parse().map_err(|_| wrong(&text))?;
    let bytes = number * scale;
    // the library says what a process can address
    if !bytes.is_finite() || bytes < 1.0 { Err(wrong(&text)) } else { Ok(Some(bytes as usize)) }
}

/// The name of a device and its budget, where a budget may stand in the place of the name. Errors: ValueError for a text that is
/// neither.
fn named<'a, 'py>(
    name: Option<&'a Bound<'py, PyAny>>,
    budget: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<(String, Option<&'a Bound<'py, PyAny>>)> {
    let Some(name) = name else { return Ok(("cpu".into(), budget)) };
    let text: Option<String> = name.extract().ok();
    let is_name = |text: &String| text.starts_with(|c: char| c.is_ascii_alphabetic()) && text != "unlimited";
    match (text.filter(is_name), budget) {
        (Some(text), _) => Ok((text, budget)),
        (None, None) => Ok(("cpu".into(), Some(name))),
        (None, Some(_)) => Err(PyValueError::new_err(format!("{name} is no name of a device, and a budget is given"))),
    }
}

/// Bytes of a budget as [`PyDevice`] takes it.
#[pyfunction]
#[pyo3(signature = (x))]
pub(crate) fn budget_bytes(x: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    budget(x)
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (name = None, budget = None, threads = None, spill = None, *, foresight = "beside", async_level = "full", always_record = false, ranks = None, recompute_limit = 8, kernels = None, host_budget = None, spill_budget = None))]
    fn new(
        py: Python<'_>,
        name: Option<&Bound<'_, PyAny>>,
        budget: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        spill: Option<PathBuf>,
        foresight: &str,
        async_level: &str,
        always_record: bool,
        ranks: Option<&Bound<'_, PyCommunicator>>,
        recompute_limit: i64,
        kernels: Option<&Bound<'_, PyDict>>,
        host_budget: Option<&Bound<'_, PyAny>>,
        spill_budget: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (name, budget) = named(name, budget)?;
        let spill_bytes = self::budget(spill_budget)?;
        if spill_bytes.is_some() && spill.is_none() {
            return Err(PyValueError::new_err("spill_budget limits files that `spill` asks for: name a folder there"));
        }
        let wrong = |_| PyValueError::new_err(format!("recompute_limit is {recompute_limit}, must be 0 or more"));
        let recompute_limit = u32::try_from(recompute_limit).map_err(wrong)?;
        let mut options = DeviceOptions {
            budget_bytes: self::budget(budget)?,
            host_budget_bytes: self::budget(host_budget)?,
            foresight: self::foresight(foresight)?,
            async_level: self::async_level(async_level)?,
            always_record,
            recompute_limit,
            kernels: crate::kernels::registry(kernels)?,
            ranks: ranks.map(|r| r.get().0.clone()),
            ..DeviceOptions::default()
        };
        if let Some(n) = threads {
            let found = if n.is_instance_of::<PyBool>() { None } else { n.extract::<usize>().ok() };
            let wrong = || PyValueError::new_err(format!("threads is {n}, must be a whole number of 1 or more"));
            options.threads = found.ok_or_else(wrong)?;
        }
        if spill.as_ref().is_some_and(|folder| folder.as_os_str().is_empty()) {
            return Err(PyValueError::new_err("spill is empty: name a folder, or None for no spilling"));
        }
        let has_ranks = options.ranks.is_some();
        let device = call::run(py, move || {
            let limited = |to: SpillTo| match spill_bytes {
                Some(bytes) => to.at_most(bytes as u64),
                None => to,
            };
            options.spill = spill.map(SpillTo::measure).transpose()?.map(limited);
            Device::open(&name, options)
        })?;
        exit::opened(&device);
        if has_ranks {
            communicator::opened(&device);
        }
        Ok(PyDevice(device))
    }

    /// A device of the same options that computes nothing. A program runs on it over shapes alone, and `peak_bytes` is
    /// then the memory that the program needs. It has no budget unless one is given. Reading a value is an error of
    /// kind `no value`.
    ///
    /// >>> import remat
    /// >>> dry = remat.Device(threads=1).dry()
    /// >>> x = remat.zeros(1 << 20, device=dry) + 1
    /// >>> dry.sync(); dry.peak_bytes >= 4 << 20
    /// True
    #[pyo3(signature = (budget = None))]
    fn dry(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<PyDevice> {
        let mut options = self.0.options().clone();
        options.budget_bytes = self::budget(budget)?;
        call::run(py, move || Device::dry(options)).map(PyDevice)
    }

    /// The name for reports.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The number of compute threads.
    #[getter]
    fn threads(&self) -> usize {
        self.0.options().threads
    }

    /// True if the device computes nothing: programs run over shapes alone, and the figures tell their memory.
    #[getter]
    fn is_dry(&self) -> bool {
        self.0.is_dry()
    }

    /// The folder to which plans may copy values that do not fit, or None.
    #[getter]
    fn spill(&self) -> Option<PathBuf> {
        self.0.options().spill.as_ref().map(|s| s.folder().to_owned())
    }

    /// Waits for all work asked for. Errors: those of failures that no call has reported.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.sync())
    }

    /// Changes the budget. Values that do not fit any more are evicted. Errors: BudgetError if too much must stay.
    ///
    /// >>> import remat
    /// >>> device = remat.Device(budget="64MiB")
    /// >>> device.set_budget("32MiB"); device.budget
    /// 33554432
    #[pyo3(signature = (budget))]
    fn set_budget(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let bytes = self::budget(budget)?;
        let channel = self.0.channel();
        call::run(py, move || channel.set_budget(bytes))
    }

    /// Ends a step of a loop that has no optimiser, so that later steps can be planned.
    fn step_mark(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.step_mark())
    }

    /// Resets the peak and the counters.
    fn reset_peak(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.reset_peak())
    }

    /// Frees all values that can be computed again; returns the number of bytes. Tensors stay valid.
    fn evict_all(&self, py: Python<'_>) -> PyResult<usize> {
        let channel = self.0.channel();
        call::run(py, move || channel.evict_all())
    }

    /// Ends the device: waits for its work, and frees every tensor on it. Errors: those of failures that no call has
    /// reported.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.close())
    }

    /// The memory report as text for people, and as JSON.
    fn _report(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let channel = self.0.channel();
        let report = call::run(py, move || channel.report())?;
        let json = serde_json::to_string(&report).map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok((report.to_string(), json))
    }

    fn _start_trace(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.start_trace())
    }

    /// The work that ran since `_start_trace`, as a trace for Perfetto or chrome://tracing.
    fn _stop_trace(&self, py: Python<'_>) -> PyResult<String> {
        let channel = self.0.channel();
        Ok(call::run(py, move || channel.stop_trace())?.to_chrome_json().to_string())
    }

    fn __hash__(&self) -> usize {
        // consistent with `==`: channels of one device share its kernels
        std::sync::Arc::as_ptr(self.0.kernels()).cast::<u8>() as usize
    }

    /// The budget in force, in bytes, or None. Waits for the device.
    #[getter]
    fn budget(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self.stats(py)?.budget_bytes)
    }

    /// The most bytes that were allocated at once since the start or the last `reset_peak`. Waits for the device.
    #[getter]
    fn peak_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.stats(py)?.peak_bytes)
    }

    /// Bytes allocated now. Waits for the device.
    #[getter]
    fn in_use_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.stats(py)?.in_use_bytes)
    }

    fn __repr__(&self) -> String {
        let o = self.0.options();
        let budget = o.budget_bytes.map_or_else(|| "None".to_owned(), |b| b.to_string());
        let dry = if self.0.is_dry() { ", is_dry=True" } else { "" };
        format!("Device(budget={budget}, threads={}{dry})", o.threads)
    }
}

impl PyDevice {
    fn stats(&self, py: Python<'_>) -> PyResult<remat::Stats> {
        let channel = self.0.channel();
        call::run(py, move || channel.stats())
    }
}
