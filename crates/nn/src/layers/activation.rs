use remat_runtime::Scope;
use remat_tensor::Tensor;
use remat_types::Result;

use crate::{Layer, Module};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => { $(
        $(#[$doc])*
        /// Shapes stay. Errors: DType for an `x` that is no float.
        #[derive(Clone, Copy, Debug, Default, Module)]
        #[module(crate = crate)]
        pub struct $name;

        impl Layer for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _scope = Scope::enter(stringify!($method));
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
}

/// `min(max(x, 0), 6)`. Errors: DType for an `x` of bools.
#[derive(Clone, Copy, Debug, Default, Module)]
#[module(crate = crate)]
pub struct Relu6;

impl Layer for Relu6 {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::enter("relu6");
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
    /// What negative elements are multiplied by.
    pub slope: f64,
}

impl Default for LeakyRelu {
    /// A slope of 0.01.
    fn default() -> Self {
        LeakyRelu { slope: 0.01 }
    }
}

impl Layer for LeakyRelu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::enter("leaky_relu");
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
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::enter("softmax");
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
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::enter("log_softmax");
        x.log_softmax(self.axis)
    }
}
