//! The check itself: a prediction from measurements, beside the measured step.

use remat::nn::distributed::{Communicator, DEFAULT_LIMIT, launched, mpi};
use remat::tensor::comm::cost::{AllReduce, Network};
use remat::types::{Error, ErrorKind, Result};
use serde::Serialize;

use super::super::measure;
use super::super::model::{Batch, Profile, Setting, predict};
use super::super::{Options, save};
use super::calls::{FittedCall, calibrate};
use super::steps::Steps;
use super::together::Together;
use crate::output::{self, say};
use crate::process::exit_code;

#[derive(Serialize)]
struct Report {
    work: String,
    ranks: usize,
    threads: usize,
    batch: f64,
    turns: usize,
    /// Turns that count: those in which other programs took least of the processors.
    quiet_turns: usize,
    /// The share that they took even then: the time for which a rank's threads were ready and had no processor, over that of its
    /// steps.
    disturbed: f64,
    latency_us: f64,
    bandwidth_gb_s: f64,
    reduction_gb_s: f64,
    /// The largest difference of a call below from its fit, as a share of the measured time.
    worst_call: f64,
    calls: Vec<FittedCall>,
    /// Standard deviation of ranks' steps by themselves, as a share.
    jitter: f64,
    /// A step of each rank by itself, all at the same time; the mean of ranks.
    alone_ms: f64,
    /// A step in which they train together; the slowest rank.
    measured_ms: f64,
    /// The parts of such a step in which a rank waited for all others, and in which its reductions ran after that.
    waiting_ms: f64,
    moving_ms: f64,
    predicted: Predicted,
    predicted_overlapped: Predicted,
}

#[derive(Serialize)]
struct Predicted {
    step_ms: f64,
    communication_ms: f64,
    /// Prediction over measurement, less 1.
    error: f64,
}

/// As the module above says. Errors: Value without a launcher, Peer.
pub(in crate::scaling) fn run(o: &Options) -> Result<()> {
    let Some((rank, _)) = launched()? else {
        let text = "--check is of ranks: start it with `mpirun -n 2 remat scaling train:mlp --check`";
        return Err(Error::new(ErrorKind::Value, text));
    };
    if rank > 0 {
        output::silence();
    }
    mpi::run(DEFAULT_LIMIT, |e| i32::from(exit_code(e)), |ranks| check(o, &ranks))
}

fn check(o: &Options, ranks: &Communicator) -> Result<()> {
    let how = o.how()?;
    let (found, calls) = calibrate(ranks)?;
    let pace = Together { ranks, seconds: o.seconds };
    let profile = measure::profile(&how, &pace)?;
    let network = found.network(ranks.size());
    let steps = Steps::measure(&how, ranks, &pace)?;
    // both kinds of step in the same turns
    let profile = scaled(profile, steps.alone * 1e3);
    let setting = Setting {
        batch: Batch::EachRank(profile.batch()),
        how: AllReduce::Remat,
        overlaps: false,
        jitter: steps.jitter,
        ..o.setting(&profile)
    };
    let predicted = |overlaps| -> Result<Predicted> {
        let s = predict(&profile, &network, &Setting { overlaps, ..setting }, ranks.size())?;
        let error = s.step_ms / (steps.together * 1e3) - 1.0;
        Ok(Predicted { step_ms: s.step_ms, communication_ms: s.communication_ms, error })
    };
    let report = Report {
        work: profile.work.clone(),
        ranks: ranks.size(),
        threads: profile.threads,
        batch: profile.batch(),
        turns: steps.turns,
        quiet_turns: steps.quiet_turns,
        disturbed: steps.disturbed,
        latency_us: network.within.latency_s * 1e6,
        bandwidth_gb_s: network.within.bytes_per_s / 1e9,
        reduction_gb_s: network.reduced_bytes_per_s / 1e9,
        worst_call: found.worst,
        calls,
        jitter: steps.jitter,
        alone_ms: steps.alone * 1e3,
        measured_ms: steps.together * 1e3,
        waiting_ms: steps.waiting * 1e3,
        moving_ms: steps.moving * 1e3,
        predicted: predicted(false)?,
        predicted_overlapped: predicted(true)?,
    };
    if ranks.rank() == 0 {
        tell(o, &report, &profile, &network)?;
    }
    Ok(())
}

fn tell(o: &Options, r: &Report, profile: &Profile, network: &Network) -> Result<()> {
    save(o, profile, network)?;
    if let Some(path) = &o.json {
        let text = serde_json::to_string(r).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
        return output::write(path, format!("{text}\n"));
    }
    say!(
        "{} on {} ranks, batch {} each, {} threads each, the {} quietest of {} turns, in which ranks were without a processor for \
         {:.0} % of their time",
        r.work,
        r.ranks,
        r.batch,
        r.threads,
        r.quiet_turns,
        r.turns,
        100.0 * r.disturbed
    );
    say!(
        "links: latency {:.2} us, {:.2} GB/s; adding up {:.2} GB/s; the worst of the calls is {:.0} % off",
        r.latency_us,
        r.bandwidth_gb_s,
        r.reduction_gb_s,
        100.0 * r.worst_call
    );
    say!(
        "a rank by itself {:.2} ms, jitter {:.1} %; together {:.2} ms, of which {:.2} ms waiting and {:.2} ms moving",
        r.alone_ms,
        100.0 * r.jitter,
        r.measured_ms,
        r.waiting_ms,
        r.moving_ms
    );
    for (name, p) in [("not overlapped", &r.predicted), ("overlapped", &r.predicted_overlapped)] {
        say!(
            "predicted {name}: {:.2} ms, of which communication {:.2} ms; error {:+.1} %",
            p.step_ms,
            p.communication_ms,
            100.0 * p.error
        );
    }
    Ok(())
}

/// The profile with steps of so many milliseconds.
fn scaled(mut profile: Profile, step_ms: f64) -> Profile {
    let Some(first) = profile.at.first() else { return profile };
    let factor = step_ms / (first.forward_ms + first.backward_ms + first.update_ms);
    for at in &mut profile.at {
        let times = [&mut at.forward_ms, &mut at.backward_ms, &mut at.update_ms];
        times.into_iter().chain(&mut at.ready_ms).for_each(|ms| *ms *= factor);
    }
    profile
}
