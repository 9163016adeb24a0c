//! A linear layer fits two points.

use remat::prelude::*;
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let mut cx = nn::InitCx::new(&device, 1); // where parameters live, their dtype, and the seed
    let net = nn::Linear::new(&mut cx, 3, 1)?;
    let mut sgd = nn::Sgd::new(net.named_parameters(), nn::SgdOptions { lr: 0.02, ..Default::default() })?;

    let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 3.0, 2.0, 1.0], [2, 3])?;
    let target = Tensor::new(&device, &[1.0f32, -1.0], [2, 1])?;
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss = (net.forward(&x)? - &target)?.square()?.mean()?;
        loss.backward()?;
        sgd.step()?; // moves the parameters and takes their gradients
        losses.push(loss.item::<f32>()?);
    }
    assert!(losses[19] < losses[0]);
    Ok(())
}
