use remat_kernels::optim::{Sgd, sgd, sgd_plain};
use remat_types::{ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};

use super::{rate, want_rate};
use crate::args::{not_differentiable, not_taken, number, outputs, want_float, want_like};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample, Tolerance};

/// One step of stochastic gradient descent, as `torch.optim.SGD` computes it.
///
/// `(param, grad, buffer, lr) -> (param, buffer)`: `g = grad + weight_decay param`, of `-grad` if it is to `maximize`;
/// `buffer = momentum buffer + (1 - dampening) g`; `param -= lr (nesterov ? g + momentum buffer : buffer)`.
/// Without momentum there is no buffer: `(param, grad, lr) -> param`. The buffer begins as zeros, which with no dampening
/// is PyTorch's first step. All tensors have the parameter's float dtype and shape; `lr` is a rank-0 f32 (or f64, as the parameter), so that a
/// schedule does not make a new op.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a negative or non-finite number, or for Nesterov with
/// dampening or without momentum. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, buffer_or_lr: float, lr?: float))]
pub struct SgdUpdate {
    /// Decay of the buffer.
    #[param(default = 0.0.into())]
    pub momentum: Scalar,
    /// The share by which the gradient is reduced as it enters the buffer.
    #[param(default = 0.0.into())]
    pub dampening: Scalar,
    /// Looks one step ahead.
    #[param(default = false)]
    pub nesterov: bool,
    /// L2 penalty.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
    /// Goes up the gradient.
    #[param(default = false, since = 2)]
    pub maximize: bool,
}

impl SgdUpdate {
    fn numbers(&self) -> Result<Sgd> {
        let positive = |v: f64| v >= 0.0 && v.is_finite();
        let momentum = number(self.momentum, "momentum", "finite and not negative", positive)?;
        let dampening = number(self.dampening, "dampening", "finite", f64::is_finite)?;
        let weight_decay = number(self.weight_decay, "weight decay", "finite and not negative", positive)?;
        if self.nesterov {
            number(self.momentum, "momentum", "above 0 for Nesterov", |m| m > 0.0)?;
            number(self.dampening, "dampening", "0 for Nesterov", |d| d == 0.0)?;
        }
        Ok(Sgd { lr: 0.0, momentum, dampening, nesterov: self.nesterov, weight_decay, maximize: self.maximize })
    }

    fn has_buffer(&self) -> bool {
        self.momentum.to_f64() != 0.0
    }
}

impl Op for SgdUpdate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, if self.has_buffer() { 4 } else { 3 })?;
        self.numbers()?;
        want_float(x[0], "the parameter")?;
        want_like(x[1], x[0], "the gradient")?;
        let y = Fact::new(x[0].dtype, x[0].shape.clone());
        if self.has_buffer() {
            want_like(x[2], x[0], "the momentum buffer")?;
            want_rate(x[3], x[0])?;
            return Ok(smallvec![y.clone(), y]);
        }
        want_rate(x[2], x[0])?;
        Ok(smallvec![y])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, pool, x) = (cx.x[0].dtype(), cx.pool, cx.x);
        let numbers = self.numbers()?;
        for_float!(dtype, T => {
            let grad = x[1].slice::<T>()?;
            if !self.has_buffer() {
                sgd_plain(pool, Sgd { lr: rate(&x[2])?, ..numbers }, cx.output_from::<T>(0, 0)?, grad);
                return Ok(());
            }
            let numbers = Sgd { lr: rate(&x[3])?, ..numbers };
            cx.output_from::<T>(0, 0)?;
            cx.output_from::<T>(2, 1)?;
            let [param, buffer] = outputs(cx.y)?;
            sgd(pool, numbers, param.slice_mut::<T>()?, buffer.slice_mut()?, grad);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        if self.has_buffer() { &[(0, 0), (2, 1)] } else { &[(0, 0)] }
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(6 * x[0].elems() as u64)
    }
}

impl OpDef for SgdUpdate {
    const NAME: &'static str = "sgd_update";
    const VERSION: u32 = 2;

