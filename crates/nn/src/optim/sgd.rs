use remat_ops::Op;
use remat_ops::optim::SgdUpdate;
use remat_tensor::Tensor;
use remat_types::{DType, Fact, Result, Shape};
use serde::{Deserialize, Serialize};

use super::Optimizer;
use super::groups::{Groups, check_rate, zeros_like};
use crate::{Arg, Parameter, update};

/// Options of [`Sgd`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SgdOptions {
    /// Learning rate. Default: 1e-3.
    pub lr: f64,
    /// Decay of the buffer; without it there is no buffer. Default: 0.
    pub momentum: f64,
    /// What the gradient is reduced by as it enters the buffer. Default: 0.
    pub dampening: f64,
    /// L2 penalty. Default: 0.
    pub weight_decay: f64,
    /// Looks one step ahead; needs momentum and no dampening. Default: false.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

impl SgdOptions {
    fn op(&self) -> SgdUpdate {
        SgdUpdate {
            momentum: self.momentum.into(),
            dampening: self.dampening.into(),
            nesterov: self.nesterov,
            weight_decay: self.weight_decay.into(),
        }
    }

    /// Errors (Value) as the op's inference finds them.
    fn check(&self) -> Result<()> {
        check_rate(self.lr)?;
        let (x, lr) = (Fact::new(DType::F32, [1]), Fact::new(DType::F32, Shape::scalar()));
        let all = [&x, &x, &x, &lr];
        let x = if self.momentum == 0.0 { &all[1..] } else { &all[..] };
        self.op().infer(x).map_err(|e| e.with_op("sgd")).map(drop)
    }
}

/// Stochastic gradient descent, as `torch.optim.SGD`:
///
/// `g = grad + weight_decay p`; `b = momentum b + (1 - dampening) g`; `p -= lr (nesterov ? g + momentum b : b)`.
///
/// The buffer `b` begins as zeros; with dampening, PyTorch's first step is `b = g` instead.
pub struct Sgd {
    groups: Groups<SgdOptions>,
}

/// Names of a parameter's state.
const STATE: [&str; 1] = ["momentum_buffer"];

impl Sgd {
    /// Over `parameters`, whose state is made here. Errors: Value for options outside their domain, a name or parameter
    /// given twice; Device for parameters of two devices; Budget for state that does not fit.
    pub fn new(parameters: Vec<(String, Parameter)>, options: SgdOptions) -> Result<Self> {
        let mut s = Sgd { groups: Groups::new() };
        s.add_group(parameters, options)?;
        Ok(s)
    }

    /// Adds parameters with options of their own. Errors: as [`Sgd::new`].
    pub fn add_group(&mut self, parameters: Vec<(String, Parameter)>, options: SgdOptions) -> Result<()> {
        options.check()?;
        self.groups.add(parameters, options)?;
        self.make_state().inspect_err(|_| drop(self.groups.all.pop()))
    }

    /// The options of each group, to be changed between steps.
    pub fn groups_mut(&mut self) -> impl Iterator<Item = &mut SgdOptions> {
        self.groups.all.iter_mut().map(|g| &mut g.options)
    }

    /// Buffers for groups with momentum that have none yet.
    fn make_state(&mut self) -> Result<()> {
        for g in self.groups.all.iter_mut().filter(|g| g.options.momentum != 0.0) {
            for s in g.slots.iter_mut().filter(|s| s.state.is_empty()) {
                s.state = vec![zeros_like(&s.parameter)?];
            }
        }
        Ok(())
    }
}

impl Optimizer for Sgd {
    fn step(&mut self) -> Result<()> {
        self.groups.all.iter().try_for_each(|g| g.options.check())?;
        self.make_state()?;
        self.groups.step(|o, slot, grad, channel| {
            let lr = Tensor::scalar(&channel.device(), o.lr as f32)?;
            let mut x = vec![Arg::State(&slot.parameter), Arg::Value(grad)];
            if o.momentum != 0.0 {
                x.extend(slot.state.first().map(Arg::State));
            }
            x.push(Arg::Value(lr));
            update(o.op(), x)
        })
    }

    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        self.groups.named_parameters()
    }

    fn named_state(&self) -> Vec<(String, Parameter)> {
        self.groups.named_state(&STATE)
    }

    fn lr(&self) -> f64 {
        self.groups.all.first().map_or(0.0, |g| g.options.lr)
    }

    fn set_lr(&mut self, lr: f64) {
        self.groups_mut().for_each(|o| o.lr = lr);
    }

    fn options(&self) -> Result<serde_json::Value> {
        self.groups.options_json("sgd")
    }

    fn load_options(&mut self, options: &serde_json::Value) -> Result<()> {
        let options = self.groups.parse_options("sgd", options)?;
        options.iter().try_for_each(SgdOptions::check)?;
        self.groups_mut().zip(options).for_each(|(own, o)| *own = o);
        self.make_state()
    }
}
