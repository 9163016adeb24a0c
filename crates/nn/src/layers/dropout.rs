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
        Ok(Dropout { label: Label::new("dropout"), mode: Mode::default(), rng: RngCell::new(rng.split()), p })
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
        if !self.mode.is_training() {
            return Ok(x.clone());
        }
        self.forward_with(x, &self.rng.next_key(&x.device())?)
    }
}
