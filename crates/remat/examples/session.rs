//! A compiled function in memory of its own.

use remat::prelude::*;
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let mut f = remat::compile(&device, |x: &[Tensor]| {
        let y = x[0].tanh()?;
        Ok(vec![y.sum()?, y])
    });
    let x = Tensor::zeros(&device, [4], DType::F32)?;
    let mut session = f.session(&[&x])?;
    session.input_as_mut::<f32>(0)?.copy_from_slice(&[1.0, 0.0, -1.0, 0.5]);
    session.run()?;
    let sum = session.output(0)?.as_slice::<f32>()?[0];

    let mut own = [0f32; 4]; // the caller's memory: kernels write there, nothing is copied
    session.run_into(&mut [None, Some(bytemuck::cast_slice_mut(&mut own))])?;
    assert_eq!(own.iter().sum::<f32>(), sum);

    session.on_output(0, |y| println!("{:?}", y.bytes))?; // as soon as it is there
    session.start()?; // on a thread of the session
    session.wait()?;
    Ok(())
}
