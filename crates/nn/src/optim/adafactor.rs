use remat_ops::optim::{AdafactorUpdate, adafactor_shapes};
use remat_tensor::Tensor;
use remat_types::{Fact, Result};
use serde::{Deserialize, Serialize};

use super::Grouped;
use super::rule::{self, Rule, Slot, StateSpec};

/// Options of [`Adafactor`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdafactorOptions {
    /// Learning rate, the largest that a step has. Default: 1e-2.
    pub lr: f64,
    /// Exponent of the step in the share of the new gradient in the second moment. Default: -0.8.
    pub beta2_decay: f64,
    /// The root of what a second moment is at least. Default (`None`): the distance from 1 to the next number of the
    /// parameter's dtype.
    pub eps1: Option<f64>,
    /// The lower bound of the root mean square of the parameter. Default: 1e-3.
    pub eps2: f64,
    /// The largest root mean square of a step. Default: 1.
    pub d: f64,
    /// Weight decay, on the parameter. Default: 0.
    pub weight_decay: f64,
}

impl Default for AdafactorOptions {
    fn default() -> Self {
        AdafactorOptions { lr: 1e-2, beta2_decay: -0.8, eps1: None, eps2: 1e-3, d: 1.0, weight_decay: 0.0 }
    }
}

impl AdafactorOptions {
    fn op(&self, factored: bool) -> AdafactorUpdate {
        AdafactorUpdate {
            beta2_decay: self.beta2_decay.into(),
            eps1: self.eps1.map(Into::into),
            eps2: self.eps2.into(),
            d: self.d.into(),
            weight_decay: self.weight_decay.into(),
            factored,
        }
    }
}

/// Adafactor (Shazeer and Stern, ICML 2018), as `torch.optim.Adafactor`: a second moment of a number a row and a column in
/// the place of one a weight, no first moment, and steps relative to the size of the parameter.
pub type Adafactor = Grouped<AdafactorOptions>;

impl Rule for AdafactorOptions {
    const NAME: &'static str = "adafactor";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn with_lr(self, lr: f64) -> Self {
        AdafactorOptions { lr, ..self }
    }

    fn is_elementwise(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        rule::check(self, &self.op(false))
    }

    fn state(&self, p: &Fact) -> Vec<StateSpec> {
        let names: &[&'static str] = if p.rank() < 2 { &["variance"] } else { &["row_var", "col_var"] };
        let moments = names.iter().zip(adafactor_shapes(&p.shape));
        let moments = moments.map(|(name, shape)| StateSpec { name, dtype: p.dtype, shape, value: 0.0 });
        std::iter::once(StateSpec::step()).chain(moments).collect()
    }

    fn step(&self, slot: &Slot, grad: Tensor, lr: Tensor) -> Result<()> {
        let p = slot.parameter.fact();
        rule::apply(self.op(p.rank() >= 2), slot, &self.state(p), grad, lr)
    }
}
