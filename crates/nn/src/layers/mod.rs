//! The layers.

mod activation;
mod conv;
mod dropout;
mod embedding;

mod linear;
mod norm;
mod pool;
mod reshape;
mod sequential;

pub use activation::{Gelu, Identity, LeakyRelu, LogSoftmax, Relu, Sigmoid, Silu, Softmax, Tanh};
pub use conv::{Conv2d, Conv2dOptions};
pub use dropout::Dropout;
pub use embedding::Embedding;

pub use linear::{Linear, LinearOptions};
pub use norm::{BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions, LayerNorm};
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use reshape::Flatten;
pub use sequential::Sequential;

/// Two extents, down and across; a single number stands for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(pub [usize; 2]);

impl From<usize> for Pair {
    fn from(n: usize) -> Self {
        Pair([n, n])
    }
}
impl From<[usize; 2]> for Pair {
    fn from(n: [usize; 2]) -> Self {
        Pair(n)
    }
}
