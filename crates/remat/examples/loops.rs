//! Loops and conditionals of tensors, with gradients.

use remat::prelude::*;
use remat::{Collect, ScanOptions, cond, fori_loop, scan, while_loop};
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let w = Tensor::new(&device, &[0.5f32, 0.25], [2])?.requires_grad()?;
    let x = Tensor::ones(&device, [2], DType::F32)?;

    let y = fori_loop(3, &[&x], |_, c| Ok(vec![(&c[0] * &w)?]))?;
    let (y2, steps) = while_loop(100, &[&x], |_, c| {
        let next = (&c[0] * &w)?;
        let go_on = next.sum()?.gt(0.1)?; // read when it runs
        Ok((vec![next], go_on))
    })?;
    assert_eq!(steps.item::<i64>()?, 4);

    let rows = Tensor::ones(&device, [5, 2], DType::F32)?;
    let (end, all) = scan(&ScanOptions::default(), &[&x], &[&rows], |_, c, row| {
        let h = ((&c[0] * &w)? + &row[0])?;
        Ok((vec![h.clone()], vec![Collect::All(h.clone()), Collect::Sum(h)]))
    })?;
    assert_eq!(all[0].dims(), [5, 2]);

    let z = cond(&y[0].sum()?.gt(1.0)?, &[&end[0]], |x| Ok(vec![x[0].exp()?]), |x| Ok(vec![x[0].neg()?]))?;
    (z[0].sum()? + y2[0].sum()?)?.backward()?;
    assert!(w.grad().is_some());
    Ok(())
}
