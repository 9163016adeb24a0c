//! Products of matrices.

mod matmul;
mod wide;

pub use matmul::MatMul;
pub(crate) use matmul::{Matrices, Sizes, for_gemm};
pub use wide::MatMulWide;
