use remat_kernels::float::{FloatElement, Real};
use remat_kernels::optim::each_element;
use remat_kernels::pool::Pool;
use remat_types::{Element, ErrorKind, Result, Scalar};

use super::rule::{At, ElementRule, NO_GRADIENT, States, decay, element_op, inputs, many, many_squares, not_negative};
use crate::args::epsilon;
use crate::sample::t;
use crate::schema::Params;
use crate::{OpDef, Sample};

/// One step of rectified Adam (Liu et al., ICLR 2020, algorithm 2), as `torch.optim.RAdam` computes it.
///
/// `(param, grad, lr, step, m, v) -> (param, m, v)`: weight decay on the parameter if `decoupled`, else on the gradient, as
/// in AdamW; `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`; with `a = 2 / (1 - beta2) - 1` and
/// `b = a - 2 t beta2^t / (1 - beta2^t)`: `param -= lr m / (1 - beta1^t) r`, where `r` is 1 for a `b` of 5 or less, else
/// `sqrt((b - 4) (b - 2) a / ((a - 4) (a - 2) b) (1 - beta2^t)) / (sqrt v + eps)`. Inputs as of [`super::AdamaxUpdate`].
///
/// Errors: as there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, step: i64, m: float, v: float))]
pub struct RAdamUpdate {
    /// Decay of the first moment.
    #[param(default = 0.9.into())]
    pub beta1: Scalar,
    /// Decay of the second moment.
    #[param(default = 0.999.into())]
    pub beta2: Scalar,
    /// Added to the root of the second moment.
    #[param(default = 1e-8.into())]
    pub eps: Scalar,
    /// Weight decay.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
    /// Decay acts on the parameter instead of the gradient.
    #[param(default = false)]
    pub decoupled: bool,
}

/// The length of the average from which on its variance counts.
const LENGTH_LEAST: f64 = 5.0;

impl RAdamUpdate {
    /// The factor that corrects the variance of the step's size, or nothing while there are too few steps.
    fn rectified(&self, step: f64) -> Option<f64> {
        let beta2 = self.beta2.to_f64();
        let (power, most) = (beta2.powf(step), 2.0 / (1.0 - beta2) - 1.0);
        let now = most - 2.0 * step * power / (1.0 - power);
        let variance = (now - 4.0) * (now - 2.0) * most / ((most - 4.0) * (most - 2.0) * now);
        (now > LENGTH_LEAST).then(|| (variance * (1.0 - power)).sqrt())
    }
}

impl ElementRule for RAdamUpdate {
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
        let (beta1, beta2, decay) = (self.beta1.to_f64(), self.beta2.to_f64(), self.weight_decay.to_f64());
        let (b1, c1, b2, c2) = (real(beta1), real(1.0 - beta1), real(beta2), real(1.0 - beta2));
        let shrink = real(if self.decoupled { 1.0 - at.lr * decay } else { 1.0 });
        let (l2, eps) = (real(if self.decoupled { 0.0 } else { decay }), real(self.eps.to_f64()));
        let lr = at.lr / (1.0 - beta1.powf(at.step));
        let rectified = self.rectified(at.step);
        let rate = real(lr * rectified.unwrap_or(1.0));
        match rectified {
            Some(_) => each_element(
                pool,
                param,
                grad,
                state.all::<2>(),
                #[inline(always)]
                |p, g, s| {
                    let [m, v] = moments(g + l2 * p, s, [b1, c1, b2, c2]);
                    (p * shrink - rate * m / (v.sqrt() + eps), [m, v])
                },
            ),
            None => each_element(
                pool,
                param,
                grad,
                state.all::<2>(),
                #[inline(always)]
                |p, g, s| {
                    let [m, v] = moments(g + l2 * p, s, [b1, c1, b2, c2]);
                    (p * shrink - rate * m, [m, v])
                },
            ),
        }
    }
}

#[inline(always)]
fn moments<R: Real>(g: R, [m, v]: [R; 2], [b1, c1, b2, c2]: [R; 4]) -> [R; 2] {
    [b1 * m + c1 * g, b2 * v + c2 * (g * g)]
}

element_op!(RAdamUpdate, 14);

impl OpDef for RAdamUpdate {
    const NAME: &'static str = "radam_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |beta1: f64, beta2: f64, eps: f64, weight_decay: f64, decoupled| RAdamUpdate {
            beta1: beta1.into(),
            beta2: beta2.into(),
            eps: eps.into(),
            weight_decay: weight_decay.into(),
            decoupled,
        };
        let v = |v: f32| t(&[v], [1]);
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let at = |step, s: f32| inputs(&[1.0], &[2.0], 0.5, Some(step), &[&[0.0], &[s]]);
        let (a, b, c) = (many(0.1), many(0.2), many_squares(0.3));
        // of beta2 = 0.9: a = 19, and b = 19 - 200 0.9^100 / (1 - 0.9^100) at step 100
        let power = 0.9f64.powi(100);
        let long = 19.0 - 200.0 * power / (1.0 - power);
        let variance = (long - 4.0) * (long - 2.0) * 19.0 / (15.0 * 17.0 * long);
        let far = 1.0 - 0.5 * (variance * (1.0 - power)).sqrt() / (2.0 + 1.0);
        vec![
            // too early to tell: lr m / (1 - 0.5)
            of(op(0.5, 0.9, 0.0, 0.0, false), at(1, 0.0)).gives(vec![v(0.0), v(1.0), v(0.4)]),
            of(op(0.5, 0.9, 0.0, 1.0, true), at(1, 0.0)).gives(vec![v(-0.5), v(1.0), v(0.4)]),
            of(op(0.5, 0.9, 0.0, 1.0, false), at(1, 0.0)).gives(vec![v(-0.5), v(1.5), v(0.9)]),
            of(op(0.5, 0.9, 1.0, 0.0, false), at(100, 4.0)).gives(vec![v(far as f32), v(1.0), v(4.0)]),
            of(op(0.9, 0.99, 1e-3, 0.1, true), inputs(&a, &b, 0.01, Some(40), &[&a, &c])),
            of(op(0.5, 0.9, 0.0, 0.0, false), at(0, 0.0)).fails(ErrorKind::Value),
            of(op(0.5, 1.0, 0.0, 0.0, false), at(1, 0.0)).fails(ErrorKind::Value),
            of(op(0.5, 0.9, 0.0, 0.0, false), at(1, 0.0)[..5].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}
