use remat_ops::pointwise::{Binary, BinaryFn};
use remat_tensor::Tensor;
use remat_types::{ErrorKind, Result, axis_of};

use crate::{Init, InitCx, Label, Layer, Module, Parameter};

/// How a [`Linear`] layer is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearOptions {
    /// Add a bias. Default: true.
    pub bias: bool,
    /// Default: [`Init::DEFAULT_WEIGHT`].
    pub weight_init: Init,
    /// Default (`None`): uniform in `-b .. b`, `b = 1 / sqrt in`.
    pub bias_init: Option<Init>,
}

impl Default for LinearOptions {
    fn default() -> Self {
        LinearOptions { bias: true, weight_init: Init::DEFAULT_WEIGHT, bias_init: None }
    }
}

/// `y = x weight^T + bias`; `x: [.., in]`, `y: [.., out]`, `weight: [out, in]`, `bias: [out]`.
///
/// Errors: Axis for an `x` of rank 0, Shape for another last extent.
#[derive(Module)]
#[module(crate = crate)]
pub struct Linear {
    #[module(flatten)]
    label: Label,
    /// `[out, in]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// A layer from `inputs` to `outputs` numbers, with a bias. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize) -> Result<Self> {
        Linear::with(cx, inputs, outputs, LinearOptions::default())
    }

    /// As [`Linear::new`] with options. Errors: also those of the initialisers.
    pub fn with(cx: &mut InitCx, inputs: usize, outputs: usize, options: LinearOptions) -> Result<Self> {
        let weight = cx.parameter([outputs, inputs], options.weight_init)?;
        let init = options.bias_init.unwrap_or_else(|| bias_init(inputs));
        let bias = if options.bias { Some(cx.parameter([outputs], init)?) } else { None };
        Ok(Linear { label: Label::of_layer("linear"), weight, bias })
    }
}

/// PyTorch's rule for biases: uniform in `-b .. b`, `b = 1 / sqrt fan_in`.
pub(crate) fn bias_init(fan_in: usize) -> Init {
    let b = 1.0 / (fan_in.max(1) as f64).sqrt();
    Init::Uniform { lo: -b, hi: b }
}

impl Layer for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            let y = product(x, &self.weight.get()?)?;
            match &self.bias {
                Some(bias) => plus(y, bias.get()?),
                None => Ok(y),
            }
        })
    }
}

/// `x weight^T`. Errors: as [`Linear`].
#[track_caller]
pub(crate) fn product(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    axis_of(-1, x.rank())?;
    let transposed = weight.t()?;
    let y = match x.rank() {
        1 => x.unsqueeze(0)?.matmul(&transposed).and_then(|y| y.squeeze(&[0])),
        _ => x.matmul(&transposed),
    };
    y.map_err(|e| match (x.shape().dims().last(), weight.shape().dims().last()) {
        (Some(given), Some(taken)) if e.kind() == ErrorKind::Shape && given != taken => {
            e.context(format!("the input has {given} features along its last axis, the layer takes {taken}"))
        }
        _ => e,
    })
}

/// `a + b`, in place where `a` was the last handle on its tensor.
pub(crate) fn plus(a: Tensor, b: Tensor) -> Result<Tensor> {
    Tensor::apply_owned(Binary { f: BinaryFn::Add }, [a, b])
}
