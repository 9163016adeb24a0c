//! Deployment: a model from a file, run within a memory budget.
//!
//! A [`Network`] is a model that was read; a [`Session`] is the network for one set of input shapes, bound to memory of its own. All
//! sessions of a network share one copy of its weights.
//!
//! ```no_run
//! use remat_lite::{Network, Options, Shapes};
//! # fn main() -> remat_types::Result<()> {
//! let options = Options { memory_budget: Some(64 << 20), ..Options::default() };
//! let network = Network::open("resnet18.onnx", options)?;
//! let mut session = network.session(&Shapes::new().extent("batch", 1))?;
//! session.input_as_mut::<f32>("x")?.fill(0.5);
//! session.run()?;
//! println!("{:?}", session.output("y")?.as_slice::<f32>()?);
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//!
//! The budget holds for a session with the weights that it reads: weights, inputs, outputs and workspace. What does not fit is
//! computed again, with the same bits; a budget that no order of calls keeps to is an error with figures, before anything runs.
//! Reading the file and planning take memory besides, until the session is there. A network of [`Network::from_bytes`] or
//! [`Network::from_reader`] whose shapes are open keeps the file's bytes, for sessions of other shapes.
#![deny(unsafe_code)]

mod affinity;
pub mod c;
mod eager;
mod form;
mod model;
mod network;
mod optimize;
mod options;
mod plan;
mod session;
mod shapes;

pub use bytes::Bytes;
pub use model::{About, is_graph_file};
pub use network::Network;
pub use optimize::optimize;
pub use options::Options;
pub use plan::Memory;
pub use remat_graph::ir::symbolic::Dim;
pub use remat_graph::ir::{GraphFile, GraphForm, Key};
pub use remat_onnx::{Extent, Port, Unsupported, ValueType};
pub use remat_runtime::RunResult;
pub use remat_types::{Error, ErrorKind, HostTensor, Result};
pub use session::Session;
pub use shapes::Shapes;
