//! Every operator of Remat, one file each, and what is derived from them: inference, evaluation, gradients, the
//! registry, and the harness that tests them all.
//!
//! An op is a plain struct that implements [`Op`] and [`OpDef`]. Nothing else in the workspace knows an op by name.
#![forbid(unsafe_code)]

mod apply;
mod backward;
mod eval;
mod host;
mod op;
mod registry;
mod sample;

pub mod index;
pub mod pointwise;
pub mod reduce;
pub mod shape;
pub mod testing;

pub use apply::Apply;
pub use backward::{Backward, BackwardCache, BackwardKey, Fragment, GradCx, Grads, Node, Var};
pub use eval::{EvalCx, In, Out};
pub use host::{eval_on_host, fold};
pub use op::{Cost, DynIdentity, LayoutReq, Op, OpDef, OpRef};
pub use registry::{Entry, Registry};
pub use sample::{Expect, GradCheck, Sample, Tolerance};
