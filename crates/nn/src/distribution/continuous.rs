//! Distributions of numbers of both signs, and transformations of the normal one.

use std::f64::consts::{LN_2, PI};

use remat_tensor::Tensor;
use remat_types::{Result, Shape};

use super::{Distribution, HALF_LN_TAU, both, repeated};

macro_rules! located {
    ($($(#[$doc:meta])* $name:ident { $a:ident: $a_text:literal, $b:ident: $b_text:literal };)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            #[doc = $a_text]
            pub $a: Tensor,
            #[doc = $b_text]
            pub $b: Tensor,
        }

        impl $name {
            /// Of tensors that broadcast. Errors: Shape.
            #[track_caller]
            pub fn new($a: &Tensor, $b: &Tensor) -> Result<Self> {
                let ($a, $b) = both($a, $b)?;
                Ok($name { $a, $b })
            }
        }
    )* };
}
pub(super) use located;

located! {
    /// The normal distribution.
    Normal { mean: "The mean.", std: "The standard deviation." };
    /// `e^x` of a normal `x`.
    LogNormal { mean: "The mean of the logarithm.", std: "The standard deviation of the logarithm." };
    /// The uniform distribution on `lo .. hi`.
    Uniform { lo: "The lower end.", hi: "The upper end." };
    /// Laplace's distribution.
    Laplace { mean: "The mean.", scale: "The scale." };
    /// Gumbel's distribution of maxima.
    Gumbel { mode: "The mode.", scale: "The scale." };
    /// Cauchy's distribution, which has no moments.
    Cauchy { median: "The median.", scale: "The scale." };
}

/// Euler and Mascheroni's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

impl Normal {
    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Normal) -> Result<Tensor> {
        let ratio = self.std.div(&other.std)?.square()?;
        let distance = self.mean.sub(&other.mean)?.div(&other.std)?.square()?;
        ratio.add(distance)?.sub(1.0)?.sub(ratio.log()?)?.mul(0.5)
    }

    /// The share of numbers at or below `x`. Errors: Shape.
    #[track_caller]
    pub fn cdf(&self, x: &Tensor) -> Result<Tensor> {
        let z = x.sub(&self.mean)?.div(&self.std)?;
        z.mul(-std::f64::consts::FRAC_1_SQRT_2)?.erfc()?.mul(0.5)
    }

    /// The number at or below which the share `p` lies. Errors: Shape.
    #[track_caller]
    pub fn icdf(&self, p: &Tensor) -> Result<Tensor> {
        let z = p.mul(2.0)?.erfcinv()?.mul(-std::f64::consts::SQRT_2)?;
        z.mul(&self.std)?.add(&self.mean)
    }
}

impl Distribution for Normal {
    fn batch(&self) -> Shape {
        self.mean.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let z = repeated(&self.mean, shape)?.normal_like(key, 0.0, 1.0)?;
        z.mul(&self.std)?.add(&self.mean)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let z = x.sub(&self.mean)?.div(&self.std)?;
        z.square()?.mul(-0.5)?.sub(self.std.log()?)?.sub(HALF_LN_TAU)
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.mean.clone())
    }

    fn variance(&self) -> Result<Tensor> {
        self.std.square()
    }

    fn entropy(&self) -> Result<Tensor> {
        self.std.log()?.add(0.5 + HALF_LN_TAU)
    }
}

impl LogNormal {
    fn log(&self) -> Normal {
        Normal { mean: self.mean.clone(), std: self.std.clone() }
    }
}

impl Distribution for LogNormal {
    fn batch(&self) -> Shape {
        self.mean.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        self.log().sample(key, shape)?.exp()
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let ln = x.log()?;
        self.log().log_prob(&ln)?.sub(ln)
    }

    fn mean(&self) -> Result<Tensor> {
        self.std.square()?.mul(0.5)?.add(&self.mean)?.exp()
    }

    fn variance(&self) -> Result<Tensor> {
        self.std.square()?.expm1()?.mul(self.mean()?.square()?)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.log().entropy()?.add(&self.mean)
    }
}

impl Distribution for Uniform {
    fn batch(&self) -> Shape {
        self.lo.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let share = repeated(&self.lo, shape)?.uniform_like(key, 0.0, 1.0)?;
        share.mul(self.hi.sub(&self.lo)?)?.add(&self.lo)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let inside = x.ge(&self.lo)?.logical_and(x.lt(&self.hi)?)?;
        let density = self.hi.sub(&self.lo)?.log()?.neg()?.broadcast_to(inside.shape())?;
        density.masked_fill(&inside.logical_not()?, f64::NEG_INFINITY)
    }

    fn mean(&self) -> Result<Tensor> {
        self.lo.add(&self.hi)?.mul(0.5)
    }

    fn variance(&self) -> Result<Tensor> {
        self.hi.sub(&self.lo)?.square()?.div(12.0)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.hi.sub(&self.lo)?.log()
    }
}

impl Laplace {
    /// The divergence of `other` from `self`, `E ln(p / q)`. Errors: Shape.
    #[track_caller]
    pub fn kl(&self, other: &Laplace) -> Result<Tensor> {
        let (ratio, apart) = (self.scale.div(&other.scale)?, self.mean.sub(&other.mean)?.abs()?);
        let near = apart.div(&self.scale)?.neg()?.exp()?.mul(&ratio)?;
        near.add(apart.div(&other.scale)?)?.sub(ratio.log()?)?.sub(1.0)
    }
}

