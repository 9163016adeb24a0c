//! Writes the networks of `nn::models` as ONNX files, each with an input and what it gives: `scripts/check_export.py` runs them
//! with ONNX Runtime.
//!
//! `cargo run --release -p remat-cli --example export_models -- FOLDER [OPSET] [--any-batch] [NAME ..]`
//!
//! With `--any-batch` the first extent of all inputs has a name, and the input is of a batch that the file was not written at.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use remat::graph::ir::symbolic::Dim;
use remat::graph::passes::PassOptions;
use remat::nn::models::*;
use remat::nn::{InitCx, Layer, Module};
use remat::tensor::{CompileOptions, compile_with};
use remat::types::write_npz;
use remat::{DType, Device, DeviceOptions, HostTensor, Result, Tensor, no_grad};
use remat_onnx::export::{DataPlace, ExportOptions, export, export_symbolic};

type Function = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A network as a function, its parameters, and an input.
struct Made {
    f: Function,
    parameters: Vec<(String, HostTensor)>,
    x: Vec<Tensor>,
}

type Make = fn(&mut InitCx, &Device) -> Result<Made>;

fn made<M: Module + 'static>(net: M, x: Vec<Tensor>, f: fn(&M, &[Tensor]) -> Result<Vec<Tensor>>) -> Result<Made> {
    net.eval();
    let parameters = net.state_dict()?.into_iter().collect();
    Ok(Made { f: Box::new(move |x| f(&net, x)), parameters, x })
}

fn layer<L: Layer + 'static>(net: L, x: Tensor) -> Result<Made> {
    made(net, vec![x], |net, x| Ok(vec![net.forward(&x[0])?]))
}

/// Numbers of both signs without a pattern.
fn wave(d: &Device, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let v: Vec<f32> = (0..n).map(|i| (i as f32 * 1.37).sin() + 0.3 * (i as f32 * 0.011).cos()).collect();
    Tensor::from_slice(d, &v, shape)
}

fn image(d: &Device, extent: usize) -> Result<Tensor> {
    wave(d, &[2, 3, extent, extent])
}

fn tokens(d: &Device, t: usize, most: i64) -> Result<Tensor> {
    let v: Vec<i64> = (0..2 * t as i64).map(|i| (i * 7 + i * i) % most).collect();
    Tensor::from_slice(d, &v, [2, t])
}

const IMAGES: &[(&str, Make)] = &[
    ("resnet18", |cx, d| layer(ResNet::new(cx, &ResNetConfig::resnet18())?, image(d, 64)?)),
    ("resnet50", |cx, d| layer(ResNet::new(cx, &ResNetConfig::resnet50())?, image(d, 64)?)),
    ("resnext50_32x4d", |cx, d| layer(ResNet::new(cx, &ResNetConfig::resnext50_32x4d())?, image(d, 64)?)),
    ("wide_resnet50_2", |cx, d| layer(ResNet::new(cx, &ResNetConfig::wide_resnet50_2())?, image(d, 64)?)),
    ("mobilenet_v2", |cx, d| layer(MobileNetV2::new(cx, &MobileNetV2Config::default())?, image(d, 64)?)),
    ("mobilenet_v3_small", |cx, d| layer(MobileNetV3::new(cx, &MobileNetV3Config::small())?, image(d, 64)?)),
    ("mobilenet_v3_large", |cx, d| layer(MobileNetV3::new(cx, &MobileNetV3Config::large())?, image(d, 64)?)),
    ("convnext_tiny", |cx, d| layer(ConvNeXt::new(cx, &ConvNeXtConfig::tiny())?, image(d, 64)?)),
    ("densenet121", |cx, d| layer(DenseNet::new(cx, &DenseNetConfig::densenet121())?, image(d, 64)?)),
    ("efficientnet_b0", |cx, d| layer(EfficientNet::new(cx, &EfficientNetConfig::b0())?, image(d, 64)?)),
    ("shufflenet_v2_x1_0", |cx, d| layer(ShuffleNetV2::new(cx, &ShuffleNetV2Config::x1_0())?, image(d, 64)?)),
    ("vgg11", |cx, d| layer(Vgg::new(cx, &VggConfig::vgg11())?, image(d, 64)?)),
    ("vgg11_bn", |cx, d| layer(Vgg::new(cx, &VggConfig::vgg11().with_batch_norm())?, image(d, 64)?)),
    ("unet", |cx, d| {
        let config = UNetConfig { widths: vec![16, 32, 64], ..UNetConfig::default() };
        layer(UNet::new(cx, &config)?, image(d, 48)?)
    }),
    ("vit", |cx, d| {
        let config = VitConfig { image: 64, layers: 4, ..VitConfig::tiny16() };
        layer(Vit::new(cx, &config)?, image(d, 64)?)
    }),
];

