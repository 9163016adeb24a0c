//! The compiled part of the Python package `remat`; `python/remat` is the part that its users see.
//!
//! Computation is bound to the library, not written again: operators are rows of a generated table over the methods of
//! [`remat::Tensor`], and layers and optimisers are those of [`remat::nn`]. Python's conventions that cost no time are
//! written in Python: defaults, second names of arguments, exceptions, the registration of attributes.
//!
//! Invariants: a call that may wait or compute goes through [`call::run`], which notes the Python line that made the
//! call and releases the interpreter's lock. No lock of the library is held while Python code runs.
#![deny(unsafe_code)]

mod autograd;
mod call;
mod communicator;
mod compile;
mod convert;
mod data;
mod device;
mod dlpack;
mod dtype;
mod error;
mod exit;
mod files;
mod find_budget;
mod frame;
mod kernels;
mod models;
mod nn;
mod ops;
mod plan;
mod ranks;
mod tensor;
mod value;

use pyo3::prelude::*;

/// The compiled part of `remat`.
#[pymodule]
mod _remat {
    #[pymodule_export]
    use crate::autograd::{GradMode, custom, custom_begins, grad, is_grad_enabled};
    #[pymodule_export]
    use crate::communicator::PyCommunicator;
    #[pymodule_export]
    use crate::compile::{Compiled, as_result, is_traced, is_tracing, signatures};
    #[pymodule_export]
    use crate::data::{Charge, Loader, NativeDataset, batch_on, called_dataset, digits, tensor_dataset};
    #[pymodule_export]
    use crate::device::{PyDevice, budget_bytes};
    #[pymodule_export]
    use crate::dlpack::from_dlpack;
    #[pymodule_export]
    use crate::dtype::PyDType;
    #[pymodule_export]
    use crate::exit::{close_devices, exiting, failures_of_dropped};
    #[pymodule_export]
    use crate::files::{load_tensors, load_weights, published_names, save_tensors};
    #[pymodule_export]
    use crate::find_budget::{largest_batch, smallest_budget};
    #[pymodule_export]
    use crate::frame::set_library_folder;
    #[pymodule_export]
    use crate::models::{LiteNetwork, LiteSession, OnnxModel, OnnxNetwork, export_graph_file, export_onnx};
    #[pymodule_export]
    use crate::nn::{
        Generator, NativeAccumulate, NativeAverage, NativeCache, NativeCheckpoint, NativeLayer, NativeLbfgs,
        NativeOptimizer, NativePlateau, NativeSchedule, State, checkpoint_is_in, clip_grad_norm, clip_grad_value,
        group_by_name, initial, layer_classes, loss, module_tree, network_configs, prepare_checkpoint, save_checkpoint,
        split_decay, update_batch_norm,
    };
    #[pymodule_export]
    use crate::plan::{plan_check, plan_figures, plan_graph};
    #[pymodule_export]
    use crate::ranks::{
        NativeDataParallel, collective, end_mpi, has_mpi, launched_ranks, run_mpi, run_threads, set_norm_ranks,
    };
    #[pymodule_export]
    use crate::tensor::parameter::PyParameter;
    #[pymodule_export]
    use crate::tensor::{PyGradHook, PyTensor, from_bytes, from_nested, promote_types};

    use pyo3::prelude::*;

    /// Adds the objects that are made together with the module: the table of operators, and the dtypes.
    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::ops::add_to(m)?;
        crate::dtype::add_to(m)
    }
}
