use remat_kernels::blocked::{check_block, from_blocked, to_blocked};
use remat_types::{DType, Error, ErrorKind, Facts, Result, smallvec};

use super::{INFERENCE_ONLY, blocked_extents};
use crate::args::{checked_fact, not_differentiable, want_dtype, want_rank};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[n, c / block, h, w, c % block] = x[n, c, h, w]`, and 0 in lanes beyond the last channel.
///
/// `x: [n, c, h, w]` of f32, `y: [n, blocks, h, w, block]`.
///
/// Errors: Axis for another rank, DType for another dtype, Value for a block that is neither 8 nor 16.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float))]
pub struct ToBlocked {
    /// Channels of a block.
    pub block: usize,
}

impl Op for ToBlocked {
    fn infer(&self, x: &[&remat_types::Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_dtype(x[0], DType::F32, "x")?;
        want_rank(x[0], 4, "x")?;
        check_block(self.block)?;
        let s = &x[0].shape;
        let y = [s[0], s[1].div_ceil(self.block), s[2], s[3], self.block];
        Ok(smallvec![checked_fact(DType::F32, y)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let s = cx.x[0].shape();
        let sizes = [s[0], s[1], s[2] * s[3]];
        to_blocked(cx.pool, sizes, self.block, cx.x[0].slice()?, cx.y[0].slice_mut()?);
        Ok(())
    }

    fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("a reorder into blocks"))
    }
}

/// The inverse of [`ToBlocked`]: `y[n, c, h, w] = x[n, c / block, h, w, c % block]` for `c < channels`.
///
/// Errors: Axis for another rank, DType for another dtype, Value for a block that is neither 8 nor 16, Shape if so many
/// channels are not so many blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float))]
pub struct FromBlocked {
    /// Channels of the result.
    pub channels: usize,
}

impl Op for FromBlocked {
    fn infer(&self, x: &[&remat_types::Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let [n, blocks, h, w, block] = blocked_extents(x[0], "x")?;
        if self.channels.div_ceil(block) != blocks {
            let text = format!("{} channels are not {blocks} blocks of {block}", self.channels);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        Ok(smallvec![checked_fact(DType::F32, [n, self.channels, h, w])?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let s = cx.x[0].shape();
        let sizes = [s[0], self.channels, s[2] * s[3]];
        from_blocked(cx.pool, sizes, s[4], cx.x[0].slice()?, cx.y[0].slice_mut()?);
        Ok(())
    }

    fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("a reorder out of blocks"))
    }
}

/// Nine channels of two places, and the same in blocks of eight.
fn nine() -> [remat_types::HostTensor; 2] {
    let plain: Vec<f32> = (0..18).map(|i| i as f32 + 1.0).collect();
    let mut blocked = vec![0.0f32; 32];
    for c in 0..9 {
        for p in 0..2 {
            blocked[c / 8 * 16 + p * 8 + c % 8] = plain[2 * c + p];
        }
    }
    [t(&plain, [1, 9, 1, 2]), t(&blocked, [1, 2, 1, 2, 8])]
}

impl OpDef for ToBlocked {
    const NAME: &'static str = "to_blocked";

    fn samples() -> Vec<Sample<Self>> {
        let op = |block| ToBlocked { block };
        let [plain, blocked] = nine();
        let wave = crate::conv::wave(&[2, 17, 5, 30], 0.0);
        vec![
            Sample::new(op(8), vec![plain.clone()]).gives(vec![blocked]).no_grad(INFERENCE_ONLY),
            Sample::new(op(16), vec![wave]).no_grad(INFERENCE_ONLY),
            Sample::new(op(8), vec![t::<f32>(&[], [0, 3, 2, 2])])
                .gives(vec![t::<f32>(&[], [0, 1, 2, 2, 8])])
                .no_grad(INFERENCE_ONLY),
            Sample::new(op(4), vec![plain]).fails(ErrorKind::Value),
            Sample::new(op(8), vec![t(&[1.0f64], [1, 1, 1, 1])]).fails(ErrorKind::DType),
            Sample::new(op(8), vec![t(&[1.0f32], [1, 1, 1])]).fails(ErrorKind::Axis),
        ]
    }
}

impl OpDef for FromBlocked {
    const NAME: &'static str = "from_blocked";

    fn samples() -> Vec<Sample<Self>> {
        let op = |channels| FromBlocked { channels };
        let [plain, blocked] = nine();
        let wave = crate::conv::wave(&[2, 2, 5, 3, 16], 0.0);
        vec![
            Sample::new(op(9), vec![blocked.clone()]).gives(vec![plain]).no_grad(INFERENCE_ONLY),
            Sample::new(op(17), vec![wave]).no_grad(INFERENCE_ONLY),
            Sample::new(op(8), vec![blocked.clone()]).fails(ErrorKind::Shape),
            Sample::new(op(17), vec![blocked]).fails(ErrorKind::Shape),
            Sample::new(op(4), vec![t(&[1.0f32; 4], [1, 1, 1, 1, 4])]).fails(ErrorKind::Value),
            Sample::new(op(8), vec![t(&[1i32; 8], [1, 1, 1, 1, 8])]).fails(ErrorKind::DType),
            Sample::new(op(8), vec![t(&[1.0f32; 8], [1, 1, 1, 8])]).fails(ErrorKind::Axis),
        ]
    }
}
