//! Networks of the literature: against PyTorch, against published figures, and that they learn.

use std::collections::BTreeMap;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile, no_grad};
use remat_types::{DType, ErrorKind, HostTensor, Result, Shape, read_safetensors};
use remat_zoo::models::*;

use crate::support::{assert_close, cpu, set, tensor, values, wave, wave32};

/// Sums of some hundred products in f64.
const F64: f64 = 1e-12;

/// Made by `scripts/models_reference.py`.
fn reference() -> (BTreeMap<String, HostTensor>, BTreeMap<String, String>) {
    read_safetensors(include_bytes!("../data/models.safetensors")).expect("a file of tensors")
}

/// Parameters set, output, the input's gradient and statistics as PyTorch gives them.
fn agrees(name: &str, make: impl FnOnce(&mut InitCx) -> Box<dyn Layer>) {
    agrees_by(name, make, |layer, x| layer.forward(x));
}

fn agrees_by<L: Module + ?Sized>(
    name: &str,
    make: impl FnOnce(&mut InitCx) -> Box<L>,
    forward: impl FnOnce(&L, &Tensor) -> remat_types::Result<Tensor>,
) {
    let (d, (all, _)) = (cpu(), reference());
    let of = |part: &str| all.get(&format!("{name}.{part}")).unwrap_or_else(|| panic!("{name}.{part}")).clone();
    let count = |kind: &str| all.keys().filter(|k| k.starts_with(&format!("{name}.{kind}."))).count();
    let layer = make(&mut InitCx::new(&d, 1).with_dtype(DType::F64));
    let parameters = layer.named_parameters();
    assert_eq!(parameters.len(), count("parameter"), "{name}");
    parameters.iter().for_each(|(key, p)| p.set_host(&of(&format!("parameter.{key}"))).expect("one shape"));
    let x = Tensor::from_host(&d, &of("x")).expect("fits").requires_grad().expect("a float");
    let y = forward(&layer, &x).expect("one shape");
    assert_close(&values(&y), &of("y").to_f64_vec(), F64);
    y.backward_with(Some(&Tensor::from_host(&d, &of("dy")).expect("fits")), false).expect("tracked");
    // A chain of norms loses a few digits backwards.
    assert_close(&values(&x.grad().expect("a gradient")), &of("dx").to_f64_vec(), 10.0 * F64);
    let buffers = layer.named_buffers();
    assert_eq!(buffers.len(), count("buffer"), "{name}");
    for (key, b) in &buffers {
        assert_close(&b.to_host().expect("a value").to_f64_vec(), &of(&format!("buffer.{key}")).to_f64_vec(), F64);
    }
}

#[test]
fn residual_blocks_are_those_of_pytorch() {
    agrees("basic", |cx| Box::new(BasicBlock::new(cx, 3, 4, 2).expect("fits")));
    agrees("bottleneck", |cx| Box::new(Bottleneck::new(cx, 8, 2, 1).expect("fits")));
}

#[test]
fn inverted_residuals_are_those_of_pytorch() {
    agrees("inverted", |cx| Box::new(InvertedResidual::new(cx, 4, 4, 1, 3).expect("fits")));
    agrees("inverted_stride", |cx| Box::new(InvertedResidual::new(cx, 3, 5, 2, 1).expect("fits")));
}

#[test]
fn attention_is_that_of_pytorch() {
    agrees("attention", |cx| Box::new(MultiHeadAttention::new(cx, 8, 2).expect("fits")));
}

#[test]
fn a_causal_block_is_that_of_pytorch() {
    let config = TransformerConfig { layers: 1, width: 8, heads: 2, causal: true, dropout: 0.0 };
    let make = |cx: &mut InitCx| Box::new(TransformerBlock::new(cx, &config).expect("fits"));
    agrees_by("block", make, |block, x| block.forward_with(x, Attend::CAUSAL));
    agrees_by("block", make, |block, x| {
        let places = Tensor::arange(&x.device(), 0, 5, 1, DType::I32)?;
        block.forward_with(x, Attend::masked(&places.le(places.unsqueeze(1)?)?))
    });
}

