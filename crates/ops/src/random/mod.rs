//! Random numbers as pure functions of a key.
//!
//! Every op here takes `key: u64 [2]`, a seed and a stream number, and element `i` of the result depends only on the key
//! and `i` ([`remat_kernels::philox`]): evaluated twice, under any budget or number of threads, it gives the same bits.

mod draw;
mod dropout;
mod fold_in;
mod noise;
mod shaped;
mod weights;

pub use draw::{Bernoulli, Normal, RandomPermutation, Uniform};
pub use dropout::Dropout;
pub use fold_in::FoldIn;
pub use noise::{alpha_dropout, dropout_parts, gumbel, rrelu};
pub use shaped::{GammaSample, PoissonSample};
pub use weights::Weights;

use remat_kernels::philox::Stream;
use remat_types::{DType, Fact, Result};

use crate::In;
use crate::args::{want_dtype, want_shape};
use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] =
    entries![Bernoulli, Dropout, FoldIn, GammaSample, Normal, PoissonSample, RandomPermutation, Uniform, Weights];

/// Errors (DType, Shape) unless `f` is a key.
fn want_key(f: &Fact) -> Result<()> {
    want_dtype(f, DType::U64, "the key")?;
    want_shape(f, &[2], "the key")
}

fn stream(x: &In<'_>) -> Result<Stream> {
    let k = x.slice::<u64>()?;
    Ok(Stream { key: k[0], stream: k[1] })
}
