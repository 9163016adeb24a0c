//! A text that the network writes, with each character drawn from its prediction.

use remat::nn::Layer;
use remat::nn::models::Gpt;
use remat::runtime::Device;
use remat::tensor::Tensor;
use remat::types::{DType, Result};

use super::data::Text;
use crate::random::mixed;

/// Characters of a sample.
const LEN: usize = 240;
/// Logits are divided by this: a little more likely characters than the network predicts, so that words show early.
const TEMPERATURE: f64 = 0.8;

/// A text that begins a paragraph; a function of the network and the seed.
pub(super) fn write(net: &Gpt, device: &Device, text: &Text, context: usize, seed: u64) -> Result<String> {
    let mut tokens = vec![text.token(b'\n')];
    for i in 0..LEN as u64 {
        let seen = &tokens[tokens.len().saturating_sub(context)..];
        let logits = net.forward(&Tensor::new(device, seen, [1, seen.len()])?)?;
        let last = logits.select(0, 0)?.select(0, -1)?.cast(DType::F64)?.to_vec::<f64>()?;
        // the 53 bits that an f64 holds
        let uniform = (mixed(mixed(seed) ^ i) >> 11) as f64 / (1u64 << 53) as f64;
        tokens.push(draw(&last, uniform) as u8);
    }
    Ok(text.decode(&tokens[1..]))
}

/// The index at which the distribution function of `softmax(logits / TEMPERATURE)` passes `uniform`; the last one if
/// rounding, or a NaN, keeps it below.
fn draw(logits: &[f64], uniform: f64) -> usize {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|v| ((v - largest) / TEMPERATURE).exp()).collect();
    let mut left = uniform * weights.iter().sum::<f64>();
    for (i, w) in weights.iter().enumerate() {
        left -= w;
        if left < 0.0 {
            return i;
        }
    }
    logits.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_drawn_as_often_as_they_are_likely() {
        // weights 1, 3 and 0
        let logits = [0.0, TEMPERATURE * 3f64.ln(), f64::NEG_INFINITY];
        let all: Vec<usize> = (0..1000).map(|i| draw(&logits, f64::from(i) / 1000.0)).collect();
        let count = |of: usize| all.iter().filter(|i| **i == of).count();
        assert_eq!([count(0), count(1), count(2)], [250, 750, 0]);
        assert_eq!(draw(&[f64::NAN, 0.0], 0.5), 1);
    }
}
