//! Functions of networks on images: normalisation of parts, padding, rearrangements of pixels, pools, other sizes, warps.
//!
//! All are short compositions, so gradients and recomputation follow by themselves. Images are `[n, c, h, w]`; lines and volumes
//! have one spatial axis less or more.

mod norm;
mod pad;
mod pool;
mod regions;
mod resize;
mod sample;
mod sensitive;
mod shuffle;
mod windows;

pub use norm::BatchStatistics;
pub use pad::PadMode;
pub use pool::{Divisor, Pooling};
pub use regions::{BoxForm, RoiAlign};
pub use resize::{Interpolate, InterpolateOptions, Sizes};
pub use sample::Warp;
pub use sensitive::DeformPsRoi;
pub use shuffle::Patches;
pub use windows::{Colour, Correlation};

use remat_types::{Error, ErrorKind, Result};

use crate::Tensor;

/// An error of kind Shape.
fn wrong_shape(text: String) -> Error {
    Error::new(ErrorKind::Shape, text)
}

/// An error of kind Value.
fn wrong_value(text: String) -> Error {
    Error::new(ErrorKind::Value, text)
}

/// Errors (Axis) below rank `least`.
fn rank_at_least(x: &Tensor, least: usize) -> Result<()> {
    if x.rank() < least {
        let text = format!("x has shape {}: rank {}, below {least}", x.shape(), x.rank());
        return Err(Error::new(ErrorKind::Axis, text));
    }
    Ok(())
}

/// Errors (Axis) unless `x` has `rank` axes.
fn rank_is(x: &Tensor, rank: usize) -> Result<()> {
    if x.rank() != rank {
        let text = format!("x has shape {}: rank {}, not {rank}", x.shape(), x.rank());
        return Err(Error::new(ErrorKind::Axis, text));
    }
    Ok(())
}

/// The product of extents. Errors: Shape for one too large to address.
fn product(extents: &[usize]) -> Result<usize> {
    let all = extents.iter().try_fold(1usize, |all, d| all.checked_mul(*d));
    all.filter(|all| isize::try_from(*all).is_ok())
        .ok_or_else(|| wrong_shape(format!("the extents {extents:?} are too many elements to address")))
}
