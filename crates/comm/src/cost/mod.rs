//! The cost of collectives on a network that need not exist: pure formulas, for predictions.
//!
//! The model is Hockney's (Parallel Computing 20, 1994): a message of `n` bytes takes `alpha + n beta`, where `alpha` is the latency
//! and `1 / beta` the bandwidth of a link, and reducing `n` bytes takes `n gamma`. A collective is a list of rounds, one after the
//! other; all ranks send at once within a round, in both directions of their links. Ranks fill machine after machine, and the ranks
//! of a machine share its network cards: a round in which `k` of them send to other machines takes `k / cards` as long for its bytes.
//!
//! What is left out: links that are shared beyond a machine's cards (switches are taken to pass all that cards send), protocols that
//! change with the size of a message, and ranks that come late.
//!
//! The algorithms, their rounds and their sources are in `rounds`, the rules by which MPI libraries choose one in `choice`, and
//! the algorithms of the [`Communicator`](crate::Communicator) itself in `own`, with the constants of its code.

mod choice;
mod own;
mod rounds;
#[cfg(test)]
mod tests;

use std::ops::{Add, Mul};

use remat_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

pub use choice::AllReduce;

/// A group of more ranks is refused: nothing is known about machines of that size.
pub const MOST_RANKS: usize = 1 << 20;

/// A group of more bytes a rank is refused: above it a sum of bytes has no exact floating point number.
const MOST_BYTES: usize = 1 << 50;

/// A way between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Seconds until the first byte of a message is there.
    pub latency_s: f64,
    /// Bytes a second of a long message.
    pub bytes_per_s: f64,
}

/// Machines, the links within and between them, and the speed at which a rank reduces.
///
/// ```
/// # use remat_comm::cost::{AllReduce, Link, Network};
/// let link = Link { latency_s: 1e-6, bytes_per_s: 12e9 };
/// let network = Network { within: link, between: link, ranks_per_machine: 1, cards: 1, reduced_bytes_per_s: 10e9 };
/// let cost = network.all_reduce(AllReduce::Ring, 4, 1 << 20)?;
/// assert_eq!(cost.latency_s, 2.0 * 3.0 * 1e-6);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Between ranks of one machine, while all of them send.
    pub within: Link,
    /// Between machines, over one network card.
    pub between: Link,
    /// Ranks of a machine, which share its cards.
    pub ranks_per_machine: usize,
    /// Network cards of a machine, each as fast as `between`.
    pub cards: usize,
    /// Bytes that a rank adds to others in a second.
    pub reduced_bytes_per_s: f64,
}

/// The time of a collective, by its causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Seconds of latencies.
    pub latency_s: f64,
    /// Seconds in which bytes move.
    pub transfer_s: f64,
    /// Seconds in which ranks reduce.
    pub reduce_s: f64,
    /// The most bytes that a rank sends.
    pub sent_bytes: f64,
}

impl Cost {
    /// Seconds of it all.
    pub fn seconds(&self) -> f64 {
        self.latency_s + self.transfer_s + self.reduce_s
    }
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            latency_s: self.latency_s + other.latency_s,
            transfer_s: self.transfer_s + other.transfer_s,
            reduce_s: self.reduce_s + other.reduce_s,
            sent_bytes: self.sent_bytes + other.sent_bytes,
        }
    }
}

/// So many of them, one after the other.
impl Mul<f64> for Cost {
    type Output = Cost;

    fn mul(self, times: f64) -> Cost {
        Cost {
            latency_s: self.latency_s * times,
            transfer_s: self.transfer_s * times,
            reduce_s: self.reduce_s * times,
            sent_bytes: self.sent_bytes * times,
        }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(all: I) -> Cost {
        all.fold(Cost::default(), Add::add)
    }
}

impl Network {
    /// Errors (Value) unless latencies are finite and not negative, speeds finite and above 0, and machines have ranks and cards.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::new(ErrorKind::Value, text));
        for (name, link) in [("within a machine", self.within), ("between machines", self.between)] {
            if !(link.latency_s.is_finite() && link.latency_s >= 0.0) {
                return wrong(format!("the latency {name} is {} s, must be finite and at least 0", link.latency_s));
            }
            if !(link.bytes_per_s.is_finite() && link.bytes_per_s > 0.0) {
                let text = "bytes/s, must be finite and above 0";
                return wrong(format!("the bandwidth {name} is {} {text}", link.bytes_per_s));
            }
        }
        let speed = self.reduced_bytes_per_s;
        if !(speed.is_finite() && speed > 0.0) {
            return wrong(format!("a rank reduces {speed} bytes/s, must be finite and above 0"));
        }
        if !(1..=MOST_RANKS).contains(&self.ranks_per_machine) {
            let n = self.ranks_per_machine;
            return wrong(format!("a machine has {n} ranks, must be between 1 and {MOST_RANKS}"));
        }
        if !(1..=MOST_RANKS).contains(&self.cards) {
            return wrong(format!("a machine has {} network cards, must be between 1 and {MOST_RANKS}", self.cards));
        }
        Ok(())
    }

    /// How many machines so many ranks fill.
    pub fn machines(&self, ranks: usize) -> usize {
        ranks.div_ceil(self.ranks_per_machine.max(1))
    }

    /// Errors (Value): as [`Network::check`], and for groups of no ranks, or of too many, or of too many bytes.
    fn check_call(&self, ranks: usize, bytes: usize) -> Result<()> {
        self.check()?;
        if !(1..=MOST_RANKS).contains(&ranks) {
            let text = format!("there are {ranks} ranks, must be between 1 and {MOST_RANKS}");
            return Err(Error::new(ErrorKind::Value, text));
        }
        if bytes > MOST_BYTES {
            return Err(Error::new(ErrorKind::Value, format!("{bytes} bytes, must be at most {MOST_BYTES}")));
        }
        Ok(())
    }
}
