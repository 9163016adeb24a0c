//! Networks from the literature, as ordinary modules: what they are made of is public, and so are their parts.
//!
//! Each is a config and a module; `Net::new(&mut cx, config)` makes one. Parameter counts and multiply-adds of the
//! published sizes are tests.

mod bert;
mod convnext;
mod cost;
mod densenet;
mod diffusion;
mod efficientnet;
mod gpt;
mod llama;
mod lstm_lm;
mod mb_conv;
mod mobilenet;
mod mobilenet_v3;
mod names;
mod resnet;
mod shufflenet;
mod transformer;
mod unet;
mod vae;
mod vgg;
mod vit;

use remat_nn::{AdaptiveAvgPool2d, Layer};
use remat_tensor::Tensor;
use remat_types::Result;

pub use bert::{Bert, BertConfig, BertInput};
pub use convnext::{ConvNeXt, ConvNeXtBlock, ConvNeXtConfig};
pub use cost::multiply_adds;
pub use densenet::{DenseNet, DenseNetConfig};
pub use diffusion::{DiffusionConfig, DiffusionUNet};
pub use efficientnet::{EfficientNet, EfficientNetConfig};
pub use gpt::{Gpt, GptConfig};
pub use llama::{Llama, LlamaConfig};
pub use lstm_lm::{LstmLm, LstmLmConfig};
pub use mb_conv::{BlockActivation, MbConv, MbConvOptions};
pub use mobilenet::{InvertedResidual, MobileNetV2, MobileNetV2Config};
pub use mobilenet_v3::{MobileNetV3, MobileNetV3Block, MobileNetV3Config};
pub use names::{names_of, published_names};
pub use resnet::{BasicBlock, Bottleneck, ResNet, ResNetConfig};
pub use shufflenet::{ShuffleNetV2, ShuffleNetV2Config};
pub use transformer::{Transformer, TransformerBlock, TransformerConfig};
pub use unet::{UNet, UNetConfig};
pub use vae::{Vae, VaeConfig};
pub use vgg::{Vgg, VggConfig};
pub use vit::{Vit, VitConfig};

/// `x` through blocks, one after the other.
fn run<'b, L: Layer + 'b>(blocks: impl IntoIterator<Item = &'b L>, x: Tensor) -> Result<Tensor> {
    blocks.into_iter().try_fold(x, |x, block| block.forward(&x))
}

/// The mean of each channel over places: `[n, c, h, w]` to `[n, c]`.
fn pooled(x: &Tensor) -> Result<Tensor> {
    AdaptiveAvgPool2d::new(1).forward(x)?.flatten_from(1)
}
