//! A network of `nn::models`.

use remat::nn::models::{ResNet, ResNetConfig};
use remat::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let config = ResNetConfig { classes: 10, ..ResNetConfig::resnet18() };
    let net = ResNet::new(&mut nn::InitCx::new(&device, 1), &config)?;
    let x = Tensor::zeros(&device, [2, 3, 32, 32], DType::F32)?;
    assert_eq!(net.forward(&x)?.dims(), [2, 10]);
    Ok(())
}
