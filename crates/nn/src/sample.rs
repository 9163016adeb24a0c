//! The next token, drawn from logits.

use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, Result};

/// How [`Sampler::draw`] chooses among tokens. The default draws from the distribution as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Logits are divided by this; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest tokens, this many of them.
    pub top_k: Option<usize>,
    /// Only the likeliest tokens that together have this probability, at least one (Holtzman et al., 2020, arXiv:1904.09751).
    pub top_p: Option<f64>,
    /// Only tokens with this share of the likeliest one's probability (Nguyen et al., 2024, arXiv:2407.01082).
    pub min_p: Option<f64>,
    /// Logits of tokens that were there are divided by this where positive, else multiplied (Keskar et al., 2019,
    /// arXiv:1909.05858).
    pub repetition_penalty: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler { temperature: 1.0, top_k: None, top_p: None, min_p: None, repetition_penalty: 1.0 }
    }
}

impl Sampler {
    fn check(&self) -> Result<()> {
        let share = |v: Option<f64>| v.is_none_or(|v| v > 0.0 && v <= 1.0);
        let wrong = match () {
            () if !(self.temperature >= 0.0 && self.temperature.is_finite()) => {
                "a temperature must be finite and not negative"
            }
            () if self.top_k == Some(0) => "top_k must be 1 or more",
            () if !share(self.top_p) => "top_p must be above 0 and at most 1",
            () if !share(self.min_p) => "min_p must be above 0 and at most 1",
            () if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) => {
                "a repetition penalty must be positive and finite"
            }
            () => return Ok(()),
        };
        Err(Error::new(ErrorKind::Value, format!("{wrong}: {self:?}")).with_op("sampler"))
    }

    /// The logits that are left, `[n, vocabulary]`: minus infinity for tokens that are not drawn. `seen: [n, t]` are the tokens that
    /// were there. Errors: Value for options out of range; Axis, Shape, DType.
    #[track_caller]
    pub fn filtered(&self, logits: &Tensor, seen: Option<&Tensor>) -> Result<Tensor> {
        self.check()?;
        let [_, vocabulary] = *logits.dims() else {
            let text = format!("logits of shape {}; they must be [n, vocabulary]", logits.shape());
            return Err(Error::new(ErrorKind::Axis, text).with_op("sampler"));
        };
        if vocabulary == 0 {
            return Err(Error::new(ErrorKind::Shape, "a vocabulary without tokens").with_op("sampler"));
        }
        let mut x = logits.detach();
        if matches!(x.dtype(), DType::F16 | DType::BF16) {
            // sums over a large vocabulary need more digits
            x = x.cast(DType::F32)?;
        }
        if let Some(seen) = seen.filter(|_| self.repetition_penalty != 1.0) {
            let there = x.gather(1, seen)?;
            let punished =
                there.gt(0.0)?.where_cond(&there.div(self.repetition_penalty)?, there.mul(self.repetition_penalty)?)?;
            x = x.scatter(1, seen, &punished)?;
        }
        if self.temperature > 0.0 && self.temperature != 1.0 {
            x = x.div(self.temperature)?;
        }
        if let Some(k) = self.top_k.filter(|k| *k < vocabulary) {
            // by their places, so that of equal ones no more stay than are asked for
            let (_, places) = x.topk(k, -1, true, true)?;
            let kept = Tensor::ones(&x.device(), places.shape(), DType::Bool)?;
            let all = Tensor::zeros(&x.device(), x.shape(), DType::Bool)?.scatter(1, &places, &kept)?;
            x = x.masked_fill(&all.logical_not()?, f64::NEG_INFINITY)?;
        }
        if let Some(share) = self.min_p {
            let least = x.max_over(&[-1], true)?.add(share.ln())?;
            x = x.masked_fill(&x.lt(&least)?, f64::NEG_INFINITY)?;
        }
        if let Some(share) = self.top_p.filter(|p| *p < 1.0) {
            let (sorted, places) = x.sort(-1, true)?;
            let probs = sorted.softmax(-1)?;
            // those before a token do not have the share yet; the first has none before it
            let before = probs.cumsum(-1)?.sub(&probs)?;
            let gone = Tensor::zeros(&x.device(), x.shape(), DType::Bool)?.scatter(1, &places, &before.ge(share)?)?;
            x = x.masked_fill(&gone, f64::NEG_INFINITY)?;
        }
        Ok(x)
    }

    /// A token for each row of `logits: [n, vocabulary]`, `[n]` of I64, a pure function of `key: u64 [2]`. `seen: [n, t]` are the
    /// tokens that were there, for the repetition penalty. Errors: as [`Sampler::filtered`].
    ///
    /// ```
    /// use remat_nn::{Rng, Sampler};
    /// # use remat_runtime::Device;
    /// # use remat_tensor::Tensor;
    /// # fn main() -> remat_types::Result<()> {
    /// # let device = Device::cpu(Default::default())?;
    /// let logits = Tensor::new(&device, &[0.0, 5.0, 1.0], [1, 3])?;
    /// let key = Rng::new(7).next_key(&device)?;
    /// let greedy = Sampler { temperature: 0.0, ..Sampler::default() };
    /// assert_eq!(greedy.draw(&logits, None, &key)?.to_vec::<i64>()?, [1]);
    /// let two = Sampler { top_k: Some(2), ..Sampler::default() };
    /// assert_ne!(two.draw(&logits, None, &key)?.to_vec::<i64>()?, [0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn draw(&self, logits: &Tensor, seen: Option<&Tensor>, key: &Tensor) -> Result<Tensor> {
        let x = self.filtered(logits, seen)?;
        if self.temperature == 0.0 {
            return x.argmax_over(-1, false);
        }
        // the largest of logits with Gumbel's noise has the softmax's distribution
        x.add(x.gumbel_like(key)?)?.argmax_over(-1, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_runtime::Device;

    fn left(sampler: Sampler, logits: &[f32]) -> Vec<bool> {
        let device = Device::cpu(Default::default()).expect("opens");
        let x = Tensor::new(&device, logits, [1, logits.len()]).expect("fits");
        let y = sampler.filtered(&x, None).expect("right options");
        y.to_vec::<f32>().expect("computes").iter().map(|v| *v > f32::NEG_INFINITY).collect()
    }

    #[test]
    fn filters_leave_the_likeliest() {
        let ln = |p: [f32; 4]| p.map(f32::ln);
        let p = ln([0.1, 0.5, 0.15, 0.25]);
        let none = Sampler::default();
        assert_eq!(left(none, &p), [true; 4]);
        assert_eq!(left(Sampler { top_k: Some(2), ..none }, &p), [false, true, false, true]);
        assert_eq!(left(Sampler { top_p: Some(0.7), ..none }, &p), [false, true, false, true]);
        assert_eq!(left(Sampler { top_p: Some(0.8), ..none }, &p), [false, true, true, true]);
        assert_eq!(left(Sampler { top_p: Some(1e-6), ..none }, &p), [false, true, false, false]);
        assert_eq!(left(Sampler { min_p: Some(0.4), ..none }, &p), [false, true, false, true]);
        assert_eq!(left(Sampler { top_k: Some(9), ..none }, &p), [true; 4]);
        for one in [Sampler { top_k: Some(1), ..none }, Sampler { top_p: Some(0.2), ..none }] {
            assert_eq!(left(one, &[1.0; 5]).iter().filter(|l| **l).count(), 1, "of equal ones");
        }
    }

    #[test]
    fn draws_have_the_distribution() {
        let device = Device::cpu(Default::default()).expect("opens");
        let logits = Tensor::new(&device, &[0.2f32.ln(), 0.7f32.ln(), 0.1f32.ln()], [1, 3]).expect("fits");
        let many = logits.broadcast_to([20_000, 3]).expect("broadcasts");
        let key = crate::Rng::new(3).next_key(&device).expect("a key");
        let drawn = Sampler::default().draw(&many, None, &key).expect("draws").to_vec::<i64>().expect("computes");
        for (class, share) in [(0, 0.2), (1, 0.7), (2, 0.1)] {
            let found = drawn.iter().filter(|d| **d == class).count() as f64 / 20_000.0;
            assert!((found - share).abs() < 0.02, "{class}: {found}");
        }
    }

    #[test]
    fn a_penalty_makes_what_was_there_less_likely() {
        let device = Device::cpu(Default::default()).expect("opens");
        let logits = Tensor::new(&device, &[2.0f32, -2.0, 1.9], [1, 3]).expect("fits");
        let seen = Tensor::new(&device, &[0i64, 1], [1, 2]).expect("fits");
        let sampler = Sampler { temperature: 0.0, repetition_penalty: 2.0, ..Sampler::default() };
        let y = sampler.filtered(&logits, Some(&seen)).expect("right options").to_vec::<f32>().expect("computes");
        assert_eq!(y, [1.0, -4.0, 1.9]);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let device = Device::cpu(Default::default()).expect("opens");
        let logits = Tensor::new(&device, &[0.0f32], [1, 1]).expect("fits");
        let none = Sampler::default();
        for bad in [
            Sampler { temperature: -1.0, ..none },
            Sampler { temperature: f64::NAN, ..none },
            Sampler { top_k: Some(0), ..none },
            Sampler { top_p: Some(0.0), ..none },
            Sampler { min_p: Some(1.5), ..none },
            Sampler { repetition_penalty: 0.0, ..none },
        ] {
            assert_eq!(bad.filtered(&logits, None).expect_err("refused").kind(), ErrorKind::Value, "{bad:?}");
        }
        assert_eq!(
            none.filtered(&logits.reshape(&[1]).expect("fits"), None).expect_err("refused").kind(),
            ErrorKind::Axis
        );
    }
}
