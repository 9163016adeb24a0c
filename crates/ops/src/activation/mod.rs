//! Activations that read more than one element; those of single elements are rows of the table in
//! [`pointwise`](crate::pointwise).

mod softmax;

pub use softmax::{Softmax, SoftmaxGrad};

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Softmax, SoftmaxGrad];
