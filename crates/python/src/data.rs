//! Datasets, and loaders that prepare batches beside the steps, within the budget.
//!
//! The loader's threads call a dataset that is written in Python, and take the interpreter's lock for that. So nobody
//! may wait for these threads while holding the lock: every call that may end them runs without it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use remat::nn::{DataLoader, Dataset, LoaderOptions, LoaderPosition, TensorDataset};
use remat::runtime::HostReservation;
use remat::types::Callback;
use remat::{Error, ErrorKind, HostTensor, Shape};
use remat_digits::Digits;

use crate::device::PyDevice;
use crate::error::{self, or_raise};
use crate::tensor::{Output, PyTensor, extract_tensor};
use crate::{call, convert, dtype};

/// Examples that are read by index, and the epoch for which they are read, if they depend on it.
#[pyclass(name = "_Dataset", module = "remat._remat", frozen)]
pub(crate) struct NativeDataset {
    examples: Examples,
    epoch: Option<Arc<AtomicU64>>,
}

enum Examples {
    Digits(Digits),
    Tensors(TensorDataset),
    Called(Called),
}

/// Examples that Python makes: `of.batch(indices)` returns the parts of a batch, and `of.begin(epoch)` is called before
/// an epoch.
#[derive(Clone)]
struct Called {
    of: Arc<Py<PyAny>>,
    len: usize,
}

/// A part of a batch: the bytes of elements with shape and dtype, or nested lists of numbers.
fn part(x: &Bound<'_, PyAny>) -> PyResult<HostTensor> {
    match x.extract::<(Bound<'_, PyBytes>, Vec<usize>, String)>() {
        Ok((bytes, shape, of)) => {
            let host = HostTensor::from_bytes(dtype::of_name(&of)?, Shape::from(shape.as_slice()), bytes.as_bytes());
            or_raise(x.py(), host)
        }
        Err(_) => convert::from_nested(x, None),
    }
}

fn parts(all: &Bound<'_, PyAny>) -> PyResult<Vec<HostTensor>> {
    all.try_iter()?.map(|p| part(&p?)).collect()
}

impl Called {
    fn call<T>(&self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> remat::Result<T> {
        let _callback = Callback::enter();
        let done = Python::try_attach(|py| f(self.of.bind(py)).map_err(|e| error::carried(py, e)));
        done.unwrap_or_else(|| Err(Error::new(ErrorKind::Closed, "the interpreter ends")))
    }

    fn begin(&self, epoch: u64) -> remat::Result<()> {
        self.call(|of| of.call_method1("begin", (epoch,)).map(drop))
    }
}

impl Dataset for Called {
    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, indices: &[usize]) -> remat::Result<Vec<HostTensor>> {
        self.call(|of| parts(&of.call_method1("batch", (indices.to_vec(),))?))
    }
}

/// `len` examples that a Python object makes.
#[pyfunction]
pub(crate) fn called_dataset(of: Py<PyAny>, len: usize) -> NativeDataset {
    NativeDataset { examples: Examples::Called(Called { of: Arc::new(of), len }), epoch: None }
}

/// Puts the parts of a batch on a device. A part is the bytes of elements with shape and dtype, or nested lists.
#[pyfunction]
pub(crate) fn batch_on(of: &Bound<'_, PyAny>, device: &Bound<'_, PyDevice>) -> PyResult<Vec<Py<PyAny>>> {
    let (py, host, device) = (of.py(), parts(of)?, device.get().0.clone());
    let made = call::run(py, move || {
        host.iter().map(|h| remat::Tensor::from_host(&device, h)).collect::<remat::Result<Vec<_>>>()
    })?;
    made.into_iter().map(|t| t.object(py)).collect()
}

/// Host bytes that count against a device's budget. The device takes the room for itself when it has no other.
#[pyclass(name = "_Charge", module = "remat._remat", frozen)]
pub(crate) struct Charge {
    held: Mutex<Option<HostReservation>>,
    has_ended: Arc<AtomicBool>,
}

