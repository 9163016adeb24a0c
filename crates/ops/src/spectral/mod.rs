//! Discrete Fourier transforms along the last axis, not normalised. A complex number is the pair of its real and its imaginary
//! part in an axis of extent 2.

mod complex;
mod real;

pub use complex::Fft;
pub use real::{Irfft, Rfft};

use remat_types::{DType, Error, ErrorKind, Fact, Result};

use crate::args::not_taken;
use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Fft, Irfft, Rfft];

/// Errors: DType for other than f32 and f64; Axis for a rank below `rank`.
fn want_numbers(x: &Fact, rank: usize) -> Result<()> {
    if !matches!(x.dtype, DType::F32 | DType::F64) {
        return Err(not_taken(x.dtype));
    }
    if x.rank() < rank {
        let text = format!("x has shape {}: rank {}; it must be {rank} or more", x.shape, x.rank());
        return Err(Error::new(ErrorKind::Axis, text));
    }
    Ok(())
}

/// The extents before the pairs, and how many there are. Errors: also Shape where the last axis has no pairs.
fn pairs(x: &Fact) -> Result<(&[usize], usize)> {
    want_numbers(x, 2)?;
    match x.shape.dims() {
        [batch @ .., n, 2] => Ok((batch, *n)),
        _ => {
            let text = format!("x has shape {}: its last axis is not of pairs of real and imaginary part", x.shape);
            Err(Error::new(ErrorKind::Shape, text))
        }
    }
}

/// Operations of a transform of `n` numbers: `5 n log2 n`, by which transforms are compared.
fn flops(n: usize) -> u64 {
    (5.0 * n as f64 * (n.max(2) as f64).log2()) as u64
}
