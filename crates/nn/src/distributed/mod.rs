//! Training on several ranks: processes over MPI, or threads of one process.
//!
//! Every rank runs the same program on its part of the data, on a device that was opened with
//! [`DeviceOptions::ranks`](remat_runtime::DeviceOptions::ranks): so the updates of a step are made on all ranks or on none.

mod alike;
mod conjugate;
mod data_parallel;
mod fully_sharded;
mod gradients;
mod no_sync;
mod parallel_attention;
mod parallel_linear;
mod pipeline;
mod pipeline_schedule;
mod sharded;
mod sync_batch_norm;
mod whole_state;

pub use crate::divided::Divided;
pub use conjugate::{enter_parallel, gather_parts, leave_parallel, take_part};
pub use data_parallel::{DataParallel, DataParallelOptions};
pub use fully_sharded::FullySharded;
pub use gradients::Gradients;
pub use no_sync::NoSync;
pub use parallel_attention::ParallelAttention;
pub use parallel_linear::{ColumnParallelLinear, ColumnParallelOptions, RowParallelLinear, RowParallelOptions};
pub use pipeline::Pipeline;
pub use pipeline_schedule::PipelineSchedule;
#[cfg(feature = "mpi")]
pub use remat_mpi as mpi;
pub use remat_tensor::comm::{Call, Communicator, DEFAULT_LIMIT, Reduction, Statistics, launched, threads};
pub use sharded::Sharded;
pub use sync_batch_norm::{SyncBatchNorm, synchronise_batch_norms};
pub use whole_state::{load_whole_state_dict, whole_state_dict};
