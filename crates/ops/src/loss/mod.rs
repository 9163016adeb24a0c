//! Losses that are one op.

mod cross_entropy;
mod ctc;

pub use cross_entropy::{CrossEntropy, CrossEntropyGrad, Reduction, TargetWeight};
pub use ctc::{CtcLoss, CtcLossGrad};
