//! Ranks: processes that an MPI launcher started, or threads of this process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use remat::nn::distributed::{
    Communicator, DataParallel, DataParallelOptions, Gradients, NoSync, Reduction, launched, synchronise_batch_norms,
    threads,
};
use remat::runtime::interrupt;
use remat::{Error, ErrorKind};

use crate::call;
#[cfg(feature = "mpi")]
use crate::communicator::DEVICES;
use crate::communicator::PyCommunicator;
use crate::exit::keep_at_exit;
use crate::nn::State;
use crate::ops::{Args, Row};
use crate::tensor::extract_tensor;

/// Ends MPI, if it runs. The interpreter ends, and groups that modules still hold are never dropped.
#[pyfunction]
pub(crate) fn end_mpi() {
    #[cfg(feature = "mpi")]
    remat::nn::distributed::mpi::end();
}

/// The rank of this process and the number of ranks, from the environment that an MPI launcher sets.
#[pyfunction]
pub(crate) fn launched_ranks(py: Python<'_>) -> PyResult<Option<(usize, usize)>> {
    call::run(py, launched)
}

/// True if this build supports ranks that are processes.
#[pyfunction]
pub(crate) fn has_mpi() -> bool {
    cfg!(feature = "mpi")
}

fn seconds(limit: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(limit)
        .map_err(|_| PyValueError::new_err(format!("limit is {limit}, must be seconds of at least 0")))
}

/// An exception on a rank as an error of the library. Its kind says whether this rank or a peer failed, which decides
/// which of several errors is reported.
fn of_rank(py: Python<'_>, e: &PyErr) -> Error {
    let value = e.value(py);
    let is_peer = value.getattr("kind").and_then(|k| k.extract::<String>()).is_ok_and(|k| k == "peer");
    let text = value.str().map_or_else(|_| e.to_string(), |s| s.to_string());
    Error::new(if is_peer { ErrorKind::Peer } else { ErrorKind::Value }, text)
}

/// Calls `f` once for each of `size` ranks, each on a thread of its own. Returns the results in order. Errors: that of
/// the first rank that failed by itself.
#[pyfunction]
pub(crate) fn run_threads(py: Python<'_>, f: Py<PyAny>, size: usize, limit: f64) -> PyResult<Vec<Py<PyAny>>> {
    let limit = seconds(limit)?;
    let raised: Mutex<BTreeMap<(bool, usize), PyErr>> = Mutex::default();
    let note = |ranks: Communicator| {
        let rank = ranks.rank();
        call::attached(|py| {
            let failed = |e: PyErr| {
                let told = of_rank(py, &e);
                let place = (told.kind() == ErrorKind::Peer, rank);
                raised.lock().unwrap_or_else(PoisonError::into_inner).insert(place, e);
                told
            };
            let y = f.bind(py).call1((PyCommunicator(ranks),));
            y.map(Bound::unbind).map_err(failed)
        })
    };
    let mut is_to_end = false;
    let ask = || interrupt::ask().inspect_err(|_| is_to_end = true);
    let done = call::run(py, || threads::run_watched(size, limit, ask, note));
    if is_to_end {
        return done;
    }
    let first = raised.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().next();
    match (done, first) {
        (Err(_), Some(((_, rank), e))) => {
            // notes the rank; an exception that takes no attributes goes without it
            let _ = e.value(py).setattr("rank", rank);
            Err(e)
        }
        (done, _) => done,
    }
}

/// Calls `f` in all processes that the launcher started. If it raises, prints the exception, and ends all processes.
#[cfg(feature = "mpi")]
#[pyfunction]
pub(crate) fn run_mpi(py: Python<'_>, f: Py<PyAny>, limit: f64) -> PyResult<Py<PyAny>> {
    use remat::nn::distributed::mpi;
    let limit = seconds(limit)?;
    let main = |ranks: Communicator| {
        // a group dropped after MPI has ended would end it a second time; see `end_mpi`
        std::mem::forget(ranks.clone());
        let group = ranks.clone();
        DEVICES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
        let y = call::attached(|py| {
            let y = f.bind(py).call1((PyCommunicator(ranks),));
            y.map(Bound::unbind).map_err(|e| {
                let told = of_rank(py, &e);
                e.print(py);
                told
            })
        })?;
        // queued work calls MPI, which may end after this; a closed device has no queued work
        for device in DEVICES.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default() {
            device.channel().sync().or_else(|e| if e.kind() == ErrorKind::Closed { Ok(()) } else { Err(e) })?;
        }
        group.end()?;
        Ok(y)
    };
    call::run(py, || mpi::run(limit, |_| 1, main))
}

/// The stand-in for a build without MPI: its error says how to get one.
#[cfg(not(feature = "mpi"))]
#[pyfunction]
pub(crate) fn run_mpi(py: Python<'_>, f: Py<PyAny>, limit: f64) -> PyResult<Py<PyAny>> {
    let (_, _) = (f, seconds(limit)?);
    call::run(py, || {
        let text = "this build of remat has no MPI: build it with `MATURIN_PEP517_ARGS=\"--features mpi\" pip install ./python`, on a \
                    machine with an MPI library, or give `ranks` threads to `remat.distributed.run_threads`";
        Err(Error::new(ErrorKind::Device, text))
    })
}

/// The second argument of every collective, a group.
fn group(a: &Args<'_, '_>) -> PyResult<Communicator> {
    let x = a.any(1)?;
    let not = |_| PyTypeError::new_err("the group is a remat.distributed.Communicator");
    Ok(x.cast::<PyCommunicator>().map_err(not)?.get().0.clone())
}

