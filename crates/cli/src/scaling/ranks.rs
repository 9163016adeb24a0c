//! `mpirun -n N remat scaling WORK --check`: what is predicted for these ranks, beside what they take.
//!
//! All is measured in one run: the calls of the communicator, from which latency, bandwidth and reduction speed follow; the step of
//! each rank while the others make theirs, without a word between them; and the step in which they train together, in turns with the
//! former, since what other programs take of the machine changes with time.

#[cfg(not(feature = "mpi"))]
use remat::types::{Error, ErrorKind, Result};

/// As the module says. Errors: Value without a launcher, or of a command that was built without MPI; Peer.
#[cfg(not(feature = "mpi"))]
pub(super) fn run(_o: &super::Options) -> Result<()> {
    let text = "--check is of ranks, and this command was built without MPI; build it with `cargo build --release -p remat-cli \
                --features mpi`";
    Err(Error::new(ErrorKind::Value, text))
}

#[cfg(feature = "mpi")]
pub(super) use measured::run;

#[cfg(feature = "mpi")]
mod measured {
    use std::time::Instant;

    use remat::nn::distributed::{Call, Communicator, DEFAULT_LIMIT, DataParallel, Reduction, launched, mpi};
    use remat::runtime::DeviceOptions;
    use remat::tensor::comm::cost::{AllReduce, Network};
    use remat::types::{DType, Error, ErrorKind, Result};
    use serde::Serialize;

    use super::super::fit::{Fit, Measured, counting, fit};
    use super::super::measure::{self, How, Pace, least, median, turns_within};
    use super::super::model::{Batch, Profile, Setting, predict};
    use super::super::{Options, save};
    use crate::output::{self, say};
    use crate::process::exit_code;
    use crate::step_parts::StepParts;

