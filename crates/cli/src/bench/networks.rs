//! Networks as works: a forward pass, or a training step with backward and optimiser, eager or compiled.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use remat::nn::models::{Gpt, GptConfig, ResNet, ResNetConfig};
use remat::nn::{AdamW, AdamWOptions, InitCx, Layer, Optimizer, Sgd, SgdOptions};
use remat::runtime::{
    CommandStream, Device, DeviceOptions, Executable, Foresight, MemoryFigures, PlanTimes, SpillTo, Stats,
};
use remat::tensor::{CompileOptions, Compiled, Session, Tensor, compile_with, no_grad};
use remat::types::{DType, Error, ErrorKind, HostTensor, Result, Shape};

use super::cases::{Case, Told};
use super::operators::{self, Operator};
use crate::budget::MemoryBudget;
use crate::networks::{IMAGE, MLP, Model, Step, mlp};

/// What is done with a network.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    pub(super) fn batch(self) -> usize {
        match self {
            Network::Infer(_) => 1,
            Network::Train(Step::Mlp) => 64,
            Network::Train(Step::ResNet18) => 32,
            Network::Train(Step::ResNet50 | Step::Gpt) => 8,
        }
    }

    /// The compiled form, run so many times without a budget; of 0 runs nothing is computed and no memory taken.
    pub(crate) fn timed(self, batch: Option<usize>, threads: Option<usize>, runs: usize) -> Result<Arc<Executable>> {
        let mut options = DeviceOptions::default();
        options.threads = threads.unwrap_or(options.threads);
        let how = How {
            batch: batch.unwrap_or(self.batch()),
            threads: options.threads,
            compiled: true,
            budget: MemoryBudget::Unlimited,
            foresight: Foresight::default(),
        };
        let device = if runs == 0 { Device::dry(options)? } else { Device::cpu(options)? };
        let Setup { f, x } = Setup::new(self, &device, how.batch)?;
        let mut case = Running::new(way(self, how, &device, f), device, x);
        for _ in 0..runs {
            case.run()?;
        }
        case.executable()
    }

    /// What so many eager steps ask of the runtime, without a budget; each operator's time is the least of all steps, or an
    /// estimate of a step that is not computed.
    pub(crate) fn recorded(
        self,
        batch: Option<usize>,
        threads: Option<usize>,
        steps: usize,
        is_estimated: bool,
    ) -> Result<CommandStream> {
        let mut options = DeviceOptions { always_record: true, ..DeviceOptions::default() };
        options.threads = threads.unwrap_or(options.threads);
        let device = if is_estimated { Device::dry(options)? } else { Device::cpu(options)? };
        let Setup { f, x } = Setup::new(self, &device, batch.unwrap_or(self.batch()))?;
        let mut case = Running::new(Way::Eager(f), device, x);
        // The first makes the optimiser's state.
        case.run()?;
        let channel = case.device.channel();
        channel.start_recording()?;
        (0..steps).try_for_each(|_| case.run())?;
        let mut stream = channel.stop_recording()?;
        stream.settle_times();
        Ok(stream)
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

/// How a network runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub batch: usize,
    pub threads: usize,
    pub compiled: bool,
    pub budget: MemoryBudget,
    pub foresight: Foresight,
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
    Session(Box<Session>, MemoryFigures),
}

struct Running {
    device: Device,
    way: Way,
    x: Vec<Tensor>,
    flops: u64,
    moved: u64,
    told: Told,
}

/// Longest wait for the last plan.
const SETTLE: Duration = Duration::from_secs(60);
/// Eager steps under a budget until their plan is a good one: they are planned when seen twice, four and eight times.
const SETTLE_STEPS: usize = 10;
/// Losses that are kept.
const LOSSES: usize = 5;

