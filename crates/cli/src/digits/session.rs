//! A training run: model, optimiser, data, and the loop over them. The dry run uses the very same steps.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use remat::nn::{
    Checkpoint, DataLoader, Dataset, InitCx, Layer, LearningRate, LoaderOptions, Module, Optimizer, Schedule, Sgd,
    SgdOptions, TrainState,
};
use remat::runtime::{Device, MemoryFigures};
use remat::tensor::{CompileOptions, Compiled, Tensor, compile_with, no_grad};
use remat::types::{DType, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::data::Digits;
use super::model::DigitsNet;
use super::progress::{Progress, Step};
use crate::interrupt;

/// Most examples of a test batch; never more than a training batch has, so that testing does not decide the peak.
const TEST_BATCH: usize = 250;
/// Batches that are read ahead; their bytes count against the budget.
const PREFETCH: usize = 2;
const MOMENTUM: f64 = 0.9;
const WEIGHT_DECAY: f64 = 5e-4;
/// Share of the steps in which the learning rate warms up.
const WARMUP: f64 = 0.1;

/// What decides a run's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) epochs: u64,
    pub(crate) batch_size: usize,
    pub(crate) learning_rate: f64,
}

impl Settings {
    /// The settings of the run that was saved. Errors (Format) if they are not there.
    pub(crate) fn of_checkpoint(c: &Checkpoint) -> Result<Settings> {
        let bad = |e: String| Error::new(ErrorKind::Format, format!("checkpoint: settings of the run: {e}"));
        let s: Settings = serde_json::from_value(c.train.user.clone()).map_err(|e| bad(e.to_string()))?;
        let sane = s.learning_rate.is_finite() && s.learning_rate > 0.0 && (2..=9000).contains(&s.batch_size);
        if sane { Ok(s) } else { Err(bad(format!("{s:?} is outside what the options allow"))) }
    }
}

/// What a run gave.
pub(crate) struct Outcome {
    pub(crate) test_accuracy: f64,
    pub(crate) first_step: u64,
    pub(crate) losses: Vec<f32>,
    step_ms: Vec<f64>,
    pub(crate) weights_sha256: String,
    pub(crate) seconds: f64,
    /// What the compiled step takes; `None` if steps ran op by op.
    pub(crate) compiled: Option<MemoryFigures>,
}

impl Outcome {
    /// Calls within compiled steps that ran again.
    pub(crate) fn recomputed_calls(&self) -> u64 {
        self.compiled.map_or(0, |f| (f.recomputed_calls * self.losses.len()) as u64)
    }

    /// The median time of a step; the first step makes its caches and does not count.
    pub(crate) fn step_ms_median(&self) -> Option<f64> {
        let mut all = self.step_ms.get(1..).filter(|s| !s.is_empty()).unwrap_or(&self.step_ms).to_vec();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }
}

type StepFn = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

pub(crate) struct Session {
    device: Device,
    net: Rc<DigitsNet>,
    optimizer: Rc<RefCell<Sgd>>,
    learning_rate: LearningRate,
    /// The step as a compiled graph; `None` to run it op by op.
    compiled: Option<Compiled<StepFn>>,
    schedule: Schedule,
    loader: DataLoader,
    /// The epoch whose shifts the training images have.
    shifts: Arc<AtomicU64>,
    test: Digits,
    settings: Settings,
    step: u64,
}

