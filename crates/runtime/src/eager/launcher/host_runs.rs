//! Ops for which the device has no kernel, run on the host: inputs come down, the op's own kernel runs, outputs go up.
//!
//! The copies are of a device that waits, so this is for the rare op of a network, not for its work; the report says which
//! ops they are, and what they took. In memory of the device nothing changes: the outputs have their places, and the copies
//! lie on the host beside the budget.

use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_kernels::pool::Pool;
use remat_ops::eval_on_host;
use remat_types::{Error, ErrorKind, HostTensor, Result};
use rustc_hash::FxHashMap;

use crate::device::{Event, Launch};
use crate::eager::launcher::Call;
use crate::eager::worker::Worker;

/// What ran on the host.
#[derive(Default)]
pub(in crate::eager) struct HostRuns {
    /// Made when the first op needs it.
    pool: Option<Pool>,
    /// Launches of each op, and their time.
    pub(in crate::eager) by_op: FxHashMap<&'static str, (u64, u64)>,
}

impl Worker {
    /// True if the device has a kernel for a call.
    pub(in crate::eager) fn has_kernel(&self, call: &Call<'_>) -> bool {
        self.kernels.is_complete() || {
            let x = crate::eager::launcher::op_costs::facts(call.x);
            let refs: remat_types::SmallVec<[_; 4]> = x.iter().collect();
            self.kernels.supports(&**call.op, &refs)
        }
    }

    /// Runs a launch on the host and returns the event after which its outputs are there. Errors: those of the copies and of
    /// the op; Device if the options do not allow it.
    pub(in crate::eager) fn launch_on_host(&mut self, launch: &Launch<'_>, call: &Call<'_>) -> Result<Event> {
        if !self.options.host_fallback {
            let text = format!("device {} has no kernel for it", self.kernels.device());
            return Err(Error::new(ErrorKind::Device, text).with_op(call.label.text));
        }
        let start_ns = self.backend.now_ns();
        let mut bytes = 0;
        let mut x = Vec::with_capacity(launch.x.len());
        for (i, input) in launch.x.iter().enumerate() {
            let mut input = input.clone();
            // The storage of an input that an output took over is the output's.
            if let Some(y) = launch.y.iter().find(|y| y.donated_from == Some(i)) {
                (input.at, input.bytes) = (y.at, y.bytes);
            }
            let written = launch.after.get(i).copied().unwrap_or(Event::REACHED);
            let value = self.backend.download(&input, written)?;
            bytes += value.bytes().len();
            x.push(value);
        }
        let y = self.eval_on_host(call, &x)?;
        let mut event = Event::REACHED;
        for (value, output) in y.iter().zip(&launch.y) {
            bytes += value.bytes().len();
            event = self.backend.upload(launch.stream, output.at, value)?;
        }
        let ns = self.backend.now_ns().saturating_sub(start_ns);
        self.stats.host_fallback_ops += 1;
        self.stats.host_fallback_ns += ns;
        self.stats.host_fallback_bytes += bytes as u64;
        let (count, time_ns) = self.host_runs.by_op.entry(call.label.text).or_default();
        (*count, *time_ns) = (*count + 1, *time_ns + ns);
        Ok(event)
    }

    fn eval_on_host(&mut self, call: &Call<'_>, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
        if self.host_runs.pool.is_none() {
            let threads = self.backend.threads();
            let pool = Pool::try_new(threads).map_err(|e| {
                Error::new(ErrorKind::Io, format!("cannot start {threads} compute threads: {e}")).with_source(e)
            })?;
            self.host_runs.pool = Some(pool);
        }
        let Some(pool) = &self.host_runs.pool else { return Err(Error::new(ErrorKind::Internal, "no pool")) };
        match catch_unwind(AssertUnwindSafe(|| eval_on_host(&**call.op, x, pool))) {
            Ok(result) => result,
            Err(payload) => {
                // What it panicked with may panic when it is dropped.
                std::mem::forget(payload);
                Err(Error::new(ErrorKind::Internal, "the kernel panicked").with_op(call.label.text))
            }
        }
    }
}
