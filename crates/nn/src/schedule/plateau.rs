use remat_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Options of [`Plateau`]. The defaults are PyTorch's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlateauOptions {
    /// More is better: of an accuracy, not a loss. Default: false.
    pub maximize: bool,
    /// The factor of the rate. Default: 0.1.
    pub factor: f64,
    /// How many measurements in a row may be no better. Default: 10.
    pub patience: u64,
    /// By how much a better one is better. Default: 1e-4.
    pub threshold: f64,
    /// `threshold` is a share of the best's size, not a difference. Default: true.
    pub relative: bool,
    /// Measurements after a change that do not count. Default: 0.
    pub cooldown: u64,
    /// The least rate. Default: 0.
    pub min: f64,
    /// A change of no more than this is none. Default: 1e-8.
    pub eps: f64,
}

impl Default for PlateauOptions {
    fn default() -> Self {
        PlateauOptions {
            maximize: false,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            relative: true,
            cooldown: 0,
            min: 0.0,
            eps: 1e-8,
        }
    }
}

/// A learning rate that shrinks where a measurement does not improve, as `torch.optim.lr_scheduler.ReduceLROnPlateau`. A
/// value: it is saved with its position.
///
/// Measurements below 0 count as others do, unlike in PyTorch, where by a relative threshold one that stays is better each
/// time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    options: PlateauOptions,
    lr: f64,
    best: Option<f64>,
    bad: u64,
    cooling: u64,
}

impl Plateau {
    /// From `lr` on. Errors: Value for a factor that is not at least 0 and below 1.
    pub fn new(lr: f64, options: PlateauOptions) -> Result<Self> {
        if !(0.0..1.0).contains(&options.factor) {
            let text = format!("the factor is {}, must be at least 0 and below 1", options.factor);
            return Err(Error::new(ErrorKind::Value, text).with_op("plateau"));
        }
        Ok(Plateau { options, lr, best: None, bad: 0, cooling: 0 })
    }

    /// The learning rate.
    pub fn lr(&self) -> f64 {
        self.lr
    }

    /// The best measurement so far.
    pub fn best(&self) -> Option<f64> {
        self.best
    }

    /// Takes a measurement and gives the learning rate from now on. A NaN is no better than any.
    pub fn observe(&mut self, measured: f64) -> f64 {
        if self.is_better(measured) {
            (self.best, self.bad) = (Some(measured), 0);
        } else {
            self.bad += 1;
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.bad = 0;
        }
        if self.bad > self.options.patience {
            let less = (self.lr * self.options.factor).max(self.options.min);
            if self.lr - less > self.options.eps {
                self.lr = less;
            }
            (self.cooling, self.bad) = (self.options.cooldown, 0);
        }
        self.lr
    }

    /// By more than the threshold, which is a share of the best's size: of a best below 0, too.
    fn is_better(&self, v: f64) -> bool {
        let PlateauOptions { maximize, threshold, relative, .. } = self.options;
        let best = self.best.unwrap_or(if maximize { f64::NEG_INFINITY } else { f64::INFINITY });
        let margin = match (best.is_infinite(), relative) {
            (true, _) => 0.0, // a share of what is infinite is no number
            (false, true) => threshold * best.abs(),
            (false, false) => threshold,
        };
        if maximize { v > best + margin } else { v < best - margin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_shrinks_where_nothing_improves() {
        let o = PlateauOptions { factor: 0.5, patience: 1, cooldown: 1, min: 0.3, ..PlateauOptions::default() };
        let mut p = Plateau::new(1.0, o).expect("valid");
        let seen: Vec<f64> = [4.0, 3.0, 3.0, f64::NAN, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0].map(|v| p.observe(v)).into();
        assert_eq!(seen, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3]);
        assert_eq!((p.lr(), p.best()), (0.3, Some(2.0)));
        let text = serde_json::to_string(&p).expect("serialises");
        assert_eq!(serde_json::from_str::<Plateau>(&text).expect("parses"), p);
        let bad = PlateauOptions { factor: 1.0, ..PlateauOptions::default() };
        assert_eq!(Plateau::new(1.0, bad).expect_err("no less").kind(), ErrorKind::Value);
    }

    #[test]
    fn what_stays_is_no_better_below_0_and_at_infinity() {
        for stays in [-1.0, 1.0, f64::INFINITY, f64::NEG_INFINITY] {
            for (maximize, relative) in [(false, true), (false, false), (true, true), (true, false)] {
                let o = PlateauOptions { maximize, relative, factor: 0.5, patience: 1, ..PlateauOptions::default() };
                let mut p = Plateau::new(1.0, o).expect("valid");
                let rates: Vec<f64> = (0..4).map(|_| p.observe(stays)).collect();
                assert!(rates[3] < 1.0, "{stays} {maximize} {relative}: {rates:?}");
            }
        }
        let mut p = Plateau::new(1.0, PlateauOptions { patience: 0, ..PlateauOptions::default() }).expect("valid");
        // by less than a share of 1e-4, and by more
        assert_eq!([-1.0, -1.2, -1.20001].map(|v| p.observe(v)), [1.0, 1.0, 0.1]);
    }
}
