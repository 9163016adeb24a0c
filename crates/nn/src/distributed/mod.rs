//! Training on several ranks: processes over MPI, or threads of one process.
//!
//! Every rank runs the same program on its part of the data, on a device that was opened with
//! [`DeviceOptions::ranks`](remat_runtime::DeviceOptions::ranks): so the updates of a step are made on all ranks or on none.

mod data_parallel;
mod sharded;
mod sync_batch_norm;

pub use data_parallel::{DataParallel, DataParallelOptions};
#[cfg(feature = "mpi")]
pub use remat_tensor::comm::mpi;
pub use remat_tensor::comm::{Call, Communicator, DEFAULT_LIMIT, Reduction, Statistics, launched, threads};
pub use sharded::Sharded;
pub use sync_batch_norm::{SyncBatchNorm, synchronise_batch_norms};
