use remat_kernels::float::FloatElement;
use remat_kernels::optim::each_element;
use remat_types::{DType, Element, ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};

use super::rule::{NO_GRADIENT, decay, inputs, many, many_squares, not_negative, step, want_step};
use super::{rate, want_rate};
use crate::args::{epsilon, not_differentiable, not_taken, outputs, want_dtype, want_float, want_like, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// One step of NAdam (Dozat, ICLR workshop 2016), as `torch.optim.NAdam` computes it.
///
/// `(param, grad, lr, step, m, v, product) -> (param, m, v, product)`: weight decay on the parameter if `decoupled`, else on
/// the gradient, as in AdamW; `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`; with
/// `mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2)`: `product = mu(t) product`, and
/// `param -= lr ((1 - mu(t)) / (1 - product) g + mu(t + 1) / (1 - product mu(t + 1)) m) / (sqrt(v / (1 - beta2^t)) + eps)`.
/// The first two and `m` and `v` have the parameter's float dtype and shape; `lr` is a rank-0 f32 (or f64, as the parameter), `step` a rank-0 i64 from
/// 1 on, `product` a rank-0 f64 that begins as 1.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a beta outside `0 .. 1`, a negative or non-finite number,
/// or a step below 1. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, step: i64, m: float, v: float, product: float))]
pub struct NAdamUpdate {
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
    /// How soon the momentum is at its full.
    #[param(default = 0.004.into())]
    pub momentum_decay: Scalar,
    /// Decay acts on the parameter instead of the gradient.
    #[param(default = false)]
    pub decoupled: bool,
}

/// The base of the momentum's warm-up, as in the paper.
const WARM_UP: f64 = 0.96;

impl NAdamUpdate {
    fn check(&self) -> Result<()> {
        decay(self.beta1, "beta1")?;
        decay(self.beta2, "beta2")?;
        epsilon(self.eps)?;
        not_negative(self.weight_decay, "weight decay")?;
        not_negative(self.momentum_decay, "the momentum's decay").map(drop)
    }

    /// `mu(t)`.
    fn momentum(&self, step: f64) -> f64 {
        self.beta1.to_f64() * (1.0 - 0.5 * WARM_UP.powf(step * self.momentum_decay.to_f64()))
    }
}

impl Op for NAdamUpdate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 7)?;
        self.check()?;
        want_float(x[0], "the parameter")?;
        want_like(x[1], x[0], "the gradient")?;
        want_rate(x[2], x[0])?;
        want_step(x[3])?;
        want_like(x[4], x[0], "the first moment")?;
        want_like(x[5], x[0], "the second moment")?;
        want_dtype(x[6], DType::F64, "the product")?;
        want_shape(x[6], &[], "the product")?;
        let y = Fact::new(x[0].dtype, x[0].shape.clone());
        Ok(smallvec![y.clone(), y.clone(), y, Fact::new(DType::F64, x[6].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, x, pool) = (cx.x[0].dtype(), cx.x, cx.pool);
        let (step, lr) = (step(&x[3])?, rate(&x[2])?);
        let (now, next) = (self.momentum(step), self.momentum(step + 1.0));
        let product = &mut cx.output_from::<f64>(6, 3)?[0];
        *product *= now;
        let (of_g, of_m) = (lr * (1.0 - now) / (1.0 - *product), lr * next / (1.0 - *product * next));
        for_float!(dtype, T => {
            fn real<T: FloatElement>(v: f64) -> T::Real {
                T::Real::from_f64(v)
            }
            cx.output_from::<T>(0, 0)?;
            cx.output_from::<T>(4, 1)?;
            cx.output_from::<T>(5, 2)?;
            let (beta1, beta2, decay) = (self.beta1.to_f64(), self.beta2.to_f64(), self.weight_decay.to_f64());
            let (b1, c1) = (real::<T>(beta1), real::<T>(1.0 - beta1));
            let (b2, c2) = (real::<T>(beta2), real::<T>(1.0 - beta2));
            let shrink = real::<T>(if self.decoupled { 1.0 - lr * decay } else { 1.0 });
            let l2 = real::<T>(if self.decoupled { 0.0 } else { decay });
            let (of_g, of_m, eps) = (real::<T>(of_g), real::<T>(of_m), real::<T>(self.eps.to_f64()));
            let root = real::<T>(1.0 / (1.0 - beta2.powf(step)).sqrt());
            let [param, m, v, _] = outputs(cx.y)?;
            let state = [m.slice_mut::<T>()?, v.slice_mut::<T>()?];
            each_element(
                pool,
                param.slice_mut::<T>()?,
                x[1].slice()?,
                state,
                #[inline(always)]
                |p, g, [m, v]| {
                    let g = g + l2 * p;
                    let (m, v) = (b1 * m + c1 * g, b2 * v + c2 * (g * g));
                    (p * shrink - (of_g * g + of_m * m) / (v.sqrt() * root + eps), [m, v])
                },
            );
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (4, 1), (5, 2), (6, 3)]
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(16 * x[0].elems() as u64)
    }
}

impl OpDef for NAdamUpdate {
    const NAME: &'static str = "nadam_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |eps: f64, weight_decay: f64, momentum_decay: f64, decoupled| NAdamUpdate {
            beta1: 0.5.into(),
            beta2: 0.75.into(),
            eps: eps.into(),
            weight_decay: weight_decay.into(),
            momentum_decay: momentum_decay.into(),
            decoupled,
        };
        let v = |v: f32| t(&[v], [1]);
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let with = |mut x: Vec<_>, product: f64| {
            x.push(t(&[product], []));
            x
        };
        let at = |step, m: f32, s: f32, product| with(inputs(&[1.0], &[2.0], 0.5, Some(step), &[&[m], &[s]]), product);
        let (a, b, c) = (many(0.1), many(0.2), many_squares(0.3));
        vec![
            // without decay mu is a quarter: 3/4 / 3/4 g + 1/4 / 15/16 m over the root of the square of g
            of(op(0.0, 0.0, 0.0, false), at(1, 0.0, 0.0, 1.0)).gives(vec![
                v(1.0 - 0.5 * (2.0 + 4.0 / 15.0) / 2.0),
                v(1.0),
                v(1.0),
                t(&[0.25f64], []),
            ]),
            of(op(2.0, 1.0, 0.0, true), at(1, 0.0, 0.0, 1.0)).gives(vec![
                v(0.5 - 0.5 * (2.0 + 4.0 / 15.0) / 4.0),
                v(1.0),
                v(1.0),
                t(&[0.25f64], []),
            ]),
            of(op(0.0, 0.0, 0.0, false), at(2, 2.0, 4.0, 0.25)).gives(vec![
                v(1.0 - 0.5 * (0.8 * 2.0 + 0.25 / (63.0 / 64.0) * 2.0) / (4.0f32 / 0.4375).sqrt()),
                v(2.0),
                v(4.0),
                t(&[0.0625f64], []),
            ]),
            of(op(1e-3, 0.1, 0.004, false), with(inputs(&a, &b, 0.01, Some(4), &[&a, &c]), 0.1)),
            of(op(0.0, 0.0, 0.0, false), at(0, 0.0, 0.0, 1.0)).fails(ErrorKind::Value),
            of(op(-1.0, 0.0, 0.0, false), at(1, 0.0, 0.0, 1.0)).fails(ErrorKind::Value),
            of(op(0.0, 0.0, 0.0, false), inputs(&[1.0], &[2.0], 0.5, Some(1), &[&[0.0], &[0.0], &[1.0]]))
                .fails(ErrorKind::DType),
            of(op(0.0, 0.0, 0.0, false), at(1, 0.0, 0.0, 1.0)[..6].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}
