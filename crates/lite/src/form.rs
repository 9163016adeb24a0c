//! The program of a network for one set of input types.

use std::sync::Arc;

use remat_onnx::Port;
use remat_types::Fact;

use crate::eager::Eager;
use crate::plan::Plan;

/// A network for one set of input types.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) inputs: Arc<[Port]>,
    /// Of inputs that are tensors.
    pub(crate) facts: Arc<[Option<Fact>]>,
    pub(crate) outputs: Arc<[String]>,
    pub(crate) program: Program,
}

/// The program that runs.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// One graph, planned ahead.
    Compiled(Plan),
    /// A function of tensors: sizes follow from values, or an output is no tensor.
    Eager(Arc<Eager>),
}
