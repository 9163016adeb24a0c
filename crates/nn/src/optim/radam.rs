use remat_ops::optim::RAdamUpdate;

use super::StateSpec;
use super::rule::rule;

rule! {
    /// Rectified Adam (Liu et al., ICLR 2020), as `torch.optim.RAdam`: Adam's step times what makes up for the variance of its
    /// size, and a step of momentum while there is too little to tell that.
    RAdam, RAdamOptions => RAdamUpdate, "radam";
    /// Learning rate. Default: 1e-3.
    lr = 1e-3;
    /// Decay of the first moment. Default: 0.9.
    beta1: f64 = 0.9;
    /// Decay of the second moment. Default: 0.999.
    beta2: f64 = 0.999;
    /// Added to the root of the second moment. Default: 1e-8.
    eps: f64 = 1e-8;
    /// Weight decay. Default: 0.
    weight_decay: f64 = 0.0;
    /// Decay acts on the parameter, not on the gradient. Default: false.
    decoupled: bool = false;
    |_o, p| vec![StateSpec::step(), StateSpec::zeros("exp_avg", p), StateSpec::zeros("exp_avg_sq", p)]
}
