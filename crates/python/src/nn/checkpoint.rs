//! Checkpoints of training runs.

use std::path::PathBuf;

use pyo3::prelude::*;
use remat::nn::{Checkpoint, LoaderPosition, Schedule, TrainState};
use remat::{Result, Tensor};
use serde::Deserialize;

use super::{Generator, NativeOptimizer, State};
use crate::device::PyDevice;
use crate::tensor::Output;
use crate::{call, value};

/// The state of a run beside its tensors, as Python gives it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Train {
    step: u64,
    epoch: u64,
    schedule: Option<Schedule>,
    loader: Option<LoaderPosition>,
    user: serde_json::Value,
}

/// A checkpoint that was read.
#[pyclass(name = "_Checkpoint", module = "remat._remat", frozen)]
pub(crate) struct NativeCheckpoint(Checkpoint);

/// Writes a checkpoint into a folder, and replaces an older one. `train` is JSON. Errors, after which the old
/// checkpoint stays: IoError; failures on the device that no call has reported.
#[pyfunction]
pub(crate) fn save_checkpoint(
    py: Python<'_>,
    folder: PathBuf,
    module: &Bound<'_, State>,
    optimizer: Option<&Bound<'_, NativeOptimizer>>,
    generator: &Bound<'_, Generator>,
    train: &str,
) -> PyResult<()> {
    let Train { step, epoch, schedule, loader, user } = serde_json::from_str(train).map_err(value::wrong_form)?;
    let (module, optimizer, generator) = (module.get(), optimizer.map(Bound::get), generator.get());
    call::run(py, || {
        let rng = Some(generator.0.get());
        let train = TrainState { step, epoch, schedule, rng, loader, user };
        match optimizer {
            None => Checkpoint::save(&folder, module, None, &train),
            Some(o) => o.with(|o| Checkpoint::save(&folder, module, Some(o), &train)),
        }
    })
}

/// Makes sure that a checkpoint can be written into a folder. Errors: IoError.
#[pyfunction]
pub(crate) fn prepare_checkpoint(py: Python<'_>, folder: PathBuf) -> PyResult<()> {
    call::run(py, || Checkpoint::prepare(&folder))
}

/// True if there is a checkpoint in a folder.
#[pyfunction]
pub(crate) fn checkpoint_is_in(py: Python<'_>, folder: PathBuf) -> bool {
    py.detach(|| Checkpoint::is_in(&folder))
}

#[pymethods]
impl NativeCheckpoint {
    /// Reads the checkpoint in a folder. Errors: IoError; FormatError naming file and tensor or field.
    #[new]
    fn new(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        call::run(py, || Checkpoint::load(&folder)).map(NativeCheckpoint)
    }

    /// The state of the run beside its tensors, as JSON.
    #[getter]
    fn train(&self) -> PyResult<String> {
        serde_json::to_string(&self.0.train).map_err(value::wrong_form)
    }

    /// True if the checkpoint has an optimiser.
    #[getter]
    fn has_optimizer(&self) -> bool {
        self.0.optimizer.is_some()
    }

    /// Parameters and buffers on a device.
    fn model(&self, py: Python<'_>, device: &Bound<'_, PyDevice>) -> PyResult<Vec<(String, Py<PyAny>)>> {
        let device = device.get().0.clone();
        let all = call::run(py, || {
            let put = |(name, t)| Ok((String::clone(name), Tensor::from_host(&device, t)?));
            self.0.model.iter().map(put).collect::<Result<Vec<_>>>()
        })?;
        all.into_iter().map(|(name, t)| Ok((name, t.object(py)?))).collect()
    }

    /// Restores module, optimiser and generator from the checkpoint, all or none. Errors: ValueError, which names every
    /// value that does not fit; BudgetError; FormatError for options of another optimiser.
    fn restore(
        &self,
        py: Python<'_>,
        module: &Bound<'_, State>,
        optimizer: Option<&Bound<'_, NativeOptimizer>>,
        generator: Option<&Bound<'_, Generator>>,
    ) -> PyResult<()> {
        let (module, optimizer) = (module.get(), optimizer.map(Bound::get));
        let generator = generator.map(Bound::get);
        call::run(py, || {
            match optimizer {
                None => self.0.restore(module, None)?,
                Some(o) => o.with(|o| self.0.restore(module, Some(o)))?,
            }
            if let (Some(g), Some(rng)) = (generator, &self.0.train.rng) {
                g.0.set(rng.clone());
            }
            Ok(())
        })
    }
}
