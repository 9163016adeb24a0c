//! The messages of an ONNX file. `scripts/onnx_proto.py` makes the module `generated` from the standard's `onnx.proto`.
//!
//! Bytes of tensors stay parts of the one buffer that a file was read into; [`prost`] limits the depth of nested messages.

mod generated;
pub(crate) mod outline;

pub(crate) use generated::*;
