//! The tensor's methods: thin, fallible fronts of the ops, grouped as users look for them.
//!
//! Names are those of PyTorch, or of NumPy where they differ and say it better. Every method is a call of one op or a short
//! composition, so gradients and recomputation follow by themselves.

mod attention;
mod conv;
mod conv_transpose;
mod create;
mod device;
mod grad;
mod index;
mod join;
mod linalg;
mod nn;
mod operators;
mod order;
mod pointwise;
mod reduce;
mod scatter;
mod select;
mod sets;
mod shape;
mod span;
mod tables;

pub use attention::Attend;
pub use operators::Settle;
pub use pointwise::IntoOperand;
pub use span::Span;
