//! Networks as works: a forward pass, or a training step with backward and optimiser, eager or compiled.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use remat::nn::models::{Gpt, GptConfig, ResNet, ResNetConfig};
use remat::nn::{AdamW, AdamWOptions, InitCx, Layer, Optimizer, Sgd, SgdOptions};
use remat::runtime::{Device, DeviceOptions};
use remat::tensor::{CompileOptions, Compiled, Tensor, compile_with, no_grad};
use remat::types::{DType, HostTensor, Result, Shape};

use super::cases::Case;
use crate::budget::MemoryBudget;
use crate::networks::{IMAGE, MLP, Model, mlp, named};

/// What is done with a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Network {
    Infer(Model),
    Train(Step),
}

/// A training step, as it is measured elsewhere: its network, batch, and optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Mlp,
    ResNet18,
    ResNet50,
    Gpt,
}

const STEPS: [(&str, Step); 4] =
    [("mlp", Step::Mlp), ("resnet18", Step::ResNet18), ("resnet50", Step::ResNet50), ("gpt", Step::Gpt)];

impl Network {
    /// `model:NAME`.
    pub(super) fn model(name: &str) -> std::result::Result<Self, String> {
        name.parse().map(Network::Infer)
    }

    /// `train:NAME`.
    pub(super) fn step(name: &str) -> std::result::Result<Self, String> {
        named("training step", name, &STEPS).map(Network::Train)
    }

    /// Examples of a batch unless said otherwise.
    pub(super) fn batch(self) -> usize {
        match self {
            Network::Infer(_) => 1,
            Network::Train(Step::Mlp) => 64,
            Network::Train(Step::ResNet18) => 32,
            Network::Train(Step::ResNet50 | Step::Gpt) => 8,
        }
    }
}

/// How a network runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub batch: usize,
    pub threads: usize,
    pub compiled: bool,
    pub budget: MemoryBudget,
}

const CLASSES: usize = 1000;
const SMALL_IMAGE: [usize; 3] = [3, 64, 64];

type Function = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A network on a device, and what it is applied to.
struct Setup {
    f: Function,
    x: Vec<Tensor>,
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
    fn new(network: Network, device: &Device, batch: usize) -> Result<Setup> {
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

    /// Cross entropy, backward, and AdamW for tokens or SGD with momentum for the rest.
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
        let f = move |x: &[Tensor]| {
            let logits = net.forward(&x[0])?.reshape(&[-1, classes as isize])?;
            let loss = logits.cross_entropy(&x[1])?;
            loss.backward()?;
            optimizer.borrow_mut().step()?;
            Ok(vec![loss.detach()])
        };
        Ok(Setup { f: Box::new(f), x: vec![x, labels] })
    }
}

enum Way {
    Eager(Function),
    Compiled(Compiled<Function>),
}

struct Running {
    device: Device,
    way: Way,
    x: Vec<Tensor>,
    flops: u64,
    moved: u64,
}

/// Longest wait for the last plan of a compiled function.
const SETTLE: Duration = Duration::from_secs(60);

/// The network, run until it is warm. Errors: Budget; those of the network.
pub(super) fn network(network: Network, how: How) -> Result<Box<dyn Case>> {
    let dry = || Device::dry(DeviceOptions { threads: how.threads, ..DeviceOptions::default() });
    let mut plain = Setup::new(network, &dry()?, how.batch)?;
    let given: Vec<Tensor> = plain.x.clone();
    let device = given[0].device();
    let mut raw = CompileOptions::default();
    raw.passes.level = 0;
    let refs: Vec<&Tensor> = given.iter().collect();
    let cost = compile_with(&device, raw, &mut plain.f).graph(&refs)?.cost();
    let budget_bytes = how.budget.bytes(|| peak(network, how, &dry()?))?;
    let device = Device::cpu(DeviceOptions { budget_bytes, threads: how.threads, ..DeviceOptions::default() })?;
    let Setup { f, x } = Setup::new(network, &device, how.batch)?;
    let mut case = Running { way: way(network, how, &device, f), device, x, flops: cost.flops, moved: cost.bytes };
    case.settle()?;
    Ok(Box::new(case))
}

fn way(network: Network, how: How, device: &Device, f: Function) -> Way {
    let options = match network {
        Network::Infer(_) => CompileOptions::inference(),
        Network::Train(_) => CompileOptions::default(),
    };
    if how.compiled { Way::Compiled(compile_with(device, options, f)) } else { Way::Eager(f) }
}

/// The peak without a budget, from two runs without memory: the first makes what the second finds.
fn peak(network: Network, how: How, dry: &Device) -> Result<usize> {
    let Setup { f, x } = Setup::new(network, dry, how.batch)?;
    let mut case = Running { way: way(network, how, dry, f), device: dry.clone(), x, flops: 0, moved: 0 };
    case.run()?;
    case.run()?;
    Ok(dry.channel().stats()?.peak_bytes)
}

impl Running {
    /// Runs until a compiled function has its last plan.
    fn settle(&mut self) -> Result<()> {
        let end = Instant::now() + SETTLE;
        self.run()?;
        while matches!(&self.way, Way::Compiled(f) if !f.is_settled()) && Instant::now() < end {
            self.run()?;
        }
        Ok(())
    }

    fn figure(&self, of: impl Fn(&remat::runtime::MemoryFigures) -> usize) -> usize {
        match &self.way {
            Way::Eager(_) => 0,
            Way::Compiled(f) => f.figures().last().map_or(0, of),
        }
    }
}

impl Case for Running {
    fn run(&mut self) -> Result<()> {
        let y = match &mut self.way {
            Way::Eager(f) => f(&self.x)?,
            Way::Compiled(f) => f.call(&self.x.iter().collect::<Vec<_>>())?,
        };
        drop(y);
        self.device.channel().sync()
    }
    fn flops(&self) -> u64 {
        self.flops
    }
    fn moved_bytes(&self) -> u64 {
        self.moved
    }
    fn peak_bytes(&self) -> usize {
        // constants of a compiled function lie on the host
        let arena = self.device.channel().stats().map_or(0, |s| s.peak_bytes);
        arena + self.figure(|f| f.constant_bytes)
    }
    fn workspace_bytes(&self) -> usize {
        self.figure(|f| f.arena_bytes)
    }
}