const OTHERS: &[(&str, Make)] = &[
    ("gpt", |cx, d| {
        let config = GptConfig { layers: 3, width: 96, heads: 4, sequence: 32, ..GptConfig::default() };
        layer(Gpt::new(cx, &config)?, tokens(d, 24, 256)?)
    }),
    ("llama", |cx, d| {
        let config = LlamaConfig {
            layers: 2,
            width: 64,
            heads: 4,
            kv_heads: 2,
            hidden: 160,
            vocabulary: 200,
            ..LlamaConfig::llama2_7b()
        };
        layer(Llama::new(cx, &config)?, tokens(d, 20, 200)?)
    }),
    ("bert", |cx, d| {
        let config = BertConfig { layers: 2, width: 64, heads: 4, hidden: 128, vocabulary: 300, ..BertConfig::base() };
        let mask: Vec<bool> = (0..2 * 18).map(|i| i % 18 < 18 - 5 * (i / 18)).collect();
        let mask = Tensor::from_slice(d, &mask, [2, 18])?;
        made(Bert::new(cx, &config)?, vec![tokens(d, 18, 300)?, mask], |net, x| {
            let y = net.forward_with(&x[0], BertInput { mask: Some(&x[1]), ..BertInput::default() })?;
            Ok(vec![net.pooled(&y)?, y])
        })
    }),
    ("transformer", |cx, d| {
        let config = TransformerConfig { layers: 2, width: 64, heads: 4, ..TransformerConfig::default() };
        layer(Transformer::new(cx, &config)?, wave(d, &[2, 10, 64])?)
    }),
    ("lstm_lm", |cx, d| {
        let config = LstmLmConfig { width: 48, vocabulary: 120, ..LstmLmConfig::small() };
        layer(LstmLm::new(cx, &config)?, tokens(d, 12, 120)?)
    }),
    ("diffusion", |cx, d| {
        let config = DiffusionConfig { width: 32, groups: 8, ..DiffusionConfig::small() };
        let steps = Tensor::from_slice(d, &[3i64, 400], [2])?;
        let channels = config.channels;
        let net = DiffusionUNet::new(cx, &config)?;
        made(net, vec![wave(d, &[2, channels, 32, 32])?, steps], |net, x| Ok(vec![net.forward(&x[0], &x[1])?]))
    }),
    ("vae", |cx, d| {
        let net = Vae::new(cx, &VaeConfig::default())?;
        made(net, vec![wave(d, &[3, 784])?], |net, x| {
            let [mean, log] = net.encode(&x[0])?;
            Ok(vec![net.decode(&mean)?, log])
        })
    }),
];

/// The files to write, and their form.
struct Options {
    opset: Option<i64>,
    any_batch: bool,
}

/// The input for a batch of `n`, which repeats the given one.
fn batch(x: &Tensor, n: usize) -> Result<Tensor> {
    let have = x.dims()[0];
    let rows: Vec<i64> = (0..n).map(|i| (i % have) as i64).collect();
    x.index_select(0, &Tensor::from_slice(&x.device(), &rows, [n])?)
}

fn write(name: &str, make: Make, folder: &Path, options: &Options) -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let Made { f, parameters, mut x } = make(&mut InitCx::new(&device, 7), &device)?;
    let run = |x: &[Tensor]| {
        let _quiet = no_grad();
        f(x)
    };
    let passes = PassOptions { level: if options.any_batch { 1 } else { 2 }, ..PassOptions::default() };
    let mut compiled =
        compile_with(&device, CompileOptions { freeze: true, passes, ..CompileOptions::default() }, &run);
    let mut how = ExportOptions { name: name.into(), parameters, ..ExportOptions::default() };
    how.opset = options.opset.unwrap_or(how.opset);
    let mut graph = |x: &[Tensor]| Ok((*compiled.graph(&x.iter().collect::<Vec<_>>())?).clone());
    let model = if options.any_batch {
        let at = |n: &[usize]| graph(&x.iter().map(|x| batch(x, n[0])).collect::<Result<Vec<_>>>()?);
        let model = export_symbolic(&[Dim::new("batch", 1, 64)], at, &how)?;
        x = x.iter().map(|x| batch(x, 3)).collect::<Result<_>>()?;
        model
    } else {
        export(&graph(&x)?, &how)?
    };
    model.save(folder.join(format!("{name}.onnx")), DataPlace::Inside)?;
    let numbers = |t: &Tensor| if t.dtype() == DType::Bool { t.cast(DType::U8)?.to_host() } else { t.to_host() };
    let mut tensors = Vec::new();
    for (k, t) in x.iter().enumerate() {
        tensors.push((format!("x{k}"), numbers(t)?));
    }
    for (k, t) in run(&x)?.iter().enumerate() {
        tensors.push((format!("y{k}"), numbers(t)?));
    }
    let file = File::create(folder.join(format!("{name}.npz")))?;
    write_npz(tensors.iter().map(|(name, t)| (name.as_str(), t)), false, file)?;
    let nodes: usize = model.operators().iter().map(|(_, n)| n).sum();
    println!("{name}: {nodes} nodes, {} bytes of constants", model.constant_bytes());
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: export_models FOLDER [OPSET] [--any-batch] [NAME ..]")?;
    std::fs::create_dir_all(&folder)?;
    let mut names: Vec<String> = arguments.collect();
    let opset = names.first().and_then(|a| a.parse().ok());
    names.drain(..usize::from(opset.is_some()));
    let any_batch = names.iter().any(|n| n == "--any-batch");
    names.retain(|n| n != "--any-batch");
    let (options, mut failed) = (Options { opset, any_batch }, Vec::new());
    for (name, make) in IMAGES.iter().chain(OTHERS) {
        if !names.is_empty() && !names.iter().any(|n| n == name) {
            continue;
        }
        if let Err(e) = write(name, *make, Path::new(&folder), &options) {
            println!("{name}: {e}");
            failed.push(*name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not written: {}", failed.join(", ")).into()) }
}
