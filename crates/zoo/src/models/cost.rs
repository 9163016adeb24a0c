use remat_runtime::Device;
use remat_tensor::{CompileOptions, Tensor, compile_with, no_grad};
use remat_types::Result;

/// Operators whose work is products that are summed.
const PRODUCTS: [&str; 5] = ["attention", "conv2d", "matmul", "matmul_wide", "recurrent"];

/// Multiplications that are added up in one call of `f`, by convolutions, matrix products, attention and recurrent layers: what
/// papers call FLOPs, or multiply-adds. Nothing is computed; on a [`Device::dry`] nothing needs memory.
///
/// Of causal attention only the pairs of places that see each other count. Errors: those of `f`.
///
/// ```
/// use remat_zoo::models::{ResNet, ResNetConfig, multiply_adds};
/// use remat_nn::{InitCx, Layer, Module};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # use remat_types::DType;
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::dry(DeviceOptions::default())?;
/// let net = ResNet::new(&mut InitCx::new(&device, 1), &ResNetConfig::resnet18())?;
/// net.eval();
/// let x = Tensor::zeros(&device, [1, 3, 224, 224], DType::F32)?;
/// assert_eq!(multiply_adds(&device, &[&x], |x| net.forward(&x[0]))?, 1_814_073_344);
/// # Ok(())
/// # }
/// ```
pub fn multiply_adds(device: &Device, x: &[&Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<u64> {
    // layers as they were traced: no pass has fused another op into a product
    let mut options = CompileOptions::default();
    options.passes.level = 0;
    let mut traced = compile_with(device, options, move |x: &[Tensor]| {
        let _quiet = no_grad();
        Ok(vec![f(x)?])
    });
    let graph = traced.graph(x)?;
    let products = graph.nodes().iter().filter(|n| PRODUCTS.contains(&n.op.label()));
    Ok(products.map(|n| graph.node_cost(n).flops / 2).sum())
}
