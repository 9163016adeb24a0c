//! A network of another framework is given a new head: its weights come from a safetensors file by name, all but the head stay
//! as they are, and only the head is trained.

use std::collections::BTreeMap;

use remat::nn::{InitCx, loss};
use remat::prelude::*;
use remat::types::{HostTensor, write_safetensors};

/// Features of an image in a vector, and a head for some classes.
#[derive(Module)]
struct Net {
    body: nn::Sequential,
    head: nn::Linear,
}

impl Net {
    fn new(cx: &mut InitCx, classes: usize) -> Result<Net> {
        let body = nn::Sequential::new()
            .then(nn::Linear::new(cx, 16, 32)?)
            .then(nn::Relu)
            .then(nn::Linear::new(cx, 32, 24)?)
            .then(nn::Relu);
        Ok(Net { body, head: nn::Linear::new(cx, 24, classes)? })
    }
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.body.forward(x)?)
    }
}

/// The other framework's names, as data. Its head is for other classes, and is not taken.
const NAMES: &str = "
    backbone.fc1.{p} -> body.0.{p}
    backbone.fc2.{p} -> body.2.{p}
    classifier.{p} -> -";

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let path = std::env::temp_dir().join(format!("remat-pretrained-{}.safetensors", std::process::id()));
    write_pretrained(&device, &path)?;

    let net = Net::new(&mut InitCx::new(&device, 2), 3)?;
    let report = nn::load_weights_partly(&net, &path, &nn::NameMap::parse(NAMES)?)?;
    println!("{report}"); // the head is missing in the file: it begins anew
    assert_eq!((report.matched.len(), report.missing.len()), (4, 2));
    net.body.set_frozen(true);
    let before = net.body.state_dict()?;

    // the optimiser gets what is trained
    let mut adam = nn::AdamW::new(net.head.named_parameters(), nn::AdamWOptions { lr: 0.02, ..Default::default() })?;
    let key = Tensor::new(&device, &[5u64, 0], [2])?;
    let x = Tensor::normal(&key, [48, 16], DType::F32, 0.0, 1.0)?;
    let labels = x.i((.., 0..3))?.argmax_over(1, false)?;
    let mut losses = Vec::new();
    for _ in 0..60 {
        let loss = loss::cross_entropy(&net.forward(&x)?, &labels)?;
        loss.backward()?;
        adam.step()?;
        losses.push(loss.item::<f32>()?);
    }
    println!("loss {:.3} at first, {:.3} at last", losses[0], losses[59]);
    assert!(losses[59] < 0.8 * losses[0]);
    assert!(net.body.state_dict()? == before, "frozen layers stay as they are, bit for bit");
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Stands for the file that another framework wrote.
fn write_pretrained(device: &Device, path: &std::path::Path) -> Result<()> {
    let trained = Net::new(&mut InitCx::new(device, 1), 10)?;
    let theirs = |n: &str| match n.split_once('.') {
        Some(("body", n)) => format!("backbone.{}", n.replacen("0.", "fc1.", 1).replacen("2.", "fc2.", 1)),
        _ => n.replacen("head", "classifier", 1),
    };
    let state: BTreeMap<String, HostTensor> = trained.state_dict()?.into_iter().map(|(n, t)| (theirs(&n), t)).collect();
    Ok(std::fs::write(path, write_safetensors(&state, &BTreeMap::new())?)?)
}
