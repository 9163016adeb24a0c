//! Collectives, timed on all ranks in turns: `mpirun -n N remat bench allreduce:BYTES` and `train:NAME`.

#[cfg(feature = "mpi")]
mod all_reduce;
#[cfg(feature = "mpi")]
mod step;

use std::path::Path;

use remat::types::{Error, ErrorKind, Result};

use super::networks::RunMode;
use crate::networks::Network;

/// The work to time.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "there are no ranks"))]
pub(super) enum Task<'t> {
    /// The sum of so many bytes over all ranks, beside MPI's own.
    AllReduce(usize),
    /// A data parallel training step, beside the same step of each rank alone.
    Step(Network, RunMode<'t>),
}

/// True if a launcher started several processes of this command. Errors: those of `launched`.
pub(super) fn are_launched() -> Result<bool> {
    Ok(remat::nn::distributed::launched()?.is_some_and(|(_, size)| size > 1))
}

/// Times it for about `seconds`. Errors: Value without a launcher, or of a command that was built without MPI; Peer.
#[cfg(not(feature = "mpi"))]
pub(super) fn run(_task: &Task<'_>, _seconds: f64, _json: Option<&Path>) -> Result<()> {
    let text = "this is of several ranks, and the command was built without MPI; build it with `cargo build --release -p \
                remat-cli --features mpi`";
    Err(Error::new(ErrorKind::Value, text))
}

/// Times it for about `seconds`. Errors: Value without a launcher; Peer; those of the network.
#[cfg(feature = "mpi")]
pub(super) fn run(task: &Task<'_>, seconds: f64, json: Option<&Path>) -> Result<()> {
    use remat::nn::distributed::{DEFAULT_LIMIT, launched, mpi};

    use crate::output;
    use crate::process::exit_code;

    let Some((rank, _)) = launched()? else {
        let text = "allreduce is of ranks: start it with `mpirun -n 2 remat bench allreduce:16MiB`";
        return Err(Error::new(ErrorKind::Value, text));
    };
    if rank > 0 {
        output::silence();
    }
    let status = |e: &Error| i32::from(exit_code(e));
    mpi::run(DEFAULT_LIMIT, status, |ranks| {
        let (text, figures) = match task {
            Task::AllReduce(bytes) => all_reduce::measure(&ranks, *bytes, seconds)?.told()?,
            Task::Step(network, mode) => step::measure(&ranks, *network, *mode, seconds)?.told()?,
        };
        match json.filter(|_| ranks.rank() == 0) {
            Some(path) => output::write(path, figures + "\n"),
            None => {
                output::print(&text);
                Ok(())
            }
        }
    })
}

/// Times in seconds of two things in turns, for about so many seconds, in as many turns as the first rank says.
#[cfg(feature = "mpi")]
fn in_turns(
    ranks: &remat::nn::distributed::Communicator,
    seconds: f64,
    mut turn: impl FnMut() -> Result<[f64; 2]>,
) -> Result<Vec<[f64; 2]>> {
    const WARM_UPS: usize = 3;
    const MIN_TURNS: u64 = 5;
    const MAX_TURNS: u64 = 10_000;

    let mut one = 0.0f64;
    for _ in 0..WARM_UPS {
        one = turn()?.iter().sum();
    }
    let mut turns = ((seconds / one.max(1e-9)) as u64).clamp(MIN_TURNS, MAX_TURNS).to_le_bytes();
    ranks.broadcast(&remat::nn::distributed::Call::named("turns"), 0, &mut turns)?;
    (0..u64::from_le_bytes(turns)).map(|_| turn()).collect()
}

/// The median of one side.
#[cfg(feature = "mpi")]
fn median(times: &[[f64; 2]], side: usize) -> f64 {
    let mut all: Vec<f64> = times.iter().map(|t| t[side]).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[cfg(feature = "mpi")]
fn json(figures: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(figures).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
}
