use remat_kernels::float::{FloatElement, Real};
use remat_kernels::optim::each_element;
use remat_kernels::pool::Pool;
use remat_types::{Element, ErrorKind, Result, Scalar};

use super::rule::{At, ElementRule, NO_GRADIENT, States, decay, element_op, inputs, many, many_squares, not_negative};
use crate::args::epsilon;
use crate::sample::t;
use crate::schema::Params;
use crate::{OpDef, Sample};

/// One step of Adadelta (Zeiler, 2012, arXiv:1212.5701), as `torch.optim.Adadelta` computes it.
///
/// `(param, grad, lr, square, delta) -> (param, square, delta)`: `g = grad + weight_decay param`;
/// `square = rho square + (1 - rho) g^2`; `d = sqrt(delta + eps) / sqrt(square + eps) g`;
/// `delta = rho delta + (1 - rho) d^2`; `param -= lr d`. All but `lr`, a rank-0 f32 (or f64, as the parameter), have the parameter's float dtype and
/// shape.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a `rho` outside `0 .. 1` or a negative or non-finite
/// number. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, square: float, delta: float))]
pub struct AdadeltaUpdate {
    /// Decay of both.
    #[param(default = 0.9.into())]
    pub rho: Scalar,
    /// Added under both roots.
    #[param(default = 1e-6.into())]
    pub eps: Scalar,
    /// L2 penalty.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
}

impl ElementRule for AdadeltaUpdate {
    const TAKES_STEP: bool = false;

    fn states(&self) -> usize {
        2
    }

    fn check(&self) -> Result<()> {
        decay(self.rho, "rho")?;
        epsilon(self.eps)?;
        not_negative(self.weight_decay, "weight decay").map(drop)
    }

    fn run<T: FloatElement>(&self, pool: &Pool, at: At, param: &mut [T], grad: &[T], state: States<'_, T>) {
        let real = T::Real::from_f64;
        let rho = self.rho.to_f64();
        let (lr, keep, new, eps) = (real(at.lr), real(rho), real(1.0 - rho), real(self.eps.to_f64()));
        let l2 = real(self.weight_decay.to_f64());
        each_element(
            pool,
            param,
            grad,
            state.all::<2>(),
            #[inline(always)]
            |p, g, [square, delta]| {
                let g = g + l2 * p;
                let square = keep * square + new * (g * g);
                let d = (delta + eps).sqrt() / (square + eps).sqrt() * g;
                (p - lr * d, [square, keep * delta + new * (d * d)])
            },
        );
    }
}

element_op!(AdadeltaUpdate, 14);

impl OpDef for AdadeltaUpdate {
    const NAME: &'static str = "adadelta_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |rho: f64, eps: f64, weight_decay: f64| AdadeltaUpdate {
            rho: rho.into(),
            eps: eps.into(),
            weight_decay: weight_decay.into(),
        };
        let v = |v: f32| t(&[v], [1]);
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let plain = inputs(&[1.0], &[2.0], 0.5, None, &[&[2.0], &[3.0]]);
        let (a, b, c) = (many(0.1), many(0.2), many_squares(0.3));
        vec![
            // roots of 3 + 1 and of (2 + 4) / 2 + 1: d = g
            of(op(0.5, 1.0, 0.0), plain.clone()).gives(vec![v(0.0), v(3.0), v(3.5)]),
            of(op(0.5, 1.0, 1.0), inputs(&[1.0], &[1.0], 0.5, None, &[&[2.0], &[3.0]])).gives(vec![
                v(0.0),
                v(3.0),
                v(3.5),
            ]),
            of(op(0.9, 1e-3, 0.1), inputs(&a, &b, 0.01, None, &[&c, &c])),
            of(op(1.0, 1.0, 0.0), plain.clone()).fails(ErrorKind::Value),
            of(op(0.5, -1.0, 0.0), plain.clone()).fails(ErrorKind::Value),
            of(op(0.5, 1.0, 0.0), plain[..4].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}
