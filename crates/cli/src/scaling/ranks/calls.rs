//! The calls of the communicator, timed by themselves, and the links that explain them.

use std::time::Instant;

use remat::nn::distributed::{Call, Communicator, Reduction};
use remat::tensor::comm::cost::AllReduce;
use remat::types::{DType, Result};
use serde::Serialize;

use super::super::fit::{Fit, Measured, counting, fit};
use super::super::measure::least;
use super::together::slowest;

/// Sizes of the calls that are measured: from a small tensor to a bucket.
const SIZES: [usize; 7] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 10 << 20];
/// Turns over all sizes, after some that do not count.
const CALL_TURNS: usize = 60;
const WARM_UPS: usize = 2;

/// A call of the communicator by itself.
#[derive(Serialize)]
pub(super) struct FittedCall {
    call: &'static str,
    bytes: usize,
    measured_us: f64,
    fitted_us: f64,
}

/// Latency, bandwidth and reduction speed of the machine, from its calls of all sizes, in turns.
pub(super) fn calibrate(ranks: &Communicator) -> Result<(Fit, Vec<FittedCall>)> {
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
        Buffers { x: vec![1; most], y: vec![1; most], work: vec![1; work] }
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
                ranks.all_reduce(&call, Reduction::Sum, DType::F32, Some(x), y, work)?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }
}
