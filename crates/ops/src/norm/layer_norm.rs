use remat_kernels::float::FloatElement;
use remat_kernels::norm::{layer_norm, layer_norm_grad, layer_norm_grad_workspace_elems};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, Scalar, Shape, for_float, smallvec};

use crate::args::{epsilon, items_of, not_taken, outputs, real_dtype, want_dtype, want_float, want_like, want_shape};
use crate::compose::layer_norm_gradients;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y = (x - mean) / sqrt(var + eps) * scale + bias` with mean and biased variance over the last `axes` axes.
///
/// `(x, scale, bias) -> y`; `x: [.., s..]`, `scale, bias: [s..]` with the last `axes` extents of x and its dtype.
/// (Ba, Kiros and Hinton, 2016.)
///
/// Errors: DType for a dtype that is no float or differs, Axis if x has fewer axes or `axes` is 0, Shape for other
/// extents or nothing to normalise over, Value for a negative eps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, scale: float, bias: float), gradient(x, scale, bias))]
pub struct LayerNorm {
    /// Number of axes, from the last.
    pub axes: usize,
    /// Added to the variance.
    pub eps: Scalar,
}

/// The normalised extents of `x`. Errors as [`LayerNorm`].
pub(super) fn inner(axes: usize, eps: Scalar, x: &Fact) -> Result<&[usize]> {
    epsilon(eps)?;
    want_float(x, "x")?;
    if axes == 0 || axes > x.rank() {
        return Err(Error::new(ErrorKind::Axis, format!("{axes} axes of x, which has shape {}", x.shape)));
    }
    let inner = &x.shape[x.rank() - axes..];
    if inner.contains(&0) && x.shape[..x.rank() - axes].iter().all(|&d| d > 0) {
        return Err(Error::new(ErrorKind::Shape, format!("x has shape {}: rows without elements", x.shape)));
    }
    Ok(inner)
}

pub(super) fn row_elems(axes: usize, shape: &Shape) -> usize {
    shape[shape.rank() - axes..].iter().product()
}

impl Op for LayerNorm {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        let s = inner(self.axes, self.eps, x[0])?;
        for (f, name) in [(x[1], "scale"), (x[2], "bias")] {
            want_dtype(f, x[0].dtype, name)?;
            want_shape(f, s, name).map_err(|e| e.context(format!("x of shape {}", x[0].shape)))?;
        }
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, eps, dtype) = (row_elems(self.axes, cx.x[0].shape()), epsilon(self.eps)?, cx.x[0].dtype());
        for_float!(dtype, T => {
            let (x, scale, bias) = (cx.x[0].slice::<T>()?, cx.x[1].slice()?, cx.x[2].slice()?);
            layer_norm(cx.pool, s, eps, x, scale, bias, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None; 3]) };
        let op = LayerNormGrad { axes: self.axes, eps: self.eps };
        Ok(cx.apply_all(op, &[cx.x(0), cx.x(1), dy])?.into_iter().map(Some).collect())
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(8 * x[0].elems() as u64)
    }
}

/// The gradients of [`LayerNorm`], fused: `(x, scale, dy) -> (dx, dscale, dbias)`.
///
/// With `h = (x - mean) / sd` and `g = dy scale`: `dx = (g - mean g - h mean(g h)) / sd`, `dscale = sum dy h`,
/// `dbias = sum dy`, sums over the rows in an order that sizes fix. Errors: as there, and for a `dy` unlike `x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, scale: float, dy: float), gradient(x, scale, dy))]
pub struct LayerNormGrad {
    /// As in the forward op.
    pub axes: usize,
    /// As in the forward op.
    pub eps: Scalar,
}

impl Op for LayerNormGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        let s = inner(self.axes, self.eps, x[0])?;
        want_dtype(x[1], x[0].dtype, "scale")?;
        want_shape(x[1], s, "scale")?;
        want_like(x[2], x[0], "dy")?;
        let row = Fact::new(x[1].dtype, x[1].shape.clone());
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone()), row.clone(), row])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, eps, dtype) = (row_elems(self.axes, cx.x[0].shape()), epsilon(self.eps)?, cx.x[0].dtype());
        let x = cx.x;
        let rows = x[0].layout().elems() / s.max(1);
        let [dx, dscale, dbias] = outputs(cx.y)?;
        for_float!(dtype, T => {
            let partial = items_of::<<T as FloatElement>::Real>(cx.workspace, layer_norm_grad_workspace_elems(rows, s))?;
            let (data, scale, dy) = (x[0].slice::<T>()?, x[1].slice()?, x[2].slice()?);
            let (dx, dscale, dbias) = (dx.slice_mut()?, dscale.slice_mut()?, dbias.slice_mut()?);
            layer_norm_grad(cx.pool, s, eps, data, scale, dy, dx, dscale, dbias, partial);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let eps = epsilon(self.eps)?;
        cx.grad_via_composite(|cx, x| layer_norm_gradients(cx, x, self.axes, eps))
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let s = row_elems(self.axes, &x[0].shape);
        layer_norm_grad_workspace_elems(x[0].elems() / s.max(1), s) * real_dtype(x[0].dtype).size_bytes()
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(16 * x[0].elems() as u64)
    }
}

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 1.7).sin() * 2.0 + 0.2 * (i % 3) as f32).collect()
}

