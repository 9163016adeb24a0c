//! `mpirun -n N remat scaling WORK --check`: the prediction for these ranks, beside their measured step.
//!
//! All is measured in one run: the calls of the communicator, from which latency, bandwidth and reduction speed follow; the step of
//! each rank while the others make theirs, without a word between them; and the step in which they train together, in turns with the
//! former, since what other programs take of the machine changes with time.

#[cfg(feature = "mpi")]
mod calls;
#[cfg(feature = "mpi")]
mod check;
#[cfg(feature = "mpi")]
mod steps;
#[cfg(feature = "mpi")]
mod together;

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
pub(super) use check::run;
