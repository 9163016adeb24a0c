use remat_ops::optim::RmsPropUpdate;

use super::StateSpec;
use super::rule::rule;

rule! {
    /// RMSprop (Tieleman and Hinton, 2012), as `torch.optim.RMSprop`:
    ///
    /// `g = grad + weight_decay p`; `s = alpha s + (1 - alpha) g^2`; `v = s - m^2` with `m = alpha m + (1 - alpha) g` if
    /// `centered`, else `v = s`; `b = momentum b + g / (sqrt v + eps)`; `p -= lr b`.
    RmsProp, RmsPropOptions => RmsPropUpdate, "rmsprop";
    /// Learning rate. Default: 1e-2.
    lr = 1e-2;
    /// Decay of the squares and the mean. Default: 0.99.
    alpha: f64 = 0.99;
    /// Added to the root. Default: 1e-8.
    eps: f64 = 1e-8;
    /// L2 penalty. Default: 0.
    weight_decay: f64 = 0.0;
    /// Decay of the buffer; without it there is no buffer. Default: 0.
    momentum: f64 = 0.0;
    /// Divide by the deviation instead of the root mean square. Default: false.
    centered: bool = false;
    |o, p| {
        let mut all = vec![StateSpec::zeros("square_avg", p)];
        all.extend(o.centered.then(|| StateSpec::zeros("grad_avg", p)));
        all.extend((o.momentum != 0.0).then(|| StateSpec::zeros("momentum_buffer", p)));
        all
    }
}
