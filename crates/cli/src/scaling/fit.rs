//! Latency, bandwidth and reduction speed that explain measured times best.

use remat::tensor::comm::cost::{Cost, Link, Network};
use remat::types::{Error, ErrorKind, Result};

/// A measured call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Its cost if a latency is a second, and a byte takes a second to send or to reduce.
    pub(super) units: Cost,
    pub(super) seconds: f64,
}

/// The result of the fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) latency_s: f64,
    pub(super) s_per_byte: f64,
    pub(super) reduced_s_per_byte: f64,
    /// The largest difference of a measured call from what the fit says, as a share of the measured time.
    pub(super) worst: f64,
}

/// A machine on which a latency and each byte take a second, to count them: costs are linear in the three.
pub(super) fn counting(ranks: usize) -> Network {
    let second = Link { latency_s: 1.0, bytes_per_s: 1.0 };
    Network { within: second, between: second, ranks_per_machine: ranks, cards: 1, reduced_bytes_per_s: 1.0 }
}

impl Fit {
    /// One machine of so many ranks with these figures, all links of it alike. What was found to take no time takes as good as none.
    pub(super) fn network(&self, ranks: usize) -> Network {
        /// As good as no time for a byte.
        const LEAST_S_PER_BYTE: f64 = 1e-15;
        let speed = |s_per_byte: f64| 1.0 / s_per_byte.max(LEAST_S_PER_BYTE);
        let link = Link { latency_s: self.latency_s, bytes_per_s: speed(self.s_per_byte) };
        let reduced_bytes_per_s = speed(self.reduced_s_per_byte);
        Network { within: link, between: link, ranks_per_machine: ranks, cards: 1, reduced_bytes_per_s }
    }
}