impl Session {
    pub(crate) fn new(
        device: &Device,
        data: &(Digits, Digits),
        settings: &Settings,
        compiled: bool,
    ) -> Result<Session> {
        let mut cx = InitCx::new(device, settings.seed);
        let net = Rc::new(DigitsNet::new(&mut cx)?);
        let options = SgdOptions {
            lr: settings.learning_rate,
            momentum: MOMENTUM,
            weight_decay: WEIGHT_DECAY,
            nesterov: true,
            ..SgdOptions::default()
        };
        let optimizer = Sgd::new(net.named_parameters(), options)?;
        let loader_options = LoaderOptions {
            batch_size: settings.batch_size,
            shuffle: Some(settings.seed),
            drop_last: true,
            prefetch: PREFETCH,
            ..LoaderOptions::default()
        };
        let (train, shifts) = data.0.shifted();
        let loader = DataLoader::new(device, train, loader_options)?;
        let steps = loader.batches() as u64 * settings.epochs;
        let warmup = (steps as f64 * WARMUP) as u64;
        let cosine = Schedule::Cosine { lr: settings.learning_rate, min: 0.0, steps: steps - warmup };
        let learning_rate = optimizer.learning_rate();
        let optimizer = Rc::new(RefCell::new(optimizer));
        let compiled = compiled.then(|| {
            let (net, optimizer) = (net.clone(), optimizer.clone());
            let f: StepFn = Box::new(move |batch| step(&net, &mut optimizer.borrow_mut(), batch.to_vec()));
            let staged = PREFETCH * (settings.batch_size * data.0.example_bytes() + 2 * remat::runtime::ALIGN_BYTES);
            let memory_budget = device.options().budget_bytes.map(|b| b.saturating_sub(staged));
            compile_with(device, CompileOptions { memory_budget, ..CompileOptions::default() }, f)
        });
        Ok(Session {
            device: device.clone(),
            net,
            optimizer,
            learning_rate,
            compiled,
            schedule: cosine.after_warmup(warmup),
            loader,
            shifts,
            test: data.1.clone(),
            settings: *settings,
            step: 0,
        })
    }

    pub(crate) fn steps_per_epoch(&self) -> u64 {
        self.loader.batches() as u64
    }

    pub(crate) fn restore(&mut self, c: &Checkpoint) -> Result<()> {
        c.restore(&*self.net, Some(&mut *self.optimizer.borrow_mut()))?;
        self.step = c.train.step;
        match c.train.loader {
            Some(p) => self.loader.set_position(p),
            None => Ok(()),
        }
    }

    fn save(&self, dir: &Path) -> Result<()> {
        let train = TrainState {
            step: self.step,
            epoch: self.loader.position().epoch,
            schedule: Some(self.schedule.clone()),
            rng: None,
            loader: Some(self.loader.position()),
            user: serde_json::to_value(self.settings).map_err(|e| Error::new(ErrorKind::Format, e.to_string()))?,
        };
        Checkpoint::save(dir, &*self.net, Some(&*self.optimizer.borrow()), &train)
    }

    /// One training step: the loss, and the number of examples classified right, both still on the device.
    fn train_step(&mut self, batch: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
        self.learning_rate.set(self.schedule.at(self.step));
        let y = match &mut self.compiled {
            Some(f) => f.call(&batch.iter().collect::<Vec<_>>())?,
            None => step(&self.net, &mut self.optimizer.borrow_mut(), batch)?,
        };
        self.step += 1;
        let [loss, right] = <[Tensor; 2]>::try_from(y)
            .map_err(|_| Error::new(ErrorKind::Internal, "a step gives its loss and what it got right"))?;
        Ok((loss, right))
    }

