//! Sources of kernels in the subset of C++ that NVRTC compiles without headers.

pub mod elementwise;
pub mod expression;

/// Conversions and exact arithmetic that generated sources use.
pub const PRELUDE: &str = include_str!("prelude.cuh");
