//! Networks on a device, with what they are applied to: a forward pass, or a training step with backward and optimiser.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use remat::nn::distributed::DataParallel;
use remat::nn::models::{Gpt, GptConfig, ResNet, ResNetConfig};
use remat::nn::{AdamW, AdamWOptions, InitCx, Layer, Optimizer, Sgd, SgdOptions};
use remat::runtime::Device;
use remat::tensor::{Tensor, no_grad};
use remat::types::{DType, HostTensor, Result, Shape};

use super::{IMAGE, MLP, Model, Step, mlp};

/// What is done with a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Infer(Model),
    Train(Step),
}

impl Network {
    /// `model:NAME`.
    pub(crate) fn model(name: &str) -> std::result::Result<Self, String> {
        name.parse().map(Network::Infer)
    }

    /// `train:NAME`.
    pub(crate) fn step(name: &str) -> std::result::Result<Self, String> {
        name.parse().map(Network::Train)
    }

    /// Examples of a batch unless said otherwise.
    pub(crate) fn batch(self) -> usize {
        match self {
            Network::Infer(_) => 1,
            Network::Train(Step::Mlp) => 64,
            Network::Train(Step::ResNet18) => 32,
            Network::Train(Step::ResNet50 | Step::Gpt) => 8,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::Infer(m) => write!(f, "model:{m}"),
            Network::Train(s) => write!(f, "train:{s}"),
        }
    }
}

const CLASSES: usize = 1000;
const SMALL_IMAGE: [usize; 3] = [3, 64, 64];

pub(super) type Function = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A network on a device, and what it is applied to.
pub(super) struct Setup {
    pub(super) f: Function,
    pub(super) x: Vec<Tensor>,
}

/// Numbers without a pattern, of about the size that networks are fed.
fn floats(device: &Device, shape: impl Into<Shape>) -> Result<Tensor> {
    let shape = shape.into();
    let v: Vec<f32> = (0..shape.elems()).map(|i| (i % 8009 * 7919 % 1009) as f32 / 252.0 - 2.0).collect();
    Tensor::from_host(device, &HostTensor::from_slice(&v, shape)?)
}

fn integers(device: &Device, below: usize, shape: impl Into<Shape>) -> Result<Tensor> {
    let shape = shape.into();
    let v: Vec<i64> = (0..shape.elems()).map(|i| (i % 8009 * 7919 % below) as i64).collect();
    Tensor::from_host(device, &HostTensor::from_slice(&v, shape)?)
}

impl Setup {
    pub(super) fn new(network: Network, device: &Device, batch: usize) -> Result<Setup> {
        let cx = &mut InitCx::new(device, 1);
        let image = |[c, h, w]: [usize; 3]| floats(device, [batch, c, h, w]);
        match network {
            Network::Infer(model) => {
                let (net, x) = model.build(cx, batch)?;
                let x = match x.dtype() {
                    DType::F32 => floats(device, x.shape().clone())?,
                    _ => x,
                };
                net.eval();
                let f = move |x: &[Tensor]| {
                    let _quiet = no_grad();
                    Ok(vec![net.forward(&x[0])?])
                };
                Ok(Setup { f: Box::new(f), x: vec![x] })
            }
            Network::Train(Step::Mlp) => {
                let (x, classes) = (floats(device, [batch, MLP[0]])?, MLP[MLP.len() - 1]);
                Setup::train(Box::new(mlp(cx)?), x, classes)
            }
            Network::Train(Step::ResNet18) => {
                let net = ResNet::new(cx, &ResNetConfig::resnet18())?;
                Setup::train(Box::new(net), image(SMALL_IMAGE)?, CLASSES)
            }
            Network::Train(Step::ResNet50) => {
                let net = ResNet::new(cx, &ResNetConfig::resnet50())?;
                Setup::train(Box::new(net), image(IMAGE)?, CLASSES)
            }
            Network::Train(Step::Gpt) => {
                let config = GptConfig::default();
                let net = Gpt::new(cx, &config)?;
                let x = integers(device, config.vocabulary, [batch, config.sequence])?;
                Setup::train(Box::new(net), x, config.vocabulary)
            }
        }
    }

    /// Cross entropy, backward, and AdamW for tokens or SGD with momentum for the rest; data parallel on a device with ranks.
    fn train(net: Box<dyn Layer>, x: Tensor, classes: usize) -> Result<Setup> {
        let tokens = x.dtype().is_int();
        let parameters = net.named_parameters();
        let optimizer: Box<dyn Optimizer> = if tokens {
            Box::new(AdamW::new(parameters, AdamWOptions { lr: 1e-4, ..AdamWOptions::default() })?)
        } else {
            Box::new(Sgd::new(parameters, SgdOptions { lr: 0.01, momentum: 0.9, ..SgdOptions::default() })?)
        };
        let places = if tokens { x.elems() } else { x.dims()[0] };
        let labels = integers(&x.device(), classes, [places])?;
        let optimizer = Rc::new(RefCell::new(optimizer));
        let ranks = x.device().options().ranks.clone().filter(|ranks| ranks.size() > 1);
        let parallel = ranks.map(|ranks| DataParallel::new(&net, &ranks, Default::default())).transpose()?;
        let f = move |x: &[Tensor]| {
            let logits = net.forward(&x[0])?.reshape(&[-1, classes as isize])?;
            let loss = logits.cross_entropy(&x[1])?;
            match &parallel {
                Some(parallel) => parallel.backward(&loss)?,
                None => loss.backward()?,
            }
            optimizer.borrow_mut().step()?;
            Ok(vec![loss.detach()])
        };
        Ok(Setup { f: Box::new(f), x: vec![x, labels] })
    }
}
