//! A training step as a compiled function.

use remat::prelude::*;
use std::{cell::RefCell, rc::Rc};
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let mut cx = nn::InitCx::new(&device, 42);
    let net = Rc::new(nn::Linear::new(&mut cx, 4, 2)?);
    let options = nn::SgdOptions { lr: 0.1, ..Default::default() };
    let sgd = Rc::new(RefCell::new(nn::Sgd::new(net.named_parameters(), options)?));
    let rate = sgd.borrow().learning_rate();

    let mut step = {
        let (net, sgd) = (net.clone(), sgd.clone());
        remat::compile(&device, move |batch: &[Tensor]| {
            let loss = net.forward(&batch[0])?.cross_entropy(&batch[1])?;
            loss.backward()?;
            sgd.borrow_mut().step()?;
            Ok(vec![loss.detach()])
        })
    };
    let x = Tensor::ones(&device, [8, 4], DType::F32)?;
    let labels = Tensor::zeros(&device, [8], DType::I64)?;
    let first = step.call(&[&x, &labels])?[0].item::<f32>()?;
    rate.set(0.05); // read by every run
    let second = step.call(&[&x, &labels])?[0].item::<f32>()?;
    assert!(second < first);
    assert_eq!(step.traces(), 1);
    Ok(())
}
