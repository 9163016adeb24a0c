//! The table of models in the book says what the networks are.

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::Tensor;
use remat_types::{DType, Result, Shape};
use remat_zoo::models::*;

/// The input that a network's multiply-adds are counted for, and how the table calls it.
enum Example {
    Image(usize, usize),
    Tokens(usize),
    Places(usize, usize),
}

impl Example {
    fn tensor(&self, d: &Device) -> Tensor {
        let (shape, dtype): (Shape, DType) = match *self {
            Example::Image(channels, extent) => ([1, channels, extent, extent].into(), DType::F32),
            Example::Tokens(t) => ([1, t].into(), DType::I64),
            Example::Places(t, width) => ([1, t, width].into(), DType::F32),
        };
        Tensor::zeros(d, shape, dtype).expect("dry")
    }

    fn text(&self) -> String {
        match *self {
            Example::Image(_, extent) => format!("at {extent} x {extent}"),
            Example::Tokens(t) => format!("for {t} tokens"),
            Example::Places(t, _) => format!("for {t} places"),
        }
    }
}

fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

type Make<'a> = &'a dyn Fn(&mut InitCx) -> Result<Box<dyn Layer>>;

/// The table's end of a row: `| parameters | multiply-adds |`.
fn row(module: &str, config: &str, make: Make<'_>, example: Example) -> String {
    let d = Device::dry(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("no memory");
    let net = make(&mut InitCx::new(&d, 1)).expect(config);
    net.eval();
    let products = multiply_adds(&d, &[&example.tensor(&d)], |x| net.forward(&x[0])).expect(config);
    let count = grouped(net.parameter_count());
    format!("| `{module}` | `{config}` | {count} | {:.2} G {} |", products as f64 / 1e9, example.text())
}

macro_rules! table {
    ($($net:ident, $config:expr, $example:expr;)*) => { vec![$(
        row(stringify!($net), &stringify!($config).replace(" ", "").replace(",", ", "), &|cx| {
            Ok(Box::new($net::new(cx, &$config)?))
        }, $example)
    ),*] };
}

#[test]
fn the_books_table_has_the_figures_of_the_networks() -> Result<()> {
    let image = || Example::Image(3, 224);
    let rows = table! {
        Vgg, VggConfig::vgg11(), image();
        Vgg, VggConfig::vgg13(), image();
        Vgg, VggConfig::vgg16(), image();
        Vgg, VggConfig::vgg19(), image();
        Vgg, VggConfig::vgg16().with_batch_norm(), image();
        ResNet, ResNetConfig::resnet18(), image();
        ResNet, ResNetConfig::resnet34(), image();
        ResNet, ResNetConfig::resnet50(), image();
        ResNet, ResNetConfig::resnet101(), image();
        ResNet, ResNetConfig::resnet152(), image();
        ResNet, ResNetConfig::resnext50_32x4d(), image();
        ResNet, ResNetConfig::resnext101_32x8d(), image();
        ResNet, ResNetConfig::wide_resnet50_2(), image();
        ResNet, ResNetConfig::wide_resnet101_2(), image();
        MobileNetV2, MobileNetV2Config::default(), image();
        MobileNetV3, MobileNetV3Config::small(), image();
        MobileNetV3, MobileNetV3Config::large(), image();
        EfficientNet, EfficientNetConfig::b0(), image();
        EfficientNet, EfficientNetConfig::b(1)?, Example::Image(3, 240);
        EfficientNet, EfficientNetConfig::b(2)?, Example::Image(3, 288);
        EfficientNet, EfficientNetConfig::b(3)?, Example::Image(3, 300);
        EfficientNet, EfficientNetConfig::b(4)?, Example::Image(3, 380);
        EfficientNet, EfficientNetConfig::b(5)?, Example::Image(3, 456);
        EfficientNet, EfficientNetConfig::b(6)?, Example::Image(3, 528);
        EfficientNet, EfficientNetConfig::b(7)?, Example::Image(3, 600);
        ConvNeXt, ConvNeXtConfig::tiny(), image();
        ConvNeXt, ConvNeXtConfig::small(), image();
        ConvNeXt, ConvNeXtConfig::base(), image();
        ConvNeXt, ConvNeXtConfig::large(), image();
        DenseNet, DenseNetConfig::densenet121(), image();
        DenseNet, DenseNetConfig::densenet161(), image();
        DenseNet, DenseNetConfig::densenet169(), image();
        DenseNet, DenseNetConfig::densenet201(), image();
        ShuffleNetV2, ShuffleNetV2Config::x0_5(), image();
        ShuffleNetV2, ShuffleNetV2Config::x1_0(), image();
        ShuffleNetV2, ShuffleNetV2Config::x1_5(), image();
        ShuffleNetV2, ShuffleNetV2Config::x2_0(), image();
        Vit, VitConfig::tiny16(), image();
        Vit, VitConfig::small16(), image();
        Vit, VitConfig::base16(), image();
        Vit, VitConfig::base32(), image();
        Vit, VitConfig::large16(), image();
        UNet, UNetConfig::default(), Example::Image(3, 256);
        Bert, BertConfig::base(), Example::Tokens(128);
        Bert, BertConfig::large(), Example::Tokens(128);
        Transformer, TransformerConfig::default(), Example::Places(128, 384);
        Gpt, GptConfig::default(), Example::Tokens(256);
        Llama, LlamaConfig::tiny_1b(), Example::Tokens(128);
        Llama, LlamaConfig::llama2_7b(), Example::Tokens(128);
        Llama, LlamaConfig::llama3_8b(), Example::Tokens(128);
        LstmLm, LstmLmConfig::small(), Example::Tokens(128);
        LstmLm, LstmLmConfig::medium(), Example::Tokens(128);
        LstmLm, LstmLmConfig::large(), Example::Tokens(128);
    };
    let page = include_str!("../../../../docs/src/models.md");
    let missing: Vec<String> = rows.iter().filter(|r| !page.contains(r.as_str())).cloned().collect();
    assert!(missing.is_empty(), "docs/src/models.md lacks these rows:\n{}", missing.join("\n"));
    Ok(())
}
