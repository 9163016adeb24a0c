use remat_kernels::philox;
use remat_types::{ErrorKind, Fact, Facts, Result, for_float, smallvec};

use super::{stream, want_key};
use crate::args::{not_taken, want_float};
use crate::host::arity;
use crate::pointwise::{Binary, BinaryFn};
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `(key, alpha) -> y`: independent gamma numbers of shapes `alpha` and scale 1, of the shape and dtype of `alpha`, or if `log`
/// their logarithms: of small shapes the numbers themselves are below the least float.
///
/// NaN for a shape that is not positive. The gradient for `alpha` is that of the number at an unchanged value of its
/// distribution function (Figurnov, Mohamed and Mnih, 2018, arXiv:1805.08498). Errors: DType or Shape for a wrong key;
/// DType for other than floats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(key: key, alpha: float), gradient(alpha))]
pub struct GammaSample {
    /// Whether the logarithm is given.
    #[param(default = false, since = 2)]
    pub log: bool,
}

/// `(key, rate) -> y`: independent Poisson numbers of means `rate`, whole numbers in the shape and dtype of `rate`.
///
/// NaN for a negative rate. No gradient. Errors: DType or Shape for a wrong key; DType for other than floats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(key: key, rate: float))]
pub struct PoissonSample {}

fn like_second(x: &[&Fact]) -> Result<Facts> {
    arity(x, 2)?;
    want_key(x[0])?;
    want_float(x[1], "the parameter")?;
    Ok(smallvec![x[1].clone()])
}

impl Op for GammaSample {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        like_second(x)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, dtype) = (stream(&cx.x[0])?, cx.x[1].dtype());
        for_float!(dtype, T => {
            philox::gamma::<T>(cx.pool, s, self.log, cx.x[1].slice()?, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let f = if self.log { BinaryFn::GammaLogSlope } else { BinaryFn::GammaSlope };
        let slope = cx.apply(Binary { f }, &[cx.x(1), cx.y(0)])?;
        Ok(smallvec![None, Some(cx.build().mul(dy, slope)?)])
    }
}

impl Op for PoissonSample {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        like_second(x)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, dtype) = (stream(&cx.x[0])?, cx.x[1].dtype());
        for_float!(dtype, T => {
            philox::poisson::<T>(cx.pool, s, cx.x[1].slice()?, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None, None])
    }
}

const WHY: &str = "the number jumps where a draw is rejected";

fn key() -> remat_types::HostTensor {
    t(&[7u64, 3], [2])
}

impl OpDef for GammaSample {
    const NAME: &'static str = "gamma_sample";
    const VERSION: u32 = 2;

    fn samples() -> Vec<Sample<Self>> {
        let op = GammaSample { log: false };
        let logs = GammaSample { log: true };
        let many: Vec<f32> = (0..1000).map(|i| 0.1 + i as f32 * 0.01).collect();
        vec![
            Sample::new(op.clone(), vec![key(), t(&[0.0f32, -1.0, f32::NAN, f32::INFINITY], [2, 2])])
                .gives(vec![t(&[f32::NAN; 4], [2, 2])])
                .no_grad(WHY),
            Sample::new(op.clone(), vec![key(), t(&many, [10, 100])]).no_grad(WHY),
            Sample::new(op.clone(), vec![key(), t(&[0.3f64, 2.0], [2])]).no_grad(WHY),
            Sample::new(logs.clone(), vec![key(), t(&many, [10, 100])]).no_grad(WHY),
            Sample::new(logs.clone(), vec![key(), t(&[0.0f32, -1.0, f32::NAN, f32::INFINITY], [2, 2])])
                .gives(vec![t(&[f32::NAN; 4], [2, 2])])
                .no_grad(WHY),
            Sample::new(logs, vec![key(), t(&[1e-3f64, 0.01, 2.0], [3])]).no_grad(WHY),
            Sample::new(op.clone(), vec![key(), t::<f32>(&[], [0])]).gives(vec![t::<f32>(&[], [0])]).no_grad(WHY),
            Sample::new(op.clone(), vec![key(), t(&[1i32], [1])]).fails(ErrorKind::DType),
            Sample::new(op.clone(), vec![t(&[1u64], [1]), t(&[1.0f32], [1])]).fails(ErrorKind::Shape),
            Sample::new(op, vec![key()]).fails(ErrorKind::Arity),
        ]
    }
}

impl OpDef for PoissonSample {
    const NAME: &'static str = "poisson_sample";

    fn samples() -> Vec<Sample<Self>> {
        let op = PoissonSample {};
        let many: Vec<f32> = (0..1000).map(|i| i as f32 * 0.05).collect();
        vec![
            Sample::new(op.clone(), vec![key(), t(&[0.0f32, -1.0, f32::NAN, f32::INFINITY], [4])])
                .gives(vec![t(&[0.0f32, f32::NAN, f32::NAN, f32::NAN], [4])])
                .no_grad("whole numbers"),
            Sample::new(op.clone(), vec![key(), t(&many, [10, 100])]).no_grad("whole numbers"),
            Sample::new(op.clone(), vec![key(), t(&[3.0f64, 200.0], [2])]).no_grad("whole numbers"),
            Sample::new(op, vec![key(), t(&[1i32], [1])]).fails(ErrorKind::DType),
        ]
    }
}
