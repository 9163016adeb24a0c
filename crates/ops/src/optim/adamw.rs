use remat_kernels::optim::{Adam, adam, amsgrad};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};

use super::{rate, want_rate};
use crate::args::{
    epsilon, not_differentiable, not_taken, number, outputs, want_dtype, want_float, want_like, want_shape,
};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// One step of AdamW (Loshchilov and Hutter, ICLR 2019), as `torch.optim.AdamW` computes it, or of Adam.
///
/// `(param, grad, m, v, lr, step, most?) -> (param, m, v, most?)`: `param *= 1 - lr weight_decay` if `decoupled`, else
/// `g = grad + weight_decay param`; `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`;
/// `param -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)`. With `amsgrad` (Reddi et al., ICLR 2018)
/// `most = max(most, v)` stands for `v` in that; it begins as zeros. The first four and `most` have the parameter's float dtype and
/// shape, `lr` is a rank-0 f32 (or f64, as the parameter), `step` a rank-0 i64, `t >= 1`.
///
/// Errors: DType or Shape for tensors that do not fit, Value for a beta outside `0 .. 1`, a negative or non-finite number,
/// or a step below 1. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, m: float, v: float, lr: float, step: i64, most?: float))]
pub struct AdamWUpdate {
    /// Decay of the first moment.
    pub beta1: Scalar,
    /// Decay of the second moment.
    pub beta2: Scalar,
    /// Added to the root of the second moment.
    pub eps: Scalar,
    /// Weight decay.
    pub weight_decay: Scalar,
    /// Decay acts on the parameter (AdamW) instead of the gradient (Adam).
    pub decoupled: bool,
    /// The step is divided by the root of the largest second moment so far.
    #[param(default = false, since = 2)]
    pub amsgrad: bool,
}

impl AdamWUpdate {
    fn numbers(&self) -> Result<Adam> {
        let fraction = |v: f64| (0.0..1.0).contains(&v);
        Ok(Adam {
            lr: 0.0,
            beta1: number(self.beta1, "beta1", "at least 0 and below 1", fraction)?,
            beta2: number(self.beta2, "beta2", "at least 0 and below 1", fraction)?,
            eps: epsilon(self.eps)?,
            weight_decay: number(self.weight_decay, "weight decay", "finite and not negative", |v| {
                v >= 0.0 && v.is_finite()
            })?,
            decoupled: self.decoupled,
            step: 1.0,
        })
    }
}

