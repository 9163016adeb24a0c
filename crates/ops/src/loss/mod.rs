//! Softmax and cross-entropy.

mod cross_entropy;
mod softmax;

pub use cross_entropy::{CrossEntropy, CrossEntropyGrad, LabelWeight, Reduction};
pub use softmax::{Softmax, SoftmaxGrad};
