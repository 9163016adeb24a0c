//! The smallest budget under which a training step runs: `cargo run --release -p remat-zoo --example floor`.
//!
//! Each network trains three steps without a budget, and then under ever smaller ones, by bisection to a thousandth of the
//! peak. A budget suffices if the weights have the bits of the run without one. `ideal` is what no way to train could do
//! without: parameters, optimiser state, and the operator that needs the most at once beside them.

use std::collections::BTreeMap;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions, Foresight, Kind};
use remat_tensor::Tensor;
use remat_types::{HostTensor, Result};
use remat_zoo::models::*;

const STEPS: usize = 3;

type Weights = BTreeMap<String, HostTensor>;
type Train = fn(&Device) -> Result<Weights>;

/// Without a pattern, the same in every run.
fn wave(n: usize, phase: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + phase * 11) as f32 * 0.61).sin()).collect()
}

fn labels(d: &Device, n: usize, classes: usize) -> Result<Tensor> {
    Tensor::new(d, &(0..n).map(|i| (i * 7 % classes) as i64).collect::<Vec<_>>(), [n])
}

fn train<M: Module>(net: &M, mut loss: impl FnMut(usize) -> Result<Tensor>) -> Result<Weights> {
    let options = SgdOptions { lr: 0.01, momentum: 0.9, ..SgdOptions::default() };
    let mut sgd = Sgd::new(net.named_parameters(), options)?;
    for step in 0..STEPS {
        loss(step)?.backward()?;
        sgd.step()?;
    }
    net.parameters().iter().try_for_each(|p| p.device().channel().sync())?;
    net.state_dict()
}

fn linear(d: &Device) -> Result<Weights> {
    let cx = &mut InitCx::new(d, 7);
    let mut net = Sequential::new();
    for _ in 0..8 {
        net.push(Linear::new(cx, 512, 512)?);
        net.push(Relu);
    }
    train(&net, |step| net.forward(&Tensor::new(d, &wave(64 * 512, step), [64, 512])?)?.square()?.mean())
}

fn resnet18(d: &Device) -> Result<Weights> {
    let net = ResNet::new(&mut InitCx::new(d, 7), &ResNetConfig::resnet18())?;
    train(&net, |step| {
        let x = Tensor::new(d, &wave(4 * 3 * 64 * 64, step), [4, 3, 64, 64])?;
        loss::cross_entropy(&net.forward(&x)?, &labels(d, 4, 1000)?)
    })
}

fn gpt(d: &Device) -> Result<Weights> {
    let config = GptConfig { vocabulary: 512, sequence: 128, width: 256, layers: 4, heads: 8, ..GptConfig::default() };
    let net = Gpt::new(&mut InitCx::new(d, 7), &config)?;
    train(&net, |step| {
        let x: Vec<i64> = (0..128).map(|i| ((i * 31 + step * 7) % 512) as i64).collect();
        let y = net.forward(&Tensor::new(d, &x, [1, 128])?)?;
        loss::cross_entropy(&y.reshape(&[128, 512])?, &labels(d, 128, 512)?)
    })
}

fn device(budget_bytes: Option<usize>) -> Result<Device> {
    let options = DeviceOptions { threads: 1, foresight: Foresight::Off, budget_bytes, ..DeviceOptions::default() };
    Device::cpu(DeviceOptions { always_record: true, ..options })
}

fn main() -> Result<()> {
    println!("| network | peak MB | ideal MB | floor MB | floor / ideal | floor / peak |\n|---|---|---|---|---|---|");
    let all: [(&str, Train); 3] =
        [("eight linear layers", linear), ("ResNet-18, 64x64, batch 4", resnet18), ("GPT, batch 1", gpt)];
    for (name, run) in all {
        let free = device(None)?;
        let want = run(&free)?;
        let report = free.channel().report()?;
        let state = |k: &Kind| report.peak_by_kind.iter().find(|h| h.name == k.name()).map_or(0, |h| h.bytes);
        let kept: usize = [Kind::Parameter, Kind::OptimizerState].iter().map(state).sum();
        // While gradients are state, the operator that needs the most is not an update.
        let ideal = kept + report.stats.largest_op_bytes;
        let peak = report.stats.peak_bytes;
        let suffices = |bytes: usize| -> Result<bool> {
            let d = device(Some(bytes))?;
            let got = run(&d);
            let _told = d.channel().close();
            Ok(got.is_ok_and(|got| got == want))
        };
        let (mut low, mut high) = (kept / 2, peak);
        while high - low > peak / 1000 {
            let middle = low.midpoint(high);
            match suffices(middle)? {
                true => high = middle,
                false => low = middle,
            }
        }
        let mb = |bytes: usize| bytes as f64 / 1e6;
        let (to_ideal, to_peak) = (high as f64 / ideal as f64, high as f64 / peak as f64);
        eprintln!("{name}: sufficient {:.1}", report.stats.sufficient_budget_bytes as f64 / 1e6);
        println!("| {name} | {:.1} | {:.1} | {:.1} | {to_ideal:.2} | {to_peak:.2} |", mb(peak), mb(ideal), mb(high));
    }
    Ok(())
}
