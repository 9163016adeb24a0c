//! `remat soak`: a training loop that is hard to foresee, under a budget and without one, compared bit for bit.
//!
//! Shapes alternate, some steps take another branch through the network, and some fail because of a label that there is
//! none for. Both runs do the same, in one process and step by step, so the first difference ends the command.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use remat::nn::{InitCx, Layer, Linear, Module, Optimizer, Sgd, SgdOptions};
use remat::runtime::{Device, DeviceOptions, SpillTo, Stats};
use remat::tensor::Tensor;
use remat::types::{Error, ErrorKind, HostTensor, Result};

use crate::budget::MemoryBudget;
use crate::interrupt;
use crate::random::mixed;
use crate::sizes::show;

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// How long to go on
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    seconds: f64,
    /// The budget of one of the two runs; a percentage is relative to the other's peak
    #[arg(long, default_value = "40%", value_name = "BUDGET", allow_hyphen_values = true)]
    memory_budget: MemoryBudget,
    /// Plans may copy what does not fit to a file in DIR where that is cheaper than computing it again
    #[arg(long, value_name = "DIR")]
    spill_to: Option<PathBuf>,
    /// Of the network, the data, and the order of shapes, branches and failures
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const WIDTH: usize = 64;
const LAYERS: usize = 16;
const CLASSES: usize = 10;
const BATCHES: [usize; 3] = [512, 384, 448];
/// One step in so many leaves half of the layers out, and one in so many fails.
const BRANCHES_EVERY: u64 = 7;
const FAILS_EVERY: u64 = 23;
/// Steps without a budget whose peak is that of the loop: every shape occurs.
const FIRST_STEPS: u64 = 8;
/// Weights are compared after so many steps, and at the end.
const COMPARE_EVERY: u64 = 50;

struct Run {
    device: Device,
    layers: Vec<Linear>,
    head: Linear,
    optimizer: Sgd,
    seed: u64,
}

/// A loss by its bits, or the kind of the error.
type Outcome = std::result::Result<u32, ErrorKind>;

impl Run {
    fn new(budget_bytes: Option<usize>, spill: Option<SpillTo>, seed: u64) -> Result<Run> {
        let device = Device::cpu(DeviceOptions { budget_bytes, spill, ..DeviceOptions::default() })?;
        let cx = &mut InitCx::new(&device, seed);
        let layers = (0..LAYERS).map(|_| Linear::new(cx, WIDTH, WIDTH)).collect::<Result<Vec<Linear>>>()?;
        let head = Linear::new(cx, WIDTH, CLASSES)?;
        let named = |i: usize, l: &Linear| l.named_parameters().into_iter().map(move |(n, p)| (format!("{i}.{n}"), p));
        let parameters = layers.iter().chain([&head]).enumerate().flat_map(|(i, l)| named(i, l)).collect();
        let optimizer = Sgd::new(parameters, SgdOptions { lr: 0.02, momentum: 0.9, ..SgdOptions::default() })?;
        Ok(Run { device, layers, head, optimizer, seed })
    }

    fn step(&mut self, i: u64) -> Result<Outcome> {
        let drawn = |what: u64| mixed(self.seed ^ mixed(i ^ what << 48));
        // mostly in turns, as buckets of lengths come, and sometimes not
        let turn = if drawn(1) % 11 == 0 { drawn(2) } else { i };
        let n = BATCHES[turn as usize % BATCHES.len()];
        let value = |k: u64| (mixed(drawn(3) ^ k) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let x: Vec<f32> = (0..(n * WIDTH) as u64).map(value).collect();
        let mut labels: Vec<i64> = (0..n).map(|k| i64::from(x[k * WIDTH] > 0.0) + (k % 2) as i64).collect();
        if drawn(4) % FAILS_EVERY == 0 {
            labels[n / 2] = CLASSES as i64;
        }
        let depth = if drawn(5) % BRANCHES_EVERY == 0 { LAYERS / 2 } else { LAYERS };
        let x = Tensor::from_host(&self.device, &HostTensor::from_slice(&x, [n, WIDTH])?)?;
        let labels = Tensor::from_host(&self.device, &HostTensor::from_slice(&labels, [n])?)?;
        match self.train(x, &labels, depth) {
            Ok(loss) => Ok(Ok(loss.to_bits())),
            Err(e) if e.kind() == ErrorKind::Index => {
                self.optimizer.skip_step()?;
                Ok(Err(e.kind()))
            }
            Err(e) => Err(e),
        }
    }

    fn train(&mut self, mut x: Tensor, labels: &Tensor, depth: usize) -> Result<f32> {
        for layer in &self.layers[..depth] {
            x = (&x + &layer.forward(&x)?.tanh()?)?;
        }
        let loss = self.head.forward(&x)?.cross_entropy(labels)?;
        loss.backward()?;
        let loss = loss.detach();
        self.optimizer.step()?;
        loss.item()
    }

    fn weights(&self) -> Result<Vec<HostTensor>> {
        let all = self.layers.iter().chain([&self.head]).map(|l| l.state_dict());
        Ok(all.collect::<Result<Vec<_>>>()?.into_iter().flatten().map(|(_, t)| t).collect())
    }

    fn stats(&self) -> Result<Stats> {
        self.device.channel().stats()
    }
}

/// Runs the command. Errors (Value) at the first difference.
pub(crate) fn run(o: &Options) -> Result<()> {
    interrupt::install();
    let different = |what: &str, i: u64| Error::new(ErrorKind::Value, format!("step {i}: {what} differ"));
    let mut free = Run::new(None, None, o.seed)?;
    let first = (0..FIRST_STEPS).map(|i| free.step(i)).collect::<Result<Vec<Outcome>>>()?;
    let peak = free.stats()?.peak_bytes;
    let budget = o.memory_budget.bytes(|| Ok::<_, Error>(peak))?;
    let spill = o.spill_to.as_ref().map(SpillTo::measure).transpose()?;
    let mut bound = Run::new(budget, spill, o.seed)?;
    let begin = Instant::now();
    let length = Duration::try_from_secs_f64(o.seconds)
        .map_err(|_| Error::new(ErrorKind::Value, format!("{} is no number of seconds", o.seconds)))?;
    let (mut steps, mut failed) = (0, 0);
    while steps < FIRST_STEPS || begin.elapsed() < length && !interrupt::requested() {
        let wanted = match first.get(steps as usize) {
            Some(outcome) => *outcome,
            None => free.step(steps)?,
        };
        if bound.step(steps)? != wanted {
            return Err(different("losses", steps));
        }
        failed += u64::from(wanted.is_err());
        steps += 1;
        if steps > FIRST_STEPS && steps % COMPARE_EVERY == 0 && free.weights()? != bound.weights()? {
            return Err(different("weights", steps));
        }
    }
    if free.weights()? != bound.weights()? {
        return Err(different("weights", steps));
    }
    let (s, seconds) = (bound.stats()?, begin.elapsed().as_secs_f64());
    crate::output::print(&format!(
        "{steps} steps in {seconds:.0} s, {failed} failed as they should; losses and weights are the same bits\n\
         peak {} of {} without a budget; {} ops ran again, {} came back from a file\n\
         {} plans; {} steps followed to their end, {} went over to another plan, {} went on without one\n",
        show(s.peak_bytes),
        show(peak),
        s.recomputed_ops,
        show(s.fetched_bytes as usize),
        s.steps_planned,
        s.steps_followed,
        s.steps_switched,
        s.steps_abandoned,
    ));
    Ok(())
}
