//! Attention as one operator, so that no matrix of scores is ever a tensor: neither written nor kept for the gradient.

mod attend;
mod grad;
mod samples;

pub use attend::Attention;
pub use grad::AttentionGrad;

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Attention, AttentionGrad];
