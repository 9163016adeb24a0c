//! Remat: a deep-learning framework in which a memory budget is a contract.
#![forbid(unsafe_code)]

pub use remat_nn as nn;
pub use remat_ops as ops;
pub use remat_runtime as runtime;
pub use remat_tensor as tensor;
pub use remat_types as types;
