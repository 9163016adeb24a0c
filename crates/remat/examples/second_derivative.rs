//! The gradient of a gradient.

use remat::prelude::*;
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let x = Tensor::new(&device, &[2.0], [1])?.requires_grad()?;
    let y = (x.square()? * &x)?; // x^3
    let [Some(dy)] = &remat::grad(&y, &[&x], true)?[..] else { panic!("y depends on x") };
    let [Some(ddy)] = &remat::grad(dy, &[&x], false)?[..] else { panic!("so does its gradient") };
    assert_eq!(dy.to_vec::<f32>()?, [12.0]); // 3 x^2
    assert_eq!(ddy.to_vec::<f32>()?, [12.0]); // 6 x
    Ok(())
}
