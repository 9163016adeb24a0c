use remat_ops::optim::NAdamUpdate;
use remat_types::{DType, Shape};

use super::StateSpec;
use super::rule::rule;

rule! {
    /// NAdam (Dozat, ICLR workshop 2016), as `torch.optim.NAdam`: Adam whose momentum looks one step ahead, and warms up as
    /// `mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2)`. The product of all `mu` is kept in f64.
    NAdam, NAdamOptions => NAdamUpdate, "nadam";
    /// Learning rate. Default: 2e-3.
    lr = 2e-3;
    /// Decay of the first moment. Default: 0.9.
    beta1: f64 = 0.9;
    /// Decay of the second moment. Default: 0.999.
    beta2: f64 = 0.999;
    /// Added to the root of the second moment. Default: 1e-8.
    eps: f64 = 1e-8;
    /// Weight decay. Default: 0.
    weight_decay: f64 = 0.0;
    /// How soon the momentum is at its full. Default: 4e-3.
    momentum_decay: f64 = 4e-3;
    /// Decay acts on the parameter, not on the gradient. Default: false.
    decoupled: bool = false;
    |_o, p| vec![
        StateSpec::step(),
        StateSpec::zeros("exp_avg", p),
        StateSpec::zeros("exp_avg_sq", p),
        StateSpec { name: "mu_product", dtype: DType::F64, shape: Shape::scalar(), value: 1.0 },
    ]
}
