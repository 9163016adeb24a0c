//! Ops without a kernel on the device, run on the host: inputs are copied down, the op's own kernel runs, outputs are
//! copied up.
//!
//! The device waits for these copies. So this is for the rare op of a network, not for its main work. The report lists
//! these ops with their times. The device's memory does not change: the outputs have their places, and the copies lie
//! on the host beside the budget.

use remat_kernels::pool::Pool;
use remat_ops::eval_on_host;
use remat_types::{Error, ErrorKind, HostTensor, Result};
use rustc_hash::FxHashMap;

use super::Call;
use crate::eager::worker::Worker;
use remat_device::host::contained;
use remat_device::{Event, Launch};

/// The ops that ran on the host.
#[derive(Default)]
pub(super) struct HostRuns {
    /// Made when the first op needs it.
    pool: Option<Pool>,
    /// Launches of each op, and their time.
    by_op: FxHashMap<&'static str, (u64, u64)>,
}

impl HostRuns {
    pub(super) fn by_op(&self) -> &FxHashMap<&'static str, (u64, u64)> {
        &self.by_op
    }

    /// Counts launches of an op.
    pub(super) fn note(&mut self, op: &'static str, count: u64, ns: u64) {
        let known = self.by_op.entry(op).or_default();
        (known.0, known.1) = (known.0 + count, known.1 + ns);
    }

    pub(super) fn reset(&mut self) {
        self.by_op.clear();
    }
}

impl Worker {
    /// True if the device has a kernel for a call.
    pub(in crate::eager) fn has_kernel(&self, call: &Call<'_>) -> bool {
        self.launcher.kernels.is_complete() || {
            let x = super::op_costs::facts(call.x);
            let refs: remat_types::SmallVec<[_; 4]> = x.iter().collect();
            self.launcher.kernels.supports(&**call.op, &refs)
        }
    }

    /// Runs a launch on the host, and returns the event after which its outputs are there. Errors: those of the copies
    /// and of the op; Device if the options do not allow it.
    pub(in crate::eager) fn launch_on_host(&mut self, launch: &Launch<'_>, call: &Call<'_>) -> Result<Event> {
        if !self.options.host_fallback {
            let text = format!("device {} has no kernel for it", self.launcher.kernels.device());
            return Err(Error::new(ErrorKind::Device, text).with_op(call.label.text));
        }
        let start_ns = self.launcher.device.now_ns();
        let mut bytes = 0;
        let mut x = Vec::with_capacity(launch.x.len());
        for (i, input) in launch.x.iter().enumerate() {
            let mut input = input.clone();
            // An output took over the storage of this input.
            if let Some(y) = launch.y.iter().find(|y| y.donated_from == Some(i)) {
                (input.at, input.bytes) = (y.at, y.bytes);
            }
            let written = launch.after.get(i).copied().unwrap_or(Event::REACHED);
            self.launcher.host_waits += u64::from(self.launcher.is_asynchronous);
            let value = self.launcher.device.download(&input, &[written])?;
            bytes += value.bytes().len();
            x.push(value);
        }
        let y = self.eval_on_host(call, &x)?;
        let mut event = Event::REACHED;
        for (value, output) in y.iter().zip(&launch.y) {
            bytes += value.bytes().len();
            event = self.launcher.device.upload(launch.stream, output.at, value)?;
        }
        let ns = self.launcher.device.now_ns().saturating_sub(start_ns);
        self.figures.stats.host_fallback_ops += 1;
        self.figures.stats.host_fallback_ns += ns;
        self.figures.stats.host_fallback_bytes += bytes as u64;
        self.launcher.host_runs.note(call.label.text, 1, ns);
        Ok(event)
    }

    fn eval_on_host(&mut self, call: &Call<'_>, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
        let threads = self.launcher.threads();
        let pool = match &mut self.launcher.host_runs.pool {
            Some(pool) => pool,
            none => none.insert(Pool::try_new(threads).map_err(|e| {
                Error::new(ErrorKind::Io, format!("cannot start {threads} compute threads: {e}")).with_source(e)
            })?),
        };
        contained(call.label.text, || eval_on_host(&**call.op, x, pool))
    }
}