/// Finds the three, none below 0, that give the least sum of squares of relative differences.
///
/// Errors: Value for less than three calls, or times that are not above 0.
pub(super) fn fit(all: &[Measured]) -> Result<Fit> {
    if all.len() < 3 || all.iter().any(|m| !(m.seconds.is_finite() && m.seconds > 0.0)) {
        return Err(Error::new(ErrorKind::Value, "a fit needs three calls that have taken some time"));
    }
    // relative differences: both sides over the measured time
    let rows: Vec<[f64; 3]> =
        all.iter().map(|m| [m.units.latency_s, m.units.transfer_s, m.units.reduce_s].map(|v| v / m.seconds)).collect();
    // of three unknowns that may not be negative, the best is the best of those that are 0 in every choice of them
    let choices = (1u8..8).filter_map(|chosen| solve(&rows, chosen));
    let worst = |x: &[f64; 3]| rows.iter().map(|r| (dot(r, x) - 1.0).abs()).fold(0.0, f64::max);
    let squares = |x: &[f64; 3]| rows.iter().map(|r| (dot(r, x) - 1.0).powi(2)).sum::<f64>();
    let best = choices.filter(|x| x.iter().all(|v| *v >= 0.0)).min_by(|a, b| squares(a).total_cmp(&squares(b)));
    let x = best.ok_or_else(|| Error::new(ErrorKind::Value, "no latency and bandwidth explain the measured times"))?;
    Ok(Fit { latency_s: x[0], s_per_byte: x[1], reduced_s_per_byte: x[2], worst: worst(&x) })
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The least squares of rows that should come to 1, with those unknowns 0 that are not chosen; `None` where they are not determined.
fn solve(rows: &[[f64; 3]], chosen: u8) -> Option<[f64; 3]> {
    let is_chosen = |i: usize| chosen & (1 << i) != 0;
    // columns differ by many orders of magnitude: each is taken in units of its largest entry
    let unit = |i: usize| rows.iter().map(|r| r[i]).fold(0.0, f64::max);
    let units = [unit(0), unit(1), unit(2)];
    let entry = |r: &[f64; 3], i: usize| if is_chosen(i) { r[i] / units[i] } else { 0.0 };
    if (0..3).any(|i| is_chosen(i) && units[i] <= 0.0) {
        return None;
    }
    let mut m = [[0.0; 4]; 3];
    for (i, row) in m.iter_mut().enumerate() {
        for (j, v) in row.iter_mut().enumerate() {
            let of = |r: &[f64; 3]| entry(r, i) * if j < 3 { entry(r, j) } else { 1.0 };
            *v = rows.iter().map(of).sum();
        }
        if !is_chosen(i) {
            row[i] = 1.0;
        }
    }
    let x = eliminate(m)?;
    Some([0, 1, 2].map(|i| if is_chosen(i) { x[i] / units[i] } else { 0.0 }))
}

/// Smallest pivot of columns of size 1 that is not noise.
const LEAST_PIVOT: f64 = 1e-12;

/// Three equations in three unknowns, by elimination with pivots.
fn eliminate(mut m: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for i in 0..3 {
        let pivot = (i..3).max_by(|a, b| m[*a][i].abs().total_cmp(&m[*b][i].abs()))?;
        m.swap(i, pivot);
        if m[i][i].abs() < LEAST_PIVOT {
            return None;
        }
        for k in (0..3).filter(|k| *k != i) {
            let (row, factor) = (m[i], m[k][i] / m[i][i]);
            m[k].iter_mut().zip(row).for_each(|(v, of)| *v -= factor * of);
        }
    }
    Some([0, 1, 2].map(|i| m[i][3] / m[i][i]))
}

#[cfg(test)]
mod tests {
    use remat::tensor::comm::cost::AllReduce;

    use super::*;

    fn calls(ranks: usize, on: &Network) -> Vec<Measured> {
        let of = |network: &Network, bytes: usize| {
            let gather = network.own_all_gather(ranks, bytes).expect("sound");
            let sum = network.all_reduce(AllReduce::Remat, ranks, bytes).expect("sound");
            [network.agreement(ranks).expect("sound"), gather, sum]
        };
        let sizes = [4096, 65_536, 1 << 20, 10 << 20];
        let all = sizes.into_iter().flat_map(|n| of(&counting(ranks), n).into_iter().zip(of(on, n)));
        all.map(|(units, c)| Measured { units, seconds: c.seconds() }).collect()
    }

    #[test]
    fn what_made_the_times_is_found_again() {
        for ranks in [2, 3, 4, 16] {
            let link = Link { latency_s: 1.7e-6, bytes_per_s: 3.3e9 };
            let made =
                Network { within: link, between: link, ranks_per_machine: ranks, cards: 1, reduced_bytes_per_s: 5.5e9 };
            let fit = fit(&calls(ranks, &made)).expect("it is determined");
            let found = fit.network(ranks);
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
            assert!(near(found.within.latency_s, 1.7e-6) && near(found.within.bytes_per_s, 3.3e9), "{found:?}");
            assert!(near(found.reduced_bytes_per_s, 5.5e9) && fit.worst < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn nothing_is_below_nothing() {
        // sums that take less than they would without adding up
        let mut all = calls(2, &Network { reduced_bytes_per_s: 1e15, ..counting(2) });
        for m in &mut all {
            m.seconds -= 0.01 * m.units.reduce_s;
        }
        let fit = fit(&all).expect("it is determined");
        assert!(fit.latency_s >= 0.0 && fit.s_per_byte >= 0.0 && fit.reduced_s_per_byte == 0.0, "{fit:?}");
        assert!(fit.worst > 0.0 && fit.network(2).check().is_ok());
    }

    #[test]
    fn too_little_is_refused() {
        let all = calls(2, &counting(2));
        assert!(fit(&all[..2]).is_err());
        let wrong = [0.0, -1.0, f64::NAN].map(|seconds| Measured { seconds, ..all[0] });
        assert!(wrong.iter().all(|w| fit(&[all[0], all[1], *w]).is_err()));
        // barriers alone tell nothing of bytes
        let barrier = Measured { units: Cost { latency_s: 2.0, ..Cost::default() }, seconds: 3.0 };
        let f = fit(&[barrier; 3]).expect("latency is determined");
        assert!((f.latency_s - 1.5).abs() < 1e-12 && f.s_per_byte == 0.0);
    }
}
