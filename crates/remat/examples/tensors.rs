//! Broadcasting, products and sums.

use remat::prelude::*;
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let a = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
    let b = Tensor::new(&device, &[10.0f32, 20.0], [2, 1])?;
    assert_eq!((&a + &b)?.to_vec::<f32>()?, [11.0, 12.0, 13.0, 24.0, 25.0, 26.0]);
    assert_eq!(a.t()?.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(a.matmul(&a.t()?)?.dims(), [2, 2]);
    assert_eq!(a.sum_over(&[0], false)?.to_vec::<f32>()?, [5.0, 7.0, 9.0]);

    let error = a.matmul(&a).unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Shape, Some("matmul")));
    Ok(())
}
