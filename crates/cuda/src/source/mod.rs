//! Sources of kernels in the subset of C++ that NVRTC compiles without headers.

pub mod expression;

pub use expression::{c_type, cast};

/// Conversions and exact arithmetic that generated sources use.
pub const PRELUDE: &str = include_str!("prelude.cuh");
