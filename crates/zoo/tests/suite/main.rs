//! The crate as its users see it; one binary, so that it links once.

mod budgets;
mod model_bits;
mod model_table;
mod models;
mod published;
#[allow(dead_code, reason = "the tests of layers use the rest")]
#[path = "../../../nn/tests/suite/support.rs"]
mod support;
mod torch;
mod weights;
