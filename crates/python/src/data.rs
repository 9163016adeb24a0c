//! Datasets and loaders: batches that are prepared beside the steps, within the budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use remat::HostTensor;
use remat::nn::{DataLoader, Dataset, LoaderOptions, LoaderPosition, TensorDataset};
use remat_digits::Digits;

use crate::call;
use crate::device::PyDevice;
use crate::tensor::{Output, PyTensor, extract_tensor};

/// Examples that can be had by index, and the epoch that they are read for, if they depend on it.
#[pyclass(name = "_Dataset", module = "remat._remat", frozen)]
pub(crate) struct NativeDataset {
    examples: Examples,
    epoch: Option<Arc<AtomicU64>>,
}

enum Examples {
    Digits(Digits),
    Tensors(TensorDataset),
}

impl NativeDataset {
    fn dataset(&self) -> &dyn Dataset {
        match &self.examples {
            Examples::Digits(d) => d,
            Examples::Tensors(t) => t,
        }
    }
}

/// Rows of tensors with one first extent; copied to the host. Errors: ShapeError for first extents that differ.
#[pyfunction]
pub(crate) fn tensor_dataset(py: Python<'_>, parts: Vec<Bound<'_, PyAny>>) -> PyResult<NativeDataset> {
    let not = || PyTypeError::new_err("the parts of a dataset are tensors");
    let parts = parts.iter().map(|p| extract_tensor(p)?.ok_or_else(not)).collect::<PyResult<Vec<_>>>()?;
    let data = call::run(py, move || {
        TensorDataset::new(parts.iter().map(remat::Tensor::to_host).collect::<remat::Result<Vec<HostTensor>>>()?)
    })?;
    Ok(NativeDataset { examples: Examples::Tensors(data), epoch: None })
}

/// The digits that ship with the library: those for training, shifted anew in each epoch if `is_shifted`, or those for tests.
#[pyfunction]
pub(crate) fn digits(py: Python<'_>, is_train: bool, is_shifted: bool) -> PyResult<NativeDataset> {
    let (train, test) = call::run(py, remat_digits::load)?;
    let part = if is_train { train } else { test };
    let (examples, epoch) = match is_shifted {
        true => {
            let (shifted, epoch) = part.shifted();
            (shifted, Some(epoch))
        }
        false => (part, None),
    };
    Ok(NativeDataset { examples: Examples::Digits(examples), epoch })
}

#[pymethods]
impl NativeDataset {
    fn __len__(&self) -> usize {
        self.dataset().len()
    }

    /// The examples at these indices, put together, on a device.
    fn batch(&self, py: Python<'_>, at: Vec<usize>, device: &Bound<'_, PyDevice>) -> PyResult<Vec<Py<PyAny>>> {
        let device = device.get().0.clone();
        let parts = call::run(py, || {
            let host = self.dataset().batch(&at)?;
            host.iter().map(|h| remat::Tensor::from_host(&device, h)).collect::<remat::Result<Vec<_>>>()
        })?;
        parts.into_iter().map(|t| t.object(py)).collect()
    }
}

/// Batches of a dataset, epoch after epoch.
#[pyclass(name = "_Loader", module = "remat._remat", frozen)]
pub(crate) struct Loader {
    of: Mutex<DataLoader>,
    epoch: Option<Arc<AtomicU64>>,
}

impl Loader {
    fn lock(&self) -> MutexGuard<'_, DataLoader> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Loader {
    #[new]
    fn new(
        py: Python<'_>,
        dataset: &Bound<'_, NativeDataset>,
        device: &Bound<'_, PyDevice>,
        batch_size: usize,
        shuffle: Option<u64>,
        drop_last: bool,
        workers: usize,
        prefetch: usize,
    ) -> PyResult<Self> {
        let options = LoaderOptions { batch_size, shuffle, drop_last, workers, prefetch, ..LoaderOptions::default() };
        let (device, data) = (device.get().0.clone(), dataset.get());
        let of = call::run(py, || match &data.examples {
            Examples::Digits(d) => DataLoader::new(&device, d.clone(), options),
            Examples::Tensors(t) => DataLoader::new(&device, t.clone(), options),
        })?;
        Ok(Loader { of: Mutex::new(of), epoch: data.epoch.clone() })
    }

    /// Batches of an epoch.
    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().batches())
    }

    /// The next batch, or None once at the end of each epoch.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<Vec<Py<PyTensor>>>> {
        let batch = call::run(py, || {
            let mut of = self.lock();
            let at = of.position();
            if let Some(epoch) = self.epoch.as_ref().filter(|_| at.batch == 0) {
                // before the first batch: the loader's threads live for one epoch
                epoch.store(at.epoch, Ordering::Relaxed);
            }
            of.next_batch()
        })?;
        batch.map(|b| b.into_iter().map(|t| Py::new(py, PyTensor::plain(t))).collect()).transpose()
    }

    /// Epoch and batch that come next.
    fn position(&self, py: Python<'_>) -> (u64, usize) {
        let at = py.detach(|| self.lock().position());
        (at.epoch, at.batch)
    }

    /// Goes on from there. Errors: ValueError for a batch past the end of an epoch.
    fn set_position(&self, py: Python<'_>, epoch: u64, batch: usize) -> PyResult<()> {
        if let Some(shared) = &self.epoch {
            shared.store(epoch, Ordering::Relaxed);
        }
        call::run(py, || self.lock().set_position(LoaderPosition { epoch, batch }))
    }
}