    /// Sizes of the calls that are measured: from a small tensor to a bucket.
    const SIZES: [usize; 7] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 10 << 20];
    /// Turns over all sizes.
    const CALL_TURNS: usize = 60;
    const WARM_UPS: usize = 2;
    /// The median of deviations of a normal variable, in standard deviations.
    const NORMAL_QUARTILE: f64 = 0.6745;

    #[derive(Serialize)]
    struct Report {
        work: String,
        ranks: usize,
        threads: usize,
        batch: f64,
        turns: usize,
        latency_us: f64,
        bandwidth_gb_s: f64,
        reduction_gb_s: f64,
        /// The largest difference of a call below from its fit, as a share of what was measured.
        worst_call: f64,
        calls: Vec<FittedCall>,
        /// Standard deviation of ranks' steps by themselves, as a share.
        jitter: f64,
        /// A step of each rank by itself, all at the same time; the mean of ranks.
        alone_ms: f64,
        /// A step in which they train together; the slowest rank.
        measured_ms: f64,
        /// Of such a step, what a rank waited until all had come, and what its reductions took after that.
        waiting_ms: f64,
        moving_ms: f64,
        predicted: Predicted,
        predicted_overlapped: Predicted,
    }

    /// A call of the communicator by itself.
    #[derive(Serialize)]
    struct FittedCall {
        call: &'static str,
        bytes: usize,
        measured_us: f64,
        fitted_us: f64,
    }

    #[derive(Serialize)]
    struct Predicted {
        step_ms: f64,
        communication_ms: f64,
        /// Prediction over measurement, less 1.
        error: f64,
    }

    pub(in crate::scaling) fn run(o: &Options) -> Result<()> {
        let Some((rank, _)) = launched() else {
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
        say!("{} on {} ranks, batch {} each, {} threads each, {} turns", r.work, r.ranks, r.batch, r.threads, r.turns);
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

    /// Ranks that measure together.
    struct Together<'a> {
        ranks: &'a Communicator,
        seconds: f64,
    }

    impl Pace for Together<'_> {
        fn ranks(&self) -> usize {
            self.ranks.size()
        }

        fn turns(&self, one: f64) -> Result<usize> {
            let mut turns = (turns_within(self.seconds, one) as u64).to_le_bytes();
            self.ranks.broadcast(&Call::named("turns"), 0, &mut turns)?;
            Ok(u64::from_le_bytes(turns) as usize)
        }

        fn meet(&self) -> Result<()> {
            self.ranks.barrier()
        }

        fn mean(&self, mine: f64) -> Result<f64> {
            let all = gather(self.ranks, mine)?;
            Ok(all.iter().sum::<f64>() / all.len() as f64)
        }
    }

    /// What the slowest rank has.
    fn slowest(ranks: &Communicator, mine: f64) -> Result<f64> {
        Ok(gather(ranks, mine)?.into_iter().fold(0.0, f64::max))
    }

    /// What each rank has.
    fn gather(ranks: &Communicator, mine: f64) -> Result<Vec<f64>> {
        let mut all = vec![0; size_of::<f64>() * ranks.size()];
        let call = Call::new("figures", "", DType::F64, &[1].into());
        ranks.all_gather(&call, &mine.to_le_bytes(), &mut all)?;
        Ok(all.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default())).collect())
    }

    /// Latency, bandwidth and reduction speed of the machine, from its calls of all sizes, in turns.
    fn calibrate(ranks: &Communicator) -> Result<(Fit, Vec<FittedCall>)> {
        let units = counting(ranks.size());
        let mut calls = vec![(units.agreement(ranks.size())?, Kind::Barrier)];
        for bytes in SIZES {
            calls.push((units.own_all_gather(ranks.size(), bytes)?, Kind::Gather(bytes)));
            calls.push((units.all_reduce(AllReduce::Remat, ranks.size(), bytes)?, Kind::Sum(bytes)));
        }
        let mut buffers = Buffers::new(ranks);
        let mut times = vec![Vec::new(); calls.len()];
        for turn in 0..WARM_UPS + CALL_TURNS {
            for ((_, kind), times) in calls.iter().zip(&mut times) {
                // a call is over when it is over for all
                let seconds = slowest(ranks, buffers.time(ranks, *kind)?)?;
                if turn >= WARM_UPS {
                    times.push(seconds);
                }
            }
        }
        let mut all = Vec::new();
        for ((units, _), times) in calls.iter().zip(&mut times) {
            all.push(Measured { units: *units, seconds: least(times) });
        }
        let found = fit(&all)?;
        let fitted = calls.iter().zip(&all).map(|((units, kind), m)| {
            let s = units.latency_s * found.latency_s
                + units.transfer_s * found.s_per_byte
                + units.reduce_s * found.reduced_s_per_byte;
            let (call, bytes) = kind.named();
            FittedCall { call, bytes, measured_us: m.seconds * 1e6, fitted_us: s * 1e6 }
        });
        Ok((found, fitted.collect()))
    }

    #[derive(Clone, Copy)]
    enum Kind {
        Barrier,
        /// Of all ranks together.
        Gather(usize),
        Sum(usize),
    }

    impl Kind {
        fn named(self) -> (&'static str, usize) {
            match self {
                Kind::Barrier => ("barrier", 0),
                Kind::Gather(bytes) => ("all_gather", bytes),
                Kind::Sum(bytes) => ("all_reduce", bytes),
            }
        }
    }

    struct Buffers {
        x: Vec<u8>,
        y: Vec<u8>,
        work: Vec<u8>,
    }

    impl Buffers {
        fn new(ranks: &Communicator) -> Buffers {
            let most = SIZES[SIZES.len() - 1];
            let work = SIZES.iter().map(|n| ranks.reduce_workspace(DType::F32, *n)).max().unwrap_or(0);
            Buffers { x: vec![0; most], y: vec![0; most], work: vec![0; work] }
        }

        /// Seconds of a call that all ranks begin together.
        fn time(&mut self, ranks: &Communicator, kind: Kind) -> Result<f64> {
            ranks.barrier()?;
            let start = Instant::now();
            match kind {
                Kind::Barrier => ranks.barrier()?,
                Kind::Gather(bytes) => {
                    let part = bytes / ranks.size();
                    let call = Call::new("allgather", "", DType::U8, &[part].into());
                    ranks.all_gather(&call, &self.x[..part], &mut self.y[..part * ranks.size()])?;
                }
                Kind::Sum(bytes) => {
                    let call = Call::new("allreduce", "sum", DType::F32, &[bytes / 4].into());
                    let (x, y, work) = (&self.x[..bytes], &mut self.y[..bytes], &mut self.work);
                    ranks.all_reduce(&call, Reduction::Sum, DType::F32, x, y, work)?;
                }
            }
            Ok(start.elapsed().as_secs_f64())
        }
    }

    /// Seconds of steps, the least of all turns.
    struct Steps {
        turns: usize,
        /// By itself, the mean of ranks.
        alone: f64,
        jitter: f64,
        /// Training together, the slowest rank.
        together: f64,
        /// Of the latter, by the communicator's own clock.
        waiting: f64,
        moving: f64,
    }

    impl Steps {
        /// Steps of both kinds, in turns.
        fn measure(how: &How, ranks: &Communicator, pace: &Together<'_>) -> Result<Steps> {
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
            // of each turn: by itself, together, waiting, moving
            let mut all = [const { Vec::new() }; 4];
            let mut deviations = Vec::new();
            for _ in 0..turns {
                pace.meet()?;
                let by_itself = step(&mut *alone, None)?;
                pace.meet()?;
                let before = of_device.statistics();
                let with_others = step(&mut *together, Some(&parallel))?;
                let after = of_device.statistics();
                let clock = |to: u64, from: u64| (to - from) as f64 * 1e-9;
                let waiting = clock(after.waiting_ns, before.waiting_ns);
                let moving = clock(after.moving_ns, before.moving_ns);
                let each = gather(ranks, by_itself)?;
                let mean = each.iter().sum::<f64>() / each.len() as f64;
                // of n ranks around their own mean
                let bias = (each.len() as f64 / (each.len() as f64 - 1.0).max(1.0)).sqrt();
                deviations.extend(each.iter().map(|s| (s - mean).abs() / mean * bias));
                all[0].push(mean);
                for (of, mine) in all[1..].iter_mut().zip([with_others, waiting, moving]) {
                    of.push(slowest(ranks, mine)?);
                }
            }
            let jitter = (median(&mut deviations) / NORMAL_QUARTILE).min(1.0);
            let [alone, together, waiting, moving] = all.map(|mut times| least(&mut times));
            Ok(Steps { turns, alone, jitter, together, waiting, moving })
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
}
