use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use crate::{Label, Layer, Mode, Module, Rng, RngCell};

/// While training, each element is 0 with probability `p`, else `x / (1 - p)`; else `y = x`.
///
/// Each forward pass draws one key from the layer's own generator, which checkpoints save: a resumed run drops what the
/// uninterrupted one would have.
#[derive(Module)]
#[module(crate = crate)]
pub struct Dropout {
    #[module(flatten)]
    label: Label,
    mode: Mode,
    rng: RngCell,
    p: f64,
}

impl Dropout {
    /// With a generator split from `rng`. Errors: Value for a `p` outside 0 ..= 1.
    pub fn new(p: f64, rng: &mut Rng) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::new(ErrorKind::Value, format!("p is {p}, must be 0 to 1")).with_op("dropout"));
        }
        Ok(Dropout { label: Label::of_layer("dropout"), mode: Mode::default(), rng: RngCell::new(rng.split()), p })
    }

    /// The output for `x` with a given `key: u64 [2]` while training. Errors: DType for an `x` that is no float.
    #[track_caller]
    pub fn forward_with(&self, x: &Tensor, key: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        if self.mode.is_training() { x.dropout(self.p, key) } else { Ok(x.clone()) }
    }
}

impl Layer for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.label.around(x, |x| {
            if !self.mode.is_training() {
                return Ok(x.clone());
            }
            self.forward_with(x, &self.rng.next_key(&x.device())?)
        })
    }
}

/// The layers that drop by a key of their own, which differ by what a key makes of `x`.
macro_rules! dropouts {
    ($($(#[$doc:meta])* $name:ident $(<const $d:ident: usize>)?, $label:literal, $check:expr => $method:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Module)]
        #[module(crate = crate)]
        pub struct $name $(<const $d: usize>)? {
            #[module(flatten)]
            label: Label,
            mode: Mode,
            rng: RngCell,
            p: f64,
        }

        impl $(<const $d: usize>)? $name $(<$d>)? {
            /// With a generator split from `rng`. Errors: Value for a `p` outside 0 ..= 1.
            pub fn new(p: f64, rng: &mut Rng) -> Result<Self> {
                if !(0.0..=1.0).contains(&p) {
                    return Err(Error::new(ErrorKind::Value, format!("p is {p}, must be 0 to 1")).with_op($label));
                }
                Ok($name { label: Label::of_layer($label), mode: Mode::default(), rng: RngCell::new(rng.split()), p })
            }

            /// The output for `x` with a given `key: u64 [2]` while training. Errors: as of the layer.
            #[track_caller]
            pub fn forward_with(&self, x: &Tensor, key: &Tensor) -> Result<Tensor> {
                let _scope = self.label.enter();
                let check: fn(&Tensor) -> Result<()> = $check;
                check(x)?;
                if self.mode.is_training() { x.$method(self.p, key) } else { Ok(x.clone()) }
            }
        }

        impl $(<const $d: usize>)? Layer for $name $(<$d>)? {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _site = Scope::at(CallSite::here());
                self.label.around(x, |x| {
                    if !self.mode.is_training() {
                        return Ok(x.clone());
                    }
                    self.forward_with(x, &self.rng.next_key(&x.device())?)
                })
            }
        }
    )* };
}

dropouts! {
    /// While training, each channel of `x: [n, c, ..]`, with `D` axes of space, is 0 with probability `p`, else divided by
    /// `1 - p`; else `y = x` (Tompson et al., CVPR 2015). Errors: Axis for another rank; DType for an `x` that is no float.
    ChannelDropout<const D: usize>, "channel_dropout", |x| spatial::<D>(x) => dropout_channels;
    /// While training, each element is at the limit of SELU with probability `p`, and all are scaled and moved so that means
    /// of 0 and variances of 1 stay; else `y = x` (Klambauer et al., NeurIPS 2017). Errors: DType for an `x` that is no float.
    AlphaDropout, "alpha_dropout", |_| Ok(()) => alpha_dropout;
    /// While training, each example, of axis 0, is 0 with probability `p`, else divided by `1 - p`; else `y = x`: what skips
    /// a residual branch (stochastic depth; Huang et al., ECCV 2016). Errors: Axis for rank 0; DType for an `x` that is no
    /// float.
    DropPath, "drop_path", |_| Ok(()) => drop_path;
}

/// [`ChannelDropout`] of `[n, c, l]`.
pub type Dropout1d = ChannelDropout<1>;
/// [`ChannelDropout`] of `[n, c, h, w]`.
pub type Dropout2d = ChannelDropout<2>;
/// [`ChannelDropout`] of `[n, c, d, h, w]`.
pub type Dropout3d = ChannelDropout<3>;

/// Errors (Axis) unless `x` has `D` axes behind batch and channels.
fn spatial<const D: usize>(x: &Tensor) -> Result<()> {
    if x.rank() == 2 + D {
        return Ok(());
    }
    let text = format!("x has shape {}: its rank must be {}", x.shape(), 2 + D);
    Err(Error::new(ErrorKind::Axis, text).with_op("channel_dropout"))
}
