//! Products of matrices.

mod matmul;
mod wide;

pub use matmul::MatMul;
pub use wide::MatMulWide;