impl OpDef for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes, eps: f64| LayerNorm { axes, eps: eps.into() };
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let (two, zero) = (t(&[2.0f32, 1.0], [2]), t(&[0.0f32, 0.5], [2]));
        vec![
            Sample::new(op(1, 0.0), vec![t(&[1.0f32, 3., 8., 4.], [2, 2]), two.clone(), zero.clone()])
                .gives(vec![t(&[-2.0f32, 1.5, 2.0, -0.5], [2, 2])])
                .no_grad("the next ones check it: a row of two without eps is a step"),
            Sample::new(op(1, 1e-5), vec![w(&[3, 5]), w(&[5]), w(&[5])]),
            Sample::new(op(2, 0.1), vec![w(&[2, 3, 2, 2]), w(&[2, 2]), w(&[2, 2])]),
            Sample::new(op(1, 1e-5), vec![w(&[4]), w(&[4]), w(&[4])]),
            Sample::new(op(1, 1e-5), vec![w(&[40, 70]), w(&[70]), w(&[70])]).no_grad("the smaller ones check it"),
            Sample::new(op(1, 0.0), vec![t::<f32>(&[], [0, 2]), two.clone(), zero.clone()])
                .gives(vec![t::<f32>(&[], [0, 2])]),
            Sample::new(op(1, 0.0), vec![t::<f32>(&[], [2, 0]), t::<f32>(&[], [0]), t::<f32>(&[], [0])])
                .fails(ErrorKind::Shape),
            Sample::new(op(3, 0.0), vec![w(&[2, 2]), two.clone(), zero.clone()]).fails(ErrorKind::Axis),
            Sample::new(op(0, 0.0), vec![w(&[2, 2]), two.clone(), zero.clone()]).fails(ErrorKind::Axis),
            Sample::new(op(1, 0.0), vec![w(&[2, 3]), two.clone(), zero.clone()]).fails(ErrorKind::Shape),
            Sample::new(op(1, 0.0), vec![w(&[2, 2]), two.clone(), t(&[0.0f64; 2], [2])]).fails(ErrorKind::DType),
            Sample::new(op(1, 0.0), vec![t(&[1u8; 2], [1, 2]), two.clone(), zero.clone()]).fails(ErrorKind::DType),
            Sample::new(op(1, -1.0), vec![w(&[2, 2]), two, zero]).fails(ErrorKind::Value),
        ]
    }
}

impl OpDef for LayerNormGrad {
    const NAME: &'static str = "layer_norm_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes, eps: f64| LayerNormGrad { axes, eps: eps.into() };
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let shifted = |shape: &[usize]| {
            let n: usize = shape.iter().product();
            t(&wave(n + 7)[7..], shape)
        };
        vec![
            Sample::new(op(1, 3.0), vec![t(&[1.0f32, 3.], [1, 2]), t(&[2.0f32, 1.], [2]), t(&[1.0f32, 0.], [1, 2])])
                .gives(vec![t(&[0.375f32, -0.375], [1, 2]), t(&[-0.5f32, 0.], [2]), t(&[1.0f32, 0.], [2])]),
            Sample::new(op(1, 0.1), vec![w(&[3, 5]), w(&[5]), shifted(&[3, 5])]),
            Sample::new(op(2, 0.1), vec![w(&[2, 2, 3]), w(&[2, 3]), shifted(&[2, 2, 3])]),
            Sample::new(op(1, 0.1), vec![w(&[70, 33]), w(&[33]), shifted(&[70, 33])]).no_grad("the smaller check it"),
            Sample::new(op(1, 0.1), vec![w(&[3, 5]), w(&[5]), w(&[5, 3])]).fails(ErrorKind::Shape),
            Sample::new(op(1, 0.1), vec![w(&[3, 5]), w(&[4]), w(&[3, 5])]).fails(ErrorKind::Shape),
            Sample::new(op(2, 0.1), vec![w(&[5]), w(&[5]), w(&[5])]).fails(ErrorKind::Axis),
        ]
    }
}
