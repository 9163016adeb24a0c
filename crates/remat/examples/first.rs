//! The first example of the README: a network that learns XOR within a budget.

use remat::prelude::*;

fn main() -> Result<()> {
    const BUDGET: usize = 64 << 20; // bytes, for everything on the device
    let device = Device::cpu(DeviceOptions::with_budget(BUDGET))?;
    let mut cx = nn::InitCx::new(&device, 42);
    let net = nn::Sequential::new()
        .then(nn::Linear::new(&mut cx, 2, 16)?)
        .then(nn::Tanh)
        .then(nn::Linear::new(&mut cx, 16, 2)?);
    let options = nn::SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() };
    let mut sgd = nn::Sgd::new(net.named_parameters(), options)?;

    let x = Tensor::new(&device, &[0f32, 0., 0., 1., 1., 0., 1., 1.], [4, 2])?;
    let labels = Tensor::new(&device, &[0i64, 1, 1, 0], [4])?;
    for _ in 0..200 {
        net.forward(&x)?.cross_entropy(&labels)?.backward()?;
        sgd.step()?;
    }
    let correct = net.forward(&x)?.argmax_over(1, false)?.eq(&labels)?;
    assert!(correct.all()?.item::<bool>()?);
    assert!(device.channel().stats()?.peak_bytes <= BUDGET);
    Ok(())
}
