use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Result};

/// Gradients of several batches for one step: as of one batch of them all, of losses that are means.
///
/// ```
/// # use remat_nn::{Accumulate, InitCx, Layer, Linear, Module, Optimizer, Reduction, Sgd, SgdOptions, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let net = Linear::new(&mut InitCx::new(&device, 1), 1, 1)?;
/// let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default())?;
/// let mut accumulate = Accumulate::new(2)?;
/// let mut steps = 0;
/// for _ in 0..4 {
///     let x = Tensor::new(&device, &[1.0f32, 2.0], [2, 1])?;
///     let loss = loss::mse(&net.forward(&x)?, &x, Reduction::Mean)?;
///     if accumulate.backward(&loss)? {
///         sgd.step()?;
///         steps += 1;
///     }
/// }
/// assert_eq!(steps, 2);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulate {
    batches: u64,
    done: u64,
}

impl Accumulate {
    /// A step for so many batches. Errors: Value for none.
    pub fn new(batches: u64) -> Result<Self> {
        if batches == 0 {
            return Err(Error::new(ErrorKind::Value, "a step takes at least one batch").with_op("accumulate"));
        }
        Ok(Accumulate { batches, done: 0 })
    }

    /// Adds the gradient of the loss over the number of batches to those of the parameters. True if that was the last of
    /// them: the step is due. Errors: those of [`Tensor::backward`], after which the batch does not count.
    #[track_caller]
    pub fn backward(&mut self, loss: &Tensor) -> Result<bool> {
        loss.div(self.batches as f64)?.backward()?;
        self.done = (self.done + 1) % self.batches;
        Ok(self.done == 0)
    }

    /// Begins a step anew, as after [`Optimizer::skip_step`](super::Optimizer::skip_step).
    pub fn restart(&mut self) {
        self.done = 0;
    }
}
