//! Recurrent layers: a whole sequence, in one direction, as one operator, and its gradient through time as another.
//!
//! What the gradient needs of the forward pass, beside inputs and outputs, are the activated gates (and an LSTM's cells): four
//! (five) times as much as the outputs. To compute them again from the inputs takes the whole forward pass, half of what the
//! gradient costs; so they are outputs of their own, made where a gradient is wanted ([`Recurrent::keep`]). As outputs they are
//! evicted and recomputed under a budget like any tensor, and the gradient takes their memory for that of the gates' gradients.
//! `tanh(c)` is computed again, which costs a function a state; a plain layer's gradient needs its outputs only.
//!
//! The gradients of weights, biases and inputs are products and sums of other ops, over all steps at once.

mod compose;
mod forward;
mod grad;
mod rule;
mod samples;

pub use compose::recurrent_layer;
pub use forward::{CellKind, Recurrent};
pub use grad::RecurrentGrad;

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Recurrent, RecurrentGrad];
