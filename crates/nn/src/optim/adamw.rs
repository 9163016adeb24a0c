use remat_ops::Op;
use remat_ops::optim::AdamWUpdate;
use remat_tensor::Tensor;
use remat_types::{DType, Fact, Result, Shape};
use serde::{Deserialize, Serialize};

use super::Grouped;
use super::rule::{Rule, Slot, StateSpec, check_rate};
use crate::{Arg, update};

/// Options of [`AdamW`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWOptions {
    /// Learning rate. Default: 1e-3.
    pub lr: f64,
    /// Decay of the first moment. Default: 0.9.
    pub beta1: f64,
    /// Decay of the second moment. Default: 0.999.
    pub beta2: f64,
    /// Added to the root of the second moment. Default: 1e-8.
    pub eps: f64,
    /// Weight decay. Default: 0.01.
    pub weight_decay: f64,
    /// Decay acts on the parameter (AdamW), not on the gradient (Adam). Default: true.
    pub decoupled: bool,
    /// The step is divided by the root of the largest second moment so far (AMSGrad; Reddi et al., ICLR 2018). Default:
    /// false.
    #[serde(default)]
    pub amsgrad: bool,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        AdamWOptions {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
            decoupled: true,
            amsgrad: false,
        }
    }
}

impl AdamWOptions {
    /// Adam as in `torch.optim.Adam`: no weight decay by default; a decay that is set later acts on the gradient.
    pub fn adam() -> Self {
        AdamWOptions { weight_decay: 0.0, decoupled: false, ..AdamWOptions::default() }
    }

    fn op(&self) -> AdamWUpdate {
        AdamWUpdate {
            beta1: self.beta1.into(),
            beta2: self.beta2.into(),
            eps: self.eps.into(),
            weight_decay: self.weight_decay.into(),
            decoupled: self.decoupled,
            amsgrad: self.amsgrad,
        }
    }
}

/// AdamW (Loshchilov and Hutter, ICLR 2019), or Adam (Kingma and Ba, ICLR 2015), as in `torch.optim`:
///
/// `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`;
/// `p = p (1 - lr weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)`,
/// with `t` the number of steps in which the parameter had a gradient. State has the parameter's dtype.
pub type AdamW = Grouped<AdamWOptions>;

impl Rule for AdamWOptions {
    const NAME: &'static str = "adamw";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn with_lr(self, lr: f64) -> Self {
        AdamWOptions { lr, ..self }
    }

    // As the op's inference finds them.
    fn check(&self) -> Result<()> {
        check_rate(self.lr)?;
        let (x, lr) = (Fact::new(DType::F32, [1]), Fact::new(DType::F32, Shape::scalar()));
        let step = Fact::new(DType::I64, Shape::scalar());
        let all = [&x, &x, &x, &x, &lr, &step, &x];
        self.op().infer(&all[..if self.amsgrad { 7 } else { 6 }]).map_err(|e| e.with_op("adamw")).map(drop)
    }

    fn state(&self, p: &Fact) -> Vec<StateSpec> {
        let mut all = vec![StateSpec::zeros("exp_avg", p), StateSpec::zeros("exp_avg_sq", p), StateSpec::step()];
        all.extend(self.amsgrad.then(|| StateSpec::zeros("max_exp_avg_sq", p)));
        all
    }

    fn step(&self, slot: &Slot, grad: Tensor, lr: Tensor) -> Result<()> {
        let (Some(m), Some(v)) = (slot.state("exp_avg"), slot.state("exp_avg_sq")) else { return Ok(()) };
        let Some(step) = slot.count_step()? else { return Ok(()) };
        let (p, m, v) = (Arg::State(&slot.parameter), Arg::State(m), Arg::State(v));
        let mut x = vec![p, Arg::Value(grad), m, v, Arg::Value(lr), Arg::Value(step)];
        x.extend(slot.state("max_exp_avg_sq").filter(|_| self.amsgrad).map(Arg::State));
        update(self.op(), x)
    }
}