impl Distribution for Laplace {
    fn batch(&self) -> Shape {
        self.mean.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.mean, shape)?.laplace_like(key)?.mul(&self.scale)?.add(&self.mean)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let size = x.sub(&self.mean)?.abs()?.div(&self.scale)?;
        size.neg()?.sub(self.scale.mul(2.0)?.log()?)
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.mean.clone())
    }

    fn variance(&self) -> Result<Tensor> {
        self.scale.square()?.mul(2.0)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.scale.log()?.add(1.0 + LN_2)
    }
}

impl Distribution for Gumbel {
    fn batch(&self) -> Shape {
        self.mode.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.mode, shape)?.gumbel_like(key)?.mul(&self.scale)?.add(&self.mode)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let z = x.sub(&self.mode)?.div(&self.scale)?.neg()?;
        z.sub(z.exp()?)?.sub(self.scale.log()?)
    }

    fn mean(&self) -> Result<Tensor> {
        self.scale.mul(EULER)?.add(&self.mode)
    }

    fn variance(&self) -> Result<Tensor> {
        self.scale.square()?.mul(PI * PI / 6.0)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.scale.log()?.add(1.0 + EULER)
    }
}

impl Distribution for Cauchy {
    fn batch(&self) -> Shape {
        self.median.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.median, shape)?.cauchy_like(key)?.mul(&self.scale)?.add(&self.median)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let z = x.sub(&self.median)?.div(&self.scale)?;
        z.square()?.log1p()?.neg()?.sub(self.scale.log()?)?.sub(PI.ln())
    }

    fn mean(&self) -> Result<Tensor> {
        self.median.full_like(f64::NAN)
    }

    fn variance(&self) -> Result<Tensor> {
        self.median.full_like(f64::NAN)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.scale.log()?.add((4.0 * PI).ln())
    }
}

/// The size of a normal number around 0.
#[derive(Clone, Debug)]
pub struct HalfNormal {
    /// The standard deviation of that number.
    pub scale: Tensor,
}

impl Distribution for HalfNormal {
    fn batch(&self) -> Shape {
        self.scale.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        repeated(&self.scale, shape)?.normal_like(key, 0.0, 1.0)?.abs()?.mul(&self.scale)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let density = x.div(&self.scale)?.square()?.mul(-0.5)?.sub(self.scale.log()?)?.add(LN_2 - HALF_LN_TAU)?;
        density.masked_fill(&x.lt(0.0)?, f64::NEG_INFINITY)
    }

    fn mean(&self) -> Result<Tensor> {
        self.scale.mul((2.0 / PI).sqrt())
    }

    fn variance(&self) -> Result<Tensor> {
        self.scale.square()?.mul(1.0 - 2.0 / PI)
    }

    fn entropy(&self) -> Result<Tensor> {
        self.scale.log()?.add(0.5 + HALF_LN_TAU - LN_2)
    }
}

/// Student's distribution.
#[derive(Clone, Debug)]
pub struct StudentT {
    /// The degrees of freedom.
    pub df: Tensor,
    /// The centre.
    pub centre: Tensor,
    /// The scale.
    pub scale: Tensor,
}

impl StudentT {
    /// Of tensors that broadcast. Errors: Shape.
    #[track_caller]
    pub fn new(df: &Tensor, centre: &Tensor, scale: &Tensor) -> Result<Self> {
        let (centre, scale) = both(centre, scale)?;
        let (df, centre) = both(df, &centre)?;
        let (centre, scale) = both(&centre, &scale)?;
        Ok(StudentT { df, centre, scale })
    }
}

impl Distribution for StudentT {
    fn batch(&self) -> Shape {
        self.df.shape().clone()
    }

    #[track_caller]
    fn sample(&self, key: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let df = repeated(&self.df, shape)?;
        let of = |i: i64| key.fold_in(&Tensor::full(&key.device(), [], remat_types::DType::I64, i)?);
        let (normal, chi2) = (df.normal_like(&of(0)?, 0.0, 1.0)?, df.mul(0.5)?.gamma_sample(&of(1)?)?.mul(2.0)?);
        normal.mul(chi2.div(&df)?.rsqrt()?)?.mul(&self.scale)?.add(&self.centre)
    }

    #[track_caller]
    fn log_prob(&self, x: &Tensor) -> Result<Tensor> {
        let (z, half) = (x.sub(&self.centre)?.div(&self.scale)?, self.df.mul(0.5)?);
        let norm = half.add(0.5)?.lgamma()?.sub(half.lgamma()?)?.sub(self.df.mul(PI)?.log()?.mul(0.5)?)?;
        let tail = z.square()?.div(&self.df)?.log1p()?.mul(half.add(0.5)?)?;
        norm.sub(self.scale.log()?)?.sub(tail)
    }

    fn mean(&self) -> Result<Tensor> {
        self.centre.masked_fill(&self.df.le(1.0)?, f64::NAN)
    }

    fn variance(&self) -> Result<Tensor> {
        let many = self.df.div(self.df.sub(2.0)?)?.mul(self.scale.square()?)?;
        let infinite = many.masked_fill(&self.df.le(2.0)?, f64::INFINITY)?;
        infinite.masked_fill(&self.df.le(1.0)?, f64::NAN)
    }

    fn entropy(&self) -> Result<Tensor> {
        let (half, more) = (self.df.mul(0.5)?, self.df.add(1.0)?.mul(0.5)?);
        let beta = half.lgamma()?.add(0.5 * PI.ln())?.sub(more.lgamma()?)?;
        let spread = more.mul(more.digamma()?.sub(half.digamma()?)?)?;
        spread.add(self.df.log()?.mul(0.5)?)?.add(beta)?.add(self.scale.log()?)
    }
}
