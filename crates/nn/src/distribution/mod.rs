//! Probability distributions: samples, logarithms of probabilities, moments, divergences.
//!
//! Parameters are tensors that broadcast, so one value stands for a batch of distributions. A sample is a pure function of a key
//! (`Rng::next_key`), and carries gradients for the parameters wherever it is a smooth function of them.
//!
//! ```
//! use remat_nn::Rng;
//! use remat_nn::distribution::{Distribution, Normal};
//! # use remat_runtime::Device;
//! # use remat_tensor::Tensor;
//! # fn main() -> remat_types::Result<()> {
//! # let device = Device::cpu(Default::default())?;
//! let mean = Tensor::new(&device, &[0.0, 10.0], [2])?;
//! let of = Normal::new(&mean, &Tensor::new(&device, &[1.0], [1])?)?;
//! let key = Rng::new(7).next_key(&device)?;
//! let x = of.sample(&key, &[1000])?;
//! assert_eq!(x.dims(), [1000, 2]);
//! assert_eq!(of.log_prob(&x)?.dims(), [1000, 2]);
//! # Ok(())
//! # }
//! ```

mod continuous;
mod discrete;
mod positive;
mod several;

pub use continuous::{Cauchy, Gumbel, HalfNormal, Laplace, LogNormal, Normal, StudentT, Uniform};
pub use discrete::{Bernoulli, Categorical, Geometric, Poisson};
pub use positive::{Beta, Exponential, Gamma};
pub use several::{Dirichlet, MultivariateNormal};

use remat_tensor::Tensor;
use remat_types::{Result, Shape};

/// A batch of distributions.
pub trait Distribution {
    /// The extents of the batch: those to which the parameters broadcast.
    fn batch(&self) -> Shape;

    /// The extents of one event: none, but for distributions of vectors.
    fn event(&self) -> Shape {
        Shape::scalar()
    }

    /// Independent samples: `[shape.., batch.., event..]`, a pure function of `key: u64 [2]`. They carry gradients for the parameters
    /// where they are smooth functions of them. Errors: Shape, DType, those of the random operators.
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor>;

    /// The logarithm of the density, or of the probability, at `x: [.., batch.., event..]`: `[.., batch..]`. Minus infinity, or NaN,
    /// outside of the support. Errors: Shape, DType.
    fn log_prob(&self, x: &Tensor) -> Result<Tensor>;

    /// The mean; NaN where there is none. Errors: DType.
    fn mean(&self) -> Result<Tensor>;

    /// The variance, of each coordinate; NaN where there is none. Errors: DType.
    fn variance(&self) -> Result<Tensor>;

    /// The entropy, in nats. Errors: DType; Value where it is not implemented.
    fn entropy(&self) -> Result<Tensor>;
}

/// `a` and `b` in the shape to which both broadcast.
#[track_caller]
fn both(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let shape = a.shape().broadcast(b.shape())?;
    Ok((a.broadcast_to(shape.clone())?, b.broadcast_to(shape)?))
}

/// `x` in the shape of samples.
#[track_caller]
fn repeated(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let all: Shape = shape.iter().chain(x.dims()).copied().collect();
    x.broadcast_to(all)
}

/// `ln(2 pi) / 2`.
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_7;
