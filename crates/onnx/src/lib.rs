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
//! The walk over a graph is that of [`remat_import`], for every format. This crate has the format: messages, a reader that makes a
//! [`ForeignModel`](remat_import::ForeignModel) of them, schemas, a table with a row for each operator, and the export.
//!
//! A file from outside may say anything. Loading one gives errors, never a panic, and allocates nothing on the word of a size that
//! was not compared with the bytes that are there.
#![forbid(unsafe_code)]

mod data;
pub mod export;
mod model;
mod proto;
mod read;
mod rules;
mod schema;
mod tensor;

pub use data::read_value;
pub use model::Model;
pub use remat_import::{Extent, Labels, Network, Port, Text, Trace, Unsupported, Value, ValueType};
pub use tensor::read_tensor;

#[cfg(test)]
mod tests;

/// The page of the book, whose example is a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/onnx.md")]
struct Page;
