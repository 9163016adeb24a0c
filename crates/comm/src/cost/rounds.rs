//! Algorithms as lists of rounds.
//!
//! `p` is the number of ranks and `n` the bytes of a rank's tensor. Where all links are equal the rounds add up to the closed forms
//! that are given here, of Thakur, Rabenseifner and Gropp ("Optimization of Collective Communication Operations in MPICH", IJHPCA
//! 19(1), 2005; "Thakur" below) and of Patarasuk and Yuan ("Bandwidth optimal all-reduce algorithms for clusters of workstations",
//! JPDC 69(2), 2009). `lg` is the logarithm to base 2, and `q` the largest power of two that is at most `p`.

use super::{Cost, Link, Network};

/// Equal rounds of a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// How many there are.
    times: f64,
    /// The bytes that a rank sends.
    bytes: f64,
    /// The received bytes that it reduces.
    reduced: f64,
    /// Of the ranks of a machine, how many send to another machine.
    leaving: usize,
    /// Some send within their machine.
    stays: bool,
}

impl Round {
    /// This often.
    fn times(self, times: usize) -> Round {
        Round { times: times as f64, ..self }
    }

    /// All that comes is reduced.
    fn reducing(self) -> Round {
        Round { reduced: self.bytes, ..self }
    }
}

/// Ranks on machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// Ranks, at least 1.
    p: usize,
    /// Ranks of a machine, at most `p`.
    l: usize,
}

impl Placed {
    pub(super) fn new(network: &Network, ranks: usize) -> Placed {
        Placed { p: ranks, l: network.ranks_per_machine.min(ranks) }
    }

    /// Rank `r` sends to `r + d`, around the end.
    fn shift(self, d: usize, bytes: f64) -> Round {
        let near = d.min(self.p - d);
        let leaving = if self.p > self.l { near.min(self.l) } else { 0 };
        Round { times: 1.0, bytes, reduced: 0.0, leaving, stays: near < self.l }
    }

    /// Ranks whose numbers differ by `d` exchange, for a power of two.
    fn exchange(self, d: usize, bytes: f64) -> Round {
        let leaving = match () {
            () if self.p <= self.l => 0,
            () if d >= self.l => self.l,
            // pairs begin and end with machines
            () if self.l.is_multiple_of(2 * d) => 0,
            // at each end of a machine at most `d` ranks have their partner beyond it
            () => self.l.min(2 * d),
        };
        Round { times: 1.0, bytes, reduced: 0.0, leaving, stays: leaving < self.l }
    }

    /// Every second of the ranks that are multiples of `d` sends to the one before.
    fn tree(self, d: usize, bytes: f64) -> Round {
        let leaves = self.p > self.l && (d >= self.l || !self.l.is_multiple_of(2 * d));
        Round { times: 1.0, bytes, reduced: 0.0, leaving: usize::from(leaves), stays: d < self.l }
    }

    /// The powers of two below `p`, from 1.
    fn powers(self) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(1usize), |d| d.checked_mul(2)).take_while(move |d| *d < self.p)
    }

    /// `lg q`, for `p` of at least 1.
    fn floor_lg(self) -> u32 {
        self.p.ilog2()
    }

    /// Before the rounds of `q` ranks, each surplus rank gives all its bytes to a neighbour; after them it gets the result.
    fn folded(self, bytes: f64, rounds: impl FnOnce(Placed) -> Vec<Round>) -> Vec<Round> {
        let q = 1 << self.floor_lg();
        let mut all = Vec::new();
        if q < self.p {
            all.extend([self.exchange(1, bytes).reducing(), self.exchange(1, bytes)]);
        }
        // the others keep their places, about
        all.extend(rounds(Placed { p: q, l: self.l.min(q) }));
        all
    }
}

/// `2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma`; the least bytes that any algorithm moves (Patarasuk and Yuan, theorem 1).
/// With more phases than one the first half is made for each part of the tensor.
pub(super) fn ring(at: Placed, n: f64, phases: usize) -> Vec<Round> {
    let share = n / at.p as f64;
    let part = at.shift(1.min(at.p - 1), share / phases as f64);
    vec![part.reducing().times((at.p - 1) * phases), at.shift(1.min(at.p - 1), share).times(at.p - 1)]
}

