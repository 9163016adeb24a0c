//! Activations with parameters: numbers, a vector that is trained, or random slopes.

use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use crate::{Init, InitCx, Label, Layer, Mode, Module, Parameter, Rng, RngCell};

/// Layers that call a method with their fields.
macro_rules! activations_with {
    ($($(#[$doc:meta])* $name:ident => $method:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr),* };)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Module)]
        #[module(crate = crate)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default),* }
            }
        }

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _scope = Scope::called(stringify!($method), CallSite::here());
                x.$method($(self.$field),*)
            }
        }
    )* };
}

activations_with! {
    /// `x` where it is positive, else `alpha (e^x - 1)`. Errors: DType for an `x` that is no float.
    Elu => elu {
        /// Minus the limit. Default: 1.
        alpha: f64 = 1.0
    };
    /// `x` where it is positive, else `alpha (e^(x / alpha) - 1)`. Errors: DType for an `x` that is no float; Value for an
    /// `alpha` that is not above 0.
    Celu => celu {
        /// Minus the limit. Default: 1.
        alpha: f64 = 1.0
    };
    /// `ln(1 + e^(beta x)) / beta`, and `x` where `beta x` is above the threshold. Errors: DType for an `x` that is no float;
    /// Value for a `beta` that is not above 0.
    Softplus => softplus_with {
        /// How sharp the bend is. Default: 1.
        beta: f64 = 1.0,
        /// Where it is a line. Default: 20.
        threshold: f64 = 20.0
    };
    /// `min(max(x, min), max)`. Errors: Value for bounds that descend.
    Hardtanh => hardtanh {
        /// Lower bound. Default: -1.
        min: f64 = -1.0,
        /// Upper bound. Default: 1.
        max: f64 = 1.0
    };
    /// 0 within `-lambda ..= lambda`, else `x`. Errors: Value for a negative `lambda`.
    Hardshrink => hardshrink {
        /// The bound. Default: 0.5.
        lambda: f64 = 0.5
    };
    /// 0 within `-lambda ..= lambda`, else `x` nearer to 0 by `lambda`. Errors: Value for a negative `lambda`.
    Softshrink => softshrink {
        /// The bound. Default: 0.5.
        lambda: f64 = 0.5
    };
    /// `x` where it is above the threshold, else `value`.
    Threshold => threshold {
        /// The threshold. Default: 0.
        threshold: f64 = 0.0,
        /// The value that replaces smaller elements. Default: 0.
        value: f64 = 0.0
    };
    /// `e^-x / sum e^-x` along an axis. Errors: Axis; DType for an `x` that is no float.
    Softmin => softmin {
        /// The axis; counts from the end if negative. Default: -1.
        axis: isize = -1
    };
}

/// `x` where it is positive, else `weight x` (He et al., ICCV 2015); `weight: [n]` of each channel (axis 1), or of all if `n`
/// is 1.
///
/// Errors: DType for an `x` of another dtype; Shape for another number of channels.
#[derive(Module)]
#[module(crate = crate)]
pub struct Prelu {
    #[module(flatten)]
    label: Label,
    /// `[n]`.
    pub weight: Parameter,
}

impl Prelu {
    /// `n` slopes of 0.25. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, n: usize) -> Result<Self> {
        Prelu::with(cx, n, 0.25)
    }

    /// `n` slopes that begin as `slope`. Errors: Budget if it does not fit.
    pub fn with(cx: &mut InitCx, n: usize, slope: f64) -> Result<Self> {
        Ok(Prelu { label: Label::new("prelu"), weight: cx.parameter([n], Init::Constant(slope))? })
    }
}

impl Layer for Prelu {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        let weight = self.weight.get()?;
        let n = weight.elems();
        if n == 1 {
            return x.prelu(&weight.reshape(&[])?);
        }
        if x.rank() < 2 || x.dims()[1] != n {
            let text = format!("x has shape {}: axis 1 must be of extent {n}", x.shape());
            return Err(Error::new(ErrorKind::Shape, text).with_op("prelu"));
        }
        let mut shape = vec![1isize; x.rank()];
        shape[1] = -1;
        x.prelu(&weight.reshape(&shape)?)
    }
}

/// While training, `x` where it is positive, else `x` times a number drawn from `lower .. upper` for each element; else that
/// times the mean of both (Xu et al., 2015, arXiv:1505.00853). Errors: DType for an `x` that is no float.
#[derive(Module)]
#[module(crate = crate)]
pub struct RRelu {
    #[module(flatten)]
    label: Label,
    mode: Mode,
    rng: RngCell,
    lower: f64,
    upper: f64,
}

impl RRelu {
    /// With bounds of 1/8 and 1/3, as PyTorch's, and a generator split from `rng`.
    pub fn new(rng: &mut Rng) -> Self {
        RRelu::of(1.0 / 8.0, 1.0 / 3.0, rng)
    }

    /// With bounds of its own. Errors: Value for bounds that are not finite or descend.
    pub fn with(lower: f64, upper: f64, rng: &mut Rng) -> Result<Self> {
        if !(lower.is_finite() && upper.is_finite() && lower <= upper) {
            let text = format!("the slopes are from {lower} to {upper}, must be finite and ascend");
            return Err(Error::new(ErrorKind::Value, text).with_op("rrelu"));
        }
        Ok(RRelu::of(lower, upper, rng))
    }

    fn of(lower: f64, upper: f64, rng: &mut Rng) -> Self {
        RRelu { label: Label::new("rrelu"), mode: Mode::default(), rng: RngCell::new(rng.split()), lower, upper }
    }
}

impl Layer for RRelu {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        if !self.mode.is_training() {
            return x.leaky_relu((self.lower + self.upper) / 2.0);
        }
        x.rrelu(self.lower, self.upper, &self.rng.next_key(&x.device())?)
    }
}
