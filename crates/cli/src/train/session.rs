//! A training run: model, optimiser, data, and the loop over them. The dry run uses the very same steps.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use remat::nn::distributed::{DataParallel, Reduction};
use remat::nn::{
    Checkpoint, DataLoader, InitCx, LearningRate, LoaderOptions, Module, Optimizer, Parameter, Schedule, Shard,
    TrainState,
};
use remat::runtime::{Device, Executable, MemoryFigures};
use remat::tensor::{CompileOptions, Compiled, Tensor, compile_with, no_grad};
use remat::types::{Error, ErrorKind, PinnedBytes, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::log::Log;
use super::outcome::{End, Kept, Outcome};
use super::plot;
use super::progress::{Progress, Step};
use super::ranks::Ranks;
use super::saving::Saving;
use super::task::{Settings, Task};
use crate::output::{self, say};

/// Most examples of a test batch; never more than a training batch has, so that testing does not decide the peak.
const TEST_BATCH: usize = 250;
/// Batches that are read ahead; their bytes count against the budget.
const PREFETCH: usize = 2;
/// Share of the steps in which the learning rate warms up.
const WARMUP: f64 = 0.1;

/// An error of the budget that a compiled step was given, in the figures of the run's: it has the batches read ahead beside
/// it.
fn beside(e: Error, staged: usize) -> Error {
    let Some(s) = e.shortfall() else { return e };
    let mut s = s.clone();
    s.budget_bytes += staged;
    s.least_bytes += staged;
    s.smallest_feasible_bytes += staged;
    s.pinned.push(PinnedBytes { by: "batches read ahead".to_owned(), bytes: staged });
    Error::budget(s).located_as(&e)
}

type StepFn = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

pub(super) struct Session<T: Task> {
    task: Rc<T>,
    device: Device,
    ranks: Ranks,
    net: Rc<T::Net>,
    /// Of several ranks.
    parallel: Option<Rc<DataParallel>>,
    optimizer: Rc<RefCell<Box<dyn Optimizer>>>,
    /// The gradient bytes of the last step that ran op by op, before the optimiser's step.
    gradient_bytes: Rc<Cell<usize>>,
    learning_rate: LearningRate,
    /// The step as a compiled graph; `None` to run it op by op.
    compiled: Option<Compiled<StepFn>>,
    /// Bytes of batches that are read ahead of it.
    staged: usize,
    schedule: Schedule,
    loader: DataLoader,
    /// The epoch that training examples are read for.
    epoch: Arc<AtomicU64>,
    settings: Settings<T::Model>,
    step: u64,
}

impl<T: Task> Session<T> {
    pub(super) fn new(
        device: &Device,
        task: &Rc<T>,
        settings: &Settings<T::Model>,
        compiled: bool,
        ranks: &Ranks,
    ) -> Result<Session<T>> {
        let batch_size = local_batch(settings.batch_size, ranks)?;
        let net = Rc::new(task.net(&mut InitCx::new(device, settings.seed))?);
        let parallel = ranks.parallel(&*net)?.map(Rc::new);
        let optimizer = task.optimizer(&net, settings.learning_rate, ranks)?;
        let loader_options = LoaderOptions {
            batch_size,
            shard: Shard { rank: ranks.rank(), ranks: ranks.size() },
            shuffle: Some(settings.seed),
            drop_last: true,
            prefetch: PREFETCH,
            ..LoaderOptions::default()
        };
        let (examples, epoch) = task.examples();
        let loader = DataLoader::new(device, examples, loader_options)?;
        let steps = loader.batches() as u64 * settings.epochs;
        let warmup = (steps as f64 * WARMUP) as u64;
        let cosine = Schedule::Cosine { lr: settings.learning_rate, min: 0.0, steps: steps - warmup };
        let learning_rate = optimizer.learning_rate();
        let optimizer = Rc::new(RefCell::new(optimizer));
        let staged = PREFETCH * (batch_size * task.example_bytes() + 2 * remat::runtime::Alignment::HOST.bytes());
        let gradient_bytes = Rc::new(Cell::new(0));
        let compiled = compiled.then(|| {
            let (net, optimizer, parallel) = (net.clone(), optimizer.clone(), parallel.clone());
            let kept = gradient_bytes.clone();
            let f: StepFn = Box::new(move |batch| {
                step::<T>(&net, &mut **optimizer.borrow_mut(), parallel.as_deref(), batch.to_vec(), &kept)
            });
            let memory_budget = device.options().budget_bytes.map(|b| b.saturating_sub(staged));
            compile_with(device, CompileOptions { memory_budget, ..CompileOptions::default() }, f)
        });
        Ok(Session {
            task: task.clone(),
            device: device.clone(),
            ranks: ranks.clone(),
            net,
            parallel,
            optimizer,
            gradient_bytes,
            learning_rate,
            compiled,
            staged,
            schedule: cosine.after_warmup(warmup),
            loader,
            epoch,
            settings: settings.clone(),
            step: 0,
        })
    }

    pub(super) fn steps_per_epoch(&self) -> u64 {
        self.loader.batches() as u64
    }

    pub(super) fn restore(&mut self, c: &Checkpoint) -> Result<()> {
        c.restore(&*self.net, Some(&mut **self.optimizer.borrow_mut()))?;
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
            user: serde_json::to_value(&self.settings).map_err(|e| Error::new(ErrorKind::Format, e.to_string()))?,
        };
        self.ranks.saved(Checkpoint::save(dir, &*self.net, Some(&**self.optimizer.borrow()), &train))
    }

    /// One training step: the loss, and the number of predictions that are right, both still on the device.
    fn train_step(&mut self, batch: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
        self.learning_rate.set(self.schedule.at(self.step));
        let y = match &mut self.compiled {
            Some(f) => f.call(&batch.iter().collect::<Vec<_>>()).map_err(|e| beside(e, self.staged))?,
            None => {
                let optimizer = &mut **self.optimizer.borrow_mut();
                step::<T>(&self.net, optimizer, self.parallel.as_deref(), batch, &self.gradient_bytes)?
            }
        };
        self.step += 1;
        let [loss, right] = <[Tensor; 2]>::try_from(y)
            .map_err(|_| Error::new(ErrorKind::Internal, "a step gives its loss and what it got right"))?;
        Ok((loss, right))
    }

    /// The compiled step for the next batch. Errors: Internal if steps run op by op.
    pub(super) fn executable(&mut self) -> Result<Arc<Executable>> {
        let batch = self.loader.next_batch()?.unwrap_or_default();
        let f = self.compiled.as_mut().ok_or_else(|| Error::new(ErrorKind::Internal, "steps are not compiled"))?;
        f.executable(&batch.iter().collect::<Vec<_>>())
    }

    pub(super) fn parameter_count(&self) -> usize {
        self.net.parameter_count()
    }

    /// A few training steps and a test batch, without reading any value.
    pub(super) fn rehearse(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            if let Some(batch) = self.loader.next_batch()? {
                // a step over facts may end before a batch is read, and that of a run begins with all of them
                self.loader.wait_for_prefetch()?;
                self.train_step(batch)?;
            }
        }
        self.device.channel().sync()?;
        self.test_batch(0).map(drop)
    }

    /// Trains until the last epoch, the last of `steps`, or a signal. A checkpoint or picture that cannot be written does not
    /// end the run before its end.
    pub(super) fn run(&mut self, end: &End<'_>, progress: &Progress, log: &mut Log) -> Result<Outcome> {
        let started = Instant::now();
        let mut out = Outcome {
            result: 0.0,
            first_step: self.step,
            losses: Vec::new(),
            step_ms: Vec::new(),
            weights_sha256: String::new(),
            seconds: 0.0,
            compiled: None,
            recomputed_calls: 0,
            kept: Kept::default(),
        };
        let mut saving = Saving::new(end.save);
        let is_first = self.ranks.is_first();
        let tell = |text: &str| {
            if is_first {
                progress.note(text)
            }
        };
        while self.loader.position().epoch < self.settings.epochs && !self.is_done(end)? {
            let ended = self.epoch(&mut out, progress, end, &mut saving, log)?;
            saving.save(|dir| self.save(dir), &tell)?;
            if let Err(e) = self.plot(end, &out) {
                tell(&format!("warning: {e}"));
            }
            if !ended {
                break;
            }
        }
        progress.done();
        saving.finish(|dir| self.save(dir), &tell)?;
        self.plot(end, &out)?;
        out.compiled = self.figures();
        out.kept = self.kept();
        out.result = self.test()?;
        out.weights_sha256 = self.weights_sha256()?;
        out.seconds = started.elapsed().as_secs_f64();
        say!("{} after {} steps, {:.1} s", T::tested(out.result), self.step, out.seconds);
        say!("weights sha256 {}", out.weights_sha256);
        Ok(out)
    }

    /// True on all ranks or on none.
    fn is_done(&self, end: &End<'_>) -> Result<bool> {
        Ok(self.ranks.is_interrupted()? || end.steps.is_some_and(|n| self.step >= n))
    }

    fn kept(&self) -> Kept {
        let bytes = |all: Vec<(String, Parameter)>| all.iter().map(|(_, p)| p.elems() * p.dtype().size_bytes()).sum();
        Kept {
            parameters: bytes(self.net.named_parameters()),
            gradients: self.gradient_bytes.get(),
            optimizer_state: bytes(self.optimizer.borrow().named_state()),
        }
    }

    /// Steps until the run ends by itself.
    fn left(&self, end: &End<'_>) -> u64 {
        let all = self.settings.epochs.saturating_mul(self.steps_per_epoch());
        end.steps.unwrap_or(all).min(all).saturating_sub(self.step)
    }

    /// Draws the losses so far. Errors: Io.
    fn plot(&self, end: &End<'_>, out: &Outcome) -> Result<()> {
        let Some(path) = end.plot else { return Ok(()) };
        let title = format!("{}, seed {}", self.settings.task, self.settings.seed);
        output::write(path, plot::losses(&title, out.first_step, &out.losses))
    }

    /// The present memory of the compiled step; its plan changes once, early in a run.
    fn figures(&self) -> Option<MemoryFigures> {
        self.compiled.as_ref().and_then(|f| f.figures().last().copied())
    }

    /// The rest of an epoch. False if it was left early.
    fn epoch(
        &mut self,
        out: &mut Outcome,
        progress: &Progress,
        end: &End<'_>,
        saving: &mut Saving,
        log: &mut Log,
    ) -> Result<bool> {
        let epoch = self.loader.position().epoch;
        // Before the first batch: the loader's threads live for one epoch.
        self.epoch.store(epoch, Ordering::Relaxed);
        let started = Instant::now();
        let (mut seen, mut right, mut loss_sum, mut batches) = (0usize, 0f64, 0f64, 0u64);
        loop {
            if self.is_done(end)? && batches > 0 {
                return Ok(false);
            }
            let begun = Instant::now();
            let at = self.loader.position().batch as u64;
            let Some(batch) = self.loader.next_batch()? else { break };
            let (loss, hits) = self.train_step(batch)?;
            let loss: f32 = loss.item()?;
            right += f64::from(hits.item::<f32>()?);
            seen += self.settings.batch_size * self.task.predictions();
            loss_sum += f64::from(loss);
            batches += 1;
            out.losses.push(loss);
            out.recomputed_calls += self.figures().map_or(0, |f| f.recomputed_calls as u64);
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            out.step_ms.push(ms);
            let per_s = seen as f64 / started.elapsed().as_secs_f64();
            let (accuracy, left) = (right / seen as f64, self.left(end));
            log.line(
                || json!({ "step": self.step, "epoch": epoch, "loss": loss, "accuracy": accuracy, "step_ms": ms }),
            );
            progress.step(&Step { epoch, step_in_epoch: at, loss, accuracy, per_s, left });
            if saving.has_failed() && self.ranks.as_first(saving.is_due_again())? {
                let is_first = self.ranks.is_first();
                saving.save(|dir| self.save(dir), &|text| {
                    if is_first {
                        progress.note(text)
                    }
                })?;
            }
            if self.task.shows(self.step) {
                progress.say(&self.evaluating(|net| self.task.show(net, &self.device, self.step))?);
            }
        }
        if seen > 0 {
            let per_s = seen as f64 / started.elapsed().as_secs_f64();
            let (result, loss, accuracy) = (self.test()?, loss_sum / batches as f64, right / seen as f64);
            log.line(|| json!({ "epoch": epoch, "mean_loss": loss, "accuracy": accuracy, (T::RESULT): result }));
            progress.epoch(epoch, loss, accuracy, &T::tested(result), per_s);
        }
        Ok(true)
    }

    fn test_batch_size(&self) -> usize {
        TEST_BATCH.min(self.settings.batch_size / self.ranks.size())
    }

    /// Runs `f` on the network as it evaluates.
    fn evaluating<Y>(&self, f: impl FnOnce(&T::Net) -> Result<Y>) -> Result<Y> {
        let _quiet = no_grad();
        self.net.eval();
        let y = f(&self.net);
        self.net.train();
        y
    }

    fn test_batch(&self, from: usize) -> Result<Tensor> {
        let to = (from + self.test_batch_size()).min(self.task.test_len());
        self.evaluating(|net| self.task.test(net, &self.device, from..to))
    }

    fn test(&self) -> Result<f64> {
        if let Some(parallel) = &self.parallel {
            // each has statistics of its own batches
            parallel.broadcast_buffers()?;
        }
        let mut sum = 0.0;
        let batches = (0..self.task.test_len()).step_by(self.test_batch_size());
        for from in batches.skip(self.ranks.rank()).step_by(self.ranks.size()) {
            sum += f64::from(self.test_batch(from)?.item::<f32>()?);
        }
        Ok(self.ranks.sum(sum)? / (self.task.test_len() * self.task.predictions()) as f64)
    }

    /// A hash over names, shapes and bits of all parameters and buffers.
    fn weights_sha256(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for (name, t) in self.net.state_dict()? {
            hash.update(format!("{name} {}{}\n", t.dtype(), t.shape()));
            hash.update(t.bytes());
        }
        let mine = hash.finalize();
        if self.ranks.gather(&mine)?.chunks(mine.len()).any(|other| other != &mine[..]) {
            return Err(Error::new(ErrorKind::Internal, "the ranks have trained different weights"));
        }
        Ok(mine.iter().map(|b| format!("{b:02x}")).collect())
    }
}

