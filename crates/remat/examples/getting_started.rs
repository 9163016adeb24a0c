//! A device, a tensor, and what is computed of it.

use remat::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::with_budget(16 << 20))?;
    let x = Tensor::arange(&device, 0, 6, 1, DType::F32)?.reshape(&[2, 3])?;
    let mean = x.mean_over(&[-1], true)?;
    let y = (&x - &mean)?;
    assert_eq!(y.dims(), [2, 3]);
    assert_eq!(y.to_vec::<f32>()?, [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
    Ok(())
}
