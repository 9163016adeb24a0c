//! A network of another framework is given a new head: its weights come from a safetensors file by name, all but the head stay
//! as they are, and only the head is trained.

use std::collections::BTreeMap;

use remat::nn::{InitCx, loss};
use remat::prelude::*;
use remat::types::{HostTensor, read_safetensors, write_safetensors};

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

/// The other framework's names, as data: what a name begins with there, and here.
const NAMES: &[(&str, &str)] = &[("backbone.fc1.", "body.0."), ("backbone.fc2.", "body.2.")];

/// The state under this network's names. What has no name here, such as the old head, is left out.
fn renamed(state: BTreeMap<String, HostTensor>) -> BTreeMap<String, HostTensor> {
    let name = |n: &str| NAMES.iter().find_map(|(theirs, ours)| Some(format!("{ours}{}", n.strip_prefix(theirs)?)));
    state.into_iter().filter_map(|(n, t)| Some((name(&n)?, t))).collect()
}

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let path = std::env::temp_dir().join(format!("remat-pretrained-{}.safetensors", std::process::id()));
    write_pretrained(&device, &path)?;

    let net = Net::new(&mut InitCx::new(&device, 2), 3)?;
    let report = net.load_state_dict(&renamed(read_safetensors(&std::fs::read(&path)?)?.0), false)?;
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
    let theirs = |n: &str| {
        let body = NAMES.iter().find_map(|(theirs, ours)| Some(format!("{theirs}{}", n.strip_prefix(ours)?)));
        body.unwrap_or_else(|| format!("classifier.{n}"))
    };
    let state: BTreeMap<String, HostTensor> = trained.state_dict()?.into_iter().map(|(n, t)| (theirs(&n), t)).collect();
    Ok(std::fs::write(path, write_safetensors(&state, &BTreeMap::new())?)?)
}
