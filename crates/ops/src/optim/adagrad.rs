use remat_kernels::float::{FloatElement, Real};
use remat_kernels::optim::each_element;
use remat_kernels::pool::Pool;
use remat_types::{Element, ErrorKind, Result, Scalar};

use super::rule::{At, ElementRule, NO_GRADIENT, States, element_op, inputs, many, many_squares, not_negative};
use crate::args::epsilon;
use crate::sample::t;
use crate::schema::Params;
use crate::{OpDef, Sample};

/// One step of Adagrad (Duchi et al., JMLR 2011), as `torch.optim.Adagrad` computes it.
///
/// `(param, grad, lr, step, sum) -> (param, sum)`: `g = grad + weight_decay param`; `sum += g^2`;
/// `param -= lr / (1 + (step - 1) lr_decay) g / (sqrt sum + eps)`. All but `lr`, a rank-0 f32 (or f64, as the parameter), and `step`, a rank-0 i64 from
/// 1 on, have the parameter's float dtype and shape.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a negative or non-finite number or a step below 1. Not
/// differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, step: i64, sum: float))]
pub struct AdagradUpdate {
    /// The decay of the learning rate.
    #[param(default = 0.0.into())]
    pub lr_decay: Scalar,
    /// L2 penalty.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
    /// Added to the root.
    #[param(default = 1e-10.into())]
    pub eps: Scalar,
}

impl ElementRule for AdagradUpdate {
    const TAKES_STEP: bool = true;

    fn states(&self) -> usize {
        1
    }

    fn check(&self) -> Result<()> {
        not_negative(self.lr_decay, "the rate's decay")?;
        not_negative(self.weight_decay, "weight decay")?;
        epsilon(self.eps).map(drop)
    }

    fn run<T: FloatElement>(&self, pool: &Pool, at: At, param: &mut [T], grad: &[T], state: States<'_, T>) {
        let real = T::Real::from_f64;
        let lr = real(at.lr / (1.0 + (at.step - 1.0) * self.lr_decay.to_f64()));
        let (l2, eps) = (real(self.weight_decay.to_f64()), real(self.eps.to_f64()));
        each_element(
            pool,
            param,
            grad,
            state.all::<1>(),
            #[inline(always)]
            |p, g, [s]| {
                let g = g + l2 * p;
                let s = s + g * g;
                (p - lr * g / (s.sqrt() + eps), [s])
            },
        );
    }
}

element_op!(AdagradUpdate, 8);

impl OpDef for AdagradUpdate {
    const NAME: &'static str = "adagrad_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |lr_decay: f64, weight_decay: f64, eps: f64| AdagradUpdate {
            lr_decay: lr_decay.into(),
            weight_decay: weight_decay.into(),
            eps: eps.into(),
        };
        let v = |v: f32| t(&[v], [1]);
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let at = |step| inputs(&[1.0], &[3.0], 0.5, Some(step), &[&[16.0]]);
        let (a, b, c) = (many(0.1), many(0.2), many_squares(0.3));
        vec![
            // the root of 16 + 9 is 5
            of(op(0.0, 0.0, 0.0), at(1)).gives(vec![v(0.7), v(25.0)]),
            of(op(1.0, 0.0, 1.0), at(3)).gives(vec![v(1.0 - 0.5 / 3.0 * 0.5), v(25.0)]),
            of(op(0.0, 2.0, 0.0), inputs(&[1.0], &[1.0], 0.5, Some(1), &[&[16.0]])).gives(vec![v(0.7), v(25.0)]),
            of(op(0.1, 0.1, 1e-3), inputs(&a, &b, 0.01, Some(4), &[&c])),
            of(op(0.0, 0.0, 0.0), at(0)).fails(ErrorKind::Value),
            of(op(-1.0, 0.0, 0.0), at(1)).fails(ErrorKind::Value),
            of(op(0.0, 0.0, 0.0), inputs(&[1.0], &[3.0], 0.5, Some(1), &[])).fails(ErrorKind::Arity),
        ]
    }
}
