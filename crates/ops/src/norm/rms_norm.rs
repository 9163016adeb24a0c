use remat_kernels::float::FloatElement;
use remat_kernels::norm::{rms_norm, rms_norm_grad, rms_norm_grad_workspace_elems};
use remat_types::{ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};

use super::layer_norm::{inner, row_elems};
use crate::args::{epsilon, items_of, not_taken, outputs, real_dtype, want_dtype, want_like, want_shape};
use crate::compose::rms_norm_gradients;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y = x / sqrt(mean x^2 + eps) * scale` with the mean over the last `axes` axes.
///
/// `(x, scale) -> y`; `x: [.., s..]`, `scale: [s..]` with the last `axes` extents of x and its dtype. (Zhang and Sennrich, 2019,
/// arXiv:1910.07467.)
///
/// Errors: DType for a dtype that is no float or differs, Axis if x has fewer axes or `axes` is 0, Shape for other
/// extents or nothing to normalise over, Value for a negative eps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, scale: float), gradient(x, scale))]
pub struct RmsNorm {
    /// Number of axes, from the last.
    pub axes: usize,
    /// Added to the mean square.
    pub eps: Scalar,
}

/// The gradients of [`RmsNorm`], fused: `(x, scale, dy) -> (dx, dscale)`.
///
/// With `h = x / rms` and `g = dy scale`: `dx = (g - h mean(g h)) / rms` and `dscale = sum dy h`, sums over the rows in an order
/// that sizes fix. Errors: as there, and for a `dy` unlike `x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, scale: float, dy: float), gradient(x, scale, dy))]
pub struct RmsNormGrad {
    /// As in the forward op.
    pub axes: usize,
    /// As in the forward op.
    pub eps: Scalar,
}

impl Op for RmsNorm {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let s = inner(self.axes, self.eps, x[0])?;
        want_dtype(x[1], x[0].dtype, "scale")?;
        want_shape(x[1], s, "scale").map_err(|e| e.context(format!("x of shape {}", x[0].shape)))?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, eps, dtype) = (row_elems(self.axes, cx.x[0].shape()), epsilon(self.eps)?, cx.x[0].dtype());
        for_float!(dtype, T => {
            rms_norm(cx.pool, s, eps, cx.x[0].slice::<T>()?, cx.x[1].slice()?, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None; 2]) };
        let op = RmsNormGrad { axes: self.axes, eps: self.eps };
        Ok(cx.apply_all(op, &[cx.x(0), cx.x(1), dy])?.into_iter().map(Some).collect())
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(4 * x[0].elems() as u64)
    }
}

impl Op for RmsNormGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        let s = inner(self.axes, self.eps, x[0])?;
        want_dtype(x[1], x[0].dtype, "scale")?;
        want_shape(x[1], s, "scale")?;
        want_like(x[2], x[0], "dy")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone()), Fact::new(x[1].dtype, x[1].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, eps, dtype) = (row_elems(self.axes, cx.x[0].shape()), epsilon(self.eps)?, cx.x[0].dtype());
        let x = cx.x;
        let rows = x[0].layout().elems() / s.max(1);
        let [dx, dscale] = outputs(cx.y)?;
        for_float!(dtype, T => {
            let partial = items_of::<<T as FloatElement>::Real>(cx.workspace, rms_norm_grad_workspace_elems(rows, s))?;
            let (data, scale, dy) = (x[0].slice::<T>()?, x[1].slice()?, x[2].slice()?);
            rms_norm_grad(cx.pool, s, eps, data, scale, dy, dx.slice_mut()?, dscale.slice_mut()?, partial);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let eps = epsilon(self.eps)?;
        cx.grad_via_composite(|cx, x| rms_norm_gradients(cx, x, self.axes, eps))
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let s = row_elems(self.axes, &x[0].shape);
        rms_norm_grad_workspace_elems(x[0].elems() / s.max(1), s) * real_dtype(x[0].dtype).size_bytes()
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(10 * x[0].elems() as u64)
    }
}