impl Op for AdamWUpdate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, if self.amsgrad { 7 } else { 6 })?;
        self.numbers()?;
        want_float(x[0], "the parameter")?;
        for (f, name) in [(x[1], "the gradient"), (x[2], "the first moment"), (x[3], "the second moment")] {
            want_like(f, x[0], name)?;
        }
        want_rate(x[4], x[0])?;
        want_dtype(x[5], DType::I64, "the step")?;
        want_shape(x[5], &[], "the step")?;
        let y = Fact::new(x[0].dtype, x[0].shape.clone());
        if self.amsgrad {
            want_like(x[6], x[0], "the largest second moment")?;
            return Ok(smallvec![y.clone(), y.clone(), y.clone(), y]);
        }
        Ok(smallvec![y.clone(), y.clone(), y])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, pool, x) = (cx.x[0].dtype(), cx.pool, cx.x);
        let step = x[5].slice::<i64>()?[0];
        if step < 1 {
            return Err(Error::new(ErrorKind::Value, format!("the step is {step}; the first is 1")));
        }
        let numbers = Adam { lr: rate(&x[4])?, step: step as f64, ..self.numbers()? };
        for_float!(dtype, T => {
            cx.output_from::<T>(0, 0)?;
            cx.output_from::<T>(2, 1)?;
            cx.output_from::<T>(3, 2)?;
            if self.amsgrad {
                cx.output_from::<T>(6, 3)?;
                let [param, m, v, most] = outputs(cx.y)?;
                let state = [m.slice_mut()?, v.slice_mut()?, most.slice_mut()?];
                amsgrad(pool, numbers, param.slice_mut::<T>()?, state, x[1].slice()?);
                return Ok(());
            }
            let [param, m, v] = outputs(cx.y)?;
            adam(pool, numbers, param.slice_mut::<T>()?, m.slice_mut()?, v.slice_mut()?, x[1].slice()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        if self.amsgrad { &[(0, 0), (2, 1), (3, 2), (6, 3)] } else { &[(0, 0), (2, 1), (3, 2)] }
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(14 * x[0].elems() as u64)
    }
}

impl OpDef for AdamWUpdate {
    const NAME: &'static str = "adamw_update";
    const VERSION: u32 = 2;

    fn samples() -> Vec<Sample<Self>> {
        let op = |beta1: f64, beta2: f64, eps: f64, weight_decay: f64, decoupled| AdamWUpdate {
            beta1: beta1.into(),
            beta2: beta2.into(),
            eps: eps.into(),
            weight_decay: weight_decay.into(),
            decoupled,
            amsgrad: false,
        };
        let v = |v: &[f32]| t(v, [v.len()]);
        let state = |p: &[f32], g: &[f32], m: &[f32], s: &[f32], lr: f32, step: i64| {
            vec![v(p), v(g), v(m), v(s), t(&[lr], []), t(&[step], [])]
        };
        let why = "an optimiser step is not differentiable";
        let big = |s: f32| (0..40_000).map(|i| (i as f32 * s).sin()).collect::<Vec<_>>();
        let squares: Vec<f32> = big(0.4).iter().map(|v| v * v).collect();
        let standard = || op(0.9, 0.999, 1e-8, 0.01, true);
        let largest = |op: AdamWUpdate| AdamWUpdate { amsgrad: true, ..op };
        let plain = state(&[1.0], &[2.0], &[0.0], &[0.0], 0.1, 1);
        let with = |i: usize, x| {
            let mut all = plain.clone();
            all[i] = x;
            all
        };
        vec![
            // the first step moves by lr against the gradient's sign
            Sample::new(op(0.5, 0.75, 0.0, 0.0, true), plain.clone())
                .gives(vec![v(&[0.9]), v(&[1.0]), v(&[1.0])])
                .no_grad(why),
            // decay on the parameter: 1 * (1 - 0.1 * 0.5), then the step of 0.1
            Sample::new(op(0.5, 0.75, 0.0, 0.5, true), plain.clone())
                .gives(vec![v(&[0.85]), v(&[1.0]), v(&[1.0])])
                .no_grad(why),
            // decay in the gradient: g = 2 + 0.5
            Sample::new(op(0.5, 0.75, 0.0, 0.5, false), plain.clone())
                .gives(vec![v(&[0.9]), v(&[1.25]), v(&[1.5625])])
                .no_grad(why),
            // second step: m = 1.5, m^ = 2, v = 3, v^ = 48/7, eps 1
            Sample::new(op(0.5, 0.75, 1.0, 0.0, true), state(&[1.0], &[2.0], &[1.0], &[8.0 / 3.0], 0.1, 2))
                .gives(vec![v(&[1.0 - 0.2 / ((48.0f32 / 7.0).sqrt() + 1.0)]), v(&[1.5]), v(&[3.0])])
                .no_grad(why),
            Sample::new(standard(), state(&big(0.1), &big(0.2), &big(0.3), &squares, 1e-3, 10)).no_grad(why),
            // v = 3 as there, but 12 was before
            Sample::new(largest(op(0.5, 0.75, 1.0, 0.0, true)), {
                let mut x = state(&[1.0], &[2.0], &[1.0], &[8.0 / 3.0], 0.1, 2);
                x.push(v(&[12.0]));
                x
            })
            .gives(vec![v(&[1.0 - 0.2 / ((12.0f32 / 0.4375).sqrt() + 1.0)]), v(&[1.5]), v(&[3.0]), v(&[12.0])])
            .no_grad(why),
            Sample::new(largest(op(0.5, 0.75, 0.0, 0.5, false)), {
                let mut x = plain.clone();
                x.push(v(&[1.0]));
                x
            })
            .gives(vec![v(&[0.9]), v(&[1.25]), v(&[1.5625]), v(&[1.5625])])
            .no_grad(why),
            Sample::new(largest(standard()), plain.clone()).fails(ErrorKind::Arity),
            Sample::new(standard(), with(5, t(&[0i64], []))).fails(ErrorKind::Value),
            Sample::new(standard(), with(5, t(&[1i32], []))).fails(ErrorKind::DType),
            Sample::new(standard(), with(3, v(&[1.0, 2.0]))).fails(ErrorKind::Shape),
            Sample::new(standard(), with(4, t(&[0.1f64], []))).fails(ErrorKind::DType),
            Sample::new(op(1.0, 0.9, 0.0, 0.0, true), plain.clone()).fails(ErrorKind::Value),
            Sample::new(standard(), plain[..5].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}
