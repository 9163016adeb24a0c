//! ONNX models as functions of tensors.
//!
//! A [`Model`] is a file that was read and checked; a [`Network`] is a model with its weights on a device. Running one calls the
//! methods of [`Tensor`](remat_tensor::Tensor), so a model runs eagerly, under a memory budget, compiled
//! ([`compile`](remat_tensor::compile) traces [`Network::call`]) and differentiates, with the bits of the same program written in Rust.
//!
//! An operator is a row of a table: domain, name, the version since when the rule holds, and the rule, a function. Sizes are
//! numbers on the host: what the graph computes from shapes is folded, so that a compiled model has none of it.
//!
//! A file from outside may say anything. Loading one gives errors, never a panic, and allocates nothing on the word of a size that
//! was not compared with the bytes that are there.
#![forbid(unsafe_code)]

mod attribute;
mod data;
mod graph;
mod model;
mod network;
mod node;
mod proto;
mod rules;
mod tensor;
mod value;

pub use model::{Model, Port, Unsupported, ValueType};
pub use network::Network;
pub use tensor::read_tensor;
pub use value::{Text, Value};

#[cfg(test)]
mod tests;
