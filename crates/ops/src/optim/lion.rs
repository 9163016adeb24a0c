use remat_kernels::float::FloatElement;
use remat_kernels::optim::each_element;
use remat_kernels::pool::Pool;
use remat_types::{Element, ErrorKind, Result, Scalar};

use super::rule::{At, ElementRule, NO_GRADIENT, States, decay, element_op, inputs, many, not_negative, signed};
use crate::sample::t;
use crate::schema::Params;
use crate::{OpDef, Sample};

/// One step of Lion (Chen et al., NeurIPS 2023, algorithm 2).
///
/// `(param, grad, lr, m) -> (param, m)`: `param = param (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) grad)`;
/// `m = beta2 m + (1 - beta2) grad`. All but `lr`, a rank-0 f32 (or f64, as the parameter), have the parameter's float dtype and shape.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a beta outside `0 .. 1` or a weight decay that is negative
/// or not finite. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, m: float))]
pub struct LionUpdate {
    /// Share of the momentum in a step.
    #[param(default = 0.9.into())]
    pub beta1: Scalar,
    /// Decay of the momentum.
    #[param(default = 0.99.into())]
    pub beta2: Scalar,
    /// Weight decay, on the parameter.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
}

impl ElementRule for LionUpdate {
    const TAKES_STEP: bool = false;

    fn states(&self) -> usize {
        1
    }

    fn check(&self) -> Result<()> {
        decay(self.beta1, "beta1")?;
        decay(self.beta2, "beta2")?;
        not_negative(self.weight_decay, "weight decay").map(drop)
    }

    fn run<T: FloatElement>(&self, pool: &Pool, at: At, param: &mut [T], grad: &[T], state: States<'_, T>) {
        let real = T::Real::from_f64;
        let (beta1, beta2) = (self.beta1.to_f64(), self.beta2.to_f64());
        let (b1, c1, b2, c2) = (real(beta1), real(1.0 - beta1), real(beta2), real(1.0 - beta2));
        let (lr, shrink) = (real(at.lr), real(1.0 - at.lr * self.weight_decay.to_f64()));
        each_element(
            pool,
            param,
            grad,
            state.all::<1>(),
            #[inline(always)]
            |p, g, [m]| (p * shrink - signed(lr, b1 * m + c1 * g), [b2 * m + c2 * g]),
        );
    }
}

element_op!(LionUpdate, 9);

impl OpDef for LionUpdate {
    const NAME: &'static str = "lion_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |beta1: f64, beta2: f64, weight_decay: f64| LionUpdate {
            beta1: beta1.into(),
            beta2: beta2.into(),
            weight_decay: weight_decay.into(),
        };
        let v = |v: &[f32]| t(v, [v.len()]);
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let x = inputs(&[1.0, 1.0, 1.0], &[2.0, -2.0, 1.0], 0.5, None, &[&[-1.0, 1.0, -1.0]]);
        let (a, b) = (many(0.1), many(0.2));
        vec![
            // of half of both: up, down, and where they are equal not at all
            of(op(0.5, 0.75, 0.0), x.clone()).gives(vec![v(&[0.5, 1.5, 1.0]), v(&[-0.25, 0.25, -0.5])]),
            of(op(0.5, 0.75, 0.5), x.clone()).gives(vec![v(&[0.25, 1.25, 0.75]), v(&[-0.25, 0.25, -0.5])]),
            of(op(0.9, 0.99, 0.0), inputs(&[1.0, 1.0], &[f32::NAN, 0.0], 0.5, None, &[&[0.0, 0.0]]))
                .gives(vec![v(&[f32::NAN, 1.0]), v(&[f32::NAN, 0.0])]),
            of(op(0.75, 0.5, 0.25), inputs(&a, &b, 0.01, None, &[&b])),
            of(op(1.0, 0.9, 0.0), x.clone()).fails(ErrorKind::Value),
            of(op(0.9, 0.9, -1.0), x.clone()).fails(ErrorKind::Value),
            of(op(0.9, 0.9, 0.0), x[..3].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}