/// Parameters, multiply-adds of convolutions and products in one forward pass, and the output's shape.
fn figures<L: Layer>(
    make: impl FnOnce(&mut InitCx) -> L,
    shape: impl Into<Shape>,
    dtype: DType,
) -> (usize, f64, Shape) {
    let d = Device::dry(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("no memory");
    let net = make(&mut InitCx::new(&d, 1));
    net.eval();
    let count = net.parameter_count();
    let x = Tensor::zeros(&d, shape, dtype).expect("small");
    let shape = {
        let _quiet = no_grad();
        net.forward(&x).expect("dry").shape().clone()
    };
    let products = multiply_adds(&d, &[&x], |x| net.forward(&x[0])).expect("it traces");
    (count, products as f64 / 1e9, shape)
}

/// Counts that PyTorch gave for the script's definitions, which are the published ones.
fn counted(name: &str) -> usize {
    reference().1[name].parse().expect("a number")
}

#[test]
fn networks_for_images_have_the_published_sizes() {
    let image = [1, 3, 224, 224];
    let (count, gmacs, shape) =
        figures(|cx| ResNet::new(cx, &ResNetConfig::resnet18()).expect("dry"), image, DType::F32);
    assert_eq!((count, counted("resnet18"), &shape[..]), (11_689_512, 11_689_512, &[1, 1000][..]));
    assert!((1.81..1.82).contains(&gmacs), "{gmacs}, published as 1.8");
    let (count, gmacs, shape) =
        figures(|cx| ResNet::new(cx, &ResNetConfig::resnet50()).expect("dry"), image, DType::F32);
    assert_eq!((count, counted("resnet50"), &shape[..]), (25_557_032, 25_557_032, &[1, 1000][..]));
    assert!((4.08..4.12).contains(&gmacs), "{gmacs}, published as 4.1");
    let config = MobileNetV2Config::default();
    let (count, gmacs, shape) = figures(|cx| MobileNetV2::new(cx, &config).expect("dry"), image, DType::F32);
    assert_eq!((count, counted("mobilenetv2"), &shape[..]), (3_504_872, 3_504_872, &[1, 1000][..]));
    assert!((0.30..0.32).contains(&gmacs), "{gmacs}, published as 0.3");
}

#[test]
fn transformers_have_the_sizes_of_their_formulas() {
    let c = GptConfig::default();
    let body = |layers: usize, d: usize| layers * (12 * d * d + 13 * d) + 2 * d;
    // each place: 12 d^2 in a block, 2 d of each place that it sees, `pairs` in all; and the head
    let muls = |t: usize, pairs: usize, v: usize| {
        (c.layers * (12 * t * c.width * c.width + 2 * pairs * c.width) + t * v * c.width) as f64 / 1e9
    };
    let (count, gmacs, shape) = figures(|cx| Gpt::new(cx, &c).expect("dry"), [1, 256], DType::I64);
    let want = body(c.layers, c.width) + (2 * c.vocabulary + c.sequence) * c.width;
    assert_eq!((count, counted("gpt"), &shape[..]), (want, want, &[1, 256, 256][..]));
    assert_eq!(gmacs, muls(256, 256 * 257 / 2, 256));
    let tied = GptConfig { tied: true, ..c };
    let (count, tied_gmacs, _) = figures(|cx| Gpt::new(cx, &tied).expect("dry"), [1, 256], DType::I64);
    assert_eq!((count, tied_gmacs), (want - c.vocabulary * c.width, gmacs));
    let config = TransformerConfig::default();
    let (count, gmacs, shape) = figures(|cx| Transformer::new(cx, &config).expect("dry"), [1, 128, 384], DType::F32);
    assert_eq!((count, counted("bert"), &shape[..]), (body(6, 384), body(6, 384), &[1, 128, 384][..]));
    assert_eq!(gmacs, muls(128, 128 * 128, 0));
}

#[test]
fn a_place_sees_what_stands_before_it_and_itself() {
    let d = cpu();
    let config = GptConfig { layers: 2, width: 16, heads: 2, sequence: 6, vocabulary: 9, tied: true, dropout: 0.0 };
    let gpt = Gpt::new(&mut InitCx::new(&d, 3), &config).expect("fits");
    let logits = |tokens: &[i64]| {
        values(&gpt.forward(&Tensor::new(&d, tokens, [1, tokens.len()]).expect("fits")).expect("tokens"))
    };
    let whole = logits(&[1, 2, 3, 4, 5, 6]);
    for seen in 1..6 {
        let mut tokens = [1, 2, 3, 4, 5, 6];
        tokens[seen..].fill(7);
        assert_eq!(whole[..seen * 9], logits(&tokens)[..seen * 9], "what comes later does not matter to {seen} places");
    }
    assert_ne!(whole[3 * 9..4 * 9], logits(&[1, 2, 3, 7, 7, 7])[3 * 9..4 * 9]);
    assert_ne!(whole[5 * 9..], logits(&[0, 2, 3, 4, 5, 6])[5 * 9..], "what came first does");
    let e = gpt.forward(&Tensor::new(&d, &[0i64; 7], [1, 7]).expect("fits")).expect_err("six positions");
    assert_eq!(e.kind(), ErrorKind::Shape);
    let e = gpt.forward(&Tensor::new(&d, &[0i64; 7], [7]).expect("fits")).expect_err("rank 1");
    assert!(e.kind() == ErrorKind::Axis && e.to_string().contains("[gpt]"), "{e}");
    let (one, two) =
        (Tensor::new(&d, &[0i64; 6], [1, 6]).expect("fits"), Tensor::new(&d, &[0i64; 6], [2, 3]).expect("fits"));
    assert_eq!(gpt.loss(&one, &two).expect_err("shapes").kind(), ErrorKind::Shape);
}

/// Two losses on one batch, before and after a step.
fn step<L: Layer>(net: &L, x: &Tensor, labels: &[i64], lr: f64) -> (f64, f64) {
    let labels = Tensor::new(&x.device(), labels, [labels.len()]).expect("fits");
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions { lr, ..SgdOptions::default() }).expect("valid");
    let mut loss = || {
        let logits = net.forward(x).expect("one shape");
        let classes = *logits.dims().last().expect("logits") as isize;
        let loss = logits.reshape(&[-1, classes]).expect("rows").cross_entropy(&labels).expect("classes");
        loss.backward().expect("tracked");
        sgd.step().expect("valid");
        f64::from(loss.item::<f32>().expect("a number"))
    };
    (loss(), loss())
}

