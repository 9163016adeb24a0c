//! Ops on blocked images and packed weights, for inference on the CPU. A pass makes them from convolutions and linear layers.
//! Their serial names date from the time when this module was called `blocked`.
//!
//! A blocked image is an ordinary row-major tensor `[n, blocks, h, w, block]`: channel `c` is lane `c % block` of block
//! `c / block`; what lies in lanes beyond the last channel is never read into a channel. Everything here is f32 and has no
//! gradient: programs are written, and differentiated, with the plain ops.

mod conv;
mod linear;
mod pack;
mod pool;
mod reorder;

pub use conv::ConvBlocked;
pub use linear::LinearPacked;
pub use pack::{PackConv, PackLinear};
pub use pool::MaxPoolBlocked;
pub use reorder::{FromBlocked, ToBlocked};

use remat_kernels::blocked::Start;
use remat_types::{DType, Error, ErrorKind, Fact, Result, Scalar};

use crate::args::{want_dtype, want_rank};
use crate::op::{Entry, entries};
use crate::{EvalCx, In, Out};

/// The family's operators.
pub(crate) const OPS: &[Entry] =
    entries![ConvBlocked, FromBlocked, LinearPacked, MaxPoolBlocked, PackConv, PackLinear, ToBlocked];

/// Why samples here check no gradient.
const INFERENCE_ONLY: &str = "an op of compiled inference has no gradient";

/// The extents `[n, blocks, h, w, block]` of a blocked image. Errors: DType, Axis; Value for a block without kernels.
fn blocked_extents(f: &Fact, name: &str) -> Result<[usize; 5]> {
    want_dtype(f, DType::F32, name)?;
    want_rank(f, 5, name)?;
    remat_kernels::blocked::check_block(f.shape[4])?;
    Ok([0, 1, 2, 3, 4].map(|i| f.shape[i]))
}

/// A range as numbers of f32. Errors (Value) for bounds in the wrong order, or NaN.
fn range(clamp: Option<[Scalar; 2]>) -> Result<Option<[f32; 2]>> {
    let Some([low, high]) = clamp.map(|c| c.map(|v| v.to_f64() as f32)) else { return Ok(None) };
    if low <= high {
        return Ok(Some([low, high]));
    }
    Err(Error::new(ErrorKind::Value, format!("the range {low} to {high} is empty")))
}

/// The start value of the sums: input 3, if the op adds. It may already lie in the output.
fn start<'a>(adds: bool, x: &[In<'a>], y: &Out<'_>) -> Result<Start<'a>> {
    match x.get(3).filter(|_| adds) {
        None => Ok(Start::Zero),
        Some(_) if y.holds() == Some(3) => Ok(Start::AddHeld),
        Some(add) => Ok(Start::Add(add.slice()?)),
    }
}

/// Runs a kernel of `x`, packed weight and bias.
fn run_packed(
    cx: &mut EvalCx<'_>,
    adds: bool,
    kernel: impl FnOnce([&[f32]; 3], &Start<'_>, &mut [f32], &mut [u8]),
) -> Result<()> {
    let operands = [cx.x[0].slice()?, cx.x[1].slice()?, cx.x[2].slice()?];
    let start = start(adds, cx.x, &cx.y[0])?;
    kernel(operands, &start, cx.y[0].slice_mut()?, cx.workspace);
    Ok(())
}