/// `lg p (alpha + n beta + n gamma)` (Thakur, section 4.5); `(lg q + 2) (alpha + n beta) + (lg q + 1) n gamma` unless `p` is a power
/// of two.
pub(super) fn recursive_doubling(at: Placed, n: f64) -> Vec<Round> {
    at.folded(n, |at| at.powers().map(|d| at.exchange(d, n).reducing()).collect())
}

/// Rabenseifner's reduce-scatter by recursive halving and all-gather by recursive doubling (Thakur, section 4.5): `2 lg p alpha +
/// 2 (p-1)/p n beta + (p-1)/p n gamma`; `(2 lg q + 2) alpha + (2 (q-1)/q + 2) n beta + ((q-1)/q + 1) n gamma` unless `p` is a power
/// of two. Neighbours exchange first, and most, as in MPICH.
pub(super) fn rabenseifner(at: Placed, n: f64) -> Vec<Round> {
    at.folded(n, |at| {
        let halves = at.powers().map(|d| at.exchange(d, n / (2 * d) as f64));
        halves.flat_map(|r| [r.reducing(), r]).collect()
    })
}

/// To rank 0 and back along a binomial tree (Thakur, sections 4.2 and 4.4): `ceil(lg p) (2 alpha + 2 n beta + n gamma)`.
pub(super) fn binomial(at: Placed, n: f64) -> Vec<Round> {
    at.powers().flat_map(|d| [at.tree(d, n).reducing(), at.tree(d, n)]).collect()
}

/// Each rank's block of `n / p` bytes to all, around a ring (Thakur, section 4.1): `(p-1) alpha + (p-1)/p n beta`.
pub(super) fn gather_ring(at: Placed, n: f64) -> Vec<Round> {
    vec![at.shift(1.min(at.p - 1), n / at.p as f64).times(at.p - 1)]
}

/// The same by Bruck's algorithm (Thakur, section 4.1): `ceil(lg p) alpha + (p-1)/p n beta`.
pub(super) fn gather_bruck(at: Placed, n: f64) -> Vec<Round> {
    let block = n / at.p as f64;
    at.powers().map(|d| at.shift(d, block * d.min(at.p - d) as f64)).collect()
}

/// A block of `n / p` bytes from each rank to each, one pair after the other (Thakur, section 4.3): `(p-1) alpha + (p-1)/p n beta`.
pub(super) fn pairwise(at: Placed, n: f64) -> Vec<Round> {
    let block = n / at.p as f64;
    // at distances from `l` to `p - l` all ranks of a machine send to others
    let near = at.l.min(at.p.div_ceil(2));
    let mut all: Vec<Round> = (1..near).map(|d| at.shift(d, block).times(2)).collect();
    if near > 0 && at.p > 1 {
        let far = at.p - 1 - 2 * (near - 1);
        all.push(at.shift(near.min(at.p - 1), block).times(far));
    }
    all
}

/// The rounds of a hierarchical all-reduce within machines: the reduce-scatter before and the all-gather after, around a ring.
pub(super) fn within_machine(l: usize, n: f64) -> Vec<Round> {
    ring(Placed { p: l, l }, n, 1)
}

/// As above, along a binomial tree, to one rank of each machine and back.
pub(super) fn within_machine_tree(l: usize, n: f64) -> Vec<Round> {
    binomial(Placed { p: l, l }, n)
}

impl Network {
    /// The cost of rounds, one after the other.
    pub(super) fn cost(&self, rounds: &[Round]) -> Cost {
        rounds.iter().map(|r| self.round(r)).sum()
    }

    fn round(&self, r: &Round) -> Cost {
        // of both kinds of link, the round waits for the slower
        let over = |link: Link, sharing: f64| (link.latency_s, r.bytes * sharing / link.bytes_per_s);
        let sharing = (r.leaving as f64 / self.cards as f64).max(1.0);
        let within = r.stays.then(|| over(self.within, 1.0));
        let between = (r.leaving > 0).then(|| over(self.between, sharing));
        let slower = within.into_iter().chain(between).max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
        let (latency_s, transfer_s) = slower.unwrap_or_default();
        let reduce_s = r.reduced / self.reduced_bytes_per_s;
        Cost { latency_s, transfer_s, reduce_s, sent_bytes: r.bytes } * r.times
    }
}
