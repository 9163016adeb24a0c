use remat_ops::optim::AdadeltaUpdate;

use super::StateSpec;
use super::rule::rule;

rule! {
    /// Adadelta (Zeiler, 2012, arXiv:1212.5701), as `torch.optim.Adadelta`:
    ///
    /// `g = grad + weight_decay p`; `s = rho s + (1 - rho) g^2`; `d = sqrt(a + eps) / sqrt(s + eps) g`;
    /// `a = rho a + (1 - rho) d^2`; `p -= lr d`.
    Adadelta, AdadeltaOptions => AdadeltaUpdate, "adadelta";
    /// Learning rate. Default: 1.
    lr = 1.0;
    /// Decay of both averages. Default: 0.9.
    rho: f64 = 0.9;
    /// Added under both roots. Default: 1e-6.
    eps: f64 = 1e-6;
    /// L2 penalty. Default: 0.
    weight_decay: f64 = 0.0;
    |_o, p| vec![StateSpec::zeros("square_avg", p), StateSpec::zeros("acc_delta", p)]
}
