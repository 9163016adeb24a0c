use remat_ops::optim::AdamaxUpdate;

use super::StateSpec;
use super::rule::rule;

rule! {
    /// AdaMax (Kingma and Ba, ICLR 2015, algorithm 2), as `torch.optim.Adamax`:
    ///
    /// `g = grad + weight_decay p`; `m = beta1 m + (1 - beta1) g`; `u = max(beta2 u, |g| + eps)`;
    /// `p -= lr / (1 - beta1^t) m / u`.
    Adamax, AdamaxOptions => AdamaxUpdate, "adamax";
    /// Learning rate. Default: 2e-3.
    lr = 2e-3;
    /// Decay of the first moment. Default: 0.9.
    beta1: f64 = 0.9;
    /// Decay of the largest gradient. Default: 0.999.
    beta2: f64 = 0.999;
    /// Added to a gradient's size. Default: 1e-8.
    eps: f64 = 1e-8;
    /// L2 penalty. Default: 0.
    weight_decay: f64 = 0.0;
    |_o, p| vec![StateSpec::step(), StateSpec::zeros("exp_avg", p), StateSpec::zeros("exp_inf", p)]
}
