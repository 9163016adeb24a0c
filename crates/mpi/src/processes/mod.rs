//! A process's part of MPI: its start, its end, and the failures that end all processes.
//!
//! While a rank waits for others it sleeps between its looks, so that it takes no processor from them or from its own computing
//! threads; when all have come and bytes move it looks without a pause, since MPI moves them only then. No call of MPI's blocks, so a
//! rank that stops in the middle of one is seen, too. A rank that does not come in time, or a failure of MPI itself, ends all
//! processes: MPI has no way back from either.

mod transport;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::Duration;

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _};
use remat_comm::{Communicator, launched};
use remat_types::{Error, ErrorKind, Result};

use self::transport::Mpi;

/// How long a rank waits for the one that failed by itself.
const OWN_WORDS: Duration = Duration::from_secs(1);

/// Runs `f` with all processes that the launcher started, which wait for each other at most as long as `limit`, and ends MPI. If `f`
/// fails, prints why to standard error and ends all processes with the exit status that `status` gives for the error. A rank that
/// fails for another's sake leaves it the time to say so itself.
///
/// Errors (Device): MPI was started already, does not support calls of several threads, or does not know the processes that the launcher
/// started; those of [`launched`].
pub fn run<T>(limit: Duration, status: impl Fn(&Error) -> i32, f: impl FnOnce(Communicator) -> Result<T>) -> Result<T> {
    let started = launched()?;
    let (universe, threading) = mpi::initialize_with_threading(Threading::Multiple)
        .ok_or_else(|| Error::new(ErrorKind::Device, "MPI was started already in this process"))?;
    if threading != Threading::Multiple {
        let text = "this MPI library gives no support for threads (MPI_THREAD_MULTIPLE); use a build of it that does";
        return Err(Error::new(ErrorKind::Device, text));
    }
    let world = universe.world();
    let (own, all) = (world.rank() as usize, world.size() as usize);
    if let Some((rank, size)) = started.filter(|(_, size)| *size > all) {
        let text = format!(
            "the launcher started this process as rank {rank} of {size}, and for MPI it is rank {own} of {all}: start it by the `mpirun` \
             of the MPI library that it was built with"
        );
        return Err(Error::new(ErrorKind::Device, text));
    }
    let of_peers = status(&Error::new(ErrorKind::Peer, "a rank does not come"));
    let process = Arc::new(Process { status: of_peers, universe: Mutex::new(Some(universe)) });
    *lock(&RUNNING) = Arc::downgrade(&process);
    let guard = EndsAll { world: world.duplicate(), status: of_peers, is_armed: true };
    let transport = Mpi::new(world.duplicate(), process.clone());
    let ranks = Communicator::new(Box::new(transport), limit);
    // whoever still waits for this rank hears that it does not come; what else holds the ranks may still call them
    let ended = || if ranks.is_last() { ranks.end() } else { Ok(()) };
    match f(ranks.clone()).and_then(|y| ended().map(|()| y)) {
        Ok(y) => {
            guard.disarm();
            Ok(y)
        }
        Err(e) => {
            if e.kind() == ErrorKind::Peer {
                sleep(OWN_WORDS);
            }
            eprintln!("error: rank {}: {e}", world.rank());
            world.abort(status(&e))
        }
    }
}

/// `y` becomes the sum of all processes' `x` as MPI itself takes it, in an order of its own: to compare times. MPI runs.
///
/// # Panics
///
/// If `x` and `y` differ in length.
pub fn sum_of_mpi(x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "a sum is as long as what is added");
    SimpleCommunicator::world().all_reduce_into(x, y, SystemOperation::sum());
}

/// MPI runs as long as one of these is there, unless [`end`] ends it.
struct Process {
    /// The exit status of all processes where one ends them.
    status: i32,
    universe: Mutex<Option<Universe>>,
}

/// This process's part of MPI, if it runs.
static RUNNING: Mutex<Weak<Process>> = Mutex::new(Weak::new());

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends MPI now, if it runs: for the end of a program that leaves communicators alive, as an interpreter does with what modules hold. A
/// launcher takes a process that ends without it for one that failed. Nothing may use or drop a communicator afterwards: MPI ends all
/// processes that try. The thread that called [`run`] calls it.
pub fn end() {
    let process = lock(&RUNNING).upgrade();
    drop(process.and_then(|p| lock(&p.universe).take()));
}

/// Ends all processes if this one unwinds, since MPI's end waits for all.
struct EndsAll {
    world: SimpleCommunicator,
    status: i32,
    is_armed: bool,
}

impl EndsAll {
    fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for EndsAll {
    fn drop(&mut self) {
        if self.is_armed {
            eprintln!("error: rank {} panicked, which ends all ranks", self.world.rank());
            self.world.abort(self.status);
        }
    }
}
