//! Distributions of vectors.

use remat_tensor::{Tensor, TriangleOptions};
use remat_types::{Error, ErrorKind, Result, Shape};

use super::{Distribution, HALF_LN_TAU, repeated};

/// Shares that add up to 1, in the last axis.
#[derive(Clone, Debug)]
pub struct Dirichlet {
    /// The weights: `[batch.., parts]`.
    pub alpha: Tensor,
}

impl Distribution for Dirichlet {
    fn batch(&self) -> Shape {
        let dims = self.alpha.dims();
        dims[..dims.len().saturating_sub(1)].into()
    }

    fn event(&self) -> Shape {
        self.alpha.dims().last().copied().into_iter().collect()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.alpha, shape)?.dirichlet_sample(key)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let powers = self.alpha.sub(1.0)?.mul(x.log()?)?.sum_over(&[-1], false)?;
        let norm = self.alpha.sum_over(&[-1], false)?.lgamma()?.sub(self.alpha.lgamma()?.sum_over(&[-1], false)?)?;
        powers.add(norm)
    }

    fn mean(&self) -> Result<Tensor> {
        self.alpha.div(self.alpha.sum_over(&[-1], true)?)
    }

    fn variance(&self) -> Result<Tensor> {
        let (sum, mean) = (self.alpha.sum_over(&[-1], true)?, self.mean()?);
        mean.mul(mean.neg()?.add(1.0)?)?.div(sum.add(1.0)?)
    }

    fn entropy(&self) -> Result<Tensor> {
        let sum = self.alpha.sum_over(&[-1], false)?;
        let norm = self.alpha.lgamma()?.sum_over(&[-1], false)?.sub(sum.lgamma()?)?;
        let parts = self.alpha.dims().last().copied().unwrap_or(0) as f64;
        let whole = sum.sub(parts)?.mul(sum.digamma()?)?;
        let each = self.alpha.sub(1.0)?.mul(self.alpha.digamma()?)?.sum_over(&[-1], false)?;
        norm.add(whole)?.sub(each)
    }
}

/// The normal distribution of vectors, by Cholesky's factor of its covariance.
#[derive(Clone, Debug)]
pub struct MultivariateNormal {
    mean: Tensor,
    /// `l` with `covariance = l l^T`.
    factor: Tensor,
}

impl MultivariateNormal {
    /// Of `mean: [batch.., d]` and the lower triangle `l: [batch.., d, d]` of the covariance `l l^T`; batches broadcast. Errors: Axis,
    /// Shape.
    #[track_caller]
    pub fn of_factor(mean: &Tensor, factor: &Tensor) -> Result<Self> {
        let ([in_mean @ .., d], [in_factor @ .., m, n]) = (mean.dims(), factor.dims()) else {
            let text = format!("a mean of shape {}, a factor of shape {}", mean.shape(), factor.shape());
            return Err(Error::new(ErrorKind::Axis, text).with_op("multivariate_normal"));
        };
        if d != m || d != n {
            let text = format!("a mean of shape {} and a factor of shape {} do not fit", mean.shape(), factor.shape());
            return Err(Error::new(ErrorKind::Shape, text).with_op("multivariate_normal"));
        }
        let batch = Shape::from(in_mean).broadcast(&Shape::from(in_factor))?;
        let of = |own: &[usize]| -> Shape { batch.dims().iter().chain(own).copied().collect() };
        Ok(MultivariateNormal {
            mean: mean.broadcast_to(of(&[*d]))?,
            factor: factor.broadcast_to(of(&[*d, *d]))?.tril(0)?,
        })
    }

    /// Of `mean: [batch.., d]` and a covariance `[batch.., d, d]`. Errors: also those of [`Tensor::cholesky`].
    #[track_caller]
    pub fn new(mean: &Tensor, covariance: &Tensor) -> Result<Self> {
        MultivariateNormal::of_factor(mean, &covariance.cholesky()?)
    }

    /// The sum of the logarithms of the diagonal of the factor.
    #[track_caller]
    fn half_log_det(&self) -> Result<Tensor> {
        self.factor.diagonal(0, -2, -1)?.log()?.sum_over(&[-1], false)
    }

    fn d(&self) -> f64 {
        self.mean.dims().last().copied().unwrap_or(0) as f64
    }

    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &MultivariateNormal) -> Result<Tensor> {
        let how = TriangleOptions::default();
        let spread = other.factor.solve_triangular(&self.factor, how)?.square()?.sum_over(&[-2, -1], false)?;
        let apart = self.mean.sub(&other.mean)?.unsqueeze(-1)?;
        let apart = other.factor.solve_triangular(&apart, how)?.square()?.sum_over(&[-2, -1], false)?;
        let sizes = other.half_log_det()?.sub(self.half_log_det()?)?;
        spread.add(apart)?.sub(self.d())?.mul(0.5)?.add(sizes)
    }
}

impl Distribution for MultivariateNormal {
    fn batch(&self) -> Shape {
        let dims = self.mean.dims();
        dims[..dims.len() - 1].into()
    }

    fn event(&self) -> Shape {
        self.mean.dims().last().copied().into_iter().collect()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let z = repeated(&self.mean, shape)?.normal_like(key, 0.0, 1.0)?;
        self.factor.matmul(&z.unsqueeze(-1)?)?.squeeze(&[-1])?.add(&self.mean)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let apart = x.sub(&self.mean)?.unsqueeze(-1)?;
        let z = self.factor.solve_triangular(&apart, TriangleOptions::default())?;
        let size = z.square()?.sum_over(&[-2, -1], false)?;
        size.mul(-0.5)?.sub(self.half_log_det()?)?.sub(self.d() * HALF_LN_TAU)
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.mean.clone())
    }

    fn variance(&self) -> Result<Tensor> {
        self.factor.square()?.sum_over(&[-1], false)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.half_log_det()?.add(self.d() * (0.5 + HALF_LN_TAU))
    }
}
