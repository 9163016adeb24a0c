//! The ranks of a training run: one, or those that an MPI launcher started.

use remat::nn::distributed::{Call, Communicator, DataParallel, DataParallelOptions, Gradients, Sharded};
use remat::nn::{Grouped, Module, Optimizer, Parameter, Rule};
use remat::types::{DType, Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::interrupt;

/// The rank of this process.
#[derive(Clone)]
pub(crate) struct Ranks {
    /// For what the device runs.
    pub(super) device: Communicator,
    /// For what the program itself asks, whose order is its own.
    program: Communicator,
    divided: Divided,
}

/// The kinds of state that the ranks divide.
#[derive(Clone, Copy, Default)]
pub(super) struct Divided {
    /// The optimiser's state.
    pub(super) state: bool,
    /// The gradients, too.
    pub(super) gradients: bool,
}

impl Ranks {
    pub(super) fn alone() -> Ranks {
        Ranks { device: Communicator::alone(), program: Communicator::alone(), divided: Divided::default() }
    }

    /// Those of a group. Errors (Peer): a rank does not come.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "there is no other rank"))]
    pub(super) fn of(device: Communicator, divided: Divided) -> Result<Ranks> {
        let program = device.duplicate()?;
        Ok(Ranks { device, program, divided })
    }

    /// The optimiser of a task: with all of its state, or this rank's part.
    pub(crate) fn optimizer<R: Rule>(
        &self,
        parameters: Vec<(String, Parameter)>,
        options: R,
    ) -> Result<Box<dyn Optimizer>> {
        match self.divided.state {
            true => Ok(Box::new(Sharded::new(parameters, &self.device, options)?)),
            false => Ok(Box::new(Grouped::new(parameters, options)?)),
        }
    }

    /// The wrapper that reduces a network's gradients over all ranks, if there are several.
    pub(super) fn parallel(&self, net: &impl Module) -> Result<Option<DataParallel>> {
        let gradients = if self.divided.gradients { Gradients::Divided } else { Gradients::Whole };
        let options = DataParallelOptions { gradients, ..DataParallelOptions::default() };
        (self.size() > 1).then(|| DataParallel::new(net, &self.device, options)).transpose()
    }

    pub(super) fn rank(&self) -> usize {
        self.program.rank()
    }

    pub(super) fn size(&self) -> usize {
        self.program.size()
    }

    /// True for the rank that prints and saves.
    pub(super) fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// True if this rank has a part of the saved state.
    pub(super) fn take_part_in_saving(&self) -> bool {
        self.is_first() || self.divided.state
    }

    /// Shares the result of a save in which the ranks took part. Only the first rank's disk can fail. Its failure is an error of
    /// that kind on all ranks, so that all of them go on or none does. Errors: those of the save; Peer.
    pub(super) fn saved(&self, mine: Result<()>) -> Result<()> {
        let is_of_disk = mine.as_ref().is_err_and(|e| e.kind() == ErrorKind::Io);
        let on_first = self.as_first(is_of_disk)?;
        mine.map_err(|e| match on_first && e.kind() == ErrorKind::Peer {
            true => Error::new(ErrorKind::Io, e.message().to_owned()),
            false => e,
        })
    }

    /// The first rank's `mine`, if all ranks take part in saving; else this rank's. Errors: Peer.
    pub(super) fn as_first(&self, mine: bool) -> Result<bool> {
        match self.divided.state {
            true => Ok(self.gather(&[u8::from(mine)])?.first() == Some(&1)),
            false => Ok(mine),
        }
    }

    /// Whether one of the ranks was asked to end. Errors: Peer.
    pub(super) fn is_interrupted(&self) -> Result<bool> {
        let mine = [u8::from(interrupt::requested())];
        Ok(self.gather(&mine)?.contains(&1))
    }

    /// Runs `f` on the first rank, and gives all ranks its result. Errors: those of `f`, on the others Peer.
    pub(super) fn on_first(&self, what: &str, f: impl FnOnce() -> Result<()>) -> Result<()> {
        let mine = if self.is_first() { f() } else { Ok(()) };
        self.program.agree(&Call::named(what), mine)
    }

    /// The sum over all ranks, in their order.
    pub(super) fn sum(&self, mine: f64) -> Result<f64> {
        Ok(self.numbers(mine.to_bits())?.into_iter().map(f64::from_bits).sum())
    }

    /// The largest that a rank gives. Errors: Peer.
    pub(super) fn largest(&self, mine: usize) -> Result<usize> {
        Ok(self.numbers(mine as u64)?.into_iter().max().map_or(mine, |n| n as usize))
    }

    /// A number of each rank.
    fn numbers(&self, mine: u64) -> Result<Vec<u64>> {
        Ok(words(&self.gather(&mine.to_le_bytes())?).collect())
    }

    /// The same bytes of each rank, one behind the other.
    pub(super) fn gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0; mine.len() * self.size()];
        let call = Call::new("figures", "", DType::U8, &[mine.len()].into());
        self.program.all_gather(&call, mine, &mut all)?;
        Ok(all)
    }

    /// A list of an object for each rank, of figures that each has. Errors: Peer.
    pub(super) fn figures(&self, mine: &[(&str, u64)]) -> Result<Value> {
        let bytes: Vec<u8> = mine.iter().flat_map(|(_, v)| v.to_le_bytes()).collect();
        let all = self.gather(&bytes)?;
        let of =
            |rank: &[u8]| mine.iter().zip(words(rank)).map(|((name, _), v)| ((*name).to_owned(), json!(v))).collect();
        Ok(all.chunks_exact(bytes.len().max(1)).map(|rank| Value::Object(of(rank))).collect())
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(size_of::<u64>()).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
}

/// Runs `f` with the ranks that an MPI launcher started, or alone. Errors: those of `f`, of one rank; of several they end all
/// processes. Value if there is a launcher and this command cannot talk to it, Device if no command can.
#[cfg(feature = "mpi")]
pub(super) fn with_ranks(
    limit: std::time::Duration,
    divided: Divided,
    f: impl FnOnce(&Ranks) -> Result<()>,
) -> Result<()> {
    use remat::nn::distributed::{launched, mpi};

    use crate::output;
    use crate::process::exit_code;

    match launched()? {
        None => f(&Ranks::alone()),
        Some((rank, _)) => {
            if rank > 0 {
                output::silence();
            }
            mpi::run(limit, |e| i32::from(exit_code(e)), |ranks| f(&Ranks::of(ranks, divided)?))
        }
    }
}

/// As above, of a command that was built without MPI.
#[cfg(not(feature = "mpi"))]
pub(super) fn with_ranks(
    _limit: std::time::Duration,
    _divided: Divided,
    f: impl FnOnce(&Ranks) -> Result<()>,
) -> Result<()> {
    match remat::nn::distributed::launched()? {
        Some((_, size)) if size > 1 => {
            let text = format!(
                "an MPI launcher started {size} processes of this command, which was built without MPI and would train {size} \
                 networks; build it with `cargo build --release -p remat-cli --features mpi`"
            );
            Err(Error::new(ErrorKind::Value, text))
        }
        _ => f(&Ranks::alone()),
    }
}
