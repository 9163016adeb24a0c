//! The networks of torchvision by their names there; `examples/compare_files.rs` uses them, too.

use remat_nn::{InitCx, Layer};
use remat_types::Result;
use remat_zoo::models::*;

/// A network of torchvision's name for it, and the extent of the images that its figures are for.
pub(crate) fn published(name: &str, cx: &mut InitCx) -> Result<(Box<dyn Layer>, usize)> {
    let mut extent = 224;
    let vgg = |config: VggConfig| if name.ends_with("_bn") { config.with_batch_norm() } else { config };
    let net: Box<dyn Layer> = match name.trim_end_matches("_bn") {
        "vgg11" => Box::new(Vgg::new(cx, &vgg(VggConfig::vgg11()))?),
        "vgg13" => Box::new(Vgg::new(cx, &vgg(VggConfig::vgg13()))?),
        "vgg16" => Box::new(Vgg::new(cx, &vgg(VggConfig::vgg16()))?),
        "vgg19" => Box::new(Vgg::new(cx, &vgg(VggConfig::vgg19()))?),
        "resnet18" => Box::new(ResNet::new(cx, &ResNetConfig::resnet18())?),
        "resnet34" => Box::new(ResNet::new(cx, &ResNetConfig::resnet34())?),
        "resnet50" => Box::new(ResNet::new(cx, &ResNetConfig::resnet50())?),
        "resnet101" => Box::new(ResNet::new(cx, &ResNetConfig::resnet101())?),
        "resnet152" => Box::new(ResNet::new(cx, &ResNetConfig::resnet152())?),
        "resnext50_32x4d" => Box::new(ResNet::new(cx, &ResNetConfig::resnext50_32x4d())?),
        "resnext101_32x8d" => Box::new(ResNet::new(cx, &ResNetConfig::resnext101_32x8d())?),
        "wide_resnet50_2" => Box::new(ResNet::new(cx, &ResNetConfig::wide_resnet50_2())?),
        "wide_resnet101_2" => Box::new(ResNet::new(cx, &ResNetConfig::wide_resnet101_2())?),
        "mobilenet_v2" => Box::new(MobileNetV2::new(cx, &MobileNetV2Config::default())?),
        "mobilenet_v3_small" => Box::new(MobileNetV3::new(cx, &MobileNetV3Config::small())?),
        "mobilenet_v3_large" => Box::new(MobileNetV3::new(cx, &MobileNetV3Config::large())?),
        "convnext_tiny" => Box::new(ConvNeXt::new(cx, &ConvNeXtConfig::tiny())?),
        "convnext_small" => Box::new(ConvNeXt::new(cx, &ConvNeXtConfig::small())?),
        "convnext_base" => Box::new(ConvNeXt::new(cx, &ConvNeXtConfig::base())?),
        "convnext_large" => Box::new(ConvNeXt::new(cx, &ConvNeXtConfig::large())?),
        "densenet121" => Box::new(DenseNet::new(cx, &DenseNetConfig::densenet121())?),
        "densenet161" => Box::new(DenseNet::new(cx, &DenseNetConfig::densenet161())?),
        "densenet169" => Box::new(DenseNet::new(cx, &DenseNetConfig::densenet169())?),
        "densenet201" => Box::new(DenseNet::new(cx, &DenseNetConfig::densenet201())?),
        "shufflenet_v2_x0_5" => Box::new(ShuffleNetV2::new(cx, &ShuffleNetV2Config::x0_5())?),
        "shufflenet_v2_x1_0" => Box::new(ShuffleNetV2::new(cx, &ShuffleNetV2Config::x1_0())?),
        "shufflenet_v2_x1_5" => Box::new(ShuffleNetV2::new(cx, &ShuffleNetV2Config::x1_5())?),
        "shufflenet_v2_x2_0" => Box::new(ShuffleNetV2::new(cx, &ShuffleNetV2Config::x2_0())?),
        "vit_b_16" => Box::new(Vit::new(cx, &VitConfig::base16())?),
        "vit_b_32" => Box::new(Vit::new(cx, &VitConfig::base32())?),
        "vit_l_16" => Box::new(Vit::new(cx, &VitConfig::large16())?),
        other => {
            let size = other.strip_prefix("efficientnet_b").and_then(|s| s.parse().ok()).expect("a known network");
            extent = [224, 240, 288, 300, 380, 456, 528, 600][size];
            Box::new(EfficientNet::new(cx, &EfficientNetConfig::b(size)?)?)
        }
    };
    Ok((net, extent))
}
