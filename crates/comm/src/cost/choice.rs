//! All-reduces by name, and the rules by which MPI libraries choose one.

use std::fmt;
use std::str::FromStr;

use remat_types::{Error, ErrorKind, Result};

use super::rounds::{self, Placed};
use super::{Cost, Link, Network};

/// Up to so many bytes MPICH takes recursive doubling: `MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE`, and Thakur, section 4.5.
const MPICH_SHORT_BYTES: usize = 2048;

/// Elements are counted as numbers of 4 bytes where a rule counts elements.
const ELEM_BYTES: usize = 4;

/// Below so many bytes Open MPI took recursive doubling, above it a ring: `ompi_coll_tuned_allreduce_intra_dec_fixed`.
const OPEN_MPI_SHORT_BYTES: usize = 10_000;

/// Open MPI's ring took a tensor in parts of so many bytes for each rank; same function.
const OPEN_MPI_SEGMENT_BYTES: usize = 1 << 20;

/// From so many bytes of all ranks MPICH gathers around a ring (Thakur, section 4.1).
const MPICH_LONG_GATHER_BYTES: usize = 512 << 10;

/// The same where the number of ranks is no power of two.
const MPICH_ODD_GATHER_BYTES: usize = 80 << 10;

/// How ranks sum up tensors: an algorithm, or a rule that chooses one. [`Display`](fmt::Display) and [`FromStr`] have its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllReduce {
    /// A reduce-scatter and an all-gather around a ring: least bytes, most latencies.
    Ring,
    /// Whole tensors at doubling distances: fewest latencies.
    RecursiveDoubling,
    /// Halves of halves, and back: few latencies and least bytes.
    Rabenseifner,
    /// To one rank and back, along a binomial tree.
    Binomial,
    /// Within machines first, then between them, and back: each rank its share, or one rank a machine all, whichever takes less.
    Hierarchical,
    /// MPICH's choice for the size (Thakur, section 4.5): recursive doubling up to 2 KiB, or for fewer elements than ranks, else
    /// Rabenseifner's.
    Mpich,
    /// The choice of Open MPI's module `tuned` before release 4.1: recursive doubling below 10,000 bytes, else a ring, for more
    /// than 1 MiB a rank in segments. Later releases have tables, which are not here.
    OpenMpi,
    /// The one of the algorithms above that takes least time, the first of equals.
    Cheapest,
    /// The algorithm of a [`Communicator`](crate::Communicator): all ranks agree on the call, then each gets its share of all
    /// ranks' values, adds it up, and shares are gathered, 4 MiB at a time.
    Remat,
}

const ALGORITHMS: [AllReduce; 5] = [
    AllReduce::Ring,
    AllReduce::RecursiveDoubling,
    AllReduce::Rabenseifner,
    AllReduce::Binomial,
    AllReduce::Hierarchical,
];

impl AllReduce {
    /// All of them.
    pub const ALL: [AllReduce; 9] = [
        AllReduce::Ring,
        AllReduce::RecursiveDoubling,
        AllReduce::Rabenseifner,
        AllReduce::Binomial,
        AllReduce::Hierarchical,
        AllReduce::Mpich,
        AllReduce::OpenMpi,
        AllReduce::Cheapest,
        AllReduce::Remat,
    ];

    fn name(self) -> &'static str {
        match self {
            AllReduce::Ring => "ring",
            AllReduce::RecursiveDoubling => "recursive-doubling",
            AllReduce::Rabenseifner => "rabenseifner",
            AllReduce::Binomial => "binomial",
            AllReduce::Hierarchical => "hierarchical",
            AllReduce::Mpich => "mpich",
            AllReduce::OpenMpi => "open-mpi",
            AllReduce::Cheapest => "cheapest",
            AllReduce::Remat => "remat",
        }
    }
}

impl fmt::Display for AllReduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for AllReduce {
    type Err = Error;

    /// Errors: Value for another name.
    fn from_str(name: &str) -> Result<Self> {
        AllReduce::ALL.into_iter().find(|a| a.name() == name).ok_or_else(|| {
            let all: Vec<&str> = AllReduce::ALL.iter().map(|a| a.name()).collect();
            Error::new(ErrorKind::Value, format!("there is no all-reduce `{name}`; there are {}", all.join(", ")))
        })
    }
}

impl Network {
    /// The cost of an all-reduce of `bytes` on each of so many ranks; one rank takes nothing.
    ///
    /// Errors: Value as [`Network::check`], and for no ranks or more than [`MOST_RANKS`](super::MOST_RANKS).
    pub fn all_reduce(&self, how: AllReduce, ranks: usize, bytes: usize) -> Result<Cost> {
        self.check_call(ranks, bytes)?;
        Ok(if ranks == 1 { Cost::default() } else { self.summed(how, ranks, bytes) })
    }

    /// The algorithm that `how` comes to for a call: itself unless it is a rule.
    ///
    /// Errors: as [`Network::all_reduce`].
    pub fn chosen(&self, how: AllReduce, ranks: usize, bytes: usize) -> Result<AllReduce> {
        self.check_call(ranks, bytes)?;
        Ok(self.choose(how, ranks, bytes))
    }