#[test]
fn one_step_lowers_the_loss_of_every_network() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 5);
    let x = Tensor::normal(&cx.rng.next_key(&d).expect("open"), [4, 3, 48, 48], DType::F32, 0.0, 1.0).expect("fits");
    // The rate: fifty norms over sixteen numbers each make a loss that bends within steps as small as 1e-3. What is
    // asserted has no tolerance.
    let mut small = |config: ResNetConfig| ResNet::new(cx, &ResNetConfig { classes: 4, ..config }).expect("fits");
    let nets = [small(ResNetConfig::resnet18()), small(ResNetConfig::resnet50())];
    let mut losses: Vec<(f64, f64)> = nets.iter().map(|net| step(net, &x, &[1, 3, 0, 2], 1e-4)).collect();
    let config = MobileNetV2Config { classes: 4, dropout: 0.0, ..MobileNetV2Config::default() };
    losses.push(step(&MobileNetV2::new(cx, &config).expect("fits"), &x, &[1, 3, 0, 2], 1e-4));
    let config = GptConfig { layers: 2, width: 32, heads: 2, sequence: 8, vocabulary: 11, ..GptConfig::default() };
    let tokens = Tensor::new(&d, &[3i64, 1, 4, 1, 5, 9, 2, 6], [2, 4]).expect("fits");
    losses.push(step(&Gpt::new(cx, &config).expect("fits"), &tokens, &[1, 4, 1, 5, 9, 2, 6, 5], 0.1));
    let config = TransformerConfig { layers: 2, width: 32, heads: 2, ..TransformerConfig::default() };
    let places = tensor(&d, &wave32(2 * 4 * 32, 0.1), [2, 4, 32]);
    losses.push(step(&Transformer::new(cx, &config).expect("fits"), &places, &[0, 1, 2, 3, 4, 5, 6, 7], 0.1));
    assert!(losses.iter().all(|(before, after)| after < before && after.is_finite()), "{losses:?}");
}

