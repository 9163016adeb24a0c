//! Optimiser updates: fused, in place where the runtime gives them the parameter's storage.

mod adamw;
mod sgd;

pub use adamw::AdamWUpdate;
pub use sgd::SgdUpdate;

use remat_types::{DType, Fact, Result};

use crate::In;
use crate::args::{want_dtype, want_shape};

/// Errors (DType, Shape) unless `f` is a rank-0 f32.
fn want_rate(f: &Fact) -> Result<()> {
    want_dtype(f, DType::F32, "the learning rate")?;
    want_shape(f, &[], "the learning rate")
}

fn rate(x: &In<'_>) -> Result<f64> {
    Ok(f64::from(x.slice::<f32>()?[0]))
}