fn wave(shape: &[usize], from: usize) -> remat_types::HostTensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (from..from + n).map(|i| (i as f32 * 1.7).sin() * 2.0 + 0.2 * (i % 3) as f32).collect();
    t(&data, shape)
}

impl OpDef for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes, eps: f64| RmsNorm { axes, eps: eps.into() };
        let w = |shape: &[usize]| wave(shape, 0);
        let two = || t(&[2.0f32, 1.0], [2]);
        vec![
            // rows of root mean square 5 and, with the added term, 2
            Sample::new(op(1, 0.0), vec![t(&[7.0f32, 1., -1., 7.], [2, 2]), two()])
                .gives(vec![t(&[2.8f32, 0.2, -0.4, 1.4], [2, 2])]),
            Sample::new(op(1, 3.0), vec![t(&[1.0f32, -1.], [1, 2]), two()]).gives(vec![t(&[1.0f32, -0.5], [1, 2])]),
            Sample::new(op(1, 1e-5), vec![w(&[3, 5]), w(&[5])]),
            Sample::new(op(2, 0.1), vec![w(&[2, 3, 2, 2]), w(&[2, 2])]),
            Sample::new(op(1, 1e-5), vec![w(&[40, 70]), w(&[70])]).no_grad("the smaller ones check it"),
            Sample::new(op(1, 0.0), vec![t::<f32>(&[], [0, 2]), two()]).gives(vec![t::<f32>(&[], [0, 2])]),
            Sample::new(op(1, 0.0), vec![t::<f32>(&[], [2, 0]), t::<f32>(&[], [0])]).fails(ErrorKind::Shape),
            Sample::new(op(3, 0.0), vec![w(&[2, 2]), two()]).fails(ErrorKind::Axis),
            Sample::new(op(0, 0.0), vec![w(&[2, 2]), two()]).fails(ErrorKind::Axis),
            Sample::new(op(1, 0.0), vec![w(&[2, 3]), two()]).fails(ErrorKind::Shape),
            Sample::new(op(1, 0.0), vec![w(&[2, 2]), t(&[0.0f64; 2], [2])]).fails(ErrorKind::DType),
            Sample::new(op(1, 0.0), vec![t(&[1u8; 2], [1, 2]), two()]).fails(ErrorKind::DType),
            Sample::new(op(1, -1.0), vec![w(&[2, 2]), two()]).fails(ErrorKind::Value),
            Sample::new(op(1, 0.0), vec![w(&[2, 2])]).fails(ErrorKind::Arity),
        ]
    }
}

impl OpDef for RmsNormGrad {
    const NAME: &'static str = "rms_norm_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes, eps: f64| RmsNormGrad { axes, eps: eps.into() };
        let w = |shape: &[usize]| wave(shape, 0);
        vec![
            // a row of root mean square 5
            Sample::new(op(1, 0.0), vec![t(&[7.0f32, 1.], [1, 2]), t(&[2.0f32, 1.], [2]), t(&[1.0f32, 0.], [1, 2])])
                .gives(vec![t(&[0.008f32, -0.056], [1, 2]), t(&[1.4f32, 0.], [2])]),
            Sample::new(op(1, 0.1), vec![w(&[3, 5]), w(&[5]), wave(&[3, 5], 7)]),
            Sample::new(op(2, 0.1), vec![w(&[2, 2, 3]), w(&[2, 3]), wave(&[2, 2, 3], 7)]),
            Sample::new(op(1, 0.1), vec![w(&[70, 33]), w(&[33]), wave(&[70, 33], 7)]).no_grad("the smaller check it"),
            Sample::new(op(1, 0.1), vec![w(&[3, 5]), w(&[5]), w(&[5, 3])]).fails(ErrorKind::Shape),
            Sample::new(op(1, 0.1), vec![w(&[3, 5]), w(&[4]), w(&[3, 5])]).fails(ErrorKind::Shape),
            Sample::new(op(2, 0.1), vec![w(&[5]), w(&[5]), w(&[5])]).fails(ErrorKind::Axis),
        ]
    }
}
