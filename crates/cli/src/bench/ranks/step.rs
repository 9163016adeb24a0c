use std::time::Instant;

use remat::nn::distributed::Communicator;
use remat::runtime::{Device, DeviceOptions};
use remat::types::{Error, ErrorKind, Result};
use serde::Serialize;

use super::{in_turns, json, median};
use crate::bench::networks::{RunMode, peak};
use crate::device::On;
use crate::networks::{Network, Running};
use crate::sizes::show;

/// Of the first rank.
#[derive(Serialize)]
pub(super) struct Report {
    work: String,
    ranks: usize,
    /// Of each rank.
    batch: usize,
    threads: usize,
    runs: usize,
    /// Medians: the data parallel step, and the same step of all ranks at the same time, each for itself.
    step_ms: f64,
    alone_ms: f64,
    /// The time that data parallelism adds to a step: `step_ms` - `alone_ms`.
    cost_ms: f64,
    /// Of a step, on average: in which collectives ran, other ranks waited for, and of that in which the device waited.
    communication_ms: f64,
    exposed_ms: f64,
    /// The share of communication for which the device did not wait. That is of waiting only: collectives take processors and memory's
    /// bandwidth from the kernels beside them, which `cost_ms` has, too.
    unwaited_share: f64,
    /// Tensors that collectives were given, of a step.
    communicated_bytes: u64,
    collectives: u64,
    peak_bytes: usize,
    budget_bytes: Option<usize>,
}

impl Report {
    /// For people, and as JSON.
    pub(super) fn told(&self) -> Result<(String, String)> {
        let text = format!(
            "{} on {} ranks, batch {} and {} threads each, {} turns\n\
             step           {:.2} ms median; each rank for itself {:.2} ms; data parallelism adds {:.2} ms, {:.0} %\n\
             communication  {:.2} ms; the device waited for {:.2} ms of it and computed during {:.0} %; {} in {} collectives\n\
             held           {}\n",
            self.work,
            self.ranks,
            self.batch,
            self.threads,
            self.runs,
            self.step_ms,
            self.alone_ms,
            self.cost_ms,
            100.0 * self.cost_ms / self.alone_ms,
            self.communication_ms,
            self.exposed_ms,
            100.0 * self.unwaited_share,
            show(self.communicated_bytes as usize),
            self.collectives,
            show(self.peak_bytes),
        );
        Ok((text, json(self)?))
    }
}

/// Steps until caches, plans and the optimiser's state are there.
const SETTLE: usize = 12;

/// Errors: Value for a network that is not trained; Peer; Budget; those of the network.
pub(super) fn measure(ranks: &Communicator, network: Network, mode: RunMode<'_>, seconds: f64) -> Result<Report> {
    if !matches!(network, Network::Train(_)) {
        return Err(Error::new(
            ErrorKind::Value,
            format!("{network} is no training step: ranks have nothing to share"),
        ));
    }
    let on = On { device: mode.device, threads: Some(mode.threads) };
    let dry = || on.open(DeviceOptions { ranks: Some(ranks.clone()), ..DeviceOptions::default() }, true);
    let budget_bytes = mode.budget.bytes(|| peak(network, mode, &dry()?))?;
    let device = |ranks: Option<Communicator>| {
        let foresight = mode.foresight;
        on.open(DeviceOptions { budget_bytes, foresight, ranks, ..Default::default() }, false)
    };
    let (together, alone) = (device(Some(ranks.clone()))?, device(None)?);
    let program = ranks.duplicate()?;
    let mut parallel = Running::new(network, mode.batch, mode.compiled, &together)?;
    let mut single = Running::new(network, mode.batch, mode.compiled, &alone)?;
    // ranks settle together: as many steps on each
    (0..SETTLE).try_for_each(|_| parallel.run())?;
    (0..SETTLE).try_for_each(|_| single.run())?;
    let before = (parallel.stats()?, ranks.statistics());
    let mut steps = 0u64;
    let times = in_turns(&program, seconds, || {
        steps += 1;
        program.barrier()?;
        let start = Instant::now();
        parallel.run()?;
        let own = start.elapsed().as_secs_f64();
        program.barrier()?;
        let start = Instant::now();
        single.run()?;
        Ok([own, start.elapsed().as_secs_f64()])
    })?;
    let (stats, calls) = (parallel.stats()?, ranks.statistics());
    let busy_ns = stats.communication_ns - before.0.communication_ns;
    let exposed_ns = stats.exposed_communication_ns - before.0.exposed_communication_ns;
    let (step_ms, alone_ms) = (median(&times, 0) * 1e3, median(&times, 1) * 1e3);
    Ok(Report {
        work: network.to_string(),
        ranks: ranks.size(),
        batch: mode.batch,
        threads: mode.threads,
        runs: times.len(),
        step_ms,
        alone_ms,
        cost_ms: step_ms - alone_ms,
        communication_ms: busy_ns as f64 / steps as f64 / 1e6,
        exposed_ms: exposed_ns as f64 / steps as f64 / 1e6,
        unwaited_share: 1.0 - exposed_ns as f64 / (busy_ns as f64).max(1.0),
        communicated_bytes: (calls.bytes - before.1.bytes) / steps,
        collectives: (calls.calls - before.1.calls) / steps,
        peak_bytes: stats.peak_bytes,
        budget_bytes,
    })
}
