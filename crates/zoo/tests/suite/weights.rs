//! Files in the layouts of torchvision, timm and Hugging Face give what those libraries compute, and networks have the sizes that
//! torchvision publishes.
//!
//! `scripts/make_model_fixtures.py` wrote the cases.

use std::collections::BTreeMap;
use std::io::Read;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, no_grad};
use remat_types::{DType, HostTensor, Result, Shape, write_safetensors};
use remat_zoo::models::*;
use remat_zoo::*;
use serde_json::Value;

use crate::published::published;
use crate::support::{cpu, values};
use crate::torch;

/// How far an output may be from the other library's, relative to the larger of 1 and its largest element: four times the largest
/// distance seen, that of MobileNetV2, whose f32 sums are in another order through 52 convolutions.
const TOLERANCE: f64 = 4e-5;
const CLASSES: usize = 10;

fn cases() -> Value {
    serde_json::from_str(include_str!("../data/weights.json")).expect("the script wrote it")
}

/// Multiples of 2^-24 in -0.5 .. 0.5, as `uniform` of the script.
fn uniform(name: &str, count: usize) -> impl Iterator<Item = f32> {
    let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3);
    let mut state = name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
    (0..count).map(move |_| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32 - 0.5
    })
}

/// The weight of a name, as `value` of the script.
fn weight(name: &str, shape: &[usize]) -> HostTensor {
    let last = name.rsplit('.').next().unwrap_or(name);
    if last == "num_batches_tracked" {
        return HostTensor::zeros(DType::I64, shape).expect("small");
    }
    let (offset, factor) = match last {
        _ if shape.len() >= 2 => (0.0, (24.0 / shape[1..].iter().product::<usize>() as f64).sqrt() as f32),
        "running_var" => (1.0, 1.0),
        "weight" => (1.0, 0.5),
        _ => (0.0, 0.25),
    };
    let v: Vec<f32> = uniform(name, shape.iter().product()).map(|u| offset + u * factor).collect();
    HostTensor::from_slice(&v, shape).expect("fits")
}

fn shape(v: &Value) -> Vec<usize> {
    v.as_array().expect("a list").iter().map(|e| e.as_u64().expect("an extent") as usize).collect()
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(|e| e.as_f64().expect("a number")).collect()
}

/// The file of a case.
fn file(case: &Value) -> BTreeMap<String, HostTensor> {
    let of = |pair: &Value| {
        let name = pair[0].as_str().expect("a name");
        (name.to_owned(), weight(name, &shape(&pair[1])))
    };
    case["tensors"].as_array().expect("a list").iter().map(of).collect()
}

#[track_caller]
fn assert_near(name: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    let bound = TOLERANCE * want.iter().fold(1.0f64, |m, w| m.max(w.abs()));
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
    assert!(worst <= bound, "{name}: {worst} off, at most {bound}; {:?} against {:?}", &got[..4], &want[..4]);
    let spread = want.iter().fold(f64::MIN, |m, w| m.max(*w)) - want.iter().fold(f64::MAX, |m, w| m.min(*w));
    assert!(spread > 20.0 * bound, "{name}: outputs of one value show nothing: {spread}");
}

