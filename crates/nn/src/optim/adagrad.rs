use remat_ops::optim::AdagradUpdate;
use remat_tensor::Tensor;
use remat_types::{Fact, Result};
use serde::{Deserialize, Serialize};

use super::Grouped;
use super::rule::{self, Rule, Slot, StateSpec};

/// Options of [`Adagrad`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdagradOptions {
    /// Learning rate. Default: 1e-2.
    pub lr: f64,
    /// The decay of the learning rate: `lr / (1 + (t - 1) lr_decay)`. Default: 0.
    pub lr_decay: f64,
    /// L2 penalty. Default: 0.
    pub weight_decay: f64,
    /// The initial sum of squares. Default: 0.
    pub initial_accumulator_value: f64,
    /// Added to the root. Default: 1e-10.
    pub eps: f64,
}

impl Default for AdagradOptions {
    fn default() -> Self {
        AdagradOptions { lr: 1e-2, lr_decay: 0.0, weight_decay: 0.0, initial_accumulator_value: 0.0, eps: 1e-10 }
    }
}

impl AdagradOptions {
    fn op(&self) -> AdagradUpdate {
        AdagradUpdate { lr_decay: self.lr_decay.into(), weight_decay: self.weight_decay.into(), eps: self.eps.into() }
    }
}

/// Adagrad (Duchi et al., JMLR 2011), as `torch.optim.Adagrad`:
///
/// `g = grad + weight_decay p`; `s += g^2`; `p -= lr / (1 + (t - 1) lr_decay) g / (sqrt s + eps)`.
pub type Adagrad = Grouped<AdagradOptions>;

impl Rule for AdagradOptions {
    const NAME: &'static str = "adagrad";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn with_lr(self, lr: f64) -> Self {
        AdagradOptions { lr, ..self }
    }

    fn check(&self) -> Result<()> {
        let sum = self.initial_accumulator_value;
        rule::want(sum >= 0.0 && sum.is_finite(), "the first sum of squares", sum, "finite and not negative")?;
        rule::check(self, &self.op())
    }

    fn state(&self, p: &Fact) -> Vec<StateSpec> {
        let sum = StateSpec { value: self.initial_accumulator_value, ..StateSpec::zeros("sum", p) };
        vec![StateSpec::step(), sum]
    }

    fn step(&self, slot: &Slot, grad: Tensor, lr: Tensor) -> Result<()> {
        rule::apply(self.op(), slot, &self.state(slot.parameter.fact()), grad, lr)
    }
}
