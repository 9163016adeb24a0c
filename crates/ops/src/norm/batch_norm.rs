use remat_kernels::float::FloatElement;
use remat_kernels::norm::{BatchDims, batch_norm, batch_norm_grad, batch_norm_infer};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, Scalar, Shape, for_float, smallvec};

use crate::args::{epsilon, not_taken, outputs, real_dtype, want_dtype, want_float, want_like, want_shape};
use crate::compose;
use crate::host::arity;

use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y = (x - mean) / sqrt(var + eps) * scale + bias` with mean and biased variance of each channel over the batch.
///
/// `(x, scale, bias) -> (y, mean, var)`; `x, y: [n, c, ..]` of rank 2 to 5, `scale, bias: [c]` of x's dtype,
/// `mean, var: [c]` in f32 (f64 for f64), for the running statistics of a module. Statistics take two passes.
/// (Ioffe and Szegedy, ICML 2015.)
///
/// Errors: DType for a dtype that is no float or differs, Axis for another rank, Shape for other extents or a batch
/// without elements, Value for a negative eps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, scale: float, bias: float), gradient(x, scale, bias))]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: Scalar,
}

/// Sizes and checks of `x` and its per-channel tensors.
fn dims_of(x: &Fact) -> Result<BatchDims> {
    want_float(x, "x")?;
    if !(2..=5).contains(&x.rank()) {
        return Err(Error::new(ErrorKind::Axis, format!("x has shape {}: its rank must be 2 to 5", x.shape)));
    }
    Ok(dims(&x.shape))
}

fn dims(shape: &Shape) -> BatchDims {
    BatchDims { n: shape[0], c: shape[1], s: shape[2..].iter().product() }
}

/// Errors (Shape) for a batch of nothing, whose mean does not exist.
fn some_batch(x: &Fact) -> Result<BatchDims> {
    let d = dims_of(x)?;
    if d.count() == 0 && d.c > 0 {
        return Err(Error::new(ErrorKind::Shape, format!("x has shape {}: a channel without elements", x.shape)));
    }
    Ok(d)
}

fn want_channels(f: &Fact, x: &Fact, name: &str) -> Result<()> {
    want_dtype(f, x.dtype, name)?;
    want_shape(f, &[x.shape[1]], name).map_err(|e| e.context(format!("x has {} channels along axis 1", x.shape[1])))
}

fn want_statistics(f: &Fact, x: &Fact, name: &str) -> Result<()> {
    want_dtype(f, real_dtype(x.dtype), name)?;
    want_shape(f, &[x.shape[1]], name)
}

/// Flops of one element in one pass over a tensor to normalise; an estimate.
const FLOPS_PER_ELEM: u64 = 8;

impl Op for BatchNorm {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        epsilon(self.eps)?;
        let d = some_batch(x[0])?;
        want_channels(x[1], x[0], "scale")?;
        want_channels(x[2], x[0], "bias")?;
        let statistics = Fact::new(real_dtype(x[0].dtype), [d.c]);
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone()), statistics.clone(), statistics])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (d, eps, dtype) = (dims(cx.x[0].shape()), epsilon(self.eps)?, cx.x[0].dtype());
        let x = cx.x;
        let [y, mean, var] = outputs(cx.y)?;
        for_float!(dtype, T => {
            type R = <T as FloatElement>::Real;
            let (data, scale, bias) = (x[0].slice::<T>()?, x[1].slice()?, x[2].slice()?);
            batch_norm(cx.pool, d, eps, data, scale, bias, y.slice_mut()?, mean.slice_mut::<R>()?, var.slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        if cx.dy(1).is_some() || cx.dy(2).is_some() {
            return self.grad_through(cx);
        }
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None; 3]) };
        let op = BatchNormGrad { eps: self.eps };
        let grads = cx.apply_all(op, &[cx.x(0), cx.x(1), cx.y(1), cx.y(2), dy])?;
        Ok(grads.into_iter().map(Some).collect())
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(FLOPS_PER_ELEM * x[0].elems() as u64)
    }
}

impl BatchNorm {
    /// The gradient where something depends on the statistics too; rare, hence composed.
    fn grad_through(&self, cx: &GradCx<'_>) -> Result<Grads> {
        let eps = epsilon(self.eps)?;
        cx.grad_via_composite(|cx, x| compose::batch_norm(cx, x, eps))
    }
}

/// The gradients of [`BatchNorm`]'s first output, fused: `(x, scale, mean, var, dy) -> (dx, dscale, dbias)`.
///
/// `dbias = sum dy`, `dscale = sum dy h`, `dx = scale / sd (dy - dbias / count - h dscale / count)` with
/// `h = (x - mean) / sd`. `mean` and `var` must be those of `x`: its own gradient takes them as functions of `x`.
///
/// Errors: as [`BatchNorm`], and DType or Shape for statistics or `dy` that do not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, scale: float, mean: float, var: float, dy: float), gradient(x, scale, dy))]
pub struct BatchNormGrad {
    /// As in the forward op.
    pub eps: Scalar,
}

impl Op for BatchNormGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 5)?;
        epsilon(self.eps)?;
        some_batch(x[0])?;
        want_channels(x[1], x[0], "scale")?;
        want_statistics(x[2], x[0], "mean")?;
        want_statistics(x[3], x[0], "var")?;
        want_like(x[4], x[0], "dy")?;
        let channels = Fact::new(x[1].dtype, x[1].shape.clone());
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone()), channels.clone(), channels])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (d, eps, dtype) = (dims(cx.x[0].shape()), epsilon(self.eps)?, cx.x[0].dtype());
        let x = cx.x;
        let [dx, dscale, dbias] = outputs(cx.y)?;
        for_float!(dtype, T => {
            let (data, scale, dy) = (x[0].slice::<T>()?, x[1].slice()?, x[4].slice()?);
            let (mean, var) = (x[2].slice()?, x[3].slice()?);
            let (dx, dscale, dbias) = (dx.slice_mut()?, dscale.slice_mut()?, dbias.slice_mut()?);
            batch_norm_grad(cx.pool, d, eps, data, scale, mean, var, dy, dx, dscale, dbias);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let eps = epsilon(self.eps)?;
        cx.grad_via_composite(|cx, x| compose::batch_norm_gradients(cx, x, eps))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(FLOPS_PER_ELEM * x[0].elems() as u64)
    }
}

/// [`BatchNorm`] with given statistics: `(x, scale, bias, mean, var) -> y`.
///
/// `y = (x - mean) / sqrt(var + eps) * scale + bias`; shapes, dtypes and errors as there, and an empty batch is fine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, scale: float, bias: float, mean: float, var: float), gradient(x, scale, bias, mean, var))]
pub struct BatchNormInfer {
    /// Added to the variance.
    pub eps: Scalar,
}

impl Op for BatchNormInfer {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 5)?;
        epsilon(self.eps)?;
        dims_of(x[0])?;
        want_channels(x[1], x[0], "scale")?;
        want_channels(x[2], x[0], "bias")?;
        want_statistics(x[3], x[0], "mean")?;
        want_statistics(x[4], x[0], "var")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (d, eps, dtype) = (dims(cx.x[0].shape()), epsilon(self.eps)?, cx.x[0].dtype());
        let x = cx.x;
        for_float!(dtype, T => {
            let (data, scale, bias) = (x[0].slice::<T>()?, x[1].slice()?, x[2].slice()?);
            let (mean, var) = (x[3].slice()?, x[4].slice()?);
            batch_norm_infer(cx.pool, d, eps, data, scale, bias, mean, var, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let eps = epsilon(self.eps)?;
        cx.grad_via_composite(|cx, x| compose::batch_norm_infer(cx, x, eps))
    }
}

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 1.3).sin() * 2.0 + 0.3 * (i % 5) as f32).collect()
}

/// `[2, 2, 1, 2]` with channel means 2 and 0 and variances 1 and 4.
fn plain() -> remat_types::HostTensor {
    t(&[1.0f32, 3., -2., 2., 1., 3., 2., -2.], [2, 2, 1, 2])
}

impl OpDef for BatchNorm {
    const NAME: &'static str = "batch_norm";

    fn samples() -> Vec<Sample<Self>> {
        let op = |eps: f64| BatchNorm { eps: eps.into() };
        let channels = |v: &[f32]| t(v, [v.len()]);
        let (scale, bias) = (channels(&[2.0, -1.5, 0.5]), channels(&[0.5, 1.0, -1.0]));
        let with = |shape: &[usize]| vec![t(&wave(shape.iter().product()), shape), scale.clone(), bias.clone()];
        let ok = vec![plain(), channels(&[1.0, 2.0]), channels(&[0.0, 1.0])];
        let bad = |i: usize, x| {
            let mut all = ok.clone();
            all[i] = x;
            all
        };
        let far: Vec<f32> = [1.0f32, 3., 1., 3.].iter().map(|v| v + 1e4).collect();
        let halves: Vec<remat_types::f16> = [1.0f32, 3., 1., 3.].map(remat_types::f16::from_f32).into();
        let one = [remat_types::f16::from_f32(1.0)];
        vec![
            Sample::new(op(0.0), ok.clone())
                .gives(vec![
                    t(&[-1.0f32, 1., -1., 3., -1., 1., 3., -1.], [2, 2, 1, 2]),
                    t(&[2.0f32, 0.], [2]),
                    t(&[1.0f32, 4.], [2]),
                ])
                .no_grad("the next ones check it"),
            Sample::new(op(0.1), with(&[2, 3, 2, 2])),
            Sample::new(op(1e-5), with(&[5, 3])),
            Sample::new(op(1e-5), with(&[2, 3, 4])),
            Sample::new(op(1e-5), with(&[2, 3, 1, 2, 2])),
            Sample::new(op(1e-5), with(&[2, 3, 23, 24])).no_grad("the smaller ones check it"),
            Sample::new(op(1e-5), with(&[70, 3])).no_grad("the smaller ones check it"),
            // a mean far from zero costs no accuracy in the variance
            Sample::new(op(0.0), vec![t(&far, [4, 1]), channels(&[1.0]), channels(&[0.0])])
                .gives(vec![t(&[-1.0f32, 1., -1., 1.], [4, 1]), t(&[10002.0f32], [1]), t(&[1.0f32], [1])])
                .no_grad("a difference in x loses digits here"),
            Sample::new(op(0.0), vec![t(&halves, [2, 1, 2]), t(&one, [1]), t(&one, [1])])
                .gives(vec![
                    t(&[0.0f32, 2., 0., 2.].map(remat_types::f16::from_f32), [2, 1, 2]),
                    t(&[2.0f32], [1]),
                    t(&[1.0f32], [1]),
                ])
                .no_grad("f16"),
            Sample::new(op(0.0), vec![t::<f32>(&[], [3, 0]), channels(&[]), channels(&[])]).gives(vec![
                t::<f32>(&[], [3, 0]),
                channels(&[]),
                channels(&[]),
            ]),
            Sample::new(op(0.0), bad(0, t::<f32>(&[], [0, 2, 3]))).fails(ErrorKind::Shape),
            Sample::new(op(0.0), bad(0, t(&[1.0f32; 2], [2]))).fails(ErrorKind::Axis),
            Sample::new(op(0.0), bad(0, t(&[1i32; 8], [2, 2, 2]))).fails(ErrorKind::DType),
            Sample::new(op(0.0), bad(1, channels(&[1.0; 3]))).fails(ErrorKind::Shape),
            Sample::new(op(0.0), bad(2, t(&[1.0f64; 2], [2]))).fails(ErrorKind::DType),
            Sample::new(op(-1.0), ok.clone()).fails(ErrorKind::Value),
            Sample::new(op(0.0), ok[..2].to_vec()).fails(ErrorKind::Arity),
        ]
    }
}

impl OpDef for BatchNormGrad {
    const NAME: &'static str = "batch_norm_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |eps: f64| BatchNormGrad { eps: eps.into() };
        let channels = |v: &[f32]| t(v, [v.len()]);
        let ok = vec![
            plain(),
            channels(&[1.0, 2.0]),
            channels(&[2.0, 0.0]),
            channels(&[1.0, 4.0]),
            t(&[1.0f32, 0., 0., 1., 0., 0., 0., 0.], [2, 2, 1, 2]),
        ];
        let bad = |i: usize, x| {
            let mut all = ok.clone();
            all[i] = x;
            all
        };
        let why = "statistics are functions of x: checked as the second order of batch_norm";
        vec![
            // by hand: h = -1 1 / -1 1; dbias = 1, dscale = h dy = -1 and 1
            Sample::new(op(0.0), ok.clone())
                .gives(vec![
                    t(&[0.5f32, 0., 0., 0.5, -0.5, 0., -0.5, 0.], [2, 2, 1, 2]),
                    channels(&[-1.0, 1.0]),
                    channels(&[1.0, 1.0]),
                ])
                .no_grad(why),
            Sample::new(op(1e-3), bad(0, plain())).no_grad(why),
            Sample::new(op(0.0), bad(4, t(&[1.0f32; 4], [2, 2]))).fails(ErrorKind::Shape),
            Sample::new(op(0.0), bad(2, channels(&[1.0]))).fails(ErrorKind::Shape),
            Sample::new(op(0.0), bad(3, t(&[1.0f64; 2], [2]))).fails(ErrorKind::DType),
            Sample::new(op(f64::NAN), ok.clone()).fails(ErrorKind::Value),
        ]
    }
}

impl OpDef for BatchNormInfer {
    const NAME: &'static str = "batch_norm_infer";

    fn samples() -> Vec<Sample<Self>> {
        let op = |eps: f64| BatchNormInfer { eps: eps.into() };
        let channels = |v: &[f32]| t(v, [v.len()]);
        let rest = || [channels(&[1.0, -2.0]), channels(&[0.5, 1.0]), channels(&[1.0, 0.2]), channels(&[4.0, 0.75])];
        let with = |x| std::iter::once(x).chain(rest()).collect::<Vec<_>>();
        vec![
            Sample::new(op(0.25), with(t(&[1.0f32, 1.2, 3.0, -0.8], [2, 2])).clone())
                .gives(vec![t(&[0.5f32, -1.0, 1.470_142_5, 3.0], [2, 2])]),
            Sample::new(op(1e-5), with(t(&wave(12), [2, 2, 3]))),
            Sample::new(op(1e-5), with(t::<f32>(&[], [0, 2, 3]))).gives(vec![t::<f32>(&[], [0, 2, 3])]),
            Sample::new(op(1e-5), with(t(&wave(9), [3, 3]))).fails(ErrorKind::Shape),
            Sample::new(op(1e-5), with(t(&wave(2), [2]))).fails(ErrorKind::Axis),
            Sample::new(op(1e-5), with(t(&[1i64; 4], [2, 2]))).fails(ErrorKind::DType),
        ]
    }
}