#[pymethods]
impl Charge {
    /// Errors: BudgetError if there is no room; ClosedError.
    #[new]
    fn new(py: Python<'_>, device: &Bound<'_, PyDevice>, bytes: usize) -> PyResult<Self> {
        let (channel, has_ended) = (device.get().0.channel(), Arc::new(AtomicBool::new(false)));
        let end = has_ended.clone();
        let give_way = Arc::new(move || end.store(true, Ordering::Relaxed));
        let held = call::run(py, move || channel.charge_giving_way(bytes, "prefetched data", give_way))?;
        Ok(Charge { held: Mutex::new(Some(held)), has_ended })
    }

    /// True once the device has taken the room for itself.
    #[getter]
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Gives the room back; a second time does nothing.
    fn release(&self, py: Python<'_>) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(held));
    }
}

impl NativeDataset {
    fn dataset(&self) -> &dyn Dataset {
        match &self.examples {
            Examples::Digits(d) => d,
            Examples::Tensors(t) => t,
            Examples::Called(c) => c,
        }
    }
}

/// Rows of arrays with the same first extent, kept on the host. Arrays are tensors, which are copied, or bytes with
/// shape and dtype. Errors: ShapeError for first extents that differ.
#[pyfunction]
pub(crate) fn tensor_dataset(py: Python<'_>, parts: Vec<Bound<'_, PyAny>>) -> PyResult<NativeDataset> {
    let mut host = Vec::with_capacity(parts.len());
    for p in &parts {
        host.push(match extract_tensor(p)? {
            Some(t) => call::run(py, move || t.to_host())?,
            None => part(p)?,
        });
    }
    let data = call::run(py, move || TensorDataset::new(host))?;
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
    called: Option<Called>,
}

impl Loader {
    fn lock(&self) -> MutexGuard<'_, DataLoader> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the dataset which epoch is read next, if its examples depend on that. The loader's threads live for one
    /// epoch, and do not run during this call.
    fn begin(&self, epoch: u64) -> remat::Result<()> {
        if let Some(shared) = &self.epoch {
            shared.store(epoch, Ordering::Relaxed);
        }
        self.called.as_ref().map_or(Ok(()), |c| c.begin(epoch))
    }

    /// Ends the threads; the position stays. The caller must not hold the interpreter's lock, which the threads may
    /// need.
    fn end(&self) -> remat::Result<()> {
        let mut of = self.lock();
        let at = of.position();
        of.set_position(at)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // no error: the loader accepts its own position; if the interpreter has ended, no thread can be waited for
        let _ = Python::try_attach(|py| py.detach(|| self.end()));
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
            Examples::Called(c) => DataLoader::new(&device, c.clone(), options),
        })?;
        let called = match &data.examples {
            Examples::Called(c) => Some(c.clone()),
            Examples::Digits(_) | Examples::Tensors(_) => None,
        };
        Ok(Loader { of: Mutex::new(of), epoch: data.epoch.clone(), called })
    }

    /// The number of batches in an epoch.
    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().batches())
    }

    /// The next batch, or None once at the end of each epoch.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<Vec<Py<PyTensor>>>> {
        let batch = call::run(py, || {
            let mut of = self.lock();
            let at = of.position();
            if at.batch == 0 {
                self.begin(at.epoch)?;
            }
            of.next_batch()
        })?;
        batch.map(|b| b.into_iter().map(|t| Py::new(py, PyTensor::plain(t))).collect()).transpose()
    }

    /// Waits until every batch that may be prepared ahead in this epoch is ready.
    fn wait_for_prefetch(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.lock().wait_for_prefetch())
    }

    /// The epoch and the batch that come next.
    fn position(&self, py: Python<'_>) -> (u64, usize) {
        let at = py.detach(|| self.lock().position());
        (at.epoch, at.batch)
    }

    /// Goes on from this epoch and batch. Errors: ValueError for a batch past the end of an epoch.
    fn set_position(&self, py: Python<'_>, epoch: u64, batch: usize) -> PyResult<()> {
        call::run(py, || {
            self.lock().set_position(LoaderPosition { epoch, batch })?;
            self.begin(epoch)
        })
    }

    /// Ends the threads that prepare batches, once each has finished its present batch. The next batch starts them
    /// anew.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.end())
    }
}
