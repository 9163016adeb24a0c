use remat_kernels::optim::{Lamb, lamb, lamb_workspace_items};
use remat_types::{ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};

use super::rule::{NO_GRADIENT, decay, inputs, many, many_squares, not_negative, step, want_step};
use super::{rate, want_rate};
use crate::args::{epsilon, items_of, not_differentiable, not_taken, outputs, want_float, want_like};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// One step of LAMB (You et al., ICLR 2020, algorithm 2, where the scaling function is the identity).
///
/// `(param, grad, lr, step, m, v) -> (param, m, v)`: `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`;
/// `r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay param`;
/// `param -= lr |param| / |r| r`, and `lr r` where either norm is 0. All but `lr`, a rank-0 f32 (or f64, as the parameter), and `step`, a rank-0 i64
/// from 1 on, have the parameter's float dtype and shape; norms are of the whole parameter.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a beta outside `0 .. 1`, a negative or non-finite number,
/// or a step below 1. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, step: i64, m: float, v: float))]
pub struct LambUpdate {
    /// Decay of the first moment.
    #[param(default = 0.9.into())]
    pub beta1: Scalar,
    /// Decay of the second moment.
    #[param(default = 0.999.into())]
    pub beta2: Scalar,
    /// Added to the root of the second moment.
    #[param(default = 1e-6.into())]
    pub eps: Scalar,
    /// Weight decay, within the step.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
}

impl LambUpdate {
    fn numbers(&self) -> Result<Lamb> {
        Ok(Lamb {
            lr: 0.0,
            beta1: decay(self.beta1, "beta1")?,
            beta2: decay(self.beta2, "beta2")?,
            eps: epsilon(self.eps)?,
            weight_decay: not_negative(self.weight_decay, "weight decay")?,
            step: 1.0,
        })
    }
}

impl Op for LambUpdate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 6)?;
        self.numbers()?;
        want_float(x[0], "the parameter")?;
        want_like(x[1], x[0], "the gradient")?;
        want_rate(x[2], x[0])?;
        want_step(x[3])?;
        want_like(x[4], x[0], "the first moment")?;
        want_like(x[5], x[0], "the second moment")?;
        let y = Fact::new(x[0].dtype, x[0].shape.clone());
        Ok(smallvec![y.clone(), y.clone(), y])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, x, pool) = (cx.x[0].dtype(), cx.x, cx.pool);
        let numbers = Lamb { lr: rate(&x[2])?, step: step(&x[3])?, ..self.numbers()? };
        let items = lamb_workspace_items(x[0].shape().elems());
        for_float!(dtype, T => {
            cx.output_from::<T>(0, 0)?;
            cx.output_from::<T>(4, 1)?;
            cx.output_from::<T>(5, 2)?;
            let workspace = items_of::<f64>(cx.workspace, items)?;
            let [param, m, v] = outputs(cx.y)?;
            let (m, v) = (m.slice_mut()?, v.slice_mut()?);
            lamb(pool, numbers, param.slice_mut::<T>()?, m, v, x[1].slice()?, workspace);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (4, 1), (5, 2)]
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        lamb_workspace_items(x[0].elems()) * size_of::<f64>()
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(28 * x[0].elems() as u64)
    }
}

impl OpDef for LambUpdate {
    const NAME: &'static str = "lamb_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |eps: f64, weight_decay: f64| LambUpdate {
            beta1: 0.5.into(),
            beta2: 0.75.into(),
            eps: eps.into(),
            weight_decay: weight_decay.into(),
        };
        let v = |v: &[f32]| t(v, [v.len()]);
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let zero = [0.0, 0.0];
        let x = inputs(&[3.0, 4.0], &[2.0, -2.0], 0.5, Some(1), &[&zero, &zero]);
        let (a, b, c) = (many(0.1), many(0.2), many_squares(0.3));
        let long = 0.5 * 5.0 / 2f32.sqrt();
        vec![
            // a step of (1, -1), made as long as half of the parameter
            of(op(0.0, 0.0), x.clone()).gives(vec![v(&[3.0 - long, 4.0 + long]), v(&[1.0, -1.0]), v(&[1.0, 1.0])]),
            // (1, -1) + (3, 4), as long as the parameter's 5 of its own root of 25
            of(op(0.0, 1.0), x.clone()).gives(vec![v(&[1.0, 2.5]), v(&[1.0, -1.0]), v(&[1.0, 1.0])]),
            // a parameter of zeros takes the step as it is; its divisor is 2 + 2
            of(op(2.0, 1.0), inputs(&zero, &[2.0, -2.0], 0.5, Some(1), &[&zero, &zero])).gives(vec![
                v(&[-0.25, 0.25]),
                v(&[1.0, -1.0]),
                v(&[1.0, 1.0]),
            ]),
            of(op(1e-3, 0.1), inputs(&a, &b, 0.01, Some(4), &[&a, &c])),
            of(op(0.0, 0.0), inputs(&[3.0], &[2.0], 0.5, Some(0), &[&[0.0], &[0.0]])).fails(ErrorKind::Value),
            of(op(-1.0, 0.0), x.clone()).fails(ErrorKind::Value),
            of(op(0.0, 0.0), x[..5].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}
