//! A step of each network changes the same bits eagerly, compiled, and under budgets.

use std::collections::BTreeMap;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions, Stats};
use remat_tensor::{Tensor, compile};
use remat_types::{HostTensor, Result, Shape};
use remat_zoo::models::*;

use crate::support::wave32;
use crate::weights::{network, token_ids};

/// A network with a loss of its own.
enum Net {
    Layer(Box<dyn Layer>),
    Vae(Box<Vae>),
    Diffusion(Box<DiffusionUNet>),
}

impl Net {
    fn new(name: &str, cx: &mut InitCx) -> Result<Net> {
        Ok(match name {
            "vae" => Net::Vae(Box::new(Vae::new(cx, &VaeConfig { inputs: 3 * 32 * 32, hidden: 16, code: 4 })?)),
            "diffusion" => {
                let config = DiffusionConfig { channels: 3, dropout: 0.1, ..DiffusionConfig::small() };
                Net::Diffusion(Box::new(DiffusionUNet::new(cx, &config)?))
            }
            "unet" => {
                let config = UNetConfig { widths: vec![4, 8, 12], ..UNetConfig::default() };
                Net::Layer(Box::new(UNet::new(cx, &config)?))
            }
            "bert" => {
                let config = BertConfig { layers: 2, width: 32, heads: 4, hidden: 48, ..BertConfig::base() };
                Net::Layer(Box::new(Bert::new(cx, &BertConfig { vocabulary: 50, sequence: 16, ..config })?))
            }
            "lstm" => {
                let config = LstmLmConfig { layers: 2, width: 16, vocabulary: 50, dropout: 0.2 };
                Net::Layer(Box::new(LstmLm::new(cx, &config)?))
            }
            other => Net::Layer(network(other, cx)?),
        })
    }

    fn module(&self) -> &dyn Module {
        match self {
            Net::Layer(net) => net,
            Net::Vae(net) => net,
            Net::Diffusion(net) => &**net,
        }
    }

    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Net::Layer(net) => net.forward(x)?.square()?.mean(),
            Net::Vae(net) => net.loss(&x.sigmoid()?.flatten_from(1)?),
            Net::Diffusion(net) => {
                let steps = Tensor::new(&x.device(), &[3i64, 500], [2])?;
                net.forward(x, &steps)?.sub(x)?.square()?.mean()
            }
        }
    }
}

type Bits = (HostTensor, BTreeMap<String, HostTensor>);

/// The loss and the state behind a step.
fn step(name: &str, budget: Option<usize>, compiled: bool) -> Result<(Bits, Stats)> {
    let options = DeviceOptions { budget_bytes: budget, always_record: true, threads: 1, ..DeviceOptions::default() };
    let d = Device::cpu(options)?;
    let net = Net::new(name, &mut InitCx::new(&d, 5))?;
    let mut sgd = Sgd::new(net.module().named_parameters(), SgdOptions { lr: 1e-3, ..SgdOptions::default() })?;
    let x = if ["llama", "bert", "lstm"].contains(&name) {
        token_ids("x", [2, 7], 50.0)
    } else {
        let shape = Shape::from([2, 3, 32, 32]);
        HostTensor::from_slice(&wave32(shape.iter().product(), 0.3), shape)?
    };
    let x = Tensor::from_host(&d, &x)?;
    let mut once = |x: &[Tensor]| {
        let loss = net.loss(&x[0])?;
        loss.backward()?;
        sgd.step()?;
        Ok(vec![loss.detach()])
    };
    let loss = if compiled { compile(&d, once).call(&[&x])? } else { once(&[x])? };
    let loss = loss[0].to_host()?;
    d.channel().sync()?;
    Ok(((loss, net.module().state_dict()?), d.channel().stats()?))
}

#[test]
fn a_step_of_each_network_changes_the_same_bits_compiled_and_under_budgets() {
    let names = [
        "resnext",
        "vgg",
        "mobilenet_v3_small",
        "efficientnet_b0",
        "convnext",
        "densenet",
        "shufflenet_x0_5",
        "vit",
        "llama",
        "bert",
        "lstm",
        "unet",
        "vae",
        "diffusion",
    ];
    for name in names {
        let (free, stats) = step(name, None, false).expect(name);
        assert!(free.0.to_f64_vec()[0].is_finite(), "{name}");
        assert!(step(name, None, true).expect(name).0 == free, "{name}: compiled, bits differ");
        let (peak, least) = (stats.peak_bytes, stats.least_budget_bytes);
        let mut budget = least + (peak - least) / 2;
        let (tight, own) = step(name, Some(budget), false).unwrap_or_else(|e| {
            // The smallest feasible budget of the error suffices.
            budget = e.shortfall().map_or(0, |s| s.smallest_feasible_bytes);
            assert!(budget <= peak, "{name}: {budget} of {peak}: {e}");
            step(name, Some(budget), false).unwrap_or_else(|e| panic!("{name}: {budget} of {peak}: {e}"))
        });
        assert!(own.peak_bytes <= budget, "{name}: peak {}", own.peak_bytes);
        assert!(tight == free, "{name}: under {budget} of {peak}, bits differ");
    }
}
