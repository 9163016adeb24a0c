//! The layers.

mod activation;
mod attention;
mod cache;
mod conv;
mod conv_norm;
mod cross_attention;
mod deform;
mod dropout;
mod embedding;
mod encoder;
mod linear;
mod norm;
mod pad;
mod pair;
mod parametrize;
mod part_norm;
mod pool;
mod pools;
mod recurrent;
mod reshape;
mod sequential;
mod shaped_activation;
mod sync_norm;

use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Padding, Result};

pub use activation::{
    Gelu, Hardsigmoid, Hardswish, Identity, LeakyRelu, LogSigmoid, LogSoftmax, Mish, Relu, Relu6, Selu, Sigmoid, Silu,
    Softmax, Softsign, Tanh, Tanhshrink,
};
pub use attention::{AttentionOptions, MultiHeadAttention};
pub(crate) use attention::{attend_cached, attend_heads};
pub use cache::KvCache;
pub use conv::{
    Conv, Conv1d, Conv1dOptions, Conv2d, Conv2dOptions, Conv3d, Conv3dOptions, ConvOptions, ConvTranspose,
    ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
};
pub use conv_norm::ConvNorm;
pub use cross_attention::{CrossAttention, CrossAttentionOptions};
pub use deform::{DeformConv2d, LocalConv2d, RegionRestrictedConv2d};
pub use dropout::{AlphaDropout, ChannelDropout, DropPath, Dropout, Dropout1d, Dropout2d, Dropout3d};
pub use embedding::{Embedding, EmbeddingBag, EmbeddingBagOptions, EmbeddingOptions};
pub use encoder::{BlockOptions, DecoderBlock, EncoderBlock, EncoderDecoder, FeedForwardActivation};
pub use linear::{Linear, LinearOptions};
pub(crate) use linear::{plus, product};
pub use norm::{BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions, LayerNorm, RmsNorm};
pub use pad::{ChannelShuffle, Fold, Pad, Pad1d, Pad2d, Pad3d, PixelShuffle, PixelUnshuffle, Unfold};
pub use pair::{Bilinear, CosineSimilarity, PairwiseDistance};
pub use parametrize::{SpectralNorm, WeightNorm};
pub use part_norm::{GeneralNorm, GroupNorm, InstanceNorm, LocalResponseNorm};
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use pools::{
    AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool3d, AdaptiveMaxPool, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool, AvgPool1d, AvgPool3d, GlobalAvgPool, GlobalMaxPool, LpPool, MaxPool, MaxPool1d,
    MaxPool3d, MaxUnpool, Upsample,
};
pub use recurrent::{
    CellWeights, Gru, GruCell, GruOptions, Lstm, LstmCell, LstmOptions, RecurrentDirection, RecurrentStack, Rnn,
    RnnCell, RnnCellOptions, RnnOptions,
};
pub use reshape::{Flatten, Unflatten};
pub use sequential::Sequential;
pub use shaped_activation::{Celu, Elu, Hardshrink, Hardtanh, Prelu, RRelu, Softmin, Softplus, Softshrink, Threshold};

/// The extents of an `x` of rank `N`, for a layer that takes no other. Errors: Axis for another rank, with the layer's name `op`.
///
/// ```
/// use remat_nn::extents;
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # use remat_types::DType;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let x = Tensor::zeros(&device, [2, 5, 8], DType::F32)?;
/// let [n, t, _] = extents(&x, "my_attention")?;
/// assert_eq!((n, t), (2, 5));
/// let e = extents::<4>(&x, "my_convolution").expect_err("three axes");
/// assert!(e.to_string().contains("[my_convolution]"), "{e}");
/// # Ok(())
/// # }
/// ```
pub fn extents<const N: usize>(x: &Tensor, op: &str) -> Result<[usize; N]> {
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
