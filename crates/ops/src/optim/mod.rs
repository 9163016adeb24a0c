//! Optimiser updates: fused, in place where the runtime gives them the parameter's storage.

mod adadelta;
mod adafactor;
mod adagrad;
mod adamax;
mod adamw;
mod lamb;
mod lion;
mod nadam;
mod radam;
mod rmsprop;
mod rows;
mod rule;
mod sgd;

pub use adadelta::AdadeltaUpdate;
pub use adafactor::{AdafactorUpdate, adafactor_shapes};
pub use adagrad::AdagradUpdate;
pub use adamax::AdamaxUpdate;
pub use adamw::AdamWUpdate;
pub use lamb::LambUpdate;
pub use lion::LionUpdate;
pub use nadam::NAdamUpdate;
pub use radam::RAdamUpdate;
pub use rmsprop::RmsPropUpdate;
pub use rows::{SgdRowsUpdate, SparseAdamUpdate};
pub use sgd::SgdUpdate;

use remat_types::{DType, Fact, Result};

use crate::In;
use crate::args::{want_dtype, want_shape};
use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![
    AdadeltaUpdate,
    AdafactorUpdate,
    AdagradUpdate,
    AdamWUpdate,
    AdamaxUpdate,
    LambUpdate,
    LionUpdate,
    NAdamUpdate,
    RAdamUpdate,
    RmsPropUpdate,
    SgdRowsUpdate,
    SgdUpdate,
    SparseAdamUpdate,
];

/// Errors (DType, Shape) unless `f` is a rank-0 f32, or f64 for a parameter of f64, whose steps an f32 would round.
fn want_rate(f: &Fact, param: &Fact) -> Result<()> {
    if !(f.dtype == DType::F64 && param.dtype == DType::F64) {
        want_dtype(f, DType::F32, "the learning rate")?;
    }
    want_shape(f, &[], "the learning rate")
}

fn rate(x: &In<'_>) -> Result<f64> {
    if x.dtype() == DType::F64 {
        return Ok(x.slice::<f64>()?[0]);
    }
    Ok(f64::from(x.slice::<f32>()?[0]))
}
