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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpRef, Registry};

    #[test]
    fn updates_that_were_written_before_their_last_options_are_read() {
        let registry = Registry::builtin();
        let read = |text: &str| registry.load(&serde_json::from_str(text).expect("JSON")).expect("of version 1");
        let adam = r#"{"op": "adamw_update", "v": 1, "params": {"beta1": {"float": 0.5}, "beta2": {"float": 0.75},
            "eps": {"float": 0.0}, "weight_decay": {"float": 0.5}, "decoupled": true}}"#;
        let [beta1, beta2, eps, weight_decay] = [0.5, 0.75, 0.0, 0.5].map(Into::into);
        let op = AdamWUpdate { beta1, beta2, eps, weight_decay, decoupled: true, amsgrad: false };
        assert_eq!(read(adam), OpRef::new(op));
        let sgd = r#"{"op": "sgd_update", "v": 1, "params": {"momentum": {"float": 0.5}}}"#;
        let (momentum, none) = (0.5.into(), 0.0.into());
        let op = SgdUpdate { momentum, dampening: none, nesterov: false, weight_decay: none, maximize: false };
        assert_eq!(read(sgd), OpRef::new(op));
    }
}
