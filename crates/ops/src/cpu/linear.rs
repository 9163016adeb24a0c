use remat_kernels::blocked::Linear;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Scalar, Shape, smallvec};

use super::{INFERENCE_ONLY, range, run_packed};
use crate::args::{checked_fact, not_differentiable, want_dtype, want_rank, want_shape};
use crate::conv::wave;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y = clamp(add + x w + bias)` with a packed `w`.
///
/// `(x, packed, bias) -> y`, or with `adds` `(x, packed, bias, add) -> y`. `x: [.., k]`, `packed` is `w: [k, n]`, packed by
/// [`PackLinear`](super::PackLinear), `bias: [n]`, `add` and `y: [.., n]`. All of f32. Sums go in the order of `k`.
///
/// Errors: Axis for an `x` of rank 0, DType; Value for a block that is neither 8 nor 16 or an empty range; Shape where sizes
/// do not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, packed: float, bias: float, add?: float))]
pub struct LinearPacked {
    /// Columns of a block.
    pub block: usize,
    /// Whether sums begin with a fourth input.
    #[param(default = false)]
    pub adds: bool,
    /// The range into which results are moved.
    pub clamp: Option<[Scalar; 2]>,
}

impl LinearPacked {
    fn kernel(&self, x: &Shape, bias: &Shape) -> Result<(Linear, Shape)> {
        let Some((k, rows)) = x.split_last() else {
            return Err(Error::new(ErrorKind::Axis, "x must have an axis or more"));
        };
        let n = bias[0];
        let m = rows.iter().try_fold(1usize, |m, d| m.checked_mul(*d));
        let m = m.ok_or_else(|| Error::new(ErrorKind::Shape, format!("x of shape {x} has too many rows")))?;
        let mut y = Shape::from(rows);
        y.push(n);
        Ok((Linear::new(m, *k, n, self.block)?, y))
    }
}

impl Op for LinearPacked {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, if self.adds { 4 } else { 3 })?;
        range(self.clamp)?;
        for (f, name) in x.iter().zip(["x", "the packed weight", "the bias", "what is added"]) {
            want_dtype(f, DType::F32, name)?;
        }
        want_rank(x[2], 1, "the bias")?;
        let (kernel, y) = self.kernel(&x[0].shape, &x[2].shape)?;
        want_shape(x[1], &[kernel.packed_len()], "the packed weight")?;
        if self.adds {
            want_shape(x[3], &y, "what is added")?;
        }
        Ok(smallvec![checked_fact(DType::F32, y)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (kernel, _) = self.kernel(cx.x[0].shape(), cx.x[2].shape())?;
        let (pool, clamp) = (cx.pool, range(self.clamp)?);
        run_packed(cx, self.adds, |[x, packed, bias], start, y, workspace| {
            kernel.run(pool, x, packed, bias, start, clamp, y, workspace);
        })
    }

    fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("a product with a packed weight"))
    }

    fn overwrite(&self) -> &[(usize, usize)] {
        if self.adds { &[(3, 0)] } else { &[] }
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        self.kernel(&x[0].shape, &x[2].shape).map_or(0, |(kernel, _)| kernel.workspace_bytes(threads))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let k = x[0].shape.last().copied().unwrap_or(0);
        Cost::bytes(x, y).with_flops(2 * (y[0].elems() * k) as u64)
    }
}

impl OpDef for LinearPacked {
    const NAME: &'static str = "linear_packed";

    fn samples() -> Vec<Sample<Self>> {
        let op =
            |adds, clamp: Option<[f64; 2]>| LinearPacked { block: 8, adds, clamp: clamp.map(|c| c.map(Scalar::from)) };
        let w = |shape: &[usize]| wave(shape, 0.3);
        let ones = |n: usize| t(&vec![1.0f32; n], [n]);
        // two products of ones and ones: 1 x + 2 x, with a bias of 1
        let x = t(&[1.0f32, 2., f32::NAN, 0.], [2, 1, 2]);
        let y = t(&[[4.0f32; 8], [f32::NAN; 8]].concat(), [2, 1, 8]);
        vec![
            Sample::new(op(false, None), vec![x.clone(), ones(16), ones(8)]).gives(vec![y]).no_grad(INFERENCE_ONLY),
            Sample::new(op(true, Some([0.0, 5.0])), vec![t(&[1.0f32], [1]), ones(8), ones(8), ones(8)])
                .gives(vec![t(&[3.0f32; 8], [8])])
                .no_grad(INFERENCE_ONLY),
            Sample::new(op(true, Some([0.0, 0.5])), vec![w(&[3, 7, 40]), w(&[960]), w(&[24]), w(&[3, 7, 24])])
                .no_grad(INFERENCE_ONLY),
            Sample::new(LinearPacked { block: 16, ..op(false, None) }, vec![w(&[9, 600]), w(&[9600]), w(&[16])])
                .no_grad(INFERENCE_ONLY),
            Sample::new(op(false, None), vec![t::<f32>(&[], [0, 2]), ones(16), ones(8)])
                .gives(vec![t::<f32>(&[], [0, 8])])
                .no_grad(INFERENCE_ONLY),
            Sample::new(op(false, None), vec![t::<f32>(&[], [1, 0]), t::<f32>(&[], [0]), ones(8)])
                .gives(vec![t(&[1.0f32; 8], [1, 8])])
                .no_grad(INFERENCE_ONLY),
            Sample::new(op(false, Some([1.0, 0.0])), vec![x.clone(), ones(16), ones(8)]).fails(ErrorKind::Value),
            Sample::new(op(false, None), vec![x.clone(), ones(24), ones(8)]).fails(ErrorKind::Shape),
            Sample::new(op(true, None), vec![w(&[5, 9]), w(&[9 * 32]), w(&[30]), w(&[5, 30])]).no_grad(INFERENCE_ONLY),
            Sample::new(op(false, None), vec![x.clone(), ones(24), ones(12)]).fails(ErrorKind::Shape),
            Sample::new(op(true, None), vec![x.clone(), ones(16), ones(8), ones(8)]).fails(ErrorKind::Shape),
            Sample::new(op(true, None), vec![x.clone(), ones(16), ones(8)]).fails(ErrorKind::Arity),
            Sample::new(op(false, None), vec![t(&[1.0f32], []), ones(8), ones(8)]).fails(ErrorKind::Axis),
            Sample::new(op(false, None), vec![t(&[1i8, 2], [2]), ones(16), ones(8)]).fails(ErrorKind::DType),
        ]
    }
}
