use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// One cycle of a learning rate, as `torch.optim.lr_scheduler.OneCycleLR`: from `max / div` to `max` and on to
/// `max / div / final_div`, over `steps` steps.
///
/// The momentum that PyTorch cycles against it is [`OneCycle::momentum_at`], for
/// [`Grouped::set_group_options`](crate::Grouped::set_group_options).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneCycle {
    /// The largest rate.
    pub max: f64,
    /// Steps of the cycle; the last rate stays from then on.
    pub steps: u64,
    /// The share of the steps on the way up. Default: 0.3.
    pub rise: f64,
    /// The largest rate over the first. Default: 25.
    pub div: f64,
    /// The first rate over the last. Default: 1e4.
    pub final_div: f64,
    /// In straight lines, not as half waves of a cosine. Default: false.
    pub linear: bool,
    /// Back to the first rate in as many steps as up, and then to the last. Default: false.
    pub three_phase: bool,
}

impl OneCycle {
    /// A cycle of `steps` steps up to `max`, with the defaults.
    pub fn new(max: f64, steps: u64) -> Self {
        OneCycle { max, steps, rise: 0.3, div: 25.0, final_div: 1e4, linear: false, three_phase: false }
    }

    /// The learning rate of `step`.
    pub fn at(&self, step: u64) -> f64 {
        let first = self.max / self.div;
        self.wave(step, first, self.max, first / self.final_div)
    }

    /// The momentum of `step` that goes against the rate, as PyTorch's `OneCycleLR` cycles it: from `max` down to `base` where the rate
    /// is largest, and up to `max` again.
    pub fn momentum_at(&self, step: u64, base: f64, max: f64) -> f64 {
        self.wave(step, max, base, max)
    }

    /// A value that goes from `first` to `peak` and then to `last`. With three phases it returns to `first` before it goes to
    /// `last`.
    fn wave(&self, step: u64, first: f64, peak: f64, last: f64) -> f64 {
        let (up, end) = (self.rise * self.steps as f64, self.steps as f64 - 1.0);
        let three = [(up - 1.0, first, peak), (2.0 * up - 2.0, peak, first), (end, first, last)];
        let two = [(up - 1.0, first, peak), (end, peak, last)];
        let phases: &[(f64, f64, f64)] = if self.three_phase { &three } else { &two };
        let (step, mut begin) = (step as f64, 0.0);
        for (i, &(until, from, to)) in phases.iter().enumerate() {
            if step <= until || i + 1 == phases.len() {
                let share = if until > begin { ((step - begin) / (until - begin)).min(1.0) } else { 1.0 };
                return if self.linear {
                    (to - from) * share + from
                } else {
                    to + (from - to) / 2.0 * ((PI * share).cos() + 1.0)
                };
            }
            begin = until;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_climbs_and_falls() {
        let c = OneCycle { linear: true, div: 2.0, final_div: 5.0, rise: 0.5, ..OneCycle::new(1.0, 10) };
        let near = |steps: &[u64], want: &[f64]| steps.iter().zip(want).all(|(i, w)| (c.at(*i) - w).abs() < 1e-15);
        assert!(near(&[0, 2, 4, 9, 50], &[0.5, 0.75, 1.0, 0.1, 0.1]));
        let c = OneCycle { three_phase: true, rise: 0.4, ..c.clone() };
        let near = |steps: &[u64], want: &[f64]| steps.iter().zip(want).all(|(i, w)| (c.at(*i) - w).abs() < 1e-15);
        assert!(near(&[0, 3, 6, 9], &[0.5, 1.0, 0.5, 0.1]));
        assert!(OneCycle::new(1.0, 0).at(0).is_finite() && OneCycle::new(1.0, 1).at(3).is_finite());
    }

    #[test]
    fn the_momentum_goes_against_the_rate() {
        let near = |c: &OneCycle, steps: &[u64], want: &[f64]| {
            steps.iter().zip(want).all(|(i, w)| (c.momentum_at(*i, 0.5, 1.0) - w).abs() < 1e-15)
        };
        let c = OneCycle { linear: true, rise: 0.5, ..OneCycle::new(1.0, 9) };
        assert!(near(&c, &[0, 8, 50], &[1.0, 1.0, 1.0]));
        let c = OneCycle { linear: true, rise: 0.5, ..OneCycle::new(1.0, 10) };
        assert!(near(&c, &[0, 2, 4, 9, 50], &[1.0, 0.75, 0.5, 1.0, 1.0]));
        let c = OneCycle { three_phase: true, rise: 0.4, ..c };
        assert!(near(&c, &[0, 3, 6, 7, 9], &[1.0, 0.5, 1.0, 1.0, 1.0]));
    }
}
