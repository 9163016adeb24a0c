//! Models of foreign formats as functions of tensors: all that does not depend on the format.
//!
//! A format is two things. Its reader makes a [`ForeignModel`] of a file: graphs by names, with constants, attributes and functions,
//! nothing resolved. Its table, [`Rules`], has a row for each operator: domain, name, the version since when the rule holds, and the
//! rule, a function of a [`Cx`]. [`Model::new`] takes both. It resolves names, finds rules, writes out the calls of functions, and
//! says which nodes have no rule. A [`Network`] is a model with its constants on a device, and runs; a [`Trace`] is a model as one
//! graph. What nodes compute from shapes alone is folded, so that a compiled model has none of it. An error names the node.
//!
//! ```
//! use remat_import::{
//!     Cx, Extent, ForeignGraph, ForeignModel, ForeignNode, ForeignPort, Model, Row, Rules, Value, ValueType, one,
//! };
//! use remat_tensor::Tensor;
//! use remat_types::{DType, Result};
//!
//! fn relu(c: &Cx<'_>) -> Result<Vec<Value>> {
//!     one(c.x(0)?.relu()?)
//! }
//!
//! const ROWS: &[Row] = &[Row { domain: "", op: "relu", since: 0, rule: relu, folds: true }];
//!
//! # fn main() -> Result<()> {
//! let ty = ValueType::Tensor(Some(DType::F32), Some(vec![Extent::Named("n".into())]));
//! let port = |name: &str| ForeignPort { name: name.into(), ty: ty.clone(), narrow: None };
//! let node = ForeignNode { op: "relu".into(), inputs: vec!["x".into()], outputs: vec!["y".into()], ..Default::default() };
//! let graph = ForeignGraph { inputs: vec![port("x")], nodes: vec![node], outputs: vec![port("y")], ..Default::default() };
//! let model = Model::new(ForeignModel { graph, ..Default::default() }, &Rules::new(&[ROWS]))?;
//!
//! let device = remat_runtime::Device::cpu(Default::default())?;
//! let y = model.on(&device)?.call(&[Tensor::new(&device, &[-1f32, 2.0], [2])?])?;
//! assert_eq!(y[0].to_vec::<f32>()?, [0.0, 2.0]);
//! # Ok(())
//! # }
//! ```
//!
//! A file from outside may say anything. [`Model::new`] gives errors, never a panic, and bounds what functions may become.
#![forbid(unsafe_code)]

mod build;
mod foreign;
mod graph;
mod literal;
mod model;
mod narrow;
mod network;
mod table;
mod trace;
mod uses;
mod value;

pub use foreign::{
    ForeignAttribute, ForeignConstant, ForeignFunction, ForeignGraph, ForeignModel, ForeignNode, ForeignPort,
    FunctionName, Versions,
};
pub use graph::{
    Attribute, Cx, Extent, Graph, Parameter, Row, Rule, Schema, ValueType, axes, one, scalar, shape_error, size,
    value_error,
};
pub use literal::{Held, Literal, Narrow, Place, open_external};
pub use model::{Model, Port, Unsupported};
pub use network::Network;
pub use table::{FindSchema, Rules};
pub use trace::Trace;
pub use value::{KNOWN_MAX_ELEMS, Labels, Text, Value};
