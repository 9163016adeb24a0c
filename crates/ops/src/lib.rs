//! Every operator of Remat, one file each, and what is derived from them: inference, evaluation, gradients, the
//! registry, and the harness that tests them all.
//!
//! An op is a plain struct that implements [`Op`] and [`OpDef`]. Nothing else in the workspace knows an op by name.
#![forbid(unsafe_code)]

mod apply;
mod args;
mod backward;
mod eval;
mod host;
mod op;
mod registry;
mod sample;

pub mod attention;
pub mod blocked;
pub mod conv;
pub mod index;
pub mod linalg;
pub mod loss;
pub mod norm;
pub mod optim;
pub mod pointwise;
pub mod pooling;
pub mod random;
pub mod reduce;
pub mod shape;
pub mod testing;

pub use apply::Apply;
pub use backward::{Backward, BackwardCache, BackwardKey, Fragment, GradCx, Grads, Node, SaveMask, Var};
pub use eval::{EvalCx, In, Out};
pub use host::{eval_inline, eval_on_host, fold};
pub use op::{Cost, DynIdentity, LayoutReq, Op, OpDef, OpRef};
pub use registry::{Entry, Registry};
pub use sample::{Expect, GradCheck, Sample, Tolerance};
