//! ONNX models as functions of tensors, and graphs as ONNX models ([`export`]).
//!
//! A [`Model`] is a file that was read and checked; a [`Network`] is a model with its weights on a device. Running one calls the
//! methods of [`Tensor`](remat_tensor::Tensor), so a model runs eagerly, under a memory budget, compiled
//! ([`compile`](remat_tensor::compile) traces [`Network::call`]) and differentiates, with the bits of the same program written in Rust.
//!
//! ```no_run
//! use remat_onnx::Model;
//! use remat_runtime::{Device, DeviceOptions};
//! use remat_tensor::{Tensor, compile};
//! # fn main() -> remat_types::Result<()> {
//! let device = Device::cpu(DeviceOptions::default())?;
//! let network = Model::open("resnet18.onnx")?.on(&device)?;
//! let x = Tensor::zeros(&device, [1, 3, 224, 224], remat_types::DType::F32)?;
//! let mut f = compile(&device, |x: &[Tensor]| network.call(x));
//! let y = f.call(&[&x])?;
//! # Ok(())
//! # }
//! ```
//!
//! An operator is a row of a table: domain, name, the version since when the rule holds, and the rule, a function. Sizes are
//! numbers on the host: what the graph computes from shapes is folded, so that a compiled model has none of it.
//!
//! A file from outside may say anything. Loading one gives errors, never a panic, and allocates nothing on the word of a size that
//! was not compared with the bytes that are there.
#![forbid(unsafe_code)]

mod build;
mod data;
pub mod export;
mod foreign;
mod graph;
mod literal;
mod model;
mod narrow;
mod network;
mod proto;
mod read;
mod rules;
mod schema;
mod table;
mod tensor;
mod trace;
mod uses;
mod value;

pub use graph::{Extent, ValueType};
pub use model::{Model, Port, Unsupported};
pub use network::Network;
pub use tensor::read_tensor;
pub use trace::Trace;
pub use value::{Labels, Text, Value};

#[cfg(test)]
mod tests;

/// The page of the book, whose example is a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/onnx.md")]
struct Page;
