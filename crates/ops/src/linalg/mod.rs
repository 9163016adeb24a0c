//! Products of matrices.

mod matmul;
mod wide;

pub use matmul::MatMul;
pub(crate) use matmul::{Matrices, Sizes, for_gemm};
pub use wide::MatMulWide;

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![MatMul, MatMulWide];