/// The network of a case, of the script's sizes.
pub(crate) fn network(name: &str, cx: &mut InitCx) -> Result<Box<dyn Layer>> {
    let resnet = |config: ResNetConfig| ResNetConfig { classes: CLASSES, ..config };
    let shuffle = |config: ShuffleNetV2Config| ShuffleNetV2Config { classes: CLASSES, ..config };
    let v3 = |config: MobileNetV3Config| MobileNetV3Config { classes: CLASSES, ..config };
    let vit = VitConfig { image: 32, patch: 8, layers: 2, width: 32, heads: 4, hidden: 48, ..VitConfig::base16() };
    Ok(match name {
        "resnet18" => Box::new(ResNet::new(cx, &resnet(ResNetConfig::resnet18()))?),
        "resnext" => {
            let config =
                ResNetConfig { blocks: vec![1, 2, 1, 1], groups: 8, width_per_group: 8, ..ResNetConfig::resnet50() };
            Box::new(ResNet::new(cx, &resnet(config))?)
        }
        "timm_resnet" => {
            let config = ResNetConfig { blocks: vec![1, 1, 2, 1], ..ResNetConfig::resnet18() };
            Box::new(ResNet::new(cx, &resnet(config))?)
        }
        "vgg" => {
            let stages = vec![vec![8], vec![12], vec![16, 16]];
            let config = VggConfig { stages, hidden: 24, classes: CLASSES, ..VggConfig::vgg11() };
            Box::new(Vgg::new(cx, &config.with_batch_norm())?)
        }
        "mobilenet_v2" => {
            Box::new(MobileNetV2::new(cx, &MobileNetV2Config { classes: CLASSES, ..MobileNetV2Config::default() })?)
        }
        "mobilenet_v3_small" => Box::new(MobileNetV3::new(cx, &v3(MobileNetV3Config::small()))?),
        "mobilenet_v3_large" => Box::new(MobileNetV3::new(cx, &v3(MobileNetV3Config::large()))?),
        "efficientnet_b0" => {
            Box::new(EfficientNet::new(cx, &EfficientNetConfig { classes: CLASSES, ..EfficientNetConfig::b0() })?)
        }
        "convnext" => {
            let stages = vec![(16, 2), (32, 1), (48, 2), (64, 1)];
            Box::new(ConvNeXt::new(cx, &ConvNeXtConfig { stages, classes: CLASSES, ..ConvNeXtConfig::tiny() })?)
        }
        "densenet" => {
            let config = DenseNetConfig {
                blocks: vec![2, 3, 4, 2],
                growth: 8,
                width: 16,
                classes: CLASSES,
                ..DenseNetConfig::densenet121()
            };
            Box::new(DenseNet::new(cx, &config)?)
        }
        "shufflenet_x0_5" => Box::new(ShuffleNetV2::new(cx, &shuffle(ShuffleNetV2Config::x0_5()))?),
        "shufflenet_x1_0" => Box::new(ShuffleNetV2::new(cx, &shuffle(ShuffleNetV2Config::x1_0()))?),
        "vit" | "timm_vit" => Box::new(Vit::new(cx, &VitConfig { classes: CLASSES, ..vit })?),
        "llama" => Box::new(Llama::new(cx, &llama())?),
        other => panic!("no network for the case {other}"),
    })
}

fn llama() -> LlamaConfig {
    let small = LlamaConfig { layers: 2, width: 32, heads: 4, kv_heads: 2, ..LlamaConfig::llama2_7b() };
    LlamaConfig { hidden: 48, vocabulary: 50, ..small }
}

pub(crate) fn token_ids(name: &str, [n, t]: [usize; 2], most: f32) -> HostTensor {
    let v: Vec<i64> = uniform(name, n * t).map(|u| ((u + 0.5) * most) as i64).collect();
    HostTensor::from_slice(&v, [n, t]).expect("fits")
}

fn input(case: &Value, device: &Device) -> Tensor {
    let shape = shape(&case["x"]);
    let host = match shape[..] {
        [n, t] => token_ids("x", [n, t], 50.0),
        _ => {
            let v: Vec<f32> = uniform("x", shape.iter().product()).map(|u| u * 3.0).collect();
            HostTensor::from_slice(&v, shape).expect("fits")
        }
    };
    Tensor::from_host(device, &host).expect("fits")
}

fn by_name<'c>(all: &'c Value, name: &str) -> &'c Value {
    let cases = all["cases"].as_array().expect("a list");
    cases.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no case {name}"))
}

fn layout(case: &Value) -> NameMap {
    names_of(case["layout"].as_str().expect("a layout")).expect("a published one")
}

#[test]
fn files_of_other_libraries_give_their_outputs() {
    let (d, all) = (cpu(), cases());
    let mut compared = 0;
    for case in all["cases"].as_array().expect("a list").iter().filter(|c| c["name"] != "bert") {
        let name = case["name"].as_str().expect("a name");
        let net = network(name, &mut InitCx::new(&d, 1)).expect("fits");
        net.eval();
        load_state(&net, file(case), &layout(case), true).expect(name);
        let _quiet = no_grad();
        let y = net.forward(&input(case, &d)).expect(name);
        assert_near(name, &values(&y), &numbers(&case["y"]));
        compared += 1;
    }
    assert_eq!(compared, 15);
}

