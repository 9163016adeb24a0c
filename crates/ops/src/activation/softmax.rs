use remat_kernels::softmax::{AxisDims, softmax, softmax_grad};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, for_float, smallvec};

use crate::args::{not_taken, want_float, want_like};
use crate::compose::softmax_gradient;
use crate::host::arity;

use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample, Tolerance};

/// `y_i = exp(x_i) / sum_k exp(x_k)` along `axis`, or its logarithm; computed after subtracting the maximum.
///
/// `x, y` of one shape and float dtype. A slice with +inf or NaN, or only -inf, gives NaN, as in PyTorch.
///
/// Errors: DType for a dtype that is no float, Axis for an axis out of range.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct Softmax {
    /// The axis to sum over.
    pub axis: usize,
    /// The natural logarithm of the result: `x - ln sum exp x`.
    #[param(default = false)]
    pub log: bool,
}

/// Errors as [`Softmax`].
fn check(axis: usize, x: &Fact, name: &str) -> Result<()> {
    want_float(x, name)?;
    if axis >= x.rank() {
        return Err(Error::new(ErrorKind::Axis, format!("axis {axis} is out of range for rank {}", x.rank())));
    }
    Ok(())
}

/// Operations that an exponential counts as.
const EXP_FLOPS: u64 = 16;

impl Op for Softmax {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        check(self.axis, x[0], "x")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (d, dtype) = (AxisDims::new(cx.x[0].shape(), self.axis), cx.x[0].dtype());
        for_float!(dtype, T => {
            softmax(cx.pool, d, self.log, cx.x[0].slice::<T>()?, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let op = SoftmaxGrad { axis: self.axis, log: self.log };
        Ok(smallvec![Some(cx.apply(op, &[cx.y(0), dy])?)])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(2 * EXP_FLOPS * x[0].elems() as u64)
    }
}

/// The gradient of [`Softmax`] from its output: `(y, dy) -> dx` with `dx = y (dy - sum dy y)`, or of the logarithm
/// `dx = dy - exp(y) sum dy`. Errors: as there, and DType or Shape if `dy` is not like `y`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(y: float, dy: float), gradient(y, dy))]
pub struct SoftmaxGrad {
    /// As in the forward op.
    pub axis: usize,
    /// As in the forward op.
    #[param(default = false)]
    pub log: bool,
}

impl Op for SoftmaxGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        check(self.axis, x[0], "y")?;
        want_like(x[1], x[0], "dy")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (d, dtype) = (AxisDims::new(cx.x[0].shape(), self.axis), cx.x[0].dtype());
        for_float!(dtype, T => {
            softmax_grad(cx.pool, d, self.log, cx.x[0].slice::<T>()?, cx.x[1].slice()?, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        cx.grad_via_composite(|cx, x| Ok(smallvec![softmax_gradient(cx, &x[0], &x[1], self.axis, self.log)?]))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(EXP_FLOPS * x[0].elems() as u64)
    }
}

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 1.9).sin() * 1.5).collect()
}

impl OpDef for Softmax {
    const NAME: &'static str = "softmax";

    fn label(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, log| Softmax { axis, log };
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let ln = f32::ln;
        vec![
            // logits ln 1, ln 2, ln 5: probabilities of eighths
            Sample::new(op(1, false), vec![t(&[0.0f32, ln(2.0), ln(5.0)], [1, 3])])
                .gives(vec![t(&[0.125f32, 0.25, 0.625], [1, 3])]),
            Sample::new(op(0, true), vec![t(&[0.0f64, 2.0f64.ln(), 5.0f64.ln()], [3, 1])])
                .gives(vec![t(&[0.125f64.ln(), 0.25f64.ln(), 0.625f64.ln()], [3, 1])]),
            Sample::new(op(1, false), vec![w(&[2, 3, 4])]),
            Sample::new(op(1, true), vec![w(&[2, 3, 4])]),
            Sample::new(op(2, false), vec![w(&[2, 2, 5])]),
            Sample::new(op(2, true), vec![w(&[2, 2, 5])]),
            Sample::new(op(0, false), vec![w(&[37, 70])]).no_grad("the smaller ones check it"),
            Sample::new(op(1, true), vec![w(&[70, 37])]).no_grad("the smaller ones check it"),
            // large logits do not overflow
            Sample::new(op(0, false), vec![t(&[1e4f32, 1e4, -1e4], [3])])
                .gives(vec![t(&[0.5f32, 0.5, 0.0], [3])])
                .no_grad("large"),
            Sample::new(op(0, true), vec![t(&[0.0f32, 1e4], [2])])
                .gives(vec![t(&[-1e4f32, 0.0], [2])])
                .no_grad("large"),
            Sample::new(op(0, false), vec![t(&[0.0f32, -inf], [2])])
                .gives(vec![t(&[1.0f32, 0.0], [2])])
                .no_grad("infinite"),
            Sample::new(op(1, false), vec![t(&[0.0f32, nan, -inf, -inf], [2, 2])])
                .gives(vec![t(&[nan; 4], [2, 2])])
                .no_grad("NaN"),
            Sample::new(op(1, false), vec![t::<f32>(&[], [2, 0])]).gives(vec![t::<f32>(&[], [2, 0])]),
            Sample::new(op(0, false), vec![t(&[remat_types::bf16::from_f32(3.0); 2], [2])])
                .gives(vec![t(&[remat_types::bf16::from_f32(0.5); 2], [2])])
                .no_grad("bf16"),
            Sample::new(op(2, false), vec![w(&[2, 2])]).fails(ErrorKind::Axis),
            Sample::new(op(0, false), vec![t(&[1.0f32], [])]).fails(ErrorKind::Axis),
            Sample::new(op(0, false), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
        ]
    }
}

impl OpDef for SoftmaxGrad {
    const NAME: &'static str = "softmax_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, log| SoftmaxGrad { axis, log };
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let up = |shape: &[usize]| t(&wave(shape.iter().product::<usize>() + 3)[3..], shape);
        vec![
            Sample::new(op(0, false), vec![t(&[0.25f32, 0.75], [2]), t(&[1.0f32, 3.0], [2])])
                .gives(vec![t(&[-0.375f32, 0.375], [2])]),
            Sample::new(op(0, true), vec![t(&[0.25f32.ln(), 0.75f32.ln()], [2]), t(&[1.0f32, 3.0], [2])])
                .gives(vec![t(&[0.0f32, 0.0], [2])])
                .within(Tolerance::Loose(1e-6, "logarithms of quarters are rounded")),
            Sample::new(op(1, false), vec![w(&[2, 3, 2]), up(&[2, 3, 2])]),
            Sample::new(op(1, true), vec![w(&[2, 3, 2]), up(&[2, 3, 2])]),
            Sample::new(op(1, false), vec![w(&[2, 3]), up(&[2, 3])]),
            Sample::new(op(1, true), vec![w(&[2, 3]), up(&[2, 3])]),
            Sample::new(op(0, false), vec![w(&[2]), up(&[3])]).fails(ErrorKind::Shape),
            Sample::new(op(1, false), vec![w(&[2]), up(&[2])]).fails(ErrorKind::Axis),
        ]
    }
}
