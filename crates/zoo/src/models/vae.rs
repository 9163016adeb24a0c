use remat_nn::{InitCx, Layer, Linear, Module, RngCell, extents};
use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

/// Which [`Vae`]. The default is for digits of 28 x 28: 400 hidden numbers, 20 of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaeConfig {
    /// Numbers of an example.
    pub inputs: usize,
    /// Numbers of the hidden layers.
    pub hidden: usize,
    /// Numbers of the code.
    pub code: usize,
}

impl Default for VaeConfig {
    fn default() -> Self {
        VaeConfig { inputs: 784, hidden: 400, code: 20 }
    }
}

/// A variational autoencoder (Kingma and Welling, ICLR 2014) of examples `[n, inputs]` with elements in 0 ..= 1: a normal
/// distribution of codes for each, and logits of Bernoulli distributions for each code. The default has 652,824 parameters.
///
/// ```
/// use remat_zoo::models::{Vae, VaeConfig};
/// use remat_nn::InitCx;
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # use remat_types::DType;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let vae = Vae::new(&mut InitCx::new(&device, 1), &VaeConfig { inputs: 8, hidden: 6, code: 2 })?;
/// let x = Tensor::full(&device, [3, 8], DType::F32, 0.5)?;
/// vae.loss(&x)?.backward()?;
/// let drawn = vae.decode(&Tensor::zeros(&device, [1, 2], DType::F32)?)?.sigmoid()?;
/// assert_eq!(drawn.dims(), [1, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Vae {
    encoder: Linear,
    mean: Linear,
    log_var: Linear,
    decoder: Linear,
    head: Linear,
    rng: RngCell,
}

impl Vae {
    /// A network with scopes named `vae`. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &VaeConfig) -> Result<Self> {
        let VaeConfig { inputs, hidden, code } = *config;
        let net = Vae {
            encoder: Linear::new(cx, inputs, hidden)?,
            mean: Linear::new(cx, hidden, code)?,
            log_var: Linear::new(cx, hidden, code)?,
            decoder: Linear::new(cx, code, hidden)?,
            head: Linear::new(cx, hidden, inputs)?,
            rng: RngCell::new(cx.rng.split()),
        };
        net.name_scopes("vae");
        Ok(net)
    }

    /// Mean and logarithm of the variance of each code, `[n, code]` both. Errors: Shape for another number of inputs.
    #[track_caller]
    pub fn encode(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let _site = Scope::at(CallSite::here());
        let y = self.encoder.forward(x)?.relu()?;
        Ok([self.mean.forward(&y)?, self.log_var.forward(&y)?])
    }

    /// Logits of examples, `[n, inputs]`, for codes `[n, code]`. Errors: Shape for another size of the codes.
    #[track_caller]
    pub fn decode(&self, code: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.head.forward(&self.decoder.forward(code)?.relu()?)
    }

    /// The negative evidence bound of `x`, in nats an example (equation 10 of the paper, with one drawn code): cross entropy
    /// of the
    /// logits, and the divergence of the codes' distribution from the standard normal one.
    ///
    /// Errors: Axis unless `x` is `[n, inputs]`, Shape for another number of inputs or no examples.
    #[track_caller]
    pub fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [n, _] = extents(x, "vae")?;
        if n == 0 {
            return Err(Error::new(ErrorKind::Shape, "no examples, of which to take a mean").with_op("vae"));
        }
        let [mean, log_var] = self.encode(x)?;
        let key = self.rng.next_key(&x.device())?;
        let noise = Tensor::normal(&key, mean.shape().clone(), mean.dtype(), 0.0, 1.0)?;
        let code = mean.add(noise.mul(log_var.mul(0.5)?.exp()?)?)?;
        let logits = self.decode(&code)?;
        // -log p(x | code) is softplus(z) - x z of each element
        let told = logits.softplus()?.sub(logits.mul(x)?)?.sum()?;
        let apart = mean.square()?.add(log_var.exp()?)?.sub(&log_var)?.sub(1.0)?.sum()?.mul(0.5)?;
        told.add(apart)?.div(n as f64)
    }
}
