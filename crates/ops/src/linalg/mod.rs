//! Products of matrices.

mod matmul;

pub use matmul::MatMul;