/// The network, run until it is warm. Errors: Budget; those of the network.
pub(super) fn network(network: Network, how: How, in_session: bool, spill_to: Option<&Path>) -> Result<Box<dyn Case>> {
    let dry = || Device::dry(DeviceOptions { threads: how.threads, ..DeviceOptions::default() });
    let mut plain = Setup::new(network, &dry()?, how.batch)?;
    let given: Vec<Tensor> = plain.x.clone();
    let device = given[0].device();
    let mut raw = CompileOptions::default();
    raw.passes.level = 0;
    let refs: Vec<&Tensor> = given.iter().collect();
    let cost = compile_with(&device, raw, &mut plain.f).graph(&refs)?.cost();
    let budget_bytes = how.budget.bytes(|| peak(network, how, &dry()?))?;
    // without a budget nothing is spilled, and the folder need not be measured
    let spill = spill_to.filter(|_| budget_bytes.is_some()).map(SpillTo::measure).transpose()?;
    let options =
        DeviceOptions { budget_bytes, threads: how.threads, foresight: how.foresight, spill, ..Default::default() };
    let device = Device::cpu(options)?;
    let Setup { f, x } = Setup::new(network, &device, how.batch)?;
    let mut case = Running::new(way(network, how, &device, f), device, x);
    (case.flops, case.moved, case.told.budget_bytes) = (cost.flops, cost.bytes, budget_bytes);
    case.settle()?;
    if in_session && let Way::Compiled(f) = &mut case.way {
        let mut session = f.session(&case.x.iter().collect::<Vec<_>>())?;
        let figures = session.executable()?.figures();
        case.way = Way::Session(Box::new(session), figures);
        case.run()?;
    }
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
    let mut case = Running::new(way(network, how, dry, f), dry.clone(), x);
    case.run()?;
    case.run()?;
    Ok(dry.channel().stats()?.peak_bytes)
}

impl Running {
    fn new(way: Way, device: Device, x: Vec<Tensor>) -> Running {
        Running { way, device, x, flops: 0, moved: 0, told: Told::default() }
    }

    /// Runs until a compiled function has its last plan, or foresight had time for one.
    fn settle(&mut self) -> Result<()> {
        let end = Instant::now() + SETTLE;
        self.run()?;
        let mut runs = 1;
        let foresees = self.told.budget_bytes.is_some() && self.device.options().foresight != Foresight::Off;
        let is_settled = |way: &Way, runs| match way {
            Way::Compiled(f) => f.is_settled(),
            Way::Eager(_) => !foresees || runs >= SETTLE_STEPS,
            Way::Session(..) => true,
        };
        while !is_settled(&self.way, runs) && Instant::now() < end {
            self.run()?;
            runs += 1;
        }
        Ok(())
    }

    /// Errors (Internal) if it is not compiled.
    fn executable(&mut self) -> Result<Arc<Executable>> {
        match &mut self.way {
            Way::Compiled(f) => f.executable(&self.x.iter().collect::<Vec<_>>()),
            Way::Session(s, _) => s.executable().cloned(),
            Way::Eager(_) => Err(Error::new(ErrorKind::Internal, "the network is not compiled")),
        }
    }

    fn figure(&self, of: impl Fn(&MemoryFigures) -> usize) -> usize {
        match &self.way {
            Way::Eager(_) => 0,
            Way::Session(_, figures) => of(figures),
            Way::Compiled(f) => f.figures().last().map_or(0, of),
        }
    }
}

impl Case for Running {
    fn run(&mut self) -> Result<()> {
        let y = match &mut self.way {
            Way::Eager(f) => f(&self.x)?,
            Way::Compiled(f) => f.call(&self.x.iter().collect::<Vec<_>>())?,
            Way::Session(s, _) => return s.run(),
        };
        // Read by every run, for a step that reads is another one than a step that does not.
        if let Some(loss) = y.first().filter(|y| y.elems() == 1 && !self.device.is_dry()) {
            let loss: f32 = loss.item()?;
            if self.told.losses.len() < LOSSES {
                self.told.losses.push(loss);
            }
        }
        drop(y);
        self.device.channel().sync()
    }
    fn told(&self) -> Told {
        let mut told = self.told.clone();
        let stats = self.device.channel().stats().unwrap_or_default();
        (told.plan, told.ops_ns) = match &self.way {
            Way::Compiled(f) => (f.plan_times(), f.ops_ns()),
            Way::Eager(_) if stats.steps_followed > 0 => {
                let Stats { planned_step_ns, planned_base_ns, planned_bound_ns, .. } = stats;
                let times = PlanTimes {
                    planned_ns: planned_step_ns,
                    base_ns: planned_base_ns,
                    bound_ns: planned_bound_ns,
                    stall_ns: 0,
                };
                (Some(times), stats.followed_step_ns)
            }
            Way::Eager(_) | Way::Session(..) => (None, 0),
        };
        told
    }
    fn operators(&mut self) -> Result<Vec<Operator>> {
        Ok(operators::of(&*self.executable()?))
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
