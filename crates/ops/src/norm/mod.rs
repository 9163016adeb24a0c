//! Normalisation over a batch or over the last axes.

mod batch_norm;
mod layer_norm;
mod rms_norm;

pub use batch_norm::{BatchNorm, BatchNormGrad, BatchNormInfer};
pub use layer_norm::{LayerNorm, LayerNormGrad};
pub use rms_norm::{RmsNorm, RmsNormGrad};

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] =
    entries![BatchNorm, BatchNormGrad, BatchNormInfer, LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad];
