//! Activations with state of their own.

use remat::nn;

use super::arguments::{PlacesAlone, Source};
use super::{classes, options};

options! {
    Prelu { num_parameters as "n": usize = 1, init as "value": f64 = 0.25, [flatten] places: PlacesAlone }
        => one |o, cx| nn::Prelu::with(cx, o.num_parameters, o.init);

    RRelu { lower: f64 = 1.0 / 8.0, upper: f64 = 1.0 / 3.0, [flatten] source: Source }
        => one |o, cx| nn::RRelu::with(o.lower, o.upper, &mut cx.rng);
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
