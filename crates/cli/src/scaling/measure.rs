//! Measuring what one rank does: a training step in its parts, and when each gradient is complete.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use remat::nn::Parameter;
use remat::nn::distributed::{Communicator, Reduction};
use remat::runtime::DeviceOptions;
use remat::tensor::{Tensor, no_grad};
use remat::types::Result;

use super::model::{AtBatch, BUCKET_BYTES, Gradient, Profile, buckets};
use crate::step_parts::StepParts;
use crate::workload::Workload;

/// Steps before the first that counts: caches, and the optimiser's state.
const WARM_UPS: usize = 2;
/// Fewest and most pairs of steps that count, however long one takes.
const MIN_TURNS: usize = 5;
const MAX_TURNS: usize = 500;
/// The second batch is the first over this.
const SMALLER_BATCH: usize = 4;

/// How a step is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) work: Workload,
    pub(super) batch: usize,
    pub(super) threads: usize,
}

impl How {
    /// The step with a batch, on a device of these options.
    pub(super) fn parts(&self, batch: usize, options: DeviceOptions) -> Result<Box<dyn StepParts>> {
        self.work.parts(Some(batch), DeviceOptions { threads: self.threads, ..options })
    }

    /// The batches that are measured: that of the options, and a smaller one.
    fn batches(&self) -> Vec<usize> {
        let less = (self.batch / SMALLER_BATCH).max(1);
        if less < self.batch { vec![self.batch, less] } else { vec![self.batch] }
    }
}

/// How long is measured, and by how many ranks at the same time.
pub(super) trait Pace {
    /// Ranks that measure.
    fn ranks(&self) -> usize;

    /// How many turns there are if one takes so many seconds: the same number on all ranks. Errors: Peer.
    fn turns(&self, one: f64) -> Result<usize>;

    /// Waits for the other ranks, so that all begin a step together. Errors: Peer.
    fn meet(&self) -> Result<()>;

    /// The mean of what ranks have. Errors: Peer.
    fn mean(&self, mine: f64) -> Result<f64>;
}

/// One rank, for about so many seconds.
pub(super) struct Alone(pub(super) f64);

/// Turns for about so many seconds.
pub(super) fn turns_within(seconds: f64, one: f64) -> usize {
    ((seconds / one.max(1e-9)) as usize).clamp(MIN_TURNS, MAX_TURNS)
}

impl Pace for Alone {
    fn ranks(&self) -> usize {
        1
    }

    fn turns(&self, one: f64) -> Result<usize> {
        Ok(turns_within(self.0, one))
    }

    fn meet(&self) -> Result<()> {
        Ok(())
    }

    fn mean(&self, mine: f64) -> Result<f64> {
        Ok(mine)
    }
}

/// Measures a profile: of ranks that measure at the same time, the means of their times.
///
/// Errors: those of the step; Peer.
pub(super) fn profile(how: &How, pace: &dyn Pace) -> Result<Profile> {
    let batches = how.batches();
    let parts = batches.len() as f64;
    let (mut at, mut turns, mut slowed) = (Vec::new(), usize::MAX, 1.0f64);
    let mut gradients = Vec::new();
    let mut bundle_ms = 0.0;
    for (i, batch) in batches.into_iter().enumerate() {
        let mut step = Marked::new(how.parts(batch, DeviceOptions::default())?)?;
        if i == 0 {
            gradients = self::gradients(&step.parameters);
        }
        let times = step.times(parts, pace)?;
        if i == 0 {
            bundle_ms = times.bundle_ms;
        }
        turns = turns.min(times.turns);
        slowed = slowed.max(times.slowed_by_marks);
        at.push(AtBatch { batch: batch as f64, ..times.at });
    }
    Ok(Profile {
        work: how.work.to_string(),
        threads: how.threads,
        ranks: pace.ranks(),
        turns,
        slowed_by_marks: slowed,
        bundle_ms,
        calls: 1,
        gradients,
        at,
    })
}

/// The middle of numbers that are there; the upper one of an even number.
pub(super) fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// The lower tenth of the numbers: nearly the least, but robust against errors of the clock. Other programs can only add time.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "only ranks are compared with each other"))]
pub(super) fn least(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 10).copied().unwrap_or(0.0)
}

/// When gradients were complete in a step whose parts are timed.
#[derive(Default)]
struct Marks {
    /// The begin of the backward pass, while one is timed.
    begin: Option<Instant>,
    ready_s: Vec<Option<f64>>,
}

fn lock(marks: &Mutex<Marks>) -> MutexGuard<'_, Marks> {
    marks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A step whose gradients are listened to.
struct Marked {
    parts: Box<dyn StepParts>,
    parameters: Vec<(String, Parameter)>,
    marks: Arc<Mutex<Marks>>,
    /// Of its parameters, by their places.
    buckets: Vec<Vec<usize>>,
}

/// The measurements with one batch.
struct Times {
    at: AtBatch,
    turns: usize,
    slowed_by_marks: f64,
    bundle_ms: f64,
}

/// Seconds of a step by its parts.
struct Timed {
    forward: f64,
    backward: f64,
    update: f64,
    ready: Vec<f64>,
}

fn gradients(parameters: &[(String, Parameter)]) -> Vec<Gradient> {
    let of = |(name, p): &(String, Parameter)| Gradient {
        name: name.clone(),
        dtype: p.dtype().to_string(),
        bytes: p.elems() * p.dtype().size_bytes(),
    };
    parameters.iter().map(of).collect()
}

