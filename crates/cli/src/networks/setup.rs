//! Networks on a device, with what they are applied to: a forward pass, or a training step with backward and optimiser.

use std::fmt;

use remat::nn::distributed::{Communicator, DataParallel};
use remat::nn::models::{Gpt, GptConfig, ResNet, ResNetConfig};
use remat::nn::{AdamW, AdamWOptions, InitCx, Layer, Optimizer, Parameter, Sgd, SgdOptions};
use remat::runtime::{Device, DeviceOptions};
use remat::tensor::{Tensor, no_grad};
use remat::types::{DType, Error, ErrorKind, HostTensor, Result, Shape};

use super::{IMAGE, MLP, Model, Step, mlp};
use crate::step_parts::StepParts;

/// The work on a network.
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

impl Network {
    /// The training step in its parts. The network must be one that trains. Errors: Internal if not; those of the network.
    pub(crate) fn parts(self, batch: Option<usize>, options: DeviceOptions) -> Result<Box<dyn StepParts>> {
        let Network::Train(step) = self else {
            return Err(Error::new(ErrorKind::Internal, format!("{self} does not train")));
        };
        let device = Device::cpu(options)?;
        let (step, x) = TrainStep::new(trained(step, &device, batch.unwrap_or(self.batch()))?)?;
        Ok(Box::new(Parts { device, step, x }))
    }
}

/// A step on its device.
struct Parts {
    device: Device,
    step: TrainStep,
    x: Vec<Tensor>,
}

impl StepParts for Parts {
    fn device(&self) -> &Device {
        &self.device
    }

    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        self.step.net.named_parameters()
    }

    fn parallel(&self, ranks: &Communicator) -> Result<DataParallel> {
        DataParallel::new(&self.step.net, ranks, Default::default())
    }

    fn loss(&mut self) -> Result<Tensor> {
        self.step.loss(&self.x)
    }

    fn update(&mut self) -> Result<()> {
        self.step.optimizer.step()
    }
}

const CLASSES: usize = 1000;
const SMALL_IMAGE: [usize; 3] = [3, 64, 64];

pub(super) type Function = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A network on a device, and its inputs.
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

/// A network, its inputs, and how many classes it tells apart.
fn trained(step: Step, device: &Device, batch: usize) -> Result<(Box<dyn Layer>, Tensor, usize)> {
    let cx = &mut InitCx::new(device, 1);
    let image = |[c, h, w]: [usize; 3]| floats(device, [batch, c, h, w]);
    Ok(match step {
        Step::Mlp => (Box::new(mlp(cx)?), floats(device, [batch, MLP[0]])?, MLP[MLP.len() - 1]),
        Step::ResNet18 => (Box::new(ResNet::new(cx, &ResNetConfig::resnet18())?), image(SMALL_IMAGE)?, CLASSES),
        Step::ResNet50 => (Box::new(ResNet::new(cx, &ResNetConfig::resnet50())?), image(IMAGE)?, CLASSES),
        Step::Gpt => {
            let config = GptConfig::default();
            let net = Gpt::new(cx, &config)?;
            let x = integers(device, config.vocabulary, [batch, config.sequence])?;
            (Box::new(net), x, config.vocabulary)
        }
    })
}

impl Setup {
    pub(super) fn new(network: Network, device: &Device, batch: usize) -> Result<Setup> {
        match network {
            Network::Infer(model) => {
                let (net, x) = model.build(&mut InitCx::new(device, 1), batch)?;
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
            Network::Train(step) => {
                let (mut step, x) = TrainStep::new(trained(step, device, batch)?)?;
                // data parallel on a device with ranks
                let ranks = device.options().ranks.clone().filter(|ranks| ranks.size() > 1);
                let parallel =
                    ranks.map(|ranks| DataParallel::new(&step.net, &ranks, Default::default())).transpose()?;
                let f = move |x: &[Tensor]| {
                    let loss = step.loss(x)?;
                    match &parallel {
                        Some(parallel) => parallel.backward(&loss)?,
                        None => loss.backward()?,
                    }
                    step.optimizer.step()?;
                    Ok(vec![loss.detach()])
                };
                Ok(Setup { f: Box::new(f), x })
            }
        }
    }
}

/// A network that is trained: cross entropy, and AdamW for tokens or SGD with momentum for the rest.
struct TrainStep {
    net: Box<dyn Layer>,
    optimizer: Box<dyn Optimizer>,
    classes: usize,
}

impl TrainStep {
    /// With its input and labels.
    fn new((net, x, classes): (Box<dyn Layer>, Tensor, usize)) -> Result<(TrainStep, Vec<Tensor>)> {
        let tokens = x.dtype().is_int();
        let parameters = net.named_parameters();
        let optimizer: Box<dyn Optimizer> = if tokens {
            Box::new(AdamW::new(parameters, AdamWOptions { lr: 1e-4, ..AdamWOptions::default() })?)
        } else {
            Box::new(Sgd::new(parameters, SgdOptions { lr: 0.01, momentum: 0.9, ..SgdOptions::default() })?)
        };
        let places = if tokens { x.elems() } else { x.dims()[0] };
        let labels = integers(&x.device(), classes, [places])?;
        Ok((TrainStep { net, optimizer, classes }, vec![x, labels]))
    }

    fn loss(&self, x: &[Tensor]) -> Result<Tensor> {
        let logits = self.net.forward(&x[0])?.reshape(&[-1, self.classes as isize])?;
        logits.cross_entropy(&x[1])
    }
}
