//! A step of one rank, as it was measured.

use remat::types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// More parameters, or batches, than a file may have.
const MOST_ENTRIES: usize = 1 << 20;

/// Longest time that a file may say, in milliseconds: a year.
const LONGEST_MS: f64 = 3.2e10;

/// A parameter's gradient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::scaling) struct Gradient {
    pub(in crate::scaling) name: String,
    pub(in crate::scaling) dtype: String,
    pub(in crate::scaling) bytes: usize,
}

/// Times of a step of one rank with a batch, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::scaling) struct AtBatch {
    pub(in crate::scaling) batch: f64,
    pub(in crate::scaling) forward_ms: f64,
    pub(in crate::scaling) backward_ms: f64,
    pub(in crate::scaling) update_ms: f64,
    /// When each gradient is complete, from the begin of the backward pass.
    pub(in crate::scaling) ready_ms: Vec<f64>,
}

/// The measured step of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::scaling) struct Profile {
    /// `train:resnet18`.
    pub(in crate::scaling) work: String,
    /// Compute threads of a rank.
    pub(in crate::scaling) threads: usize,
    /// Ranks of this machine that were measured at the same time, without talking to each other.
    pub(in crate::scaling) ranks: usize,
    /// How often each step was measured; times are medians.
    pub(in crate::scaling) turns: usize,
    /// By how much a step takes longer where all parts are timed; times are without that.
    pub(in crate::scaling) slowed_by_marks: f64,
    /// The time that a step takes to copy gradients into buckets and back, in milliseconds.
    pub(in crate::scaling) bundle_ms: f64,
    /// How often in a step ranks agree, beside the buckets: once before the update.
    pub(in crate::scaling) calls: usize,
    /// In the order of the network's parameters.
    pub(in crate::scaling) gradients: Vec<Gradient>,
    /// With one or two batches, the larger first.
    pub(in crate::scaling) at: Vec<AtBatch>,
}

impl Profile {
    /// Errors: Value for one that no measurement gives.
    pub(in crate::scaling) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::new(ErrorKind::Value, format!("profile: {text}")));
        let is_time = |ms: &f64| ms.is_finite() && (0.0..=LONGEST_MS).contains(ms);
        if !(1..=2).contains(&self.at.len()) || self.gradients.len() > MOST_ENTRIES {
            return wrong(format!("{} batches, {} gradients", self.at.len(), self.gradients.len()));
        }
        if !(1..=MOST_ENTRIES).contains(&self.threads)
            || !(1..=MOST_ENTRIES).contains(&self.ranks)
            || self.calls > MOST_ENTRIES
        {
            return wrong(format!("{} threads, {} ranks, {} calls", self.threads, self.ranks, self.calls));
        }
        if !is_time(&self.bundle_ms) {
            return wrong(format!("bundle_ms is {}", self.bundle_ms));
        }
        let bytes = self.gradients.iter().try_fold(0usize, |sum, g| sum.checked_add(g.bytes));
        if bytes.is_none() {
            return wrong("gradients have more bytes than can be counted".to_owned());
        }
        for at in &self.at {
            let times = [at.forward_ms, at.backward_ms, at.update_ms];
            let is_sound = times.iter().chain(&at.ready_ms).all(is_time) && times.iter().sum::<f64>() > 0.0;
            if !(is_sound && at.batch.is_finite() && at.batch >= 1.0) {
                return wrong(format!("times of a step with a batch of {} are not finite, or below 0", at.batch));
            }
            if at.ready_ms.len() != self.gradients.len() {
                return wrong(format!("{} gradients, {} times", self.gradients.len(), at.ready_ms.len()));
            }
        }
        match &self.at[..] {
            [more, less] if more.batch <= less.batch => wrong("the larger batch must come first".to_owned()),
            _ => Ok(()),
        }
    }

    /// The largest measured batch.
    pub(in crate::scaling) fn batch(&self) -> f64 {
        self.at.first().map_or(1.0, |at| at.batch)
    }

    /// The times with another batch: `a + b batch` through both measurements, or in proportion where there is one. The update does
    /// not depend on the batch. The profile is checked.
    pub(in crate::scaling) fn at(&self, batch: f64) -> AtBatch {
        let Some(more) = self.at.first() else {
            return AtBatch { batch, forward_ms: 0.0, backward_ms: 0.0, update_ms: 0.0, ready_ms: Vec::new() };
        };
        let less = self.at.get(1);
        let line = |more_ms: f64, less_ms: Option<f64>| {
            let fixed = less.zip(less_ms).map_or(0.0, |(l, ms)| {
                let slope = (more_ms - ms) / (more.batch - l.batch);
                // noise must not make a step of nothing cost less than nothing, nor a larger batch take less
                (more_ms - slope.max(0.0) * more.batch).max(0.0)
            });
            fixed + (more_ms - fixed) * batch / more.batch
        };
        let backward_ms = line(more.backward_ms, less.map(|l| l.backward_ms));
        let ready = more.ready_ms.iter().enumerate();
        AtBatch {
            batch,
            forward_ms: line(more.forward_ms, less.map(|l| l.forward_ms)),
            backward_ms,
            update_ms: more.update_ms,
            ready_ms: ready.map(|(i, ms)| line(*ms, less.map(|l| l.ready_ms[i])).min(backward_ms)).collect(),
        }
    }
}
