//! Factorisations of the matrices in the last two axes, and solutions by them, in f32 and f64.
//!
//! A matrix without a result is an error of kind Value that names it by its place in the batch. Gradients are written with
//! products, masks and these operators again, so they have gradients of their own.

mod build;
mod cholesky;
mod eigh;
mod pinv;
mod qr;
mod samples;
mod solve;
mod svd;

pub use cholesky::Cholesky;
pub use eigh::Eigh;
pub use pinv::Pinv;
pub use qr::Qr;
pub use solve::{SlogDet, Solve, SolveTriangular};
pub use svd::Svd;

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Cholesky, Eigh, Pinv, Qr, SlogDet, Solve, SolveTriangular, Svd];
