use remat_ops::optim::LambUpdate;

use super::StateSpec;
use super::rule::rule;

rule! {
    /// LAMB (You et al., ICLR 2020, algorithm 2): Adam's direction with weight decay in it, as long as a share of the
    /// parameter's norm:
    ///
    /// `r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p`; `p -= lr |p| / |r| r`, and `lr r` where
    /// either norm is 0.
    Lamb, LambOptions => LambUpdate, "lamb";
    elementwise = false;
    /// Learning rate. Default: 1e-3.
    lr = 1e-3;
    /// Decay of the first moment. Default: 0.9.
    beta1: f64 = 0.9;
    /// Decay of the second moment. Default: 0.999.
    beta2: f64 = 0.999;
    /// Added to the root of the second moment. Default: 1e-6.
    eps: f64 = 1e-6;
    /// Weight decay. Default: 0.
    weight_decay: f64 = 0.0;
    |_o, p| vec![StateSpec::step(), StateSpec::zeros("exp_avg", p), StateSpec::zeros("exp_avg_sq", p)]
}
