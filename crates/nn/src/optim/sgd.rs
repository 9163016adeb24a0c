use remat_ops::Op;
use remat_ops::optim::{SgdRowsUpdate, SgdUpdate};
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_tensor::{RowGrad, Tensor};
use remat_types::{DType, Fact, Result, Shape};
use serde::{Deserialize, Serialize};

use super::Grouped;
use super::rule::{Rule, Slot, StateSpec, check_rate, row_args};
use crate::{Arg, update};

/// Options of [`Sgd`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SgdOptions {
    /// Learning rate. Default: 1e-3.
    pub lr: f64,
    /// Decay of the buffer; without it there is no buffer. Default: 0.
    pub momentum: f64,
    /// The share by which a gradient is reduced as it enters the buffer, except for a parameter's first gradient. Default: 0.
    pub dampening: f64,
    /// L2 penalty. Default: 0.
    pub weight_decay: f64,
    /// Looks one step ahead; needs momentum and no dampening. Default: false.
    pub nesterov: bool,
    /// Goes up the gradient: `-grad` stands for `grad`. Default: false.
    #[serde(default)]
    pub maximize: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, maximize: false }
    }
}

impl SgdOptions {
    /// True if the first step differs from the others.
    fn counts(&self) -> bool {
        self.momentum != 0.0 && self.dampening != 0.0
    }

    /// Counts the step. Before the first one the buffer, which is 0, becomes what makes that step whole: `b` with
    /// `momentum b + (1 - dampening) g = g`.
    fn begin(&self, slot: &Slot, grad: &Tensor) -> Result<()> {
        let (Some(buffer), Some(count)) = (slot.state("momentum_buffer"), slot.count_step()?) else { return Ok(()) };
        let g = if self.maximize { grad.neg()? } else { grad.clone() };
        let decay = || slot.parameter.get()?.detach().mul(self.weight_decay);
        let g = if self.weight_decay == 0.0 { g } else { g.add(decay()?)? };
        let is_first = count.eq(1i64)?.cast(g.dtype())?;
        let missing = g.mul(self.dampening / self.momentum)?.mul(is_first)?;
        update(Binary { f: BinaryFn::Add }, vec![Arg::State(buffer), Arg::Value(missing)])
    }

    fn op(&self) -> SgdUpdate {
        SgdUpdate {
            momentum: self.momentum.into(),
            dampening: self.dampening.into(),
            nesterov: self.nesterov,
            weight_decay: self.weight_decay.into(),
            maximize: self.maximize,
        }
    }
}

/// Stochastic gradient descent, as `torch.optim.SGD`:
///
/// `g = grad + weight_decay p`; `b = momentum b + (1 - dampening) g`; `p -= lr (nesterov ? g + momentum b : b)`.
///
/// The buffer `b` begins as zeros, and the first step of a parameter is `b = g` whatever the dampening, for which the steps are
/// counted where there is some.
pub type Sgd = Grouped<SgdOptions>;

impl Rule for SgdOptions {
    const NAME: &'static str = "sgd";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn with_lr(self, lr: f64) -> Self {
        SgdOptions { lr, ..self }
    }

    // As the op's inference finds them.
    fn check(&self) -> Result<()> {
        check_rate(self.lr)?;
        let (x, lr) = (Fact::new(DType::F32, [1]), Fact::new(DType::F32, Shape::scalar()));
        let all = [&x, &x, &x, &lr];
        let x = if self.momentum == 0.0 { &all[1..] } else { &all[..] };
        self.op().infer(x).map_err(|e| e.with_op("sgd")).map(drop)
    }

    fn state(&self, p: &Fact) -> Vec<StateSpec> {
        if self.momentum == 0.0 {
            return Vec::new();
        }
        let mut all = vec![StateSpec::zeros("momentum_buffer", p)];
        all.extend(self.counts().then(StateSpec::step));
        all
    }

    fn step(&self, slot: &Slot, grad: Tensor, lr: Tensor) -> Result<()> {
        if self.counts() {
            self.begin(slot, &grad)?;
        }
        let mut x = vec![Arg::State(&slot.parameter), Arg::Value(grad)];
        if self.momentum != 0.0 {
            x.extend(slot.state("momentum_buffer").map(Arg::State));
        }
        x.push(Arg::Value(lr));
        update(self.op(), x)
    }

    // momentum and decay move all rows
    fn takes_rows(&self) -> bool {
        self.momentum == 0.0 && self.weight_decay == 0.0
    }

    fn step_rows(&self, slot: &Slot, rows: Vec<RowGrad>, lr: Tensor) -> Result<()> {
        let mut x = vec![Arg::State(&slot.parameter), Arg::Value(lr)];
        x.extend(row_args(rows));
        update(SgdRowsUpdate { maximize: self.maximize }, x)
    }
}
