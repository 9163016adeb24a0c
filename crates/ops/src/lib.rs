//! Every operator of Remat, one file each, and the parts derived from them: inference, evaluation, gradients, the
//! registry, and the harness that tests them all.
//!
//! An op is a plain struct that implements [`Op`] and [`OpDef`]. Nothing else in the workspace knows an op by name.
#![forbid(unsafe_code)]

// what derives write names this crate from within it, too
extern crate self as remat_ops;

mod apply;
mod args;
mod backward;
mod eval;
mod host;
mod op;
mod registry;
mod sample;
pub mod schema;

pub mod activation;
pub mod attention;
pub mod collective;
pub mod compose;
pub mod conv;
pub mod cpu;
pub mod factor;
pub mod index;
pub mod linalg;
pub mod loss;
pub mod norm;
pub mod optim;
pub mod order;
pub mod pointwise;
pub mod pooling;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod shape;
pub mod spectral;
#[cfg(feature = "samples")]
pub mod testing;
pub mod trees;
pub mod vision;

pub use apply::Apply;
pub use backward::{Backward, BackwardCache, BackwardKey, Fragment, GradBuilder, GradCx, Grads, Node, SaveMask, Var};
pub use eval::{EvalCx, In, Out};
pub use host::{eval_inline, eval_on_host, fold};
pub use op::{Class, Cost, DynIdentity, Entry, LayoutReq, Op, OpDef, OpRef, WeightChannels};
pub use registry::{Family, Registry, families};
pub use sample::{Expect, GradCheck, Sample, Tolerance};
