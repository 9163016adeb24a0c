//! A budget that cannot be met is an error with figures, and the device goes on.

use remat::prelude::*;
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::with_budget(1 << 20))?;
    let kept = Tensor::new(&device, &[1.0f32; 1000], [1000])?;
    let error = Tensor::ones(&device, [1000, 1000], DType::F32)?.sum()?.item::<f32>().unwrap_err();
    let figures = error.shortfall().expect("an error of kind Budget has them");
    assert_eq!(figures.budget_bytes, 1 << 20);
    assert!(figures.needed_bytes >= 4_000_000);

    device.channel().set_budget(Some(8 << 20))?; // the same device goes on
    assert_eq!(Tensor::ones(&device, [1000, 1000], DType::F32)?.sum()?.item::<f32>()?, 1e6);
    assert_eq!(kept.sum()?.item::<f32>()?, 1000.0);
    Ok(())
}
