//! The layers.

mod activation;
mod attention;
mod conv;
mod conv_norm;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod pool;
mod recurrent;
mod reshape;
mod sequential;

use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Padding, Result};

pub use activation::{Gelu, Identity, LeakyRelu, LogSoftmax, Relu, Relu6, Sigmoid, Silu, Softmax, Tanh};
pub use attention::{AttentionOptions, MultiHeadAttention};
pub use conv::{
    Conv, Conv1d, Conv1dOptions, Conv2d, Conv2dOptions, Conv3d, Conv3dOptions, ConvOptions, ConvTranspose,
    ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
};
pub use conv_norm::ConvNorm;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub(crate) use linear::plus;
pub use linear::{Linear, LinearOptions};
pub use norm::{BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions, LayerNorm};
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use recurrent::{
    CellWeights, Gru, GruCell, GruOptions, Lstm, LstmCell, LstmOptions, RecurrentDirection, RecurrentStack, Rnn,
    RnnCell, RnnCellOptions, RnnOptions,
};
pub use reshape::Flatten;
pub use sequential::Sequential;

/// The extents of an `x` of rank `N`. Errors (Axis) for another rank, with the name of who asks.
pub(crate) fn extents<const N: usize>(x: &Tensor, op: &str) -> Result<[usize; N]> {
    x.dims().try_into().map_err(|_| {
        Error::new(ErrorKind::Axis, format!("x has shape {}: its rank must be {N}", x.shape())).with_op(op)
    })
}

/// An extent for each of `D` axes: down and across of two, depth first of three. A single number stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents<const D: usize>(pub [usize; D]);

impl<const D: usize> From<usize> for Extents<D> {
    fn from(n: usize) -> Self {
        Extents([n; D])
    }
}
impl<const D: usize> From<[usize; D]> for Extents<D> {
    fn from(n: [usize; D]) -> Self {
        Extents(n)
    }
}
impl<const D: usize> From<Extents<D>> for Padding<D> {
    fn from(Extents(both): Extents<D>) -> Self {
        both.into()
    }
}