    fn samples() -> Vec<Sample<Self>> {
        let op = |momentum: f64, dampening: f64, nesterov, weight_decay: f64| SgdUpdate {
            momentum: momentum.into(),
            dampening: dampening.into(),
            nesterov,
            weight_decay: weight_decay.into(),
            maximize: false,
        };
        let up = |op: SgdUpdate| SgdUpdate { maximize: true, ..op };
        let v = |v: &[f32]| t(v, [v.len()]);
        let lr = |lr: f32| t(&[lr], []);
        let (p, g, b) = (v(&[1.0, -2.0]), v(&[0.5, 1.0]), v(&[2.0, 0.0]));
        let why = "an optimiser step is not differentiable";
        let big = |s: f32| v(&(0..40_000).map(|i| (i as f32 * s).sin()).collect::<Vec<_>>());
        vec![
            Sample::new(op(0.0, 0.0, false, 0.0), vec![p.clone(), g.clone(), lr(0.1)])
                .gives(vec![v(&[0.95, -2.1])])
                .no_grad(why),
            Sample::new(op(0.0, 0.0, false, 0.5), vec![p.clone(), g.clone(), lr(0.1)])
                .gives(vec![v(&[0.9, -2.0])])
                .no_grad(why),
            // up the gradient, and still towards 0
            Sample::new(up(op(0.0, 0.0, false, 0.5)), vec![p.clone(), g.clone(), lr(0.1)])
                .gives(vec![v(&[1.0, -1.8])])
                .no_grad(why),
            Sample::new(up(op(0.5, 0.0, false, 0.0)), vec![p.clone(), g.clone(), b.clone(), lr(1.0)])
                .gives(vec![v(&[0.5, -1.0]), v(&[0.5, -1.0])])
                .no_grad(why),
            Sample::new(op(0.5, 0.0, false, 0.0), vec![p.clone(), g.clone(), b.clone(), lr(0.1)])
                .gives(vec![v(&[0.85, -2.1]), v(&[1.5, 1.0])])
                .no_grad(why),
            Sample::new(op(0.5, 0.5, false, 0.25), vec![p.clone(), g.clone(), b.clone(), lr(1.0)])
                .gives(vec![v(&[-0.375, -2.25]), v(&[1.375, 0.25])])
                .no_grad(why),
            Sample::new(op(0.5, 0.0, true, 0.0), vec![p.clone(), g.clone(), b.clone(), lr(1.0)])
                .gives(vec![v(&[-0.25, -3.5]), v(&[1.5, 1.0])])
                .no_grad(why),
            // the rate of an f64 is not rounded to an f32
            Sample::new(op(0.0, 0.0, false, 0.0), vec![t(&[0.0f64], [1]), t(&[1.0f64], [1]), t(&[0.1f64], [])])
                .gives(vec![t(&[-0.1f64], [1])])
                .within(Tolerance::Exact)
                .no_grad(why),
            Sample::new(op(0.9, 0.0, false, 1e-4), vec![big(0.1), big(0.2), big(0.3), lr(0.1)]).no_grad(why),
            Sample::new(op(0.5, 0.0, false, 0.0), vec![p.clone(), g.clone(), v(&[1.0]), lr(0.1)])
                .fails(ErrorKind::Shape),
            Sample::new(op(0.5, 0.0, false, 0.0), vec![p.clone(), g.clone(), b.clone(), v(&[0.1])])
                .fails(ErrorKind::Shape),
            Sample::new(op(0.5, 0.0, false, 0.0), vec![p.clone(), g.clone(), lr(0.1)]).fails(ErrorKind::Arity),
            Sample::new(op(0.0, 0.0, false, 0.0), vec![p.clone(), g.clone(), t(&[0.1f64], [])]).fails(ErrorKind::DType),
            Sample::new(op(0.5, 0.1, true, 0.0), vec![p.clone(), g.clone(), b.clone(), lr(0.1)])
                .fails(ErrorKind::Value),
            Sample::new(op(-0.5, 0.0, false, 0.0), vec![p, g, b, lr(0.1)]).fails(ErrorKind::Value),
        ]
    }
}