/// Forward, backward and update: the loss, and the number of predictions that are right.
fn step<T: Task>(
    net: &T::Net,
    optimizer: &mut dyn Optimizer,
    parallel: Option<&DataParallel>,
    batch: Vec<Tensor>,
    gradient_bytes: &Cell<usize>,
) -> Result<Vec<Tensor>> {
    let [loss, right] = T::loss(net, batch)?;
    match parallel {
        Some(parallel) => parallel.backward(&loss)?,
        None => loss.backward()?,
    }
    gradient_bytes.set(net.parameters().iter().map(Parameter::grad_bytes).sum());
    T::limit(net)?;
    optimizer.step()?;
    let loss = loss.detach();
    let Some(parallel) = parallel else { return Ok(vec![loss, right]) };
    // those of the whole batch
    let ranks = parallel.group();
    let both = Tensor::stack(&[&loss.div(ranks.size() as f64)?, &right], 0)?.all_reduce(Reduction::Sum, ranks)?;
    both.unbind(0)
}

/// A rank's part of a batch. Errors: Value unless each rank gets as much.
fn local_batch(batch_size: usize, ranks: &Ranks) -> Result<usize> {
    match (batch_size / ranks.size(), batch_size % ranks.size()) {
        (part @ 1.., 0) => Ok(part),
        _ => {
            let text = format!("a batch of {batch_size} cannot be shared by {} ranks: give a multiple", ranks.size());
            Err(Error::new(ErrorKind::Value, text))
        }
    }
}
