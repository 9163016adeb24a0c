use remat_ops::Op;
use remat_ops::optim::AdamWUpdate;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_tensor::Tensor;
use remat_types::{DType, Fact, Result, Shape};
use serde::{Deserialize, Serialize};

use super::Optimizer;
use super::groups::{Groups, check_rate, zeros_like};
use crate::{Arg, Parameter, Role, update};

/// Options of [`AdamW`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWOptions {
    /// Learning rate. Default: 1e-3.
    pub lr: f64,
    /// Decay of the first moment. Default: 0.9.
    pub beta1: f64,
    /// Decay of the second moment. Default: 0.999.
    pub beta2: f64,
    /// Added to the root of the second moment. Default: 1e-8.
    pub eps: f64,
    /// Weight decay. Default: 0.01.
    pub weight_decay: f64,
    /// Decay acts on the parameter (AdamW), not on the gradient (Adam). Default: true.
    pub decoupled: bool,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        AdamWOptions { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decoupled: true }
    }
}

impl AdamWOptions {
    /// Adam as in `torch.optim.Adam`: no weight decay, and what is set later acts on the gradient.
    pub fn adam() -> Self {
        AdamWOptions { weight_decay: 0.0, decoupled: false, ..AdamWOptions::default() }
    }

    fn op(&self) -> AdamWUpdate {
        AdamWUpdate {
            beta1: self.beta1.into(),
            beta2: self.beta2.into(),
            eps: self.eps.into(),
            weight_decay: self.weight_decay.into(),
            decoupled: self.decoupled,
        }
    }

    /// Errors (Value) as the op's inference finds them.
    fn check(&self) -> Result<()> {
        check_rate(self.lr)?;
        let (x, lr) = (Fact::new(DType::F32, [1]), Fact::new(DType::F32, Shape::scalar()));
        let step = Fact::new(DType::I64, Shape::scalar());
        self.op().infer(&[&x, &x, &x, &x, &lr, &step]).map_err(|e| e.with_op("adamw")).map(drop)
    }
}

/// AdamW (Loshchilov and Hutter, ICLR 2019), or Adam (Kingma and Ba, ICLR 2015), as in `torch.optim`:
///
/// `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`;
/// `p = p (1 - lr weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)`,
/// with `t` the number of steps in which the parameter had a gradient. State has the parameter's dtype.
pub struct AdamW {
    groups: Groups<AdamWOptions>,
}

/// Names of a parameter's state.
const STATE: [&str; 3] = ["exp_avg", "exp_avg_sq", "step"];

impl AdamW {
    /// Over `parameters`, whose state is made here. Errors: Value for options outside their domain, a name or parameter
    /// given twice; Device for parameters of two devices; Budget for state that does not fit.
    pub fn new(parameters: Vec<(String, Parameter)>, options: AdamWOptions) -> Result<Self> {
        let mut s = AdamW { groups: Groups::new() };
        s.add_group(parameters, options)?;
        Ok(s)
    }

    /// Adds parameters with options of their own. Errors: as [`AdamW::new`].
    pub fn add_group(&mut self, parameters: Vec<(String, Parameter)>, options: AdamWOptions) -> Result<()> {
        options.check()?;
        self.groups.add(parameters, options)?;
        let made =
            self.groups.all.iter_mut().flat_map(|g| &mut g.slots).filter(|s| s.state.is_empty()).try_for_each(|s| {
                let p = &s.parameter;
                let step = Tensor::zeros(p.device(), Shape::scalar(), DType::I64)?;
                s.state = vec![zeros_like(p)?, zeros_like(p)?, Parameter::with_role(step, Role::Optimizer)?];
                Ok(())
            });
        made.inspect_err(|_| drop(self.groups.all.pop()))
    }

    /// The options of each group, to be changed between steps.
    pub fn groups_mut(&mut self) -> impl Iterator<Item = &mut AdamWOptions> {
        self.groups.all.iter_mut().map(|g| &mut g.options)
    }
}

impl Optimizer for AdamW {
    fn step(&mut self) -> Result<()> {
        self.groups.all.iter().try_for_each(|g| g.options.check())?;
        self.groups.step(|o, slot, grad, channel| {
            let [m, v, step] = &slot.state[..] else { return Ok(()) };
            let device = channel.device();
            let one = Tensor::scalar(&device, 1i64)?;
            update(Binary { f: BinaryFn::Add }, vec![Arg::State(step), Arg::Value(one)])?;
            let lr = Arg::Value(Tensor::scalar(&device, o.lr as f32)?);
            let (p, m, v) = (Arg::State(&slot.parameter), Arg::State(m), Arg::State(v));
            update(o.op(), vec![p, Arg::Value(grad), m, v, lr, Arg::Value(step.get()?)])
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
        self.groups.options_json("adamw")
    }

    fn load_options(&mut self, options: &serde_json::Value) -> Result<()> {
        let options = self.groups.parse_options("adamw", options)?;
        options.iter().try_for_each(AdamWOptions::check)?;
        self.groups_mut().zip(options).for_each(|(own, o)| *own = o);
        Ok(())
    }
}
