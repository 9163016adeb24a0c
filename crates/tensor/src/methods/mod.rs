//! The tensor's methods: thin, fallible fronts of the ops, grouped as users look for them.

mod create;
mod nn;
mod operators;
mod pointwise;
mod reduce;
mod shape;

pub use pointwise::IntoOperand;
