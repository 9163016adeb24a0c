//! Checks of the samples of all operators.
//!
//! A target of its own, which other crates name alike: `cargo test --workspace --test samples` has all that a new operator is
//! held to, with the features of `cargo xtask test`, so nothing is compiled twice.

mod harness;
mod serial_forms;
