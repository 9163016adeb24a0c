//! Losses that are one op.

mod cross_entropy;
mod ctc;

pub use cross_entropy::{CrossEntropy, CrossEntropyGrad, Reduction, TargetWeight};
pub use ctc::{CtcLoss, CtcLossGrad};

/// The name of before.
#[deprecated(note = "renamed to `TargetWeight`")]
pub type LabelWeight = TargetWeight;

/// Now in [`activation`](crate::activation).
#[deprecated(note = "it is `remat_ops::activation::Softmax`")]
pub type Softmax = crate::activation::Softmax;
