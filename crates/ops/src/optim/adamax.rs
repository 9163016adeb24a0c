use remat_kernels::float::FloatElement;
use remat_kernels::optim::each_element;
use remat_kernels::pool::Pool;
use remat_types::{Element, ErrorKind, Result, Scalar};

use super::rule::{At, ElementRule, NO_GRADIENT, States, decay, element_op, inputs, larger, many, many_squares};
use super::rule::{not_negative, signed};
use crate::args::epsilon;
use crate::sample::t;
use crate::schema::Params;
use crate::{OpDef, Sample};

/// One step of AdaMax (Kingma and Ba, ICLR 2015, algorithm 2), as `torch.optim.Adamax` computes it.
///
/// `(param, grad, lr, step, m, u) -> (param, m, u)`: `g = grad + weight_decay param`; `m = beta1 m + (1 - beta1) g`;
/// `u = max(beta2 u, |g| + eps)`; `param -= lr / (1 - beta1^step) m / u`. All but `lr`, a rank-0 f32 (or f64, as the parameter), and `step`, a rank-0
/// i64 from 1 on, have the parameter's float dtype and shape.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a beta outside `0 .. 1`, a negative or non-finite number,
/// or a step below 1. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, step: i64, m: float, u: float))]
pub struct AdamaxUpdate {
    /// Decay of the first moment.
    #[param(default = 0.9.into())]
    pub beta1: Scalar,
    /// Decay of the largest gradient.
    #[param(default = 0.999.into())]
    pub beta2: Scalar,
    /// Added to a gradient's size.
    #[param(default = 1e-8.into())]
    pub eps: Scalar,
    /// L2 penalty.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
}

impl ElementRule for AdamaxUpdate {
    const TAKES_STEP: bool = true;

    fn states(&self) -> usize {
        2
    }

    fn check(&self) -> Result<()> {
        decay(self.beta1, "beta1")?;
        decay(self.beta2, "beta2")?;
        epsilon(self.eps)?;
        not_negative(self.weight_decay, "weight decay").map(drop)
    }

    fn run<T: FloatElement>(&self, pool: &Pool, at: At, param: &mut [T], grad: &[T], state: States<'_, T>) {
        let real = T::Real::from_f64;
        let beta1 = self.beta1.to_f64();
        let (b1, c1, b2) = (real(beta1), real(1.0 - beta1), real(self.beta2.to_f64()));
        let (lr, l2) = (real(at.lr / (1.0 - beta1.powf(at.step))), real(self.weight_decay.to_f64()));
        let eps = real(self.eps.to_f64());
        each_element(
            pool,
            param,
            grad,
            state.all::<2>(),
            #[inline(always)]
            |p, g, [m, u]| {
                let g = g + l2 * p;
                let m = b1 * m + c1 * g;
                let u = larger(b2 * u, signed(g, g) + eps);
                (p - lr * m / u, [m, u])
            },
        );
    }
}

element_op!(AdamaxUpdate, 10);

impl OpDef for AdamaxUpdate {
    const NAME: &'static str = "adamax_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |beta1: f64, beta2: f64, eps: f64, weight_decay: f64| AdamaxUpdate {
            beta1: beta1.into(),
            beta2: beta2.into(),
            eps: eps.into(),
            weight_decay: weight_decay.into(),
        };
        let v = |v: f32| t(&[v], [1]);
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let at = |g: f32, step, u: f32| inputs(&[1.0], &[g], 0.5, Some(step), &[&[0.0], &[u]]);
        let (a, b, c) = (many(0.1), many(0.2), many_squares(0.3));
        vec![
            // the first step moves by lr against the gradient's sign
            of(op(0.5, 0.5, 0.0, 0.0), at(-2.0, 1, 0.0)).gives(vec![v(1.5), v(-1.0), v(2.0)]),
            // half of 8 is larger; 1 - 0.5^2
            of(op(0.5, 0.5, 0.0, 0.0), at(2.0, 2, 8.0)).gives(vec![v(1.0 - 0.5 / 0.75 * 0.25), v(1.0), v(4.0)]),
            of(op(0.5, 0.5, 2.0, 1.0), at(1.0, 1, 0.0)).gives(vec![v(0.75), v(1.0), v(4.0)]),
            of(op(0.9, 0.99, 1e-3, 0.1), inputs(&a, &b, 0.01, Some(4), &[&a, &c])),
            of(op(0.5, 0.5, 0.0, 0.0), at(1.0, 0, 0.0)).fails(ErrorKind::Value),
            of(op(1.0, 0.5, 0.0, 0.0), at(1.0, 1, 0.0)).fails(ErrorKind::Value),
            of(op(0.5, 0.5, 0.0, 0.0), at(1.0, 1, 0.0)[..5].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}
