//! Linear layers.

use remat::nn::{self, LinearOptions};

use super::arguments::Places;
use super::{classes, options};

options! {
    Linear {
        in_features as "inputs": usize, out_features as "outputs": usize, bias: bool = LinearOptions::default().bias, [flatten] places: Places
    } => one |o, cx| nn::Linear::with(cx, o.in_features, o.out_features, LinearOptions { bias: o.bias, ..LinearOptions::default() });

    Bilinear {
        in1_features: usize, in2_features: usize, out_features as "outputs": usize, bias: bool = true, [flatten] places: Places
    } => multi_input |o, cx| nn::Bilinear::with(cx, [o.in1_features, o.in2_features], o.out_features, o.bias);
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
