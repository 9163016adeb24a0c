use remat_kernels::float::{FloatElement, Real};
use remat_kernels::optim::each_element;
use remat_kernels::pool::Pool;
use remat_types::{Element, ErrorKind, Result, Scalar};

use super::rule::not_negative;
use super::rule::{At, ElementRule, NO_GRADIENT, States, decay, element_op, inputs, larger, many, many_squares};
use crate::args::epsilon;
use crate::sample::t;
use crate::schema::Params;
use crate::{OpDef, Sample};

/// One step of RMSprop (Tieleman and Hinton, 2012, lecture 6.5), as `torch.optim.RMSprop` computes it.
///
/// `(param, grad, lr, square, mean?, buffer?) -> (param, square, mean?, buffer?)`: `g = grad + weight_decay param`;
/// `square = alpha square + (1 - alpha) g^2`; `mean = alpha mean + (1 - alpha) g` and `v = square - mean^2` if `centered`,
/// else `v = square`; `buffer = momentum buffer + g / (sqrt v + eps)` with momentum; `param -= lr buffer`. All have the
/// parameter's float dtype and shape, `lr` is a rank-0 f32 (or f64, as the parameter). Mean and buffer are there where the options need them.
///
/// Errors: DType or Shape for tensors that do not fit, Value for an `alpha` outside `0 .. 1` or a negative or non-finite
/// number. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, square: float, mean_or_buffer?: float, buffer?: float))]
pub struct RmsPropUpdate {
    /// Decay of the squares and the mean.
    #[param(default = 0.99.into())]
    pub alpha: Scalar,
    /// Added to the root.
    #[param(default = 1e-8.into())]
    pub eps: Scalar,
    /// L2 penalty.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
    /// Decay of the buffer; without it there is no buffer.
    #[param(default = 0.0.into())]
    pub momentum: Scalar,
    /// Divide by the deviation instead of the root mean square.
    #[param(default = false)]
    pub centered: bool,
}

impl ElementRule for RmsPropUpdate {
    const TAKES_STEP: bool = false;

    fn states(&self) -> usize {
        1 + usize::from(self.centered) + usize::from(self.momentum.to_f64() != 0.0)
    }

    fn check(&self) -> Result<()> {
        decay(self.alpha, "alpha")?;
        epsilon(self.eps)?;
        not_negative(self.weight_decay, "weight decay")?;
        not_negative(self.momentum, "momentum").map(drop)
    }

    fn run<T: FloatElement>(&self, pool: &Pool, at: At, param: &mut [T], grad: &[T], state: States<'_, T>) {
        let real = |v: Scalar| T::Real::from_f64(v.to_f64());
        let (lr, a, eps) = (T::Real::from_f64(at.lr), real(self.alpha), real(self.eps));
        let c = T::Real::from_f64(1.0 - self.alpha.to_f64());
        let (l2, momentum) = (real(self.weight_decay), real(self.momentum));
        match (self.centered, self.momentum.to_f64() != 0.0) {
            (false, false) => each_element(
                pool,
                param,
                grad,
                state.all::<1>(),
                #[inline(always)]
                |p, g, [s]| {
                    let g = g + l2 * p;
                    let s = a * s + c * (g * g);
                    (p - lr * share(g, s, T::Real::ZERO, eps), [s])
                },
            ),
            (true, false) => each_element(
                pool,
                param,
                grad,
                state.all::<2>(),
                #[inline(always)]
                |p, g, [s, m]| {
                    let g = g + l2 * p;
                    let (s, m) = (a * s + c * (g * g), a * m + c * g);
                    (p - lr * share(g, s, m, eps), [s, m])
                },
            ),
            (false, true) => each_element(
                pool,
                param,
                grad,
                state.all::<2>(),
                #[inline(always)]
                |p, g, [s, b]| {
                    let g = g + l2 * p;
                    let s = a * s + c * (g * g);
                    let b = momentum * b + share(g, s, T::Real::ZERO, eps);
                    (p - lr * b, [s, b])
                },
            ),
            (true, true) => each_element(
                pool,
                param,
                grad,
                state.all::<3>(),
                #[inline(always)]
                |p, g, [s, m, b]| {
                    let g = g + l2 * p;
                    let (s, m) = (a * s + c * (g * g), a * m + c * g);
                    let b = momentum * b + share(g, s, m, eps);
                    (p - lr * b, [s, m, b])
                },
            ),
        }
    }
}

/// `g` over the deviation. Rounding cannot make the root's argument negative.
#[inline(always)]
fn share<R: Real>(g: R, square: R, mean: R, eps: R) -> R {
    g / (larger(square - mean * mean, R::ZERO).sqrt() + eps)
}

element_op!(RmsPropUpdate, 12);

impl OpDef for RmsPropUpdate {
    const NAME: &'static str = "rmsprop_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |eps: f64, weight_decay: f64, momentum: f64, centered| RmsPropUpdate {
            alpha: 0.75.into(),
            eps: eps.into(),
            weight_decay: weight_decay.into(),
            momentum: momentum.into(),
            centered,
        };
        let v = |v: f32| t(&[v], [1]);
        let of = |op: RmsPropUpdate, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let plain = inputs(&[1.0], &[2.0], 0.1, None, &[&[4.0]]);
        let (a, b, c) = (many(0.1), many(0.2), many_squares(0.3));
        vec![
            // the square stays 4: a step of lr times 2 / (2 + eps)
            of(op(0.0, 0.0, 0.0, false), plain.clone()).gives(vec![v(0.9), v(4.0)]),
            of(op(2.0, 0.0, 0.0, false), plain.clone()).gives(vec![v(0.95), v(4.0)]),
            // g = 1 + 1
            of(op(0.0, 1.0, 0.0, false), inputs(&[1.0], &[1.0], 0.1, None, &[&[4.0]])).gives(vec![v(0.9), v(4.0)]),
            of(op(0.0, 0.0, 0.5, false), inputs(&[1.0], &[2.0], 0.1, None, &[&[4.0], &[4.0]])).gives(vec![
                v(0.7),
                v(4.0),
                v(3.0),
            ]),
            // mean 0.5: v = 4.25 - 0.25
            of(op(0.0, 0.0, 0.0, true), inputs(&[1.0], &[2.0], 0.1, None, &[&[13.0 / 3.0], &[0.0]])).gives(vec![
                v(0.9),
                v(4.25),
                v(0.5),
            ]),
            of(op(0.0, 0.0, 0.5, true), inputs(&[1.0], &[2.0], 0.1, None, &[&[13.0 / 3.0], &[0.0], &[4.0]]))
                .gives(vec![v(0.7), v(4.25), v(0.5), v(3.0)]),
            of(op(1e-2, 0.1, 0.9, true), inputs(&a, &b, 0.01, None, &[&c, &vec![0.0; a.len()], &a])),
            of(op(0.0, 0.0, 0.0, true), plain.clone()).fails(ErrorKind::Arity),
            of(op(-1.0, 0.0, 0.0, false), plain.clone()).fails(ErrorKind::Value),
            of(RmsPropUpdate { alpha: 1.0.into(), ..op(0.0, 0.0, 0.0, false) }, plain).fails(ErrorKind::Value),
            of(op(0.0, 0.0, 0.0, false), inputs(&[1.0], &[2.0, 1.0], 0.1, None, &[&[4.0]])).fails(ErrorKind::Shape),
        ]
    }
}
