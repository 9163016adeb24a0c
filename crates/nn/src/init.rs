//! How parameters begin.
//!
//! Values are drawn on the device by the random ops, from keys of an explicit [`Rng`]: the same seed gives the same
//! network on any machine, whatever the budget and the number of threads.

use std::collections::VecDeque;
use std::f64::consts::SQRT_2;

use remat_ops::eval_inline;
use remat_ops::pointwise::{Unary, UnaryFn};
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::context::Part;
use remat_types::{DType, Error, ErrorKind, HostTensor, Result, Shape};
use serde::{Deserialize, Serialize};

use crate::{Parameter, Rng, Role};

/// Which fan scales a Kaiming initialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fan {
    /// Inputs of an output: keeps the variance of the forward pass.
    #[default]
    In,
    /// Outputs of an input: keeps the variance of the backward pass.
    Out,
}

/// The function that follows a layer. Its gain restores the variance that the function removes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gain {
    /// None: 1.
    Linear,
    /// 1.
    Sigmoid,
    /// 5/3.
    Tanh,
    /// `sqrt 2`.
    Relu,
    /// `sqrt(2 / (1 + slope^2))`.
    LeakyRelu(f64),
    /// 3/4.
    Selu,
    /// A number of one's own.
    Is(f64),
}

impl Gain {
    /// The number, as `torch.nn.init.calculate_gain` gives it.
    pub fn value(self) -> f64 {
        match self {
            Gain::Linear | Gain::Sigmoid => 1.0,
            Gain::Tanh => 5.0 / 3.0,
            Gain::Relu => SQRT_2,
            Gain::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Gain::Selu => 0.75,
            Gain::Is(v) => v,
        }
    }
}

/// A rule for the first value of a parameter.
///
/// `fan_in` of a weight `[out, in, r, s]` is `in r s`, `fan_out` is `out r s`; the rules that use them need rank 2.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// 0.
    Zeros,
    /// 1.
    Ones,
    /// One number.
    Constant(f64),
    /// Uniform in `lo .. hi`.
    Uniform {
        /// Least.
        lo: f64,
        /// Upper end.
        hi: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Normal, drawn again (in effect) until it lies in `lo ..= hi`: `mean + std sqrt2 erfinv(u)`.
    TruncatedNormal {
        /// Mean before the cut.
        mean: f64,
        /// Standard deviation before the cut.
        std: f64,
        /// Least.
        lo: f64,
        /// Largest.
        hi: f64,
    },
    /// Uniform in `-b .. b` with `b = gain sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio, 2010).
    XavierUniform(Gain),
    /// Normal with `std = gain sqrt(2 / (fan_in + fan_out))`.
    XavierNormal(Gain),
    /// Uniform in `-b .. b` with `b = gain sqrt(3 / fan)` (He et al., 2015).
    KaimingUniform(Gain, Fan),
    /// Normal with `std = gain / sqrt fan`.
    KaimingNormal(Gain, Fan),
}

impl Init {
    /// PyTorch's rule for the weights of linear layers and convolutions: uniform in `-b .. b`, `b = 1 / sqrt fan_in`.
    pub const DEFAULT_WEIGHT: Init = Init::KaimingUniform(Gain::LeakyRelu(SQRT_5), Fan::In);

    /// A tensor on `device`, from the next key of `rng` if the rule draws.
    ///
    /// Errors: DType for a rule that draws and a dtype that is no float; Value for numbers outside their domain; Axis
    /// for a rule with fans and a rank below 2; Shape if it is too large to address.
    pub fn tensor(&self, device: &Device, shape: impl Into<Shape>, dtype: DType, rng: &mut Rng) -> Result<Tensor> {
        let shape = shape.into();
        match *self {
            Init::Zeros => Tensor::zeros(device, shape, dtype),
            Init::Ones => Tensor::ones(device, shape, dtype),
            Init::Constant(v) => Tensor::full(device, shape, dtype, v),
            Init::Uniform { lo, hi } => Tensor::uniform(&rng.next_key(device)?, shape, dtype, lo, hi),
            Init::Normal { mean, std } => Tensor::normal(&rng.next_key(device)?, shape, dtype, mean, std),
            Init::TruncatedNormal { mean, std, lo, hi } => {
                truncated(&rng.next_key(device)?, shape, dtype, [mean, std, lo, hi])
            }
            Init::XavierUniform(gain) => {
                let (i, o) = fans(&shape)?;
                symmetric(device, shape, dtype, gain.value() * (6.0 / (i + o)).sqrt(), rng)
            }
            Init::XavierNormal(gain) => {
                let (i, o) = fans(&shape)?;
                let std = gain.value() * (2.0 / (i + o)).sqrt();
                Tensor::normal(&rng.next_key(device)?, shape, dtype, 0.0, std)
            }
            Init::KaimingUniform(gain, fan) => {
                let b = gain.value() * (3.0 / one_fan(&shape, fan)?).sqrt();
                symmetric(device, shape, dtype, b, rng)
            }
            Init::KaimingNormal(gain, fan) => {
                let std = gain.value() / one_fan(&shape, fan)?.sqrt();
                Tensor::normal(&rng.next_key(device)?, shape, dtype, 0.0, std)
            }
        }
    }
}