#[test]
fn a_bert_reads_kinds_and_padding_as_hugging_faces() {
    let (d, all) = (cpu(), cases());
    let case = by_name(&all, "bert");
    let config =
        BertConfig { layers: 2, width: 32, heads: 4, hidden: 48, vocabulary: 50, sequence: 16, ..BertConfig::base() };
    let net = Bert::new(&mut InitCx::new(&d, 1), &config).expect("fits");
    net.eval();
    // by way of a file
    let path = std::env::temp_dir().join(format!("remat-bert-{}.safetensors", std::process::id()));
    std::fs::write(&path, write_safetensors(&file(case), &BTreeMap::new()).expect("writes")).expect("a disk");
    let report = load_weights(&net, &path, &layout(case)).expect("fits");
    std::fs::remove_file(&path).expect("is there");
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report}");
    let (n, t) = (shape(&case["x"])[0], shape(&case["x"])[1]);
    let kinds = Tensor::from_host(&d, &token_ids("kinds", [n, t], 2.0)).expect("fits");
    let seen: Vec<bool> = (0..n * t).map(|i| i < t || i % t < 4).collect();
    let mask = Tensor::new(&d, &seen, [n, t]).expect("fits");
    let y = net.forward_with(&input(case, &d), BertInput { kinds: Some(&kinds), mask: Some(&mask) }).expect("tokens");
    let shown = y.masked_fill(&(!&mask).and_then(|m| m.unsqueeze(-1)).expect("bools"), 0.0).expect("fits");
    assert_near("bert", &values(&shown), &numbers(&case["y"]));
    assert_near("bert's pooler", &values(&net.pooled(&y).expect("places")), &numbers(&case["pooled"]));
}

#[test]
fn a_resnet18_that_pytorch_saved_gives_its_output() {
    use flate2::read::GzDecoder;
    let d = cpu();
    let packed = &include_bytes!("../data/torch_resnet18.pt.gz.gz")[..];
    let mut file = Vec::new();
    GzDecoder::new(GzDecoder::new(packed)).read_to_end(&mut file).expect("packed twice");
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("resnet18.pt");
    std::fs::write(&path, &file).expect("a disk");
    let net = network("resnet18", &mut InitCx::new(&d, 1)).expect("fits");
    net.eval();
    let report = load_weights(&net, &path, &names_of("torchvision/resnet").expect("known")).expect("fits");
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report}");
    let told = torch::lines().into_iter().find(|l| l["name"] == "resnet18").expect("the script wrote it");
    let _quiet = no_grad();
    let y = net.forward(&input(&told, &d)).expect("an image");
    assert_near("resnet18", &values(&y), &numbers(&told["y"]));
}

#[test]
fn a_part_of_a_training_checkpoint_is_loaded() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    let net = Sequential::new()
        .then(Conv2d::new(cx, 2, 3, 3).expect("fits"))
        .then(BatchNorm2d::new(cx, 3).expect("fits"))
        .then(Flatten::default())
        .then(Linear::new(cx, 3, 2).expect("fits"));
    let dir = tempfile::tempdir().expect("a folder");
    // the name says nothing: the first bytes do
    let path = dir.path().join("weights.safetensors");
    let names = NameMap::parse("{x*}.num_batches_tracked -> -\n{x*} -> {x}").expect("rules");
    for name in ["training checkpoint", "old training checkpoint"] {
        let case = torch::case(name);
        std::fs::write(&path, &case.file).expect("a disk");
        let e = load_weights(&net, &path, &names).expect_err("other names");
        assert!(e.to_string().contains("everything is there within `state_dict.`"), "{e}");
        let report = load_weights(&net, &path, &names.clone().within("state_dict.")).expect("fits");
        assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report}");
        let want = torch::tensors(&case.told);
        for (own, value) in net.state_dict().expect("values") {
            assert!(want.get(&format!("state_dict.{own}")) == Some(&value), "{name}: {own}");
        }
    }
}

#[test]
fn a_layout_of_another_network_is_an_error_that_lists_names() {
    let (d, all) = (cpu(), cases());
    let net = network("shufflenet_x0_5", &mut InitCx::new(&d, 1)).expect("fits");
    let before = net.state_dict().expect("values");
    let mut state = file(by_name(&all, "shufflenet_x0_5"));
    let bias = state.remove("fc.bias").expect("is there");
    state.insert("fc.bais".to_owned(), bias);
    let e = load_state(&net, state, &names_of("torchvision/shufflenet_v2").expect("known"), true).expect_err("a typo");
    let text = e.to_string();
    assert!(text.contains("head.bias (nearest: head.bais)") && text.contains("fc.bais, as head.bais"), "{text}");
    let other = file(by_name(&all, "vit"));
    let e = load_state(&net, other, &names_of("torchvision/vit").expect("known"), true).expect_err("another network");
    assert!(e.to_string().contains("class_token") && e.to_string().contains("stem.conv.weight"), "{e}");
    assert!(net.state_dict().expect("values") == before, "nothing has changed");
}

