//! Distributions of whole numbers. Samples carry no gradients.

use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, Result, Shape};

use super::{Distribution, repeated};

/// 1 with a probability that is given by its logit, else 0.
#[derive(Clone, Debug)]
pub struct Bernoulli {
    /// `ln(p / (1 - p))`.
    pub logits: Tensor,
}

impl Bernoulli {
    /// Of probabilities. Errors: DType.
    #[track_caller]
    pub fn of_probs(probs: &Tensor) -> Result<Self> {
        Ok(Bernoulli { logits: probs.logit(0.0)? })
    }

    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Bernoulli) -> Result<Tensor> {
        let gap = |x: &Tensor, y: &Tensor| x.logsigmoid()?.sub(y.logsigmoid()?);
        let p = self.logits.sigmoid()?;
        let ones = p.mul(gap(&self.logits, &other.logits)?)?;
        let zeros = gap(&self.logits.neg()?, &other.logits.neg()?)?;
        ones.add(p.neg()?.add(1.0)?.mul(zeros)?)
    }
}

impl Distribution for Bernoulli {
    fn batch(&self) -> Shape {
        self.logits.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.logits.sigmoid()?, shape)?.bernoulli_sample(key)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        self.logits.bce_with_logits(x)?.neg()
    }

    fn mean(&self) -> Result<Tensor> {
        self.logits.sigmoid()
    }

    fn variance(&self) -> Result<Tensor> {
        self.logits.sigmoid()?.mul(self.logits.neg()?.sigmoid()?)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.logits.bce_with_logits(&self.logits.sigmoid()?)
    }
}

/// A class of as many as the last axis of the logits has. Samples and events are numbers of classes, I64.
#[derive(Clone, Debug)]
pub struct Categorical {
    /// Logarithms of weights: `[batch.., classes]`.
    logits: Tensor,
}

impl Categorical {
    /// Of logarithms of weights. Errors: Axis for rank 0; DType.
    #[track_caller]
    pub fn new(logits: &Tensor) -> Result<Self> {
        Ok(Categorical { logits: logits.log_softmax(-1)? })
    }

    /// Of probabilities. Errors: Axis for rank 0; DType.
    #[track_caller]
    pub fn of_probs(probs: &Tensor) -> Result<Self> {
        Categorical::new(&probs.log()?)
    }

    /// The logarithms of the probabilities.
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }

    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Categorical) -> Result<Tensor> {
        self.logits.exp()?.mul(self.logits.sub(&other.logits)?)?.sum_over(&[-1], false)
    }
}

fn of_classes() -> Error {
    Error::new(ErrorKind::Value, "numbers of classes have no moments").with_op("categorical")
}

impl Distribution for Categorical {
    fn batch(&self) -> Shape {
        let dims = self.logits.dims();
        dims[..dims.len() - 1].into()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        // the largest of logits with Gumbel's noise
        repeated(&self.logits, shape)?.gumbel_like(key)?.add(self.logits.detach())?.argmax_over(-1, false)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let classes = self.logits.dims()[self.logits.rank() - 1];
        let index = x.cast(DType::I64)?.unsqueeze(-1)?;
        let shape: Shape = x.dims().iter().copied().chain([classes]).collect();
        self.logits.broadcast_to(shape)?.gather(-1, &index)?.squeeze(&[-1])
    }

    /// Errors: Value, for numbers of classes have none.
    fn mean(&self) -> Result<Tensor> {
        Err(of_classes())
    }

    /// Errors: Value, for numbers of classes have none.
    fn variance(&self) -> Result<Tensor> {
        Err(of_classes())
    }

    fn entropy(&self) -> Result<Tensor> {
        self.logits.exp()?.entr()?.sum_over(&[-1], false)
    }
}

/// The number of failures before the first success.
#[derive(Clone, Debug)]
pub struct Geometric {
    /// The probability of a success.
    pub probs: Tensor,
}

impl Distribution for Geometric {
    fn batch(&self) -> Shape {
        self.probs.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let probs = repeated(&self.probs.detach(), shape)?;
        // the logarithm of what is never 0
        let share = probs.uniform_like(key, 0.0, 1.0)?.neg()?.log1p()?;
        share.div(probs.neg()?.log1p()?)?.floor()
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        // without a failure their probability counts for nothing, though its logarithm be infinite
        let failures = self.probs.neg()?.log1p()?.mul(x)?.masked_fill(&x.eq(0.0)?, 0.0)?;
        failures.add(self.probs.log()?)
    }

    fn mean(&self) -> Result<Tensor> {
        self.probs.recip()?.sub(1.0)
    }

    fn variance(&self) -> Result<Tensor> {
        self.mean()?.div(&self.probs)
    }

    fn entropy(&self) -> Result<Tensor> {
        Bernoulli::of_probs(&self.probs)?.entropy()?.div(&self.probs)
    }
}

/// Poisson's distribution of counts.
#[derive(Clone, Debug)]
pub struct Poisson {
    /// The mean.
    pub rate: Tensor,
}

impl Poisson {
    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Poisson) -> Result<Tensor> {
        let logs = self.rate.mul(self.rate.log()?.sub(other.rate.log()?)?)?;
        logs.sub(self.rate.sub(&other.rate)?)
    }
}

impl Distribution for Poisson {
    fn batch(&self) -> Shape {
        self.rate.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.rate, shape)?.poisson_sample(key)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        x.xlogy(&self.rate)?.sub(&self.rate)?.sub(x.add(1.0)?.lgamma()?)
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.rate.clone())
    }

    fn variance(&self) -> Result<Tensor> {
        Ok(self.rate.clone())
    }

    /// Errors: Value; the entropy of Poisson's distribution is an infinite sum.
    fn entropy(&self) -> Result<Tensor> {
        Err(Error::new(ErrorKind::Value, "the entropy of Poisson's distribution has no closed form").with_op("poisson"))
    }
}
