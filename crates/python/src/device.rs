//! Devices: an arena of bytes within a budget, and the threads that compute in it.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use remat::runtime::{Foresight, SpillTo};
use remat::{AsyncLevel, Device, DeviceOptions};

use crate::call;
use crate::communicator::{self, PyCommunicator};
use crate::exit::{self, keep_at_exit};

/// A device: an arena of bytes that never grows past a budget, and what computes in it.
///
/// `name` is `"cpu"`, the processor, unless given; `"emulated"` behaves like an accelerator, for tests. A budget may stand in its
/// place: `Device("64MiB")`. `budget` is a number of bytes or a text such as `"512MiB"`; None is no limit. `threads` are the cores if none are given.
/// `spill` is a folder in which plans may keep what does not fit. `ranks` are those of a distributed program, of which this device is
/// one's: updates are made on all of them or on none. The schedule of a step runs operators again no more than `recompute_limit` times
/// as often as the step asks for one; what would take more is refused. What does not fit is computed again when it is needed; what
/// cannot be made to fit is a `BudgetError` with figures. `foresight` says whether steps that repeat are planned: `"beside"`, on a
/// thread beside the steps, `"at_once"`, where a step ends, which waits, or `"off"`. `async_level` says when a call returns: `"full"`,
/// before the device has begun, `"launched"`, once it is launched, or `"sync"`, once it is done, so that an error is that of the call
/// itself. `always_record` keeps without a budget, too, how results were made. `kernels` are functions of one's own by the name of the
/// operator that they compute on the processor, each `f(op, inputs, outputs)`: `op["params"]` are its parameters, and inputs and outputs
/// are memory views, which NumPy's `asarray` takes (16-bit floats as their bits). Constants that a compiled function computes ahead have
/// the operators' own kernels. Errors: ValueError for an option outside its domain.
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

/// Bytes of a budget: an integer, a text such as `512MiB`, or None. Errors: ValueError, which says what is right.
pub(crate) fn budget(x: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    let Some(x) = x else { return Ok(None) };
    let wrong = |text: &str| {
        let forms = match text.ends_with('%') {
            // what a share is of, only a run can tell
            true => {
                "a share is of the peak of a run without a budget: take that from `device.peak_bytes` or from `remat.smallest_budget`, and give bytes"
            }
            false => "give bytes as an integer, a text such as \"512MiB\" or \"0.5GB\", or None for no limit",
        };
        PyValueError::new_err(format!("{text} is no budget: {forms}"))
    };
    // a bool is an integer in Python, and no size
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
    #[pyo3(signature = (name = None, budget = None, threads = None, spill = None, *, foresight = "beside", async_level = "full", always_record = false, ranks = None, recompute_limit = 8, kernels = None))]
    fn new(
        py: Python<'_>,
        name: Option<&Bound<'_, PyAny>>,
        budget: Option<&Bound<'_, PyAny>>,
        threads: Option<i64>,
        spill: Option<PathBuf>,
        foresight: &str,
        async_level: &str,
        always_record: bool,
        ranks: Option<&Bound<'_, PyCommunicator>>,
        recompute_limit: i64,
        kernels: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (name, budget) = named(name, budget)?;
        let wrong = |_| PyValueError::new_err(format!("recompute_limit is {recompute_limit}, must be 0 or more"));
        let recompute_limit = u32::try_from(recompute_limit).map_err(wrong)?;
        let mut options = DeviceOptions {
            budget_bytes: self::budget(budget)?,
            foresight: self::foresight(foresight)?,
            async_level: self::async_level(async_level)?,
            always_record,
            recompute_limit,
            kernels: crate::kernels::registry(kernels)?,
            ranks: ranks.map(|r| r.get().0.clone()),
            ..DeviceOptions::default()
        };
        if let Some(n) = threads {
            let wrong = |_| PyValueError::new_err(format!("threads is {n}, must be 1 or more"));
            options.threads = usize::try_from(n).map_err(wrong)?;
        }
        let has_ranks = options.ranks.is_some();
        let device = call::run(py, move || {
            options.spill = spill.map(SpillTo::measure).transpose()?;
            Device::open(&name, options)
        })?;
        exit::opened(&device);
        if has_ranks {
            communicator::opened(&device);
        }
        Ok(PyDevice(device))
    }

    /// A device of the same options that computes nothing: a program runs on it over shapes alone, and its `peak_bytes` are what
    /// the program needs. Without a budget unless one is given. Reading a value is an error of kind `no value`.
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

    /// Compute threads.
    #[getter]
    fn threads(&self) -> usize {
        self.0.options().threads
    }

    /// True if nothing is computed: programs run over shapes alone, and figures tell their memory.
    #[getter]
    fn is_dry(&self) -> bool {
        self.0.is_dry()
    }

    /// Where plans may copy what does not fit, or None.
    #[getter]
    fn spill(&self) -> Option<PathBuf> {
        self.0.options().spill.as_ref().map(|s| s.folder().to_owned())
    }

    /// Waits for all that was asked for. Errors: what failed and was not told yet.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.sync())
    }

    /// Changes the budget; what is there and does not fit any more is evicted. Errors: BudgetError if that cannot be.
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

    /// Ends a step of a loop that has no optimiser, so that the steps that follow can be planned.
    fn step_mark(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.step_mark())
    }

    /// Begins peak and counters anew.
    fn reset_peak(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.0.channel();
        call::run(py, move || channel.reset_peak())
    }

    /// Frees all that can be made again; the number of bytes. Tensors stay good.
    fn evict_all(&self, py: Python<'_>) -> PyResult<usize> {
        let channel = self.0.channel();
        call::run(py, move || channel.evict_all())
    }

    /// Ends the device: waits for its work, and every tensor of it is gone. Errors: all that failed and was not told yet.
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

    /// What ran since, as a trace for Perfetto or chrome://tracing.
    fn _stop_trace(&self, py: Python<'_>) -> PyResult<String> {
        let channel = self.0.channel();
        Ok(call::run(py, move || channel.stop_trace())?.to_chrome_json().to_string())
    }

    fn __hash__(&self) -> usize {
        // as `==`: channels of one device share its parts
        std::sync::Arc::as_ptr(self.0.kernels()).cast::<u8>() as usize
    }

    /// The budget in force, in bytes, or None. Waits for the device.
    #[getter]
    fn budget(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self.stats(py)?.budget_bytes)
    }

    /// Most bytes that were ever allocated at once. Waits for the device.
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
