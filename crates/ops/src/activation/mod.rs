//! Activations that read more than one element; those of single elements are rows of the table in
//! [`pointwise`](crate::pointwise).

mod softmax;

pub use softmax::{Softmax, SoftmaxGrad};
