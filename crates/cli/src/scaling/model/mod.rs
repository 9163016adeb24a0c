//! How long a step of data parallel training takes on any number of ranks: pure functions of a profile and a network.
//!
//! A step is a forward pass, a backward pass in which gradients become ready, and an update. The buckets of gradients are reduced one
//! after the other, each when its last gradient is ready. Overlapped, bucket `i` begins at `max(ready_i, end of i - 1)` while the
//! backward pass goes on; not overlapped, the device stops for each. The update waits for both, and for the ranks to agree on it:
//!
//! ```text
//! overlapped      step = max(forward + backward, end of the last bucket) + agreement + update
//! not overlapped  step = forward + backward + all buckets                + agreement + update
//! ```
//!
//! Making buckets of gradients, and gradients of buckets again, is a part of the backward pass (`bundle_ms`). Ranks are disturbed at
//! random, each by itself and from moment to moment, so that the deviation of what they do between two meetings grows with the root of
//! its time; the slowest of `p` is later by the expected maximum of `p` normal variables. Where the device stops for each bucket all
//! ranks meet at each; overlapped, only what has accumulated until a bucket is waited for.

mod buckets;
mod jitter;
mod profile;
#[cfg(test)]
mod tests;

use remat::tensor::comm::cost::{AllReduce, Cost, Network};
use remat::types::{Error, ErrorKind, Result};
use serde::Serialize;

pub(super) use buckets::{BUCKET_BYTES, buckets};
pub(super) use jitter::expected_maximum;
pub(super) use profile::{AtBatch, Gradient, Profile};

/// Below this share of a step, communication that is not hidden binds nothing.
const NOTHING_BINDS: f64 = 0.02;

/// The way in which the batch changes as ranks are added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Batch {
    /// Each rank has as many examples as one had: weak scaling.
    EachRank(f64),
    /// All ranks together have so many: strong scaling.
    AllRanks(f64),
}

/// The parameters of a prediction beside a profile and a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) batch: Batch,
    pub(super) how: AllReduce,
    /// Buckets are reduced while the backward pass goes on.
    pub(super) overlaps: bool,
    /// Standard deviation of ranks' steps, as a share of a step.
    pub(super) jitter: f64,
    pub(super) bucket_bytes: usize,
    /// The device computes so many times faster than the one of the profile.
    pub(super) faster: f64,
    /// Processors of a machine, which its ranks' threads share; `None` if there are enough.
    pub(super) processors: Option<usize>,
}

/// The largest part of the time that communication adds to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    /// Communication adds next to nothing.
    Compute,
    Latency,
    Bandwidth,
    /// Adding up.
    Reduction,
    /// All but the last bucket, which has no pass to hide behind.
    LastBucket,
}

/// A predicted step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    pub(super) ranks: usize,
    pub(super) machines: usize,
    pub(super) all_reduce: String,
    pub(super) overlaps: bool,
    /// Of a rank.
    pub(super) batch: f64,
    pub(super) step_ms: f64,
    /// Of all ranks.
    pub(super) samples_per_s: f64,
    /// Of the speed of so many ranks that need not communicate.
    pub(super) efficiency: f64,
    /// Forward and backward pass, with what buckets cost.
    pub(super) compute_ms: f64,
    pub(super) update_ms: f64,
    /// The time of waiting for late ranks.
    pub(super) late_ms: f64,
    pub(super) communication_ms: f64,
    /// The part of communication for which the step waits.
    pub(super) exposed_ms: f64,
    /// The share of it that the step does not wait for; `None` where there is none.
    pub(super) hidden_share: Option<f64>,
    /// The most that a rank sends in a step.
    pub(super) sent_bytes: f64,
    pub(super) bound: Bound,
}

impl Setting {
    /// Errors (Value) for numbers outside their domain.
    fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::new(ErrorKind::Value, text));
        let (Batch::EachRank(batch) | Batch::AllRanks(batch)) = self.batch;
        if !(batch.is_finite() && batch >= 1.0) {
            return wrong(format!("the batch is {batch}, must be at least 1"));
        }
        if !(self.jitter.is_finite() && (0.0..=1.0).contains(&self.jitter)) {
            return wrong(format!("the jitter is {}, must be between 0 and 1", self.jitter));
        }
        if !(self.faster.is_finite() && self.faster > 0.0) {
            return wrong(format!("the device is {} times as fast, must be finite and above 0", self.faster));
        }
        if self.bucket_bytes == 0 || self.processors == Some(0) {
            return wrong("a bucket of 0 bytes, or a machine of 0 processors".to_owned());
        }
        Ok(())
    }

    fn batch_of(&self, ranks: usize) -> f64 {
        match self.batch {
            Batch::EachRank(batch) => batch,
            Batch::AllRanks(batch) => batch / ranks as f64,
        }
    }
}

