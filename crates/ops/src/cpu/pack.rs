use remat_kernels::blocked::{Blocked, Linear};
use remat_types::{DType, ErrorKind, Fact, Facts, Result, smallvec};

use super::INFERENCE_ONLY;
use crate::args::{checked_fact, not_differentiable, want_dtype, want_rank};
use crate::conv::ConvParams;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The weight of a [`ConvBlocked`](super::ConvBlocked) in the order in which its kernel reads it.
///
/// `weight: [k, c / groups, r, s]` of f32 to `packed: [elems]`. The order belongs to the kernel: a file should hold the plain
/// weight.
///
/// Errors: Axis, DType; Value for a block that is neither 8 nor 16 or groups that do not suit it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(weight: float))]
pub struct PackConv {
    /// Channels of a block.
    pub block: usize,
    /// Groups of channels that do not see each other.
    #[param(default = 1)]
    pub groups: usize,
    /// For a convolution whose input is plain.
    #[param(default = false)]
    pub planar: bool,
    /// For a convolution by Winograd's algorithm.
    #[param(default = false)]
    pub winograd: bool,
}

impl PackConv {
    fn kernel(&self, weight: &Fact) -> Result<Blocked> {
        want_dtype(weight, DType::F32, "the weight")?;
        want_rank(weight, 4, "the weight")?;
        let w = [0, 1, 2, 3].map(|i| weight.shape[i]);
        let taps = ConvParams { groups: self.groups, ..ConvParams::PLAIN };
        // an image of the kernel's size: the packed order does not depend on it
        let g = taps.geometry([1, w[1].saturating_mul(self.groups), w[2], w[3]], w)?;
        let kernel = Blocked::new(g, self.block, self.planar)?;
        if self.winograd { kernel.winograd() } else { Ok(kernel) }
    }
}

/// The right factor of a [`LinearPacked`](super::LinearPacked) in the order in which its kernel reads it.
///
/// `w: [k, n]` of f32 to `packed: [k m]`, with `n` rounded up to `m`, whole blocks. Errors: Axis, DType; Value for a block
/// that is neither 8 nor 16; Shape for sizes that are too large.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(w: float))]
pub struct PackLinear {
    /// Columns of a block.
    pub block: usize,
}

impl PackLinear {
    fn kernel(&self, w: &Fact) -> Result<Linear> {
        want_dtype(w, DType::F32, "the weight")?;
        want_rank(w, 2, "the weight")?;
        Linear::new(1, w.shape[0], w.shape[1], self.block)
    }
}

/// The packing of a weight by the kernel that `$op::kernel` gives.
macro_rules! packs {
    ($($op:ident)*) => { $(
        impl Op for $op {
            fn infer(&self, x: &[&Fact]) -> Result<Facts> {
                arity(x, 1)?;
                Ok(smallvec![checked_fact(DType::F32, [self.kernel(x[0])?.packed_len()])?])
            }

            fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
                let kernel = self.kernel(&Fact::new(cx.x[0].dtype(), cx.x[0].shape()))?;
                kernel.pack(cx.x[0].slice()?, cx.y[0].slice_mut()?);
                Ok(())
            }

            fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
                Err(not_differentiable("packing"))
            }
        }
    )* };
}
packs! { PackConv PackLinear }

impl OpDef for PackConv {
    const NAME: &'static str = "pack_conv";

    fn samples() -> Vec<Sample<Self>> {
        let op = |block, groups, planar| PackConv { block, groups, planar, winograd: false };
        let winograd = || PackConv { winograd: true, ..op(8, 1, false) };
        // two outputs of one input, a kernel of two taps: a row of weights for each tap
        let w = || t(&[1.0f32, 2., 3., 4.], [2, 1, 1, 2]);
        let mut rows = vec![0.0f32; 16];
        (rows[0], rows[1], rows[8], rows[9]) = (1., 3., 2., 4.);
        let wave = |shape: &[usize]| crate::conv::wave(shape, 0.0);
        vec![
            Sample::new(op(8, 1, true), vec![w()]).gives(vec![t(&rows, [16])]).no_grad(INFERENCE_ONLY),
            Sample::new(op(8, 2, false), vec![w()]).gives(vec![t(&rows, [16])]).no_grad(INFERENCE_ONLY),
            Sample::new(op(16, 1, false), vec![wave(&[50, 17, 3, 1])]).no_grad(INFERENCE_ONLY),
            Sample::new(winograd(), vec![wave(&[20, 11, 3, 3])]).no_grad(INFERENCE_ONLY),
            Sample::new(winograd(), vec![w()]).fails(ErrorKind::Value),
            Sample::new(op(4, 1, false), vec![w()]).fails(ErrorKind::Value),
            Sample::new(op(8, 2, false), vec![wave(&[4, 2, 1, 1])]).fails(ErrorKind::Value),
            Sample::new(op(8, 0, false), vec![w()]).fails(ErrorKind::Value),
            Sample::new(op(8, 1, false), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Axis),
            Sample::new(op(8, 1, false), vec![t(&[1.0f64], [1, 1, 1, 1])]).fails(ErrorKind::DType),
        ]
    }
}

impl OpDef for PackLinear {
    const NAME: &'static str = "pack_linear";

    fn samples() -> Vec<Sample<Self>> {
        let op = |block| PackLinear { block };
        let row: Vec<f32> = (0..48).map(|i| i as f32).collect();
        // panels of two blocks and a rest: 24 columns are one of two and one of one, or one of two that are not full
        let at = |r: std::ops::Range<usize>| r.map(|i| i as f32);
        let packed: Vec<f32> = at(0..16).chain(at(24..40)).chain(at(16..24)).chain(at(40..48)).collect();
        let zeros = [0.0f32; 8];
        let padded: Vec<f32> = at(0..24).chain(zeros).chain(at(24..48)).chain(zeros).collect();
        vec![
            Sample::new(op(8), vec![t(&row, [2, 24])]).gives(vec![t(&packed, [48])]).no_grad(INFERENCE_ONLY),
            Sample::new(op(16), vec![t(&row, [2, 24])]).gives(vec![t(&padded, [64])]).no_grad(INFERENCE_ONLY),
            Sample::new(op(4), vec![t(&row, [2, 24])]).fails(ErrorKind::Value),
            Sample::new(op(8), vec![t(&row, [48])]).fails(ErrorKind::Axis),
            Sample::new(op(8), vec![t(&[1i8; 8], [1, 8])]).fails(ErrorKind::DType),
        ]
    }
}
