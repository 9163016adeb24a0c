use remat_kernels::blocked::max_pool;
use remat_types::{ErrorKind, Fact, Facts, Result, smallvec};

use super::{INFERENCE_ONLY, blocked_extents};
use crate::args::{checked_fact, not_differentiable};
use crate::host::arity;
use crate::pooling::Windows;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// [`MaxPool2d`](crate::pooling::MaxPool2d) of a blocked image: `x: [n, blocks, h, w, block]` of f32 to
/// `y: [n, blocks, oh, ow, block]`.
///
/// Errors: Axis for another rank, DType for another dtype, Value for a block that is neither 8 nor 16, Value and Shape as
/// [`Windows`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float))]
pub struct MaxPoolBlocked {
    /// The windows.
    pub windows: Windows,
}

impl Op for MaxPoolBlocked {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let [n, blocks, h, w, block] = blocked_extents(x[0], "x")?;
        let [h, w] = self.windows.axes(h, w)?;
        Ok(smallvec![checked_fact(x[0].dtype, [n, blocks, h.out, w.out, block])?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let s = cx.x[0].shape();
        let [h, w] = self.windows.axes(s[2], s[3])?;
        max_pool(cx.pool, h, w, s[4], cx.x[0].slice()?, cx.y[0].slice_mut()?);
        Ok(())
    }

    fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("pooling in blocks"))
    }
}

impl OpDef for MaxPoolBlocked {
    const NAME: &'static str = "max_pool_blocked";

    fn samples() -> Vec<Sample<Self>> {
        let op = |windows| MaxPoolBlocked { windows };
        let pairs = Windows::sliding([1, 2], [1, 2], [0, 0]);
        let lanes = |from: [f32; 4]| from.map(|v| [v; 8]).concat();
        let x = t(&lanes([3.0, -1.0, f32::NAN, 2.0]), [1, 1, 1, 4, 8]);
        let y = t(&[[3.0f32; 8], [f32::NAN; 8]].concat(), [1, 1, 1, 2, 8]);
        let wave = |block: usize| crate::conv::wave(&[2, 2, 5, 7, block], 0.0);
        vec![
            Sample::new(op(pairs), vec![x.clone()]).gives(vec![y]).no_grad(INFERENCE_ONLY),
            Sample::new(op(Windows::sliding([3, 3], [2, 2], [1, 1])), vec![wave(16)]).no_grad(INFERENCE_ONLY),
            Sample::new(op(Windows::Adaptive { size: [2, 3] }), vec![wave(8)]).no_grad(INFERENCE_ONLY),
            Sample::new(op(Windows::sliding([2, 2], [0, 1], [0, 0])), vec![wave(8)]).fails(ErrorKind::Value),
            Sample::new(op(Windows::sliding([2, 1], [1, 1], [0, 0])), vec![x]).fails(ErrorKind::Shape),
            Sample::new(op(pairs), vec![wave(4)]).fails(ErrorKind::Value),
            Sample::new(op(pairs), vec![t(&[1i32; 16], [1, 1, 1, 2, 8])]).fails(ErrorKind::DType),
        ]
    }
}
