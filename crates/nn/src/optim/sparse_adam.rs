use remat_ops::Op;
use remat_ops::optim::SparseAdamUpdate;
use remat_tensor::{RowGrad, Tensor};
use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape};
use serde::{Deserialize, Serialize};

use super::Grouped;
use super::rule::{Rule, Slot, StateSpec, check_rate, row_args};
use crate::{Arg, update};

/// Options of [`SparseAdam`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparseAdamOptions {
    /// Learning rate. Default: 1e-3.
    pub lr: f64,
    /// Decay of the first moment. Default: 0.9.
    pub beta1: f64,
    /// Decay of the second moment. Default: 0.999.
    pub beta2: f64,
    /// Added to the root of the second moment. Default: 1e-8.
    pub eps: f64,
    /// Goes up the gradient: `-grad` stands for `grad`. Default: false.
    pub maximize: bool,
}

impl Default for SparseAdamOptions {
    fn default() -> Self {
        SparseAdamOptions { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, maximize: false }
    }
}

impl SparseAdamOptions {
    fn op(&self) -> SparseAdamUpdate {
        let maximize = self.maximize;
        SparseAdamUpdate { beta1: self.beta1.into(), beta2: self.beta2.into(), eps: self.eps.into(), maximize }
    }
}

/// Adam of the rows of a table that were looked up, as `torch.optim.SparseAdam`: with `g` the sum of a row's gradients,
///
/// `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`;
/// `p -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)`,
///
/// with `t` the number of steps of the table. Rows that were not looked up stay as they are, and so do their moments. It takes gradients that
/// are rows ([`EmbeddingOptions::sparse`](crate::EmbeddingOptions::sparse)); a step with another one is an error (Value).
pub type SparseAdam = Grouped<SparseAdamOptions>;

impl Rule for SparseAdamOptions {
    const NAME: &'static str = "sparse_adam";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn with_lr(self, lr: f64) -> Self {
        SparseAdamOptions { lr, ..self }
    }

    // As the op's inference finds them.
    fn check(&self) -> Result<()> {
        check_rate(self.lr)?;
        let (x, lr, step) = (
            Fact::new(DType::F32, [1, 1]),
            Fact::new(DType::F32, Shape::scalar()),
            Fact::new(DType::I64, Shape::scalar()),
        );
        let index = Fact::new(DType::I64, [1]);
        self.op().infer(&[&x, &lr, &step, &x, &x, &index, &x]).map_err(|e| e.with_op(Self::NAME)).map(drop)
    }

    fn is_elementwise(&self) -> bool {
        false
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn state(&self, p: &Fact) -> Vec<StateSpec> {
        vec![StateSpec::zeros("exp_avg", p), StateSpec::zeros("exp_avg_sq", p), StateSpec::step()]
    }

    fn step(&self, _slot: &Slot, _grad: Tensor, _lr: Tensor) -> Result<()> {
        let text = "SparseAdam moves the rows that a gradient names, and this gradient is a tensor: look the rows up with an embedding \
                    that is `sparse`, without hooks and without reading its gradient (clipping does), or take AdamW";
        Err(Error::new(ErrorKind::Value, text).with_op(Self::NAME))
    }

    fn step_rows(&self, slot: &Slot, rows: Vec<RowGrad>, lr: Tensor) -> Result<()> {
        let (Some(m), Some(v)) = (slot.state("exp_avg"), slot.state("exp_avg_sq")) else { return Ok(()) };
        let Some(step) = slot.count_step()? else { return Ok(()) };
        let mut x = vec![Arg::State(&slot.parameter), Arg::Value(lr), Arg::Value(step), Arg::State(m), Arg::State(v)];
        x.extend(row_args(rows));
        update(self.op(), x)
    }
}
