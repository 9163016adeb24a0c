//! A small diffusion model (Ho et al., NeurIPS 2020): a network learns the noise in points of a ring, and makes such points of
//! noise, step by step.

use remat::nn::{InitCx, Linear, Rng};
use remat::prelude::*;

const STEPS: usize = 40;

/// The noise in points at a step: `(x: [n, 2], t: [n]) -> [n, 2]`.
#[derive(Module)]
struct Denoiser {
    inputs: Linear,
    time: Linear,
    hidden: Linear,
    outputs: Linear,
}

impl Denoiser {
    fn new(cx: &mut InitCx, width: usize) -> Result<Denoiser> {
        Ok(Denoiser {
            inputs: Linear::new(cx, 2, width)?,
            time: Linear::new(cx, 8, width)?,
            hidden: Linear::new(cx, width, width)?,
            outputs: Linear::new(cx, width, 2)?,
        })
    }

    fn forward(&self, x: &Tensor, t: &Tensor) -> Result<Tensor> {
        // the step as sines and cosines of four frequencies
        let frequencies = tensor![&t.device(); 1.0, 3.0, 9.0, 27.0]?;
        let angle = ((t.cast(DType::F32)? / STEPS as f64)?.unsqueeze(1)? * frequencies)?;
        let time = Tensor::concat(&[&angle.sin()?, &angle.cos()?], 1)?;
        let x = (self.inputs.forward(x)? + self.time.forward(&time)?)?.silu()?;
        let x = (self.hidden.forward(&x)?.silu()? + x)?;
        self.outputs.forward(&x)
    }
}

/// How much of the signal is left after each step: the product of `1 - beta`.
fn alphas() -> Vec<(f64, f64)> {
    let beta = |t: usize| 0.002 + 0.2 * (t as f64 / STEPS as f64).powi(2);
    let mut left = 1.0;
    (0..STEPS)
        .map(|t| {
            left *= 1.0 - beta(t);
            (beta(t), left)
        })
        .collect()
}

/// Points of a ring of radius 2.
fn ring(key: &Tensor, n: usize) -> Result<Tensor> {
    let angle = Tensor::uniform(key, [n, 1], DType::F32, 0.0, std::f64::consts::TAU)?;
    Tensor::concat(&[&angle.cos()?, &angle.sin()?], 1)? * 2.0
}

/// The mean distance of points from the ring.
fn distance(x: &Tensor) -> Result<f32> {
    calc!(x.norm_over(&[1], false) - 2.0).abs()?.mean()?.item()
}

/// Points made of noise: step by step the noise that the network sees is taken out (equation 11 of the paper).
fn sample(net: &Denoiser, rng: &mut Rng, device: &Device, n: usize) -> Result<Tensor> {
    let _quiet = no_grad();
    let mut x = Tensor::normal(&rng.next_key(device)?, [n, 2], DType::F32, 0.0, 1.0)?;
    for (t, (beta, left)) in alphas().into_iter().enumerate().rev() {
        let step = Tensor::full(device, [n], DType::I64, t as i64)?;
        let noise = net.forward(&x, &step)?;
        x = calc!((x - noise * (beta / (1.0 - left).sqrt())) / (1.0 - beta).sqrt());
        if t > 0 {
            let fresh = Tensor::normal(&rng.next_key(device)?, [n, 2], DType::F32, 0.0, beta.sqrt())?;
            x = (x + fresh)?;
        }
    }
    Ok(x)
}

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::with_budget(2 << 20))?;
    let mut rng = Rng::new(3);
    let net = Denoiser::new(&mut InitCx::new(&device, 1), 48)?;
    let mut adam = nn::AdamW::new(net.named_parameters(), nn::AdamWOptions { lr: 0.004, ..Default::default() })?;
    let left: Vec<f32> = alphas().iter().map(|a| a.1 as f32).collect();
    let left = Tensor::new(&device, &left, [STEPS])?;

    let untrained = distance(&sample(&net, &mut rng, &device, 256)?)?;
    let n = 128;
    for _ in 0..300 {
        let x = ring(&rng.next_key(&device)?, n)?;
        let noise = Tensor::normal(&rng.next_key(&device)?, [n, 2], DType::F32, 0.0, 1.0)?;
        let t = Tensor::uniform(&rng.next_key(&device)?, [n], DType::F32, 0.0, STEPS as f64)?.cast(DType::I64)?;
        let kept = left.i(&t)?.unsqueeze(1)?;
        let noisy = calc!(x * kept.sqrt() + noise * (1.0 - kept.clone()).sqrt());
        (net.forward(&noisy, &t)? - noise)?.square()?.mean()?.backward()?;
        adam.step()?;
    }
    let trained = distance(&sample(&net, &mut rng, &device, 256)?)?;
    println!("mean distance from the ring: {untrained:.2} untrained, {trained:.2} trained");
    assert!(trained < 0.4 && trained < 0.5 * untrained);
    Ok(())
}
