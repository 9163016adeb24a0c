//! Linear layers.

use remat::Result;
use remat::nn::{self, InitCx, LinearOptions};
use remat::ops::schema::Params;

use super::arguments::Places;
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;

#[derive(Params)]
#[op(crate = remat::ops)]
struct Linear {
    #[param(rename = "inputs")]
    in_features: usize,
    #[param(rename = "outputs")]
    out_features: usize,
    #[param(default = LinearOptions::default().bias)]
    bias: bool,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for Linear {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let options = LinearOptions { bias: self.bias, ..LinearOptions::default() };
        nn::Linear::with(cx, self.in_features, self.out_features, options).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct Bilinear {
    in1_features: usize,
    in2_features: usize,
    #[param(rename = "outputs")]
    out_features: usize,
    #[param(default = true)]
    bias: bool,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for Bilinear {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let inputs = [self.in1_features, self.in2_features];
        nn::Bilinear::with(cx, inputs, self.out_features, self.bias).map(Built::multi_input)
    }
}

classes! {
    /// `y = x W^T + b`: `x: [.., inputs]` to `[.., outputs]`; `weight: [outputs, inputs]`, `bias: [outputs]`, PyTorch's first values.
    ///
    /// >>> import remat
    /// >>> remat.nn.Linear(4, 2)(remat.ones(3, 4)).shape
    /// (3, 2)
    Linear: OneInput = Linear;

    /// `y[k] = x1 W[k] x2 + b[k]`: `x1: [.., in1_features]`, `x2: [.., in2_features]` to `[.., out_features]`;
    /// `weight: [out, in1, in2]`. Errors at the call: ShapeError.
    ///
    /// >>> import remat
    /// >>> remat.nn.Bilinear(4, 3, 2)(remat.ones(5, 4), remat.ones(5, 3)).shape
    /// (5, 2)
    Bilinear: PairCall = Bilinear;
}