/// Predicts a step on so many ranks.
///
/// Errors: Value for a profile, network or setting outside their domain, no ranks or too many, and for a batch of less than one
/// example a rank.
pub(super) fn predict(profile: &Profile, network: &Network, setting: &Setting, ranks: usize) -> Result<Step> {
    setting.check()?;
    profile.check()?;
    // checks the network, too
    let agreement = network.agreement(ranks)? * profile.calls as f64;
    let batch = setting.batch_of(ranks);
    if batch < 1.0 {
        let text = format!("{ranks} ranks have {batch:.3} examples each, must be at least 1");
        return Err(Error::new(ErrorKind::Value, text));
    }
    let slowdown = slowdown(profile, network, setting, ranks);
    let at = profile.at(batch);
    let [forward, backward, update] = [at.forward_ms, at.backward_ms, at.update_ms].map(|ms| ms * 1e-3 * slowdown);
    let buckets = if ranks > 1 { buckets(&profile.gradients, setting.bucket_bytes) } else { Vec::new() };
    let bundle = if ranks > 1 { profile.bundle_ms * 1e-3 * slowdown } else { 0.0 };
    let compute = forward + backward + bundle;
    let all_bytes: usize = profile.gradients.iter().map(|g| g.bytes).sum();
    let late = Late { deviation: setting.jitter * expected_maximum(ranks), step: compute + update };

    let mut line =
        Line { late, overlaps: setting.overlaps, met: 0.0, end: 0.0, waited: 0.0, total: Cost::default(), last: 0.0 };
    let mut bytes_before = 0;
    for bucket in &buckets {
        let bytes = bucket.iter().map(|i| profile.gradients[*i].bytes).sum();
        bytes_before += bytes;
        let ready = bucket.iter().map(|i| at.ready_ms[*i]).fold(0.0, f64::max) * 1e-3 * slowdown;
        let bundled = bundle * bytes_before as f64 / all_bytes.max(1) as f64;
        line.reduce(forward + ready + bundled, network.all_reduce(setting.how, ranks, bytes)?);
    }
    let passed = line.finish(compute);
    let step = passed + agreement.seconds() + update;
    let communication = line.total.seconds() + agreement.seconds();
    let exposed = if setting.overlaps { step - compute - update - line.waited } else { communication };
    let one = |batch: f64| {
        let at = profile.at(batch);
        (at.forward_ms + at.backward_ms + at.update_ms) * 1e-3 / setting.faster
    };
    let efficiency = match setting.batch {
        Batch::EachRank(batch) => one(batch) / step,
        Batch::AllRanks(all) => one(all) / (step * ranks as f64),
    };
    Ok(Step {
        ranks,
        machines: network.machines(ranks),
        all_reduce: setting.how.to_string(),
        overlaps: setting.overlaps,
        batch,
        step_ms: step * 1e3,
        samples_per_s: batch * ranks as f64 / step,
        efficiency,
        compute_ms: compute * 1e3,
        update_ms: update * 1e3,
        late_ms: line.waited * 1e3,
        communication_ms: communication * 1e3,
        exposed_ms: exposed * 1e3,
        hidden_share: (communication > 0.0).then(|| (1.0 - exposed / communication).clamp(0.0, 1.0)),
        sent_bytes: line.total.sent_bytes + agreement.sent_bytes,
        bound: bound(setting, step, exposed, &(line.total + agreement), line.last + agreement.seconds()),
    })
}

/// How much longer a rank computes than the profile says: on a slower device, and where threads share processors.
fn slowdown(profile: &Profile, network: &Network, setting: &Setting, ranks: usize) -> f64 {
    let threads = |ranks: usize| (ranks * profile.threads) as f64;
    let waits = |ranks: usize, processors: usize| (threads(ranks) / processors as f64).max(1.0);
    let on_one = network.ranks_per_machine.min(ranks);
    let sharing = setting.processors.map_or(1.0, |p| waits(on_one, p) / waits(profile.ranks, p));
    sharing / setting.faster
}

/// Ranks that are late.
#[derive(Clone, Copy)]
struct Late {
    /// Expected delay of the slowest over a whole step, as a share of it.
    deviation: f64,
    /// Seconds of a step without communication.
    step: f64,
}

impl Late {
    /// How much later than one the slowest is, after so many seconds since all have met.
    fn after(&self, seconds: f64) -> f64 {
        self.deviation * (seconds.max(0.0) * self.step).sqrt()
    }
}

/// Reductions, one after the other. Times are those of a pass that never stops.
struct Line {
    late: Late,
    overlaps: bool,
    /// When ranks have met last.
    met: f64,
    /// When the last reduction ended, if overlapped.
    end: f64,
    /// Seconds that the step waits for ranks that are late.
    waited: f64,
    total: Cost,
    /// Seconds of the last.
    last: f64,
}

impl Line {
    /// A bucket whose last gradient is ready at a time of the pass.
    fn reduce(&mut self, ready: f64, cost: Cost) {
        self.last = cost.seconds();
        self.total = self.total + cost;
        if self.overlaps {
            self.end = self.end.max(ready + self.late.after(ready)) + self.last;
        } else {
            self.waited += self.late.after(ready - self.met);
            self.met = self.met.max(ready);
        }
    }

    /// When the pass has ended on all ranks, with all reductions.
    fn finish(&mut self, compute: f64) -> f64 {
        if self.overlaps {
            // the agreement before the update is where ranks meet
            self.waited = self.late.after(compute);
            return (compute + self.waited).max(self.end);
        }
        self.waited += self.late.after(compute - self.met);
        compute + self.total.seconds() + self.waited
    }
}

fn bound(setting: &Setting, step: f64, exposed: f64, total: &Cost, last: f64) -> Bound {
    if exposed < NOTHING_BINDS * step {
        return Bound::Compute;
    }
    // rounding of the differences aside
    if setting.overlaps && exposed <= last * (1.0 + 1e-9) {
        return Bound::LastBucket;
    }
    let of =
        [(Bound::Latency, total.latency_s), (Bound::Bandwidth, total.transfer_s), (Bound::Reduction, total.reduce_s)];
    of.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Bound::Compute, |b| b.0)
}
