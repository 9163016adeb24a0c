//! Learning rates as pure functions of the step.

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
        /// What a change multiplies by.
        gamma: f64,
    },
    /// `lr gamma^k`, where `k` of the milestones are at or before the step.
    MultiStep {
        /// The first rate.
        lr: f64,
        /// The milestones, in any order.
        at: Vec<u64>,
        /// What a milestone multiplies by.
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
    /// `(step + 1) / steps` times the first rate of `then`, for `steps` steps; after that `then`, from its beginning.
    Warmup {
        /// Steps of warming up.
        steps: u64,
        /// What follows.
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
            Schedule::Warmup { steps, then } if step < *steps => then.at(0) * (step + 1) as f64 / *steps as f64,
            Schedule::Warmup { steps, then } => then.at(step - steps),
        }
    }
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