/// Parameters, multiply-adds in one forward pass, and the output's shape.
fn figures(net: &impl Module, f: impl Fn(&[Tensor]) -> Result<Tensor>, x: &Tensor) -> (usize, f64, Shape) {
    net.eval();
    let y = f(std::slice::from_ref(x)).expect("dry");
    let products = multiply_adds(&x.device(), &[x], f).expect("it traces");
    (net.parameter_count(), products as f64 / 1e9, y.shape().clone())
}

fn dry() -> Device {
    Device::dry(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("no memory")
}

/// Parameters and GFLOPS as torchvision's metadata of the first published weights states them (`meta["num_params"]`,
/// `meta["_ops"]`);
/// the latter are rounded to three places.
#[test]
fn networks_have_the_sizes_that_torchvision_publishes() {
    let all = cases();
    let list = all["published"].as_array().expect("a list");
    assert_eq!(list.len(), 43);
    for row in list {
        let name = row["name"].as_str().expect("a name");
        let d = dry();
        let (net, extent) = published(name, &mut InitCx::new(&d, 1)).expect(name);
        let x = Tensor::zeros(&d, [1, 3, extent, extent], DType::F32).expect("dry");
        let (count, gmacs, shape) = figures(&net, |x| net.forward(&x[0]), &x);
        assert_eq!(Some(count as u64), row["parameters"].as_u64(), "{name}");
        assert_eq!(shape[..], [1, 1000], "{name}");
        let want = row["gflops"].as_f64().expect("a number");
        // they are published to a thousandth
        assert!((gmacs - want).abs() <= 0.0005, "{name}: {gmacs}, published as {want}");
        println!("{name}: {count} parameters, {gmacs:.3} G");
    }
}

/// Counts of texts, of the papers or of the formulas that the config states.
#[test]
fn networks_for_texts_have_the_published_sizes() {
    let d = dry();
    let cx = &mut InitCx::new(&d, 1);
    let tokens = Tensor::zeros(&d, [1, 128], DType::I64).expect("dry");
    // Hugging Face's bert-base-uncased and bert-large-uncased, without heads
    for (config, want) in [(BertConfig::base(), 109_482_240), (BertConfig::large(), 335_141_888)] {
        let net = Bert::new(cx, &config).expect("dry");
        let (count, gmacs, shape) = figures(&net, |x| net.forward(&x[0]), &tokens);
        assert_eq!((count, &shape[..]), (want, &[1, 128, config.width][..]));
        let block = 4 * config.width * config.width + 2 * config.width * config.hidden + 2 * 128 * config.width;
        assert_eq!(gmacs, (config.layers * 128 * block) as f64 / 1e9);
    }
    // meta-llama/Llama-2-7b, Meta-Llama-3-8B, TinyLlama-1.1B
    let llamas = [
        (LlamaConfig::llama2_7b(), 6_738_415_616),
        (LlamaConfig::llama3_8b(), 8_030_261_248),
        (LlamaConfig::tiny_1b(), 1_100_048_384),
    ];
    for (config, want) in llamas {
        let net = Llama::new(cx, &config).expect("dry");
        let (count, gmacs, shape) = figures(&net, |x| net.forward(&x[0]), &tokens);
        assert_eq!((count, &shape[..]), (want, &[1, 128, config.vocabulary][..]));
        // each weight of a matrix but the table of tokens is multiplied once a token, and pairs of places twice a width
        let norms = (2 * config.layers + 1) * config.width;
        let products = 128 * (want - config.vocabulary * config.width - norms);
        let pairs = config.layers * 2 * config.width * (128 * 129 / 2);
        assert_eq!(gmacs, (products + pairs) as f64 / 1e9);
    }
    // Zaremba et al. (2014) say 4.6, 19.8 and 66 million
    let lstms =
        [(LstmLmConfig::small(), 4_653_200), (LstmLmConfig::medium(), 19_780_400), (LstmLmConfig::large(), 66_034_000)];
    for (config, want) in lstms {
        let net = LstmLm::new(cx, &config).expect("dry");
        let (count, gmacs, shape) = figures(&net, |x| net.forward(&x[0]), &tokens);
        assert_eq!((count, &shape[..]), (want, &[1, 128, config.vocabulary][..]));
        let token = config.layers * 8 * config.width * config.width + config.width * config.vocabulary;
        assert_eq!(gmacs, (128 * token) as f64 / 1e9);
    }
}

#[test]
fn networks_that_make_images_have_the_published_sizes() {
    let d = dry();
    let cx = &mut InitCx::new(&d, 1);
    // the widths of Ronneberger et al. (2015) with batch norms and transposed convolutions
    let net = UNet::new(cx, &UNetConfig::default()).expect("dry");
    let x = Tensor::zeros(&d, [1, 3, 256, 256], DType::F32).expect("dry");
    let (count, _, shape) = figures(&net, |x| net.forward(&x[0]), &x);
    assert_eq!((count, &shape[..]), (31_037_698, &[1, 2, 256, 256][..]));
    // Ho et al. (2020): 35.7 million for CIFAR-10
    let net = DiffusionUNet::new(cx, &DiffusionConfig::cifar10()).expect("dry");
    let x = Tensor::zeros(&d, [1, 3, 32, 32], DType::F32).expect("dry");
    let steps = Tensor::zeros(&d, [1], DType::I64).expect("dry");
    let (count, gmacs, shape) = figures(&net, |x| net.forward(&x[0], &steps), &x);
    assert_eq!((count, &shape[..]), (35_746_307, &[1, 3, 32, 32][..]));
    // counted here, and compared with no source
    assert!((6.2..6.25).contains(&gmacs), "{gmacs}");
    // the figures of Kingma and Welling (2014) with the sizes of PyTorch's example
    let vae = Vae::new(cx, &VaeConfig::default()).expect("dry");
    assert_eq!(vae.parameter_count(), 652_824);
    let x = Tensor::zeros(&d, [1, 784], DType::F32).expect("dry");
    let (_, gmacs, _) = figures(&vae, |x| vae.encode(&x[0])?[0].mul(1.0), &x);
    assert_eq!(gmacs, (784 * 400 + 2 * 400 * 20) as f64 / 1e9, "means and variances");
}

#[test]
fn networks_that_make_images_learn() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 5);
    let key = cx.rng.next_key(&d).expect("open");
    let x = Tensor::uniform(&key, [4, 1, 8, 8], DType::F32, 0.0, 1.0).expect("fits");
    let vae = Vae::new(cx, &VaeConfig { inputs: 64, hidden: 16, code: 2 }).expect("fits");
    let flat = x.flatten_from(1).expect("rank 4");
    lowers("vae", &vae, 0.01, || vae.loss(&flat));
    let unet = UNet::new(cx, &UNetConfig { widths: vec![4, 8], channels: 1, classes: 1 }).expect("fits");
    lowers("unet", &unet, 0.1, || unet.forward(&x)?.sub(&x)?.square()?.mean());
    let diffusion = DiffusionUNet::new(cx, &DiffusionConfig::small()).expect("fits");
    let steps = Tensor::new(&d, &[0i64, 10, 100, 999], [4]).expect("fits");
    lowers("diffusion", &diffusion, 0.05, || diffusion.forward(&x, &steps)?.sub(&x)?.square()?.mean());
    let e = unet.forward(&Tensor::zeros(&d, [1, 1, 7, 8], DType::F32).expect("fits")).expect_err("7 is odd");
    assert_eq!(e.kind(), remat_types::ErrorKind::Shape);
}

/// Ten steps lower a loss.
fn lowers(name: &str, net: &impl Module, lr: f64, loss: impl Fn() -> Result<Tensor>) {
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions { lr, ..SgdOptions::default() }).expect("valid");
    let mut step = || {
        let value = loss().expect("one shape");
        value.backward().expect("tracked");
        sgd.step().expect("valid");
        f64::from(value.item::<f32>().expect("a number"))
    };
    let (first, last) = (step(), (0..10).map(|_| step()).last().expect("ten"));
    assert!(last < first && last.is_finite(), "{name}: {first}, then {last}");
}