fn reduction(a: &Args<'_, '_>, i: usize) -> PyResult<Reduction> {
    const ALL: [(&str, Reduction); 5] = [
        ("sum", Reduction::Sum),
        ("mean", Reduction::Mean),
        ("max", Reduction::Max),
        ("min", Reduction::Min),
        ("prod", Reduction::Product),
    ];
    let name: String = a.get(i)?;
    let names = || ALL.map(|(n, _)| n).join(", ");
    let found = ALL.iter().find(|(n, _)| *n == name).map(|(_, r)| *r);
    found.ok_or_else(|| PyValueError::new_err(format!("`{name}` is none of {}", names())))
}

const COLLECTIVES: &[Row] = &[
    ("all_reduce", |a| {
        let (x, group, op) = (a.tensor(0)?, group(a)?, reduction(a, 2)?);
        a.run(move || x.all_reduce(op, &group))
    }),
    ("all_gather", |a| {
        let (x, group, axis) = (a.tensor(0)?, group(a)?, a.get(2)?);
        a.run(move || x.all_gather(axis, &group))
    }),
    ("reduce_scatter", |a| {
        let (x, group, op, axis) = (a.tensor(0)?, group(a)?, reduction(a, 2)?, a.get(3)?);
        a.run(move || x.reduce_scatter(op, axis, &group))
    }),
    ("broadcast", |a| {
        let (x, group, root) = (a.tensor(0)?, group(a)?, a.get(2)?);
        a.run(move || x.broadcast_from(root, &group))
    }),
    ("reduce", |a| {
        let (x, group, root, op) = (a.tensor(0)?, group(a)?, a.get(2)?, reduction(a, 3)?);
        a.run(move || x.reduce_to(root, op, &group))
    }),
    ("gather", |a| {
        let (x, group, root, axis) = (a.tensor(0)?, group(a)?, a.get(2)?, a.get(3)?);
        a.run(move || x.gather_to(root, axis, &group))
    }),
    ("scatter", |a| {
        let (x, group, root) = (a.tensor(0)?, group(a)?, a.get(2)?);
        let (extent, axis) = (a.get(3)?, a.get(4)?);
        a.run(move || x.scatter_from(root, extent, axis, &group))
    }),
    ("all_to_all", |a| {
        let (x, group, split, concat) = (a.tensor(0)?, group(a)?, a.get(2)?, a.get(3)?);
        a.run(move || x.all_to_all(split, concat, &group))
    }),
    ("send", |a| {
        let (x, group, to) = (a.tensor(0)?, group(a)?, a.get(2)?);
        a.run(move || x.send_to(to, &group))
    }),
    ("receive", |a| {
        let (x, group, from, shape) = (a.tensor(0)?, group(a)?, a.get(2)?, a.shape(3)?);
        a.run(move || x.receive_from(from, shape, &group))
    }),
];

/// Runs the collective of that name on a tensor, a group, and its other arguments.
#[pyfunction]
pub(crate) fn collective(name: &str, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let row = COLLECTIVES.iter().find(|row| row.0 == name);
    let none = || PyTypeError::new_err(format!("there is no collective `{name}`"));
    row.ok_or_else(none)?.1(&Args(args))
}

/// Data parallel training of a module; see the Python class.
#[pyclass(name = "_DataParallel", module = "remat._remat", frozen)]
pub(crate) struct NativeDataParallel(DataParallel, Mutex<Vec<NoSync>>);

impl Drop for NativeDataParallel {
    fn drop(&mut self) {
        keep_at_exit(|| self.0.group().clone());
    }
}

#[pymethods]
impl NativeDataParallel {
    #[new]
    fn new(
        py: Python<'_>,
        module: &Bound<'_, State>,
        group: &Bound<'_, PyCommunicator>,
        bucket_bytes: Option<usize>,
        find_unused: bool,
        divided: bool,
    ) -> PyResult<Self> {
        let mut options = DataParallelOptions { find_unused, ..DataParallelOptions::default() };
        options.bucket_bytes = bucket_bytes.unwrap_or(options.bucket_bytes);
        if divided {
            options.gradients = Gradients::Divided;
        }
        let (module, group) = (module.get(), group.get());
        call::run(py, || DataParallel::new(module, &group.0, options))
            .map(|of| NativeDataParallel(of, Mutex::default()))
    }

    fn backward(&self, loss: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = loss.py();
        let loss = extract_tensor(loss)?.ok_or_else(|| PyTypeError::new_err("the loss is a tensor"))?;
        call::run(py, || self.0.backward(&loss))
    }

    /// From now on passes are not averaged over ranks, until `end_no_sync` was called as often as this.
    fn begin_no_sync(&self) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(self.0.no_sync());
    }

    fn end_no_sync(&self) {
        drop(self.1.lock().unwrap_or_else(PoisonError::into_inner).pop());
    }

    fn broadcast_parameters(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.0.broadcast_parameters())
    }

    fn broadcast_buffers(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.0.broadcast_buffers())
    }

    /// The number of buckets for gradients.
    #[getter]
    fn buckets(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.buckets())
    }
}

/// Makes the batch norms of a module compute statistics over the batches of all ranks, or over their own rank's again.
/// Returns the number of batch norms.
#[pyfunction]
pub(crate) fn set_norm_ranks(module: &Bound<'_, State>, group: Option<&Bound<'_, PyCommunicator>>) -> usize {
    synchronise_batch_norms(module.get(), group.map(|g| &g.get().0))
}
