//! Networks as works: run until they are warm, within a budget.

use std::path::Path;

use remat::runtime::{Device, DeviceOptions, Foresight, SpillTo};
use remat::types::Result;

use super::cases::{Case, Metrics};
use crate::budget::MemoryBudget;
use crate::device::On;
use crate::networks::{Network, Running, plain_cost};
use crate::timing::operators::{self, Operator};

/// How a network runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunMode<'n> {
    pub batch: usize,
    pub threads: usize,
    /// The name of the device.
    pub device: &'n str,
    pub compiled: bool,
    pub budget: MemoryBudget,
    pub foresight: Foresight,
}

struct Timed {
    running: Running,
    flops: u64,
    moved: u64,
    budget_bytes: Option<usize>,
}

/// The network, run until it is warm. Errors: Budget; those of the network.
pub(super) fn network(
    network: Network,
    mode: RunMode<'_>,
    in_session: bool,
    spill_to: Option<&Path>,
) -> Result<Box<dyn Case>> {
    let on = On { device: mode.device, threads: Some(mode.threads) };
    let dry = || on.open(DeviceOptions::default(), true);
    let cost = plain_cost(network, mode.batch, &dry()?)?;
    let budget_bytes = mode.budget.bytes(|| peak(network, mode, &dry()?))?;
    // without a budget nothing is spilled, and the folder need not be measured
    let spill = spill_to.filter(|_| budget_bytes.is_some()).map(SpillTo::measure).transpose()?;
    let options = DeviceOptions { budget_bytes, foresight: mode.foresight, spill, ..Default::default() };
    let mut running = Running::new(network, mode.batch, mode.compiled, &on.open(options, false)?)?;
    running.settle()?;
    if in_session {
        running.bind()?;
    }
    Ok(Box::new(Timed { running, flops: cost.flops, moved: cost.bytes, budget_bytes }))
}

/// The peak without a budget, from two runs without memory: the first makes what the second finds.
pub(super) fn peak(network: Network, mode: RunMode<'_>, dry: &Device) -> Result<usize> {
    let mut running = Running::new(network, mode.batch, mode.compiled, dry)?;
    running.run()?;
    running.run()?;
    Ok(running.stats()?.peak_bytes)
}

impl Case for Timed {
    fn run(&mut self) -> Result<()> {
        self.running.run()
    }
    fn metrics(&self) -> Metrics {
        let (plan, ops_ns) = self.running.plan_times();
        Metrics { losses: self.running.losses().to_vec(), budget_bytes: self.budget_bytes, plan, ops_ns }
    }
    fn operators(&mut self) -> Result<Vec<Operator>> {
        Ok(operators::of(&*self.running.executable()?))
    }
    fn flops(&self) -> u64 {
        self.flops
    }
    fn moved_bytes(&self) -> u64 {
        self.moved
    }
    fn peak_bytes(&self) -> usize {
        // constants of a compiled function lie on the host
        let arena = self.running.stats().map_or(0, |s| s.peak_bytes);
        arena + self.running.figures().map_or(0, |f| f.constant_bytes)
    }
    fn workspace_bytes(&self) -> usize {
        self.running.figures().map_or(0, |f| f.arena_bytes)
    }
}
