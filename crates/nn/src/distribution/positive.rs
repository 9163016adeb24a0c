//! Distributions of positive numbers.

use remat_tensor::Tensor;
use remat_types::{Result, Shape};

use super::continuous::located;
use super::{Distribution, both, repeated};

located! {
    /// The gamma distribution.
    Gamma { alpha: "The shape.", rate: "The rate, of which the scale is the inverse." };
    /// The beta distribution, on `0 .. 1`.
    Beta { alpha: "The weight of 1.", beta: "The weight of 0." };
}

/// The exponential distribution.
#[derive(Clone, Debug)]
pub struct Exponential {
    /// The rate: the inverse of the mean.
    pub rate: Tensor,
}

impl Exponential {
    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Exponential) -> Result<Tensor> {
        let ratio = other.rate.div(&self.rate)?;
        ratio.sub(1.0)?.sub(ratio.log()?)
    }
}

impl Distribution for Exponential {
    fn batch(&self) -> Shape {
        self.rate.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.rate, shape)?.exponential_sample(key)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let density = self.rate.log()?.sub(self.rate.mul(x)?)?;
        density.masked_fill(&x.lt(0.0)?, f64::NEG_INFINITY)
    }

    fn mean(&self) -> Result<Tensor> {
        self.rate.recip()
    }

    fn variance(&self) -> Result<Tensor> {
        self.rate.square()?.recip()
    }

    fn entropy(&self) -> Result<Tensor> {
        self.rate.log()?.neg()?.add(1.0)
    }
}

impl Gamma {
    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Gamma) -> Result<Tensor> {
        let shapes = self.alpha.sub(&other.alpha)?.mul(self.alpha.digamma()?)?;
        let norms = other.alpha.lgamma()?.sub(self.alpha.lgamma()?)?;
        let rates = self.rate.log()?.sub(other.rate.log()?)?.mul(&other.alpha)?;
        let means = other.rate.div(&self.rate)?.sub(1.0)?.mul(&self.alpha)?;
        shapes.add(norms)?.add(rates)?.add(means)
    }

    /// The share of numbers at or below `x`; no gradient for the shape. Errors: Shape.
    #[track_caller]
    pub fn cdf(&self, x: &Tensor) -> Result<Tensor> {
        self.alpha.gammainc(&x.mul(&self.rate)?)
    }
}

impl Distribution for Gamma {
    fn batch(&self) -> Shape {
        self.alpha.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.alpha, shape)?.gamma_sample(key)?.div(&self.rate)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let power = self.alpha.sub(1.0)?.mul(x.log()?)?;
        let norm = self.alpha.mul(self.rate.log()?)?.sub(self.alpha.lgamma()?)?;
        power.sub(self.rate.mul(x)?)?.add(norm)
    }

    fn mean(&self) -> Result<Tensor> {
        self.alpha.div(&self.rate)
    }

    fn variance(&self) -> Result<Tensor> {
        self.alpha.div(self.rate.square()?)
    }

    fn entropy(&self) -> Result<Tensor> {
        let shape = self.alpha.neg()?.add(1.0)?.mul(self.alpha.digamma()?)?;
        self.alpha.sub(self.rate.log()?)?.add(self.alpha.lgamma()?)?.add(shape)
    }
}

/// `ln B(a, b)`.
#[track_caller]
fn ln_beta(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.lgamma()?.add(b.lgamma()?)?.sub(a.add(b)?.lgamma()?)
}

impl Beta {
    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Beta) -> Result<Tensor> {
        let norms = ln_beta(&other.alpha, &other.beta)?.sub(ln_beta(&self.alpha, &self.beta)?)?;
        let (sum, other_sum) = (self.alpha.add(&self.beta)?, other.alpha.add(&other.beta)?);
        let ones = self.alpha.sub(&other.alpha)?.mul(self.alpha.digamma()?)?;
        let zeros = self.beta.sub(&other.beta)?.mul(self.beta.digamma()?)?;
        norms.add(ones)?.add(zeros)?.add(other_sum.sub(&sum)?.mul(sum.digamma()?)?)
    }
}

impl Distribution for Beta {
    fn batch(&self) -> Shape {
        self.alpha.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.alpha, shape)?.beta_sample(&repeated(&self.beta, shape)?, key)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let ones = self.alpha.sub(1.0)?.mul(x.log()?)?;
        let zeros = self.beta.sub(1.0)?.mul(x.neg()?.log1p()?)?;
        ones.add(zeros)?.sub(ln_beta(&self.alpha, &self.beta)?)
    }

    fn mean(&self) -> Result<Tensor> {
        self.alpha.div(self.alpha.add(&self.beta)?)
    }

    fn variance(&self) -> Result<Tensor> {
        let sum = self.alpha.add(&self.beta)?;
        self.alpha.mul(&self.beta)?.div(sum.square()?.mul(sum.add(1.0)?)?)
    }

    fn entropy(&self) -> Result<Tensor> {
        let sum = self.alpha.add(&self.beta)?;
        let ones = self.alpha.sub(1.0)?.mul(self.alpha.digamma()?)?;
        let zeros = self.beta.sub(1.0)?.mul(self.beta.digamma()?)?;
        ln_beta(&self.alpha, &self.beta)?.sub(ones)?.sub(zeros)?.add(sum.sub(2.0)?.mul(sum.digamma()?)?)
    }
}
