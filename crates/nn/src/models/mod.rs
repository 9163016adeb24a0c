//! Networks from the literature, as ordinary modules: what they are made of is public, and so are their parts.
//!
//! Each is a config and a module; `Net::new(&mut cx, config)` makes one. Parameter counts and multiply-adds of the
//! published sizes are tests.

mod gpt;
mod mobilenet;
mod resnet;
mod transformer;

pub use gpt::{Gpt, GptConfig};
pub use mobilenet::{InvertedResidual, MobileNetV2, MobileNetV2Config};
pub use resnet::{BasicBlock, Bottleneck, ResNet, ResNetConfig};
pub use transformer::{Transformer, TransformerBlock, TransformerConfig};