/// The slope that makes [`Gain::LeakyRelu`] one third squared.
const SQRT_5: f64 = 2.236_067_977_499_79;

fn symmetric(device: &Device, shape: Shape, dtype: DType, bound: f64, rng: &mut Rng) -> Result<Tensor> {
    Tensor::uniform(&rng.next_key(device)?, shape, dtype, -bound, bound)
}

/// `(fan_in, fan_out)` of a weight, each at least 1 so that an empty weight has a finite scale.
fn fans(shape: &Shape) -> Result<(f64, f64)> {
    if shape.rank() < 2 {
        return Err(Error::new(ErrorKind::Axis, format!("a weight of shape {shape} has no fans: its rank is below 2")));
    }
    let field: usize = shape[2..].iter().product();
    let fan = |channels: usize| (channels * field).max(1) as f64;
    Ok((fan(shape[1]), fan(shape[0])))
}

fn one_fan(shape: &Shape, fan: Fan) -> Result<f64> {
    let (i, o) = fans(shape)?;
    Ok(if fan == Fan::In { i } else { o })
}

/// A normal cut to `lo ..= hi` by inverting its distribution function, as PyTorch draws it.
fn truncated(key: &Tensor, shape: Shape, dtype: DType, [mean, std, lo, hi]: [f64; 4]) -> Result<Tensor> {
    if !(mean.is_finite() && std.is_finite() && std > 0.0 && lo < hi) {
        let text = format!("truncated normal: mean {mean}, std {std} and bounds {lo} and {hi} give no distribution");
        return Err(Error::new(ErrorKind::Value, text));
    }
    // the uniform number is 2 cdf - 1 = erf((x - mean) / (std sqrt2))
    let at = |x: f64| erf((x - mean) / (std * SQRT_2));
    let u = Tensor::uniform(key, shape, dtype, at(lo)?, at(hi)?)?;
    u.erfinv()?.mul(std * SQRT_2)?.add(mean)?.clamp(lo, hi)
}

fn erf(x: f64) -> Result<f64> {
    let y = eval_inline(&Unary { f: UnaryFn::Erf }, &[HostTensor::scalar(x)])?;
    y.first().map_or(Ok(f64::NAN), HostTensor::item)
}

/// Parameters that the next ones of a thread are, in the place of new ones.
static ADOPTED: Part<Option<VecDeque<Parameter>>> = Part::new();

/// Calls `f`, in which the parameters that an [`InitCx`] makes are these, one after the other: a layer that is made anew, with other
/// options, keeps them so. The layer makes them in an order of its own, so that callers see which it took by
/// [`Parameter::is_same`].
///
/// Errors: those of `f`; within it Value where a parameter of another dtype, shape or role is asked for, or there are no more.
pub fn adopting<T>(parameters: Vec<Parameter>, f: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Ends(Option<VecDeque<Parameter>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            drop(ADOPTED.replace(self.0.take()));
        }
    }
    let _ends = Ends(ADOPTED.replace(Some(parameters.into())));
    f()
}

/// The next parameter that is adopted, if any are.
fn next_adopted(dtype: DType, shape: &Shape, role: Role) -> Option<Result<Parameter>> {
    ADOPTED.with(|all| {
        let all = all.as_mut()?;
        let fits = |p: &Parameter| p.dtype() == dtype && p.shape() == shape && p.role() == role;
        let text = || format!("there is no parameter {dtype} {shape} to be kept");
        Some(all.pop_front().filter(fits).ok_or_else(|| Error::new(ErrorKind::Value, text())))
    })
}

/// The context in which a layer makes its parameters: a device, a dtype and a source of keys.
#[derive(Clone, Debug)]
pub struct InitCx {
    /// Where the parameters live.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
    /// Where their keys come from.
    pub rng: Rng,
}

impl InitCx {
    /// Parameters of f32 on `device`, from a seed.
    pub fn new(device: &Device, seed: u64) -> Self {
        InitCx { device: device.clone(), dtype: DType::F32, rng: Rng::new(seed) }
    }

    /// The same with another dtype.
    #[must_use]
    pub fn with_dtype(self, dtype: DType) -> Self {
        InitCx { dtype, ..self }
    }

    /// A trained parameter. Errors: as [`Init::tensor`] and [`Parameter::new`].
    pub fn parameter(&mut self, shape: impl Into<Shape>, init: Init) -> Result<Parameter> {
        let shape = shape.into();
        if let Some(there) = next_adopted(self.dtype, &shape, Role::Trained) {
            return there;
        }
        Parameter::new(init.tensor(&self.device, shape, self.dtype, &mut self.rng)?)
    }

    /// A buffer of its own dtype. Errors: as [`Init::tensor`] and [`Parameter::buffer`].
    pub fn buffer(&mut self, shape: impl Into<Shape>, dtype: DType, init: Init) -> Result<Parameter> {
        let shape = shape.into();
        if let Some(there) = next_adopted(dtype, &shape, Role::Buffer) {
            return there;
        }
        Parameter::buffer(init.tensor(&self.device, shape, dtype, &mut self.rng)?)
    }
}
