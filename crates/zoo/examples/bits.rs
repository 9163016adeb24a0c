//! The bits of every network after training under a budget: `cargo run --release -p remat-zoo --example bits`.
//!
//! Each network trains three steps, eagerly and compiled, without a budget and at 100, 50 and 35 % of its peak. A row has
//! the first figures of the FNV-1a hash of all weights, or `refused` where the budget does not suffice. Two builds of the
//! library compute the same if they print the same rows; one build keeps the promise if a network's rows agree.

use std::cell::RefCell;
use std::rc::Rc;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile};
use remat_types::{ErrorKind, Result};
use remat_zoo::models::*;

const STEPS: usize = 3;
const IMAGES: usize = 32;
const IMAGE: [usize; 4] = [IMAGES, 3, 64, 64];
const TEXTS: usize = 8;
const PLACES: usize = 128;

/// Without a pattern, the same in every run.
fn wave(n: usize, phase: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + phase * 11) as f32 * 0.61).sin()).collect()
}

/// A network with the inputs of a step and its loss.
struct Case {
    name: &'static str,
    network: fn(&mut InitCx) -> Result<Box<dyn Layer>>,
    inputs: fn(&Device, usize) -> Result<[Tensor; 2]>,
    loss: fn(&dyn Layer, &Tensor, &Tensor) -> Result<Tensor>,
}

fn image_inputs(d: &Device, step: usize) -> Result<[Tensor; 2]> {
    let x = Tensor::new(d, &wave(IMAGE.iter().product(), step), IMAGE)?;
    let labels: Vec<i64> = (0..IMAGES).map(|i| ((i * 31 + step) % 1000) as i64).collect();
    Ok([x, Tensor::new(d, &labels, [IMAGES])?])
}

fn token_inputs(d: &Device, step: usize) -> Result<[Tensor; 2]> {
    let tokens = |by: usize| (0..TEXTS * PLACES).map(|i| ((i * by + step * 7) % 256) as i64).collect::<Vec<_>>();
    Ok([Tensor::new(d, &tokens(31), [TEXTS, PLACES])?, Tensor::new(d, &tokens(17), [TEXTS * PLACES])?])
}

fn dense_inputs(d: &Device, step: usize) -> Result<[Tensor; 2]> {
    let values = |phase: usize| Tensor::new(d, &wave(TEXTS * PLACES * 384, phase), [TEXTS, PLACES, 384]);
    Ok([values(step)?, values(step + 100)?])
}

fn classes(net: &dyn Layer, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let logits = net.forward(x)?;
    let last = logits.dims().last().map_or(1, |&n| n as isize);
    loss::cross_entropy(&logits.reshape(&[-1, last])?, y)
}

fn distance(net: &dyn Layer, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    net.forward(x)?.sub(y)?.square()?.mean()
}

const CASES: [Case; 5] = [
    Case {
        name: "resnet18",
        network: |cx| Ok(Box::new(ResNet::new(cx, &ResNetConfig::resnet18())?)),
        inputs: image_inputs,
        loss: classes,
    },
    Case {
        name: "resnet50",
        network: |cx| Ok(Box::new(ResNet::new(cx, &ResNetConfig::resnet50())?)),
        inputs: image_inputs,
        loss: classes,
    },
    Case {
        name: "mobilenetv2",
        network: |cx| Ok(Box::new(MobileNetV2::new(cx, &MobileNetV2Config { dropout: 0.0, ..Default::default() })?)),
        inputs: image_inputs,
        loss: classes,
    },
    Case {
        name: "gpt",
        network: |cx| Ok(Box::new(Gpt::new(cx, &GptConfig::default())?)),
        inputs: token_inputs,
        loss: classes,
    },
    Case {
        name: "bert",
        network: |cx| Ok(Box::new(Transformer::new(cx, &TransformerConfig::default())?)),
        inputs: dense_inputs,
        loss: distance,
    },
];

/// FNV-1a.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Trains, and gives the hash of the weights.
fn train(case: &Case, device: &Device, is_compiled: bool) -> Result<u64> {
    let net: Rc<dyn Layer> = Rc::from((case.network)(&mut InitCx::new(device, 7))?);
    let sgd = Sgd::new(net.named_parameters(), SgdOptions { lr: 0.01, momentum: 0.9, ..SgdOptions::default() })?;
    let (inner, sgd, loss) = (net.clone(), Rc::new(RefCell::new(sgd)), case.loss);
    let step = move |x: &[Tensor]| {
        let loss = loss(&*inner, &x[0], &x[1])?;
        loss.backward()?;
        sgd.borrow_mut().step()?;
        Ok(vec![loss])
    };
    let mut compiled = is_compiled.then(|| compile(device, step.clone()));
    for i in 0..STEPS {
        let [x, y] = (case.inputs)(device, i)?;
        match &mut compiled {
            Some(compiled) => compiled.call(&[&x, &y])?,
            None => step(&[x, y])?,
        };
    }
    device.channel().sync()?;
    let state = net.state_dict()?;
    Ok(state.values().fold(0xcbf2_9ce4_8422_2325, |h, t| hash(h, t.bytes())))
}

fn device(budget_bytes: Option<usize>) -> Result<Device> {
    Device::cpu(DeviceOptions { threads: 2, budget_bytes, ..DeviceOptions::default() })
}

fn main() -> Result<()> {
    println!("| network | way | peak bytes | no budget | 100 % | 50 % | 35 % |\n|---|---|---|---|---|---|---|");
    for case in &CASES {
        for (way, is_compiled) in [("eager", false), ("compiled", true)] {
            let free = device(None)?;
            let want = train(case, &free, is_compiled)?;
            let peak = free.channel().stats()?.peak_bytes;
            print!("| {} | {way} | {peak} | {want:016x} |", case.name);
            for percent in [100, 50, 35] {
                let limited = device(Some(peak / 100 * percent))?;
                match train(case, &limited, is_compiled) {
                    Ok(got) => print!(" {got:016x} |"),
                    Err(e) if e.kind() == ErrorKind::Budget => print!(" refused |"),
                    Err(e) => return Err(e),
                }
                // what a refused run left unread is no failure of this program
                let _told = limited.channel().close();
            }
            println!();
        }
    }
    Ok(())
}
