//! Remat's vocabulary: dtypes, shapes, layouts, facts, host tensors and the one error type.
//!
//! Nothing here owns a device, a thread or an allocation policy; every other crate speaks in these words.
#![forbid(unsafe_code)]

mod byte_size;
pub mod context;
mod dtype;
mod error;
mod fact;
mod files;
mod host;
mod layout;
mod npy;
mod padding;
mod print;
mod promote;
mod shape;
mod tensors_file;

pub use byte_size::ByteSize;
pub use context::{CallSite, Callback, Scope, intern};
pub use dtype::{DType, Element, Float, Scalar, Storage};
pub use error::{BudgetShortfall, Error, ErrorKind, PinnedBytes, Result};
pub use fact::{Fact, Facts, VALUE_MAX_ELEMS};
pub use files::{open_file, read_file};
pub use half::{bf16, f16};
pub use host::{HostTensor, SharedBytes, vec_for};
pub use layout::{Layout, LayoutIndices};
pub use npy::{npz_limit_bytes, read_npy, read_npz, read_npz_within, write_npy, write_npz};
pub use padding::Padding;
pub use promote::promote;
pub use shape::{Shape, axes_of, axis_of};
pub use smallvec::{SmallVec, smallvec};
pub use tensors_file::{TensorsFile, TensorsReader, read_safetensors, safetensors_dtype, write_safetensors};
