use remat_ops::optim::LionUpdate;

use super::StateSpec;
use super::rule::rule;

rule! {
    /// Lion (Chen et al., NeurIPS 2023, algorithm 2):
    ///
    /// `p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g)`; `m = beta2 m + (1 - beta2) g`.
    Lion, LionOptions => LionUpdate, "lion";
    /// Learning rate. Default: 1e-4.
    lr = 1e-4;
    /// Share of the momentum in a step. Default: 0.9.
    beta1: f64 = 0.9;
    /// Decay of the momentum. Default: 0.99.
    beta2: f64 = 0.99;
    /// Weight decay, on the parameter. Default: 0.
    weight_decay: f64 = 0.0;
    |_o, p| vec![StateSpec::zeros("exp_avg", p)]
}
