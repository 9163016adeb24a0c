//! Activations with state of their own.

use remat::Result;
use remat::nn::{self, InitCx};
use remat::ops::schema::Params;

use super::arguments::{PlacesAlone, Source};
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;

#[derive(Params)]
#[op(crate = remat::ops)]
struct Prelu {
    #[param(rename = "n", default = 1)]
    num_parameters: usize,
    #[param(rename = "value", default = 0.25)]
    init: f64,
    #[param(flatten)]
    places: PlacesAlone,
}

impl LayerOptions for Prelu {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::Prelu::with(cx, self.num_parameters, self.init).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct RRelu {
    #[param(default = 1.0 / 8.0)]
    lower: f64,
    #[param(default = 1.0 / 3.0)]
    upper: f64,
    #[param(flatten)]
    source: Source,
}

impl LayerOptions for RRelu {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::RRelu::with(self.lower, self.upper, &mut cx.rng).map(Built::one)
    }
}

classes! {
    /// `x` where it is positive, else `weight x` (He et al., ICCV 2015); `weight: [num_parameters]` of each channel (axis 1), or of
    /// all if that is 1. Errors at the call: ShapeError for another number of channels.
    ///
    /// >>> import remat
    /// >>> remat.nn.PReLU()(remat.tensor([[-4.0, 2.0]])).tolist()
    /// [[-1.0, 2.0]]
    PReLU: OneInput = Prelu;

    /// While training, `x` where it is positive, else `x` times a number drawn from `lower .. upper` for each element; else that
    /// times the mean of both (Xu et al., 2015). It has a generator of its own.
    ///
    /// >>> import remat
    /// >>> remat.nn.RReLU(0.25, 0.75).eval()(remat.tensor([-2.0])).tolist()
    /// [-1.0]
    RReLU: OneInput = RRelu;
}