    /// A few training steps and a test batch, without reading any value.
    pub(crate) fn rehearse(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            if let Some(batch) = self.loader.next_batch()? {
                self.train_step(batch)?;
            }
        }
        self.device.channel().sync()?;
        self.test_batch(0).map(drop)
    }

    /// Trains until the last epoch, the last of `steps`, or Ctrl-C.
    pub(crate) fn run(&mut self, save: Option<&Path>, steps: Option<u64>, progress: &Progress) -> Result<Outcome> {
        let started = Instant::now();
        let mut out = Outcome {
            test_accuracy: 0.0,
            first_step: self.step,
            losses: Vec::new(),
            step_ms: Vec::new(),
            weights_sha256: String::new(),
            seconds: 0.0,
            compiled: None,
        };
        let enough = |s: &Session| interrupt::requested() || steps.is_some_and(|n| s.step >= n);
        while self.loader.position().epoch < self.settings.epochs && !enough(self) {
            let ended = self.epoch(&mut out, progress, &enough)?;
            if let Some(dir) = save {
                self.save(dir)?;
            }
            if !ended {
                break;
            }
        }
        progress.done();
        out.compiled = self.compiled.as_ref().and_then(|f| f.figures().last().copied());
        out.test_accuracy = self.test_accuracy()?;
        out.weights_sha256 = self.weights_sha256()?;
        out.seconds = started.elapsed().as_secs_f64();
        println!("test accuracy {:.2} % after {} steps, {:.1} s", 100.0 * out.test_accuracy, self.step, out.seconds);
        println!("weights sha256 {}", out.weights_sha256);
        Ok(out)
    }

    /// The rest of an epoch. False if it was left early.
    fn epoch(&mut self, out: &mut Outcome, progress: &Progress, enough: &dyn Fn(&Session) -> bool) -> Result<bool> {
        let epoch = self.loader.position().epoch;
        // Before the first batch: the loader's threads live for one epoch.
        self.shifts.store(epoch, Ordering::Relaxed);
        let started = Instant::now();
        let (mut seen, mut right, mut loss_sum, mut batches) = (0usize, 0f64, 0f64, 0u64);
        loop {
            if enough(self) && batches > 0 {
                return Ok(false);
            }
            let begun = Instant::now();
            let at = self.loader.position().batch as u64;
            let Some(batch) = self.loader.next_batch()? else { break };
            let (loss, hits) = self.train_step(batch)?;
            let loss: f32 = loss.item()?;
            right += f64::from(hits.item::<f32>()?);
            seen += self.settings.batch_size;
            loss_sum += f64::from(loss);
            batches += 1;
            out.losses.push(loss);
            out.step_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            let images_per_s = seen as f64 / started.elapsed().as_secs_f64();
            progress.step(&Step { epoch, step_in_epoch: at, loss, accuracy: right / seen as f64, images_per_s });
        }
        if seen > 0 {
            let images_per_s = seen as f64 / started.elapsed().as_secs_f64();
            let test = self.test_accuracy()?;
            progress.epoch(epoch, loss_sum / batches as f64, right / seen as f64, test, images_per_s);
        }
        Ok(true)
    }

    fn test_batch_size(&self) -> usize {
        TEST_BATCH.min(self.settings.batch_size)
    }

    fn test_batch(&self, from: usize) -> Result<Tensor> {
        let indices: Vec<usize> = (from..(from + self.test_batch_size()).min(self.test.len())).collect();
        let _quiet = no_grad();
        self.net.eval();
        let host = self.test.batch(&indices)?;
        let x = Tensor::from_host(&self.device, &host[0])?;
        let labels = Tensor::from_host(&self.device, &host[1])?;
        let logits = self.net.forward(&x);
        self.net.train();
        count_right(&logits?, &labels)
    }

    fn test_accuracy(&self) -> Result<f64> {
        let mut right = 0.0;
        for from in (0..self.test.len()).step_by(self.test_batch_size()) {
            right += f64::from(self.test_batch(from)?.item::<f32>()?);
        }
        Ok(right / self.test.len() as f64)
    }

    /// A hash over names, shapes and bits of all parameters and buffers.
    fn weights_sha256(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for (name, t) in self.net.state_dict()? {
            hash.update(format!("{name} {}{}\n", t.dtype(), t.shape()));
            hash.update(t.bytes());
        }
        Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }
}

/// Forward, backward and update: the loss, and the number of examples classified right.
fn step(net: &DigitsNet, optimizer: &mut Sgd, batch: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let [x, labels] =
        <[Tensor; 2]>::try_from(batch).map_err(|_| Error::new(ErrorKind::Internal, "a batch is images and labels"))?;
    let logits = net.forward(&x)?;
    drop(x);
    let loss = logits.cross_entropy(&labels)?;
    let right = count_right(&logits.detach(), &labels)?;
    drop((logits, labels));
    loss.backward()?;
    optimizer.step()?;
    Ok(vec![loss.detach(), right])
}

fn count_right(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    logits.argmax(1, false)?.eq(labels)?.cast(DType::F32)?.sum()
}