impl Marked {
    fn new(parts: Box<dyn StepParts>) -> Result<Marked> {
        let parameters = parts.named_parameters();
        let marks = Arc::new(Mutex::new(Marks::default()));
        for (i, (_, p)) in parameters.iter().enumerate() {
            let (marks, device) = (marks.clone(), parts.device().clone());
            p.on_grad(move |_| {
                let Some(begin) = lock(&marks).begin else { return Ok(()) };
                // the time of the value, not of the call that asks for it
                device.channel().sync()?;
                let ready = begin.elapsed().as_secs_f64();
                if let Some(place) = lock(&marks).ready_s.get_mut(i) {
                    *place = Some(ready);
                }
                Ok(())
            })?;
        }
        let buckets = buckets(&gradients(&parameters), BUCKET_BYTES);
        Ok(Marked { parts, parameters, marks, buckets })
    }

    /// Medians over steps as they are and steps whose parts are timed, in turns; the parts are scaled to the former, since waiting
    /// for each gradient keeps the device from running ahead.
    fn times(&mut self, parts: f64, pace: &dyn Pace) -> Result<Times> {
        let mut one = 0.0;
        for _ in 0..WARM_UPS {
            one = self.plain()?;
        }
        // a turn has three steps, and the time is for all parts of a profile
        let turns = pace.turns(3.0 * parts * one)?;
        let (mut plain, mut bundled, mut marked) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..turns {
            pace.meet()?;
            plain.push(self.plain()?);
            pace.meet()?;
            bundled.push(self.bundled()?);
            pace.meet()?;
            marked.push(self.marked()?);
        }
        let whole = median(&mut plain);
        let part = |of: &dyn Fn(&Timed) -> f64| median(&mut marked.iter().map(of).collect::<Vec<f64>>());
        let sums = part(&|t| t.forward + t.backward + t.update);
        let scale = if sums > 0.0 { whole / sums } else { 1.0 };
        let ms = |of: &dyn Fn(&Timed) -> f64| pace.mean(part(of) * scale * 1e3);
        let backward_ms = ms(&|t| t.backward)?;
        let ready = (0..self.parameters.len()).map(|i| Ok(ms(&|t| t.ready[i])?.min(backward_ms)));
        let at = AtBatch {
            batch: 0.0,
            forward_ms: ms(&|t| t.forward)?,
            backward_ms,
            update_ms: ms(&|t| t.update)?,
            ready_ms: ready.collect::<Result<_>>()?,
        };
        let bundle_ms = pace.mean((median(&mut bundled) - whole).max(0.0) * 1e3)?;
        Ok(Times { at, turns, slowed_by_marks: pace.mean(1.0 / scale)?, bundle_ms })
    }

    /// Seconds of a step as a program takes it.
    fn plain(&mut self) -> Result<f64> {
        self.parts.device().channel().sync()?;
        let start = Instant::now();
        self.parts.loss()?.backward()?;
        self.parts.update()?;
        self.parts.device().channel().sync()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds of a step that makes buckets of its gradients, and gradients of buckets, as `DataParallel` does it between ranks.
    fn bundled(&mut self) -> Result<f64> {
        self.parts.device().channel().sync()?;
        let alone = Communicator::alone();
        let start = Instant::now();
        self.parts.loss()?.div(1.0)?.backward()?;
        let quiet = no_grad();
        for bucket in &self.buckets {
            let members: Vec<(&Parameter, Tensor)> = bucket
                .iter()
                .filter_map(|i| self.parameters[*i].1.take_grad().map(|g| (&self.parameters[*i].1, g)))
                .collect();
            let flat = members.iter().map(|(_, g)| g.reshape(&[-1])).collect::<Result<Vec<_>>>()?;
            if flat.is_empty() {
                continue;
            }
            let whole = match &flat[..] {
                [one] => one.clone(),
                several => Tensor::concat(&several.iter().collect::<Vec<_>>(), 0)?,
            };
            let whole = whole.all_reduce(Reduction::Sum, &alone)?;
            let extents: Vec<usize> = flat.iter().map(Tensor::elems).collect();
            for (part, (p, _)) in whole.split(&extents, 0)?.into_iter().zip(&members) {
                let dims: Vec<isize> = p.shape().iter().map(|d| *d as isize).collect();
                p.set_grad(Some(part.reshape(&dims)?))?;
            }
        }
        drop(quiet);
        self.parts.update()?;
        self.parts.device().channel().sync()?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn marked(&mut self) -> Result<Timed> {
        let sync = |parts: &dyn StepParts| parts.device().channel().sync();
        sync(&*self.parts)?;
        let start = Instant::now();
        let loss = self.parts.loss()?;
        sync(&*self.parts)?;
        let forward = start.elapsed().as_secs_f64();
        let begin = Instant::now();
        *lock(&self.marks) = Marks { begin: Some(begin), ready_s: vec![None; self.parameters.len()] };
        let passed = loss.backward();
        drop(loss);
        let marks = std::mem::take(&mut *lock(&self.marks));
        passed?;
        sync(&*self.parts)?;
        let backward = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        self.parts.update()?;
        sync(&*self.parts)?;
        let update = begin.elapsed().as_secs_f64();
        // a gradient that never came waits for the end of the pass, as in `DataParallel`
        let ready = marks.ready_s.into_iter().map(|t| t.unwrap_or(backward)).collect();
        Ok(Timed { forward, backward, update, ready })
    }
}
