use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};

use crate::{Layer, Module};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => { $(
        $(#[$doc])*
        /// Shapes stay. Errors: DType for an `x` that is no float.
        #[derive(Clone, Copy, Debug, Default, Module)]
        #[module(crate = crate)]
        pub struct $name;

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _scope = Scope::called(stringify!($method), CallSite::here());
                x.$method()
            }
        }
    )* };
}

activations! {
    /// `max(x, 0)`.
    Relu => relu;
    /// `x (1 + erf(x / sqrt 2)) / 2`.
    Gelu => gelu;
    /// `x / (1 + e^-x)`.
    Silu => silu;
    /// `tanh x`.
    Tanh => tanh;
    /// `1 / (1 + e^-x)`.
    Sigmoid => sigmoid;
    /// `ln sigmoid(x)`.
    LogSigmoid => logsigmoid;
    /// `1.0507 x` where it is positive, else `1.7581 (e^x - 1)` (Klambauer et al., NeurIPS 2017).
    Selu => selu;
    /// `x tanh(ln(1 + e^x))` (Misra, 2019, arXiv:1908.08681).
    Mish => mish;
    /// `x / (1 + |x|)`.
    Softsign => softsign;
    /// `x - tanh x`.
    Tanhshrink => tanhshrink;
    /// `min(max(x + 3, 0), 6) / 6`.
    Hardsigmoid => hsigmoid;
    /// `x min(max(x + 3, 0), 6) / 6` (Howard et al., ICCV 2019).
    Hardswish => hswish;
}

/// `min(max(x, 0), 6)`. Errors: DType for an `x` of bools.
#[derive(Clone, Copy, Debug, Default, Module)]
#[module(crate = crate)]
pub struct Relu6;

impl Layer for Relu6 {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("relu6", CallSite::here());
        x.clamp(0, 6)
    }
}

/// `y = x`.
#[derive(Clone, Copy, Debug, Default, Module)]
#[module(crate = crate)]
pub struct Identity;

impl Layer for Identity {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

/// `x` where it is positive, else `slope x`. Errors: DType for an `x` that is no float.
#[derive(Clone, Copy, Debug, Module)]
#[module(crate = crate)]
pub struct LeakyRelu {
    /// The factor of negative elements.
    pub slope: f64,
}

impl Default for LeakyRelu {
    /// A slope of 0.01.
    fn default() -> Self {
        LeakyRelu { slope: 0.01 }
    }
}

impl Layer for LeakyRelu {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("leaky_relu", CallSite::here());
        x.leaky_relu(self.slope)
    }
}

/// `e^x / sum e^x` along an axis. Errors: Axis, DType.
#[derive(Clone, Copy, Debug, Module)]
#[module(crate = crate)]
pub struct Softmax {
    /// The axis; counts from the end if negative.
    pub axis: isize,
}

impl Layer for Softmax {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("softmax", CallSite::here());
        x.softmax(self.axis)
    }
}

/// `ln softmax(x)` along an axis. Errors: Axis, DType.
#[derive(Clone, Copy, Debug, Module)]
#[module(crate = crate)]
pub struct LogSoftmax {
    /// The axis; counts from the end if negative.
    pub axis: isize,
}

impl Layer for LogSoftmax {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("log_softmax", CallSite::here());
        x.log_softmax(self.axis)
    }
}
