//! A group of ranks as Python sees it, and the devices that the end of MPI waits for.

#[cfg(feature = "mpi")]
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use remat::Device;
use remat::nn::distributed::Communicator;

use crate::call;
use crate::exit::keep_at_exit;

/// A group of ranks as one of them sees it; `remat.distributed.run` gives one.
///
/// >>> import remat
/// >>> alone = remat.distributed.Communicator()
/// >>> alone.rank, alone.size
/// (0, 1)
#[pyclass(name = "Communicator", module = "remat.distributed", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyCommunicator(pub(crate) Communicator);

impl Drop for PyCommunicator {
    fn drop(&mut self) {
        // MPI has ended when the interpreter drops the last object
        keep_at_exit(|| self.0.clone());
    }
}

#[pymethods]
impl PyCommunicator {
    /// A group of this process alone.
    #[new]
    fn new() -> Self {
        PyCommunicator(Communicator::alone())
    }

    /// The number of this rank, from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.0.rank()
    }

    /// The number of ranks, at least 1.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// The seconds that a rank waits for the others.
    #[getter]
    fn limit(&self) -> f64 {
        self.0.limit().as_secs_f64()
    }

    /// Waits until all ranks are here. Errors: PeerError if a rank failed, does not come, or makes another call.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.0.barrier())
    }

    /// The ranks with the same `color`, in the order of `key` and then of rank; None for a rank that gives no color. All ranks call it.
    /// Errors: as `barrier`.
    #[pyo3(signature = (color, key = None))]
    fn split(&self, py: Python<'_>, color: Option<usize>, key: Option<usize>) -> PyResult<Option<PyCommunicator>> {
        let key = key.unwrap_or(self.0.rank());
        Ok(call::run(py, || self.0.split(color, key))?.map(PyCommunicator))
    }

    /// A group of the same ranks whose calls are ordered separately from those of this group. All ranks call it.
    /// Errors: as `barrier`.
    fn duplicate(&self, py: Python<'_>) -> PyResult<PyCommunicator> {
        call::run(py, || self.0.duplicate()).map(PyCommunicator)
    }

    /// Waits until all ranks call this. It is for use after an error, when ranks may have left out different numbers of
    /// calls. Errors: as `barrier`.
    fn meet_again(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.0.meet_again())
    }

    fn __repr__(&self) -> String {
        format!("Communicator(rank={}, size={})", self.0.rank(), self.0.size())
    }
}

/// The devices that were opened with ranks while MPI runs; the end of MPI waits for their work. Nothing is noted when
/// MPI does not run. Devices stay here until MPI ends: a rank usually has one.
#[cfg(feature = "mpi")]
pub(crate) static DEVICES: Mutex<Option<Vec<Device>>> = Mutex::new(None);

/// Notes a device that was opened with ranks.
pub(crate) fn opened(device: &Device) {
    #[cfg(feature = "mpi")]
    if let Some(all) = DEVICES.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        all.push(device.clone());
    }
    #[cfg(not(feature = "mpi"))]
    let _ = device;
}
