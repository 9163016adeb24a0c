//! Learning rates as pure functions of the step, and one that follows a measurement.

mod cycle;
mod plateau;

pub use cycle::OneCycle;
pub use plateau::{Plateau, PlateauOptions};

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// A learning rate for each step, counted from 0. A value: it is saved as its parameters and has no position of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// `lr`.
    Constant {
        /// The rate.
        lr: f64,
    },
    /// `lr gamma^floor(step / every)`; an `every` of 0 counts as 1.
    Step {
        /// The first rate.
        lr: f64,
        /// Steps between changes.
        every: u64,
        /// The factor of a change.
        gamma: f64,
    },
    /// `lr gamma^k`, where `k` of the milestones are at or before the step.
    MultiStep {
        /// The first rate.
        lr: f64,
        /// The milestones, in any order.
        at: Vec<u64>,
        /// The factor of a milestone.
        gamma: f64,
    },
    /// `min + (lr - min) (1 + cos(pi step / steps)) / 2`, and `min` from `steps` on (Loshchilov and Hutter, ICLR 2017).
    Cosine {
        /// The first rate.
        lr: f64,
        /// The last rate.
        min: f64,
        /// Steps until the last rate.
        steps: u64,
    },
    /// From `lr` to `end` in a straight line over `steps` steps, and `end` from then on.
    Linear {
        /// The first rate.
        lr: f64,
        /// The last rate.
        end: f64,
        /// Steps until the last rate.
        steps: u64,
    },
    /// `lr gamma^step`.
    Exponential {
        /// The first rate.
        lr: f64,
        /// The factor of a step.
        gamma: f64,
    },
    /// `end + (lr - end) (1 - step / steps)^power`, and `end` from `steps` on.
    Polynomial {
        /// The first rate.
        lr: f64,
        /// The last rate.
        end: f64,
        /// Steps until the last rate.
        steps: u64,
        /// The power.
        power: f64,
    },
    /// `Cosine` over and over, each time over `factor` times as many steps (Loshchilov and Hutter, ICLR 2017, equation 5). A
    /// `steps` or `factor` of 0 counts as 1.
    CosineRestarts {
        /// The first rate of each time.
        lr: f64,
        /// The value that each period approaches at its end.
        min: f64,
        /// Steps of the first time.
        steps: u64,
        /// How many times as long each time is as the one before.
        factor: u64,
    },
    /// Up to a rate and far below where it began, in one cycle (Smith and Topin, 2017, arXiv:1708.07120).
    OneCycle(OneCycle),
    /// `lr min((step + 1) / warmup, sqrt(warmup / (step + 1)))`: up in a straight line to `lr`, then down as the root of the
    /// step (Vaswani et al., NeurIPS 2017, equation 3). A `warmup` of 0 counts as 1.
    InverseSqrt {
        /// The largest rate.
        lr: f64,
        /// Steps until then.
        warmup: u64,
    },
    /// The product of all: give those beyond the first an `lr` of 1. No schedule gives 1.
    Chained {
        /// The factors.
        of: Vec<Schedule>,
    },
    /// One after the other, each from its beginning: the next one begins at the next of the milestones, which ascend. Without
    /// a next schedule the last goes on; no schedule gives 0.
    Sequential {
        /// The schedules.
        of: Vec<Schedule>,
        /// The step at which each but the first begins.
        at: Vec<u64>,
    },
    /// `(step + 1) / steps` times the first rate of `then`, for `steps` steps; after that `then`, from its beginning.
    Warmup {
        /// Steps of warming up.
        steps: u64,
        /// The schedule that follows.
        then: Box<Schedule>,
    },
}

impl Schedule {
    /// This schedule after a linear warm-up.
    #[must_use]
    pub fn after_warmup(self, steps: u64) -> Schedule {
        Schedule::Warmup { steps, then: Box::new(self) }
    }

    /// The learning rate of `step`.
    pub fn at(&self, step: u64) -> f64 {
        let fraction = |steps: u64| if step >= steps { 1.0 } else { step as f64 / steps as f64 };
        match self {
            Schedule::Constant { lr } => *lr,
            Schedule::Step { lr, every, gamma } => lr * power(*gamma, step / (*every).max(1)),
            Schedule::MultiStep { lr, at, gamma } => {
                lr * power(*gamma, at.iter().filter(|&&m| m <= step).count() as u64)
            }
            Schedule::Cosine { lr, min, steps } => {
                let f = fraction(*steps);
                if f >= 1.0 { *min } else { min + (lr - min) * (1.0 + (PI * f).cos()) / 2.0 }
            }
            Schedule::Linear { lr, end, steps } => lr + (end - lr) * fraction(*steps),
            Schedule::Exponential { lr, gamma } => lr * power(*gamma, step),
            Schedule::Polynomial { lr, end, steps, power } => {
                let f = fraction(*steps);
                if f >= 1.0 { *end } else { end + (lr - end) * (1.0 - f).powf(*power) }
            }
            Schedule::CosineRestarts { lr, min, steps, factor } => {
                let (since, steps) = since_restart(step, (*steps).max(1), (*factor).max(1));
                min + (lr - min) * (1.0 + (PI * (since as f64 / steps as f64)).cos()) / 2.0
            }
            Schedule::OneCycle(cycle) => cycle.at(step),
            Schedule::InverseSqrt { lr, warmup } => {
                let (now, warmup) = (step as f64 + 1.0, (*warmup).max(1) as f64);
                lr * (now / warmup).min((warmup / now).sqrt())
            }
            Schedule::Chained { of } => of.iter().map(|s| s.at(step)).product(),
            Schedule::Sequential { of, at } => {
                let Some(last) = of.len().checked_sub(1) else { return 0.0 };
                let now = at.iter().take_while(|&&m| m <= step).count().min(last);
                let begin = if now == 0 { 0 } else { at[now - 1] };
                of[now].at(step - begin)
            }
            Schedule::Warmup { steps, then } if step < *steps => then.at(0) * (step + 1) as f64 / *steps as f64,
            Schedule::Warmup { steps, then } => then.at(step - steps),
        }
    }
}

