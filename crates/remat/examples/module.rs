//! A network as a struct of layers.

use remat::prelude::*;

#[derive(Module)]
struct Block {
    conv: nn::Conv2d,
    norm: nn::BatchNorm2d,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norm.forward(&self.conv.forward(x)?)?;
        (y + x)?.relu()
    }
}

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let mut cx = nn::InitCx::new(&device, 1);
    let options = nn::Conv2dOptions { padding: 1.into(), bias: false, ..Default::default() };
    let block = Block { conv: nn::Conv2d::with(&mut cx, 4, 4, 3, options)?, norm: nn::BatchNorm2d::new(&mut cx, 4)? };
    let names = |list: Vec<(String, nn::Parameter)>| list.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(block.named_parameters()), ["conv.weight", "norm.weight", "norm.bias"]);
    assert_eq!(names(block.named_buffers()), ["norm.running_mean", "norm.running_var"]);

    let x = Tensor::ones(&device, [2, 4, 8, 8], DType::F32)?;
    assert_eq!(block.forward(&x)?.dims(), [2, 4, 8, 8]);
    block.eval(); // running statistics from now on
    Ok(())
}
