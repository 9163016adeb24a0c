//! The same bits with and without a budget.

use remat::prelude::*;
fn loss_and_gradient(budget: Option<usize>) -> Result<(f32, Vec<f32>, u64)> {
    let device = Device::cpu(DeviceOptions { budget_bytes: budget, ..Default::default() })?;
    let w = Tensor::full(&device, [128, 128], DType::F32, 0.5)?.requires_grad()?;
    let mut x = w.clone();
    for _ in 0..60 {
        x = x.sin()?;
    }
    let loss = x.mean()?;
    loss.backward()?;
    let gradient = w.grad().expect("the loss depends on w").to_vec()?;
    Ok((loss.item()?, gradient, device.channel().stats()?.recomputed_ops))
}

fn main() -> Result<()> {
    let (loss, gradient, recomputed) = loss_and_gradient(None)?;
    assert_eq!(recomputed, 0);
    let (tight_loss, tight_gradient, recomputed) = loss_and_gradient(Some(1 << 20))?;
    assert!(recomputed > 0);
    assert_eq!((loss.to_bits(), gradient), (tight_loss.to_bits(), tight_gradient));
    Ok(())
}
