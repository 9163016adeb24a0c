//! A data set of one's own and a convolutional network, with validation after each epoch and the best weights kept.

use remat::nn::{Checkpoint, DataLoader, Dataset, InitCx, LoaderOptions, TrainState, loss};
use remat::prelude::*;
use remat::types::HostTensor;

/// Images of a bar, which stands or lies: made from the number of the example, as a file would be read.
struct Bars {
    first: usize,
    len: usize,
}

impl Dataset for Bars {
    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>> {
        const SIZE: usize = 12;
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for i in indices.iter().map(|i| i + self.first) {
            let (lies, place) = (i % 2 == 0, 1 + (i / 2) % (SIZE - 2));
            let noise = |at: usize| ((i * 31 + at * 17) % 101) as f32 / 400.0;
            let on_bar = |at: usize| (if lies { at / SIZE } else { at % SIZE }) == place;
            images.extend((0..SIZE * SIZE).map(|at| noise(at) + if on_bar(at) { 1.0 } else { 0.0 }));
            labels.push(i64::from(lies));
        }
        let n = indices.len();
        Ok(vec![HostTensor::from_slice(&images, [n, 1, SIZE, SIZE])?, HostTensor::from_slice(&labels, [n])?])
    }
}

#[derive(Module)]
struct Net {
    a: nn::Conv2d,
    norm: nn::BatchNorm2d,
    b: nn::Conv2d,
    head: nn::Linear,
}

impl Net {
    fn new(cx: &mut InitCx) -> Result<Net> {
        Ok(Net {
            a: nn::Conv2d::new(cx, 1, 8, 3)?,
            norm: nn::BatchNorm2d::new(cx, 8)?,
            b: nn::Conv2d::new(cx, 8, 16, 3)?,
            head: nn::Linear::new(cx, 16, 2)?,
        })
    }
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.norm.forward(&self.a.forward(x)?)?.relu()?;
        let x = self.b.forward(&x)?.relu()?.max_over(&[2, 3], false)?;
        self.head.forward(&x)
    }
}

/// The share of examples that the network gets right, which it sees without training.
fn accuracy(net: &Net, loader: &mut DataLoader) -> Result<f32> {
    let _quiet = no_grad();
    net.eval();
    let (mut right, mut seen) = (0.0, 0);
    while let Some(batch) = loader.next_batch()? {
        let hits = net.forward(&batch[0])?.argmax_over(1, false)?.eq(&batch[1])?;
        right += hits.cast(DType::F32)?.sum()?.item::<f32>()?;
        seen += batch[1].elems();
    }
    net.train();
    Ok(right / seen as f32)
}

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::with_budget(8 << 20))?; // 8 MiB, whatever happens
    let net = Net::new(&mut InitCx::new(&device, 1))?;
    let mut adam = nn::AdamW::new(net.named_parameters(), nn::AdamWOptions { lr: 0.01, ..Default::default() })?;
    let options = LoaderOptions { batch_size: 20, shuffle: Some(7), ..Default::default() };
    let mut training = DataLoader::new(&device, Bars { first: 0, len: 160 }, options)?;
    let mut validation = DataLoader::new(&device, Bars { first: 160, len: 40 }, LoaderOptions::default())?;

    let best_dir = std::env::temp_dir().join(format!("remat-cnn-{}", std::process::id()));
    let mut best = 0.0;
    for epoch in 0..6 {
        let mut total = 0.0;
        while let Some(batch) = training.next_batch()? {
            let loss = loss::cross_entropy(&net.forward(&batch[0])?, &batch[1])?;
            loss.backward()?;
            adam.step()?;
            total += loss.item::<f32>()?;
        }
        let share = accuracy(&net, &mut validation)?;
        println!("epoch {epoch}: loss {:.3}, validation {:.0} %", total / training.batches() as f32, 100.0 * share);
        if share > best {
            best = share;
            Checkpoint::save(&best_dir, &net, None, &TrainState { step: epoch, ..Default::default() })?;
        }
    }
    Checkpoint::load(&best_dir)?.restore(&net, None)?;
    assert!(accuracy(&net, &mut validation)? >= 0.9, "bars are easy");
    std::fs::remove_dir_all(&best_dir)?;
    Ok(())
}
