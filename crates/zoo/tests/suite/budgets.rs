//! Training a network below what is feasible: the bits of a run without a budget, or an error that says so.

use remat_nn::*;
use remat_runtime::{AsyncLevel, Device, DeviceOptions, Foresight};
use remat_tensor::Tensor;
use remat_types::Result;
use remat_zoo::models::{ResNet, ResNetConfig};

use crate::support::{Weights, is_the_same_or_refused, wave32};

/// Two training steps of a network with classes, without a read on the way.
fn train_classes(d: &Device, net: &ResNet, x: [usize; 4]) -> Result<Weights> {
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions { lr: 0.05, ..SgdOptions::default() })?;
    for step in 0..2 {
        let images = Tensor::new(d, &wave32(x.iter().product(), f64::from(step)), x)?;
        let labels = Tensor::new(d, &(0..x[0] as i64).collect::<Vec<_>>(), [x[0]])?;
        loss::cross_entropy(&net.forward(&images)?, &labels)?.backward()?;
        sgd.step()?;
    }
    d.channel().sync()?;
    Ok(net.state_dict()?.into_iter().collect())
}

#[test]
fn resnet18_gives_the_bits_or_an_error_at_every_percent_of_its_peak_and_luck_has_no_part_in_it() {
    let run = |d: &Device| {
        let net = ResNet::new(&mut InitCx::new(d, 7), &ResNetConfig { classes: 10, ..ResNetConfig::resnet18() })?;
        train_classes(d, &net, [4, 3, 64, 64])
    };
    let options = DeviceOptions { threads: 2, ..DeviceOptions::default() };
    let free = Device::cpu(options.clone()).expect("a CPU");
    let want = run(&free).expect("no budget");
    let peak = free.channel().stats().expect("open").peak_bytes;
    let under = |bytes: usize, async_level, foresight| {
        let options = DeviceOptions { budget_bytes: Some(bytes), async_level, foresight, ..options.clone() };
        is_the_same_or_refused(options, &want, run)
    };
    let mut least = 101;
    for percent in (1..=100).rev() {
        if under(peak * percent / 100, AsyncLevel::Full, Foresight::Beside) {
            assert_eq!(least, percent + 1, "{percent} % suffices and {} % did not", percent + 1);
            least = percent;
        }
    }
    // Where the worker sees nothing of what is to come, other things are there when memory is short.
    for part in (least * 8 - 24..least * 8 + 24).step_by(4) {
        let outcomes = [AsyncLevel::Full, AsyncLevel::Launched, AsyncLevel::Full, AsyncLevel::Sync]
            .map(|level| under(peak * part / 800, level, Foresight::Off));
        assert!(outcomes.iter().all(|o| *o == outcomes[0]), "{part} of 800 are a matter of luck: {outcomes:?}");
    }
    println!("{least} % of {peak} bytes suffice");
    assert!(least <= 90, "{least} % of the peak");
}