#[test]
fn a_tied_head_trains_the_table() {
    let d = cpu();
    let config = GptConfig { layers: 1, width: 4, heads: 1, sequence: 2, vocabulary: 3, tied: true, dropout: 0.0 };
    let gpt = Gpt::new(&mut InitCx::new(&d, 1), &config).expect("fits");
    let parameters: BTreeMap<String, Parameter> = gpt.named_parameters().into_iter().collect();
    set(&parameters["tokens.weight"], &wave(12, 0.2));
    let tokens = Tensor::new(&d, &[0u8, 0], [1, 2]).expect("fits");
    gpt.loss(&tokens, &tokens).expect("fits").backward().expect("tracked");
    let dw = values(&parameters["tokens.weight"].grad().expect("a gradient"));
    assert!(dw[4..].iter().any(|g| *g != 0.0), "rows of tokens that were not read have one through the head: {dw:?}");
}

/// Workspace and its lower bound, in inference and in a training step, on a device without memory.
fn workspaces<L: Layer + 'static>(
    make: impl FnOnce(&mut InitCx) -> L,
    x: impl Into<Shape>,
    dtype: DType,
) -> [(usize, usize); 2] {
    let d = Device::dry(DeviceOptions { threads: 2, ..DeviceOptions::default() }).expect("no memory");
    let net = make(&mut InitCx::new(&d, 1));
    let x = Tensor::zeros(&d, x, dtype).expect("small");
    let of = |f: &mut dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>, x: &[&Tensor]| {
        let figures = compile(&d, f).executable(x).expect("it traces").figures();
        (figures.arena_bytes, figures.lower_bound_bytes)
    };
    net.eval();
    let infer = of(
        &mut |x| {
            Ok(vec![{
                let _quiet = no_grad();
                net.forward(&x[0])?
            }])
        },
        &[&x],
    );
    net.train();
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() })
        .expect("valid");
    let places = if dtype.is_int() { x.elems() } else { x.dims()[0] };
    let labels = Tensor::zeros(&d, [places], DType::I64).expect("small");
    let train = of(
        &mut |x| {
            let logits = net.forward(&x[0])?;
            let classes = logits.dims()[logits.dims().len() - 1] as isize;
            let loss = logits.reshape(&[-1, classes])?.cross_entropy(&x[1])?;
            loss.backward()?;
            sgd.step()?;
            Ok(vec![loss.detach()])
        },
        &[&x, &labels],
    );
    [infer, train]
}

#[test]
fn workspaces_are_within_a_hundredth_of_what_lives_at_once() {
    let image = [4, 3, 224, 224];
    let (resnet18, resnet50) = (ResNetConfig::resnet18(), ResNetConfig::resnet50());
    let all = [
        workspaces(|cx| ResNet::new(cx, &resnet18).expect("dry"), image, DType::F32),
        workspaces(|cx| ResNet::new(cx, &resnet50).expect("dry"), image, DType::F32),
        workspaces(|cx| MobileNetV2::new(cx, &MobileNetV2Config::default()).expect("dry"), image, DType::F32),
        workspaces(|cx| Gpt::new(cx, &GptConfig::default()).expect("dry"), [4, 256], DType::I64),
    ];
    for (arena, bound) in all.into_iter().flatten() {
        assert!(bound > 1 << 20 && (bound..=bound + bound / 100).contains(&arena), "{all:?}");
    }
}