/// Steps since the last restart, and how many there are until the next.
fn since_restart(step: u64, first: u64, factor: u64) -> (u64, u64) {
    let (mut since, mut steps) = (step, first);
    if factor == 1 {
        return (step % first, first);
    }
    // each time is at least twice as long as the one before
    while since >= steps {
        since -= steps;
        steps = steps.saturating_mul(factor);
    }
    (since, steps)
}

fn power(base: f64, exponent: u64) -> f64 {
    base.powi(i32::try_from(exponent).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_and_milestones_multiply() {
        let s = Schedule::Step { lr: 1.0, every: 3, gamma: 0.5 };
        assert_eq!([0, 2, 3, 6].map(|i| s.at(i)), [1.0, 1.0, 0.5, 0.25]);
        let m = Schedule::MultiStep { lr: 8.0, at: vec![5, 2], gamma: 0.5 };
        assert_eq!([0, 1, 2, 4, 5, 99].map(|i| m.at(i)), [8.0, 8.0, 4.0, 4.0, 2.0, 2.0]);
    }

    #[test]
    fn cosine_and_linear_begin_and_end_where_they_say() {
        let c = Schedule::Cosine { lr: 1.0, min: 0.2, steps: 4 };
        assert_eq!(c.at(0), 1.0);
        assert!((c.at(2) - 0.6).abs() < 1e-15);
        assert_eq!([4, 5].map(|i| c.at(i)), [0.2, 0.2]);
        let l = Schedule::Linear { lr: 1.0, end: 0.0, steps: 4 };
        assert_eq!([0, 1, 4, 9].map(|i| l.at(i)), [1.0, 0.75, 0.0, 0.0]);
    }

    #[test]
    fn warm_up_climbs_to_what_follows() {
        let w = Schedule::Step { lr: 4.0, every: 1, gamma: 0.5 }.after_warmup(4);
        assert_eq!([0, 1, 3, 4, 5].map(|i| w.at(i)), [1.0, 2.0, 4.0, 4.0, 2.0]);
        assert_eq!(Schedule::Constant { lr: 3.0 }.after_warmup(0).at(0), 3.0);
    }

    #[test]
    fn restarts_begin_again_and_take_longer() {
        let s = Schedule::CosineRestarts { lr: 1.0, min: 0.0, steps: 2, factor: 3 };
        assert_eq!([0, 2, 8, 26].map(|i| s.at(i)), [1.0; 4]);
        assert!((s.at(5) - 0.5).abs() < 1e-15 && (s.at(17) - 0.5).abs() < 1e-15);
        let s = Schedule::CosineRestarts { lr: 1.0, min: 0.5, steps: 0, factor: 0 };
        assert_eq!([0, 7, u64::MAX].map(|i| s.at(i)), [1.0; 3]);
    }

    #[test]
    fn schedules_follow_and_multiply_each_other() {
        let down = || Schedule::Linear { lr: 8.0, end: 0.0, steps: 8 };
        let half = Schedule::Step { lr: 1.0, every: 2, gamma: 0.5 };
        let both = Schedule::Chained { of: vec![down(), half] };
        assert_eq!([0, 1, 2, 4].map(|i| both.at(i)), [8.0, 7.0, 3.0, 1.0]);
        let s = Schedule::Sequential { of: vec![Schedule::Constant { lr: 3.0 }, down()], at: vec![2, 6] };
        assert_eq!([0, 1, 2, 3, 6, 99].map(|i| s.at(i)), [3.0, 3.0, 8.0, 7.0, 4.0, 0.0]);
        assert_eq!(Schedule::Sequential { of: vec![], at: vec![1] }.at(3), 0.0);
        let s = Schedule::Exponential { lr: 4.0, gamma: 0.5 };
        assert_eq!([0, 1, 3].map(|i| s.at(i)), [4.0, 2.0, 0.5]);
        let s = Schedule::Polynomial { lr: 5.0, end: 1.0, steps: 2, power: 2.0 };
        assert_eq!([0, 1, 2, 9].map(|i| s.at(i)), [5.0, 2.0, 1.0, 1.0]);
        let s = Schedule::InverseSqrt { lr: 2.0, warmup: 4 };
        assert_eq!([0, 1, 3, 15].map(|i| s.at(i)), [0.5, 1.0, 2.0, 1.0]);
    }

    #[test]
    fn degenerate_lengths_are_no_errors() {
        assert_eq!(Schedule::Cosine { lr: 1.0, min: 0.5, steps: 0 }.at(0), 0.5);
        assert_eq!(Schedule::Step { lr: 1.0, every: 0, gamma: 0.5 }.at(1), 0.5);
    }

    #[test]
    fn a_schedule_survives_its_text() {
        let s = Schedule::Cosine { lr: 0.1, min: 1e-5, steps: 1000 }.after_warmup(10);
        let text = serde_json::to_string(&s).expect("serialises");
        assert_eq!(serde_json::from_str::<Schedule>(&text).expect("parses"), s);
        assert!(serde_json::from_str::<Schedule>(r#"{"constant":{"lr":1,"x":2}}"#).is_err());
    }
}
