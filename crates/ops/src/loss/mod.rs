//! Losses that are one op.

mod cross_entropy;
mod ctc;

pub use cross_entropy::{CrossEntropy, CrossEntropyGrad, Reduction, TargetWeight};
pub use ctc::{CtcLoss, CtcLossGrad};

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![CrossEntropy, CrossEntropyGrad, CtcLoss, CtcLossGrad, TargetWeight];
