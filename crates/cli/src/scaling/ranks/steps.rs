//! Steps of ranks by themselves and together, in turns.

use std::time::Instant;

use remat::nn::distributed::{Communicator, DataParallel};
use remat::runtime::DeviceOptions;
use remat::types::Result;

use super::super::measure::{How, Pace, median};
use super::together::{Together, gather, slowest};
use crate::process::waited_for_processor_ns;
use crate::step_parts::StepParts;

const WARM_UPS: usize = 2;
/// Of all turns the quietest in this many count, and at least so many.
const QUIET_PART: usize = 4;
const QUIET_TURNS: usize = 5;
/// The median of deviations of a normal variable, in standard deviations.
const NORMAL_QUARTILE: f64 = 0.6745;

/// Seconds of steps, medians of the turns in which other programs took least of the processors.
pub(super) struct Steps {
    pub(super) turns: usize,
    pub(super) quiet_turns: usize,
    /// Of those turns: time for which threads of a rank were ready and had no processor, over that of its steps.
    pub(super) disturbed: f64,
    /// By itself, the mean of ranks.
    pub(super) alone: f64,
    pub(super) jitter: f64,
    /// Training together, the slowest rank.
    pub(super) together: f64,
    /// Of the latter, by the communicator's own clock.
    pub(super) waiting: f64,
    pub(super) moving: f64,
}

/// A step of each kind.
struct Turn {
    disturbed: f64,
    /// By itself, of each rank.
    alone: Vec<f64>,
    together: f64,
    waiting: f64,
    moving: f64,
}

impl Turn {
    fn alone(&self) -> f64 {
        self.alone.iter().sum::<f64>() / self.alone.len() as f64
    }

    /// Of ranks around their mean, as shares of it; unbiased for the square.
    fn deviations(&self) -> impl Iterator<Item = f64> {
        let (mean, n) = (self.alone(), self.alone.len() as f64);
        let bias = (n / (n - 1.0).max(1.0)).sqrt();
        self.alone.iter().map(move |s| (s - mean).abs() / mean * bias)
    }
}

impl Steps {
    /// Steps of both kinds, in turns.
    pub(super) fn measure(how: &How, ranks: &Communicator, pace: &Together<'_>) -> Result<Steps> {
        let mut alone = how.parts(how.batch, DeviceOptions::default())?;
        let of_device = ranks.duplicate()?;
        let options = DeviceOptions { ranks: Some(of_device.clone()), ..DeviceOptions::default() };
        let mut together = how.parts(how.batch, options)?;
        let parallel = together.parallel(&of_device)?;
        let mut one = 0.0;
        for _ in 0..WARM_UPS {
            one = step(&mut *alone, None)? + step(&mut *together, Some(&parallel))?;
        }
        let turns = pace.turns(one)?;
        let mut all = Vec::new();
        for _ in 0..turns {
            let from = waited_for_processor_ns();
            pace.meet()?;
            let by_itself = step(&mut *alone, None)?;
            pace.meet()?;
            let before = of_device.statistics();
            let with_others = step(&mut *together, Some(&parallel))?;
            let after = of_device.statistics();
            let waited = waited_for_processor_ns().zip(from).map_or(0, |(to, from)| to.saturating_sub(from));
            let s = |ns: u64| ns as f64 * 1e-9;
            all.push(Turn {
                disturbed: slowest(ranks, s(waited) / (by_itself + with_others))?,
                alone: gather(ranks, by_itself)?,
                together: slowest(ranks, with_others)?,
                waiting: slowest(ranks, s(after.waiting_ns - before.waiting_ns))?,
                moving: slowest(ranks, s(after.moving_ns - before.moving_ns))?,
            });
        }
        Ok(Steps::of(all))
    }

    /// All ranks have the same turns, and choose the same.
    fn of(mut all: Vec<Turn>) -> Steps {
        let turns = all.len();
        all.sort_by(|a, b| a.disturbed.total_cmp(&b.disturbed));
        all.truncate((turns / QUIET_PART).max(QUIET_TURNS));
        let of = |f: &dyn Fn(&Turn) -> f64| median(&mut all.iter().map(f).collect::<Vec<f64>>());
        let mut deviations: Vec<f64> = all.iter().flat_map(Turn::deviations).collect();
        Steps {
            turns,
            quiet_turns: all.len(),
            disturbed: of(&|t| t.disturbed),
            alone: of(&Turn::alone),
            jitter: (median(&mut deviations) / NORMAL_QUARTILE).min(1.0),
            together: of(&|t| t.together),
            waiting: of(&|t| t.waiting),
            moving: of(&|t| t.moving),
        }
    }
}

/// Seconds of a step, by itself or with the others.
fn step(parts: &mut dyn StepParts, parallel: Option<&DataParallel>) -> Result<f64> {
    parts.device().channel().sync()?;
    let start = Instant::now();
    let loss = parts.loss()?;
    match parallel {
        Some(parallel) => parallel.backward(&loss)?,
        None => loss.backward()?,
    }
    drop(loss);
    parts.update()?;
    parts.device().channel().sync()?;
    Ok(start.elapsed().as_secs_f64())
}
