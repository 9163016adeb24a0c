//! Padding of the spatial axes, and rearrangements of pixels.

use remat_tensor::{PadMode, Patches, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Padding, Result, Scope};

use crate::{Layer, Module};

/// The last `D` axes with what a mode says around them, [`Tensor::pad_with`]: `x: [.., l]` for `D = 1`, `[.., h, w]` for 2,
/// `[.., d, h, w]` for 3.
///
/// Errors: Axis for fewer axes; Value for more places than the mode has.
#[derive(Clone, Copy, Debug, PartialEq, Module)]
#[module(crate = crate)]
pub struct Pad<const D: usize> {
    #[module(skip)]
    padding: Padding<D>,
    #[module(skip)]
    mode: PadMode,
}

/// [`Pad`] of `[.., l]`.
pub type Pad1d = Pad<1>;
/// [`Pad`] of `[.., h, w]`.
pub type Pad2d = Pad<2>;
/// [`Pad`] of `[.., d, h, w]`.
pub type Pad3d = Pad<3>;

impl<const D: usize> Pad<D> {
    /// With zeros.
    pub fn zeros(padding: impl Into<Padding<D>>) -> Self {
        Pad::with(padding, PadMode::Zeros)
    }

    /// With a value.
    pub fn constant(padding: impl Into<Padding<D>>, value: f64) -> Self {
        Pad::with(padding, PadMode::Constant(value))
    }

    /// With the elements from the end inwards.
    pub fn reflect(padding: impl Into<Padding<D>>) -> Self {
        Pad::with(padding, PadMode::Reflect)
    }

    /// With the last element.
    pub fn replicate(padding: impl Into<Padding<D>>) -> Self {
        Pad::with(padding, PadMode::Replicate)
    }

    /// With the elements from the other end.
    pub fn circular(padding: impl Into<Padding<D>>) -> Self {
        Pad::with(padding, PadMode::Circular)
    }

    /// With what `mode` says.
    pub fn with(padding: impl Into<Padding<D>>, mode: PadMode) -> Self {
        Pad { padding: padding.into(), mode }
    }
}

impl<const D: usize> Layer for Pad<D> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("pad", CallSite::here());
        padded(x, self.padding, self.mode)
    }
}

/// `x` with its last `D` axes padded. Errors: Axis, Value.
#[track_caller]
pub(crate) fn padded<const D: usize>(x: &Tensor, padding: Padding<D>, mode: PadMode) -> Result<Tensor> {
    let Some(lead) = x.rank().checked_sub(D) else {
        let text = format!("x has shape {}: rank {}, below {D}", x.shape(), x.rank());
        return Err(Error::new(ErrorKind::Axis, text).with_op("pad"));
    };
    let mut amounts = vec![(0, 0); lead];
    amounts.extend((0..D).map(|a| (padding.begin[a], padding.end[a])));
    x.pad_with(&amounts, mode)
}

/// Layers that call a method with a number.
macro_rules! rearrangements {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Module)]
        #[module(crate = crate)]
        pub struct $name(pub usize);

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _scope = Scope::called(stringify!($method), CallSite::here());
                x.$method(self.0)
            }
        }
    )* };
}

rearrangements! {
    /// `[.., c r r, h, w]` to `[.., c, h r, w r]`, [`Tensor::pixel_shuffle`] by this `r`. Errors: Axis, Value.
    PixelShuffle => pixel_shuffle;
    /// `[.., c, h r, w r]` to `[.., c r r, h, w]`, [`Tensor::pixel_unshuffle`] by this `r`. Errors: Axis, Value.
    PixelUnshuffle => pixel_unshuffle;
    /// The channels of so many groups dealt out in turn, [`Tensor::channel_shuffle`]. Errors: Axis, Value.
    ChannelShuffle => channel_shuffle;
}

/// Every window of an image as a column, [`Tensor::unfold`]: `[n, c, h, w]` to `[n, c kh kw, oh ow]`. Errors: Axis, Value, Shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Module)]
#[module(crate = crate)]
pub struct Unfold {
    /// The windows.
    #[module(skip)]
    pub patches: Patches,
}

impl Layer for Unfold {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("unfold", CallSite::here());
        x.unfold(self.patches)
    }
}

/// The sum of all columns in their windows, [`Tensor::fold`]: `[n, c kh kw, oh ow]` to `[n, c, h, w]`. Errors: Axis, Value,
/// Shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Module)]
#[module(crate = crate)]
pub struct Fold {
    /// Height and width of the image.
    #[module(skip)]
    pub size: [usize; 2],
    /// The windows.
    #[module(skip)]
    pub patches: Patches,
}

impl Layer for Fold {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("fold", CallSite::here());
        x.fold(self.size, self.patches)
    }
}