    fn choose(&self, how: AllReduce, ranks: usize, bytes: usize) -> AllReduce {
        let elems = bytes / ELEM_BYTES;
        match how {
            AllReduce::Mpich if bytes <= MPICH_SHORT_BYTES || elems < 1 << ranks.ilog2() => {
                AllReduce::RecursiveDoubling
            }
            AllReduce::Mpich => AllReduce::Rabenseifner,
            AllReduce::OpenMpi if bytes < OPEN_MPI_SHORT_BYTES => AllReduce::RecursiveDoubling,
            // without overlap of its two halves, for tensors of fewer elements than ranks
            AllReduce::OpenMpi if elems <= ranks => AllReduce::Binomial,
            AllReduce::OpenMpi => AllReduce::Ring,
            AllReduce::Cheapest => {
                let seconds = |a: AllReduce| self.summed(a, ranks, bytes).seconds();
                let least = |best, a| if seconds(a) < seconds(best) { a } else { best };
                ALGORITHMS.into_iter().fold(AllReduce::Ring, least)
            }
            algorithm => algorithm,
        }
    }

    /// Of at least two ranks, and parameters that are checked.
    fn summed(&self, how: AllReduce, ranks: usize, bytes: usize) -> Cost {
        let (at, n) = (Placed::new(self, ranks), bytes as f64);
        let phases = match how {
            AllReduce::OpenMpi => bytes.div_ceil(ranks * OPEN_MPI_SEGMENT_BYTES).max(1),
            _ => 1,
        };
        match self.choose(how, ranks, bytes) {
            AllReduce::Ring => self.cost(&rounds::ring(at, n, phases)),
            AllReduce::RecursiveDoubling => self.cost(&rounds::recursive_doubling(at, n)),
            AllReduce::Rabenseifner => self.cost(&rounds::rabenseifner(at, n)),
            AllReduce::Binomial => self.cost(&rounds::binomial(at, n)),
            AllReduce::Hierarchical => self.hierarchical(ranks, bytes),
            AllReduce::Remat => self.own_all_reduce(ranks, bytes),
            // rules have come to an algorithm
            AllReduce::Mpich | AllReduce::OpenMpi | AllReduce::Cheapest => Cost::default(),
        }
    }

    fn hierarchical(&self, ranks: usize, bytes: usize) -> Cost {
        let (l, machines) = (self.ranks_per_machine.min(ranks), self.machines(ranks));
        let shares = l as f64 / self.cards as f64;
        let shared = self.cost(&rounds::within_machine(l, bytes as f64));
        let shared = shared + self.between_machines(machines, bytes.div_ceil(l), shares.max(1.0));
        let led = self.cost(&rounds::within_machine_tree(l, bytes as f64));
        let led = led + self.between_machines(machines, bytes, 1.0);
        if led.seconds() < shared.seconds() { led } else { shared }
    }

    /// The cheapest flat all-reduce of one rank of each machine, while others do the same over the same cards.
    fn between_machines(&self, machines: usize, bytes: usize, sharing: f64) -> Cost {
        let between = Link { bytes_per_s: self.between.bytes_per_s / sharing, ..self.between };
        let inner = Network { between, within: between, ranks_per_machine: 1, ..*self };
        let flat = ALGORITHMS.into_iter().filter(|a| *a != AllReduce::Hierarchical);
        let costs = flat.map(|a| inner.summed(a, machines, bytes));
        let least = costs.min_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        least.filter(|_| machines > 1).unwrap_or_default()
    }

    /// The cost of gathering the blocks of all ranks, of `bytes` together, by MPICH's choice (Thakur, section 4.1): Bruck's
    /// algorithm, or recursive doubling at the same cost, up to 512 KiB, or 80 KiB unless ranks are a power of two; else a ring.
    ///
    /// Errors: as [`Network::all_reduce`].
    pub fn all_gather(&self, ranks: usize, bytes: usize) -> Result<Cost> {
        self.check_call(ranks, bytes)?;
        Ok(self.gathered(ranks, bytes))
    }

    pub(super) fn gathered(&self, ranks: usize, bytes: usize) -> Cost {
        let at = Placed::new(self, ranks);
        let is_odd = !ranks.is_power_of_two();
        let long = if is_odd { MPICH_ODD_GATHER_BYTES } else { MPICH_LONG_GATHER_BYTES };
        match bytes < long {
            true => self.cost(&rounds::gather_bruck(at, bytes as f64)),
            false => self.cost(&rounds::gather_ring(at, bytes as f64)),
        }
    }

    /// The cost if each rank sends its blocks, of `bytes` together, to all ranks, one pair after the other.
    /// `MPI_Alltoallv` can do so for blocks of any lengths (Thakur, section 4.3).
    ///
    /// Errors: as [`Network::all_reduce`].
    pub fn all_to_all(&self, ranks: usize, bytes: usize) -> Result<Cost> {
        self.check_call(ranks, bytes)?;
        Ok(self.exchanged(ranks, bytes))
    }

    pub(super) fn exchanged(&self, ranks: usize, bytes: usize) -> Cost {
        self.cost(&rounds::pairwise(Placed::new(self, ranks), bytes as f64))
    }

    /// A tree up and down, which Open MPI takes for a small all-reduce that does not block: `nbc_allreduce_init`.
    pub(super) fn along_a_tree(&self, ranks: usize, bytes: usize) -> Cost {
        self.cost(&rounds::binomial(Placed::new(self, ranks), bytes as f64))
    }
}
