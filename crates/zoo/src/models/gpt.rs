use remat_nn::{Dropout, Embedding, Init, InitCx, KvCache, Layer, Linear, LinearOptions, Module, Parameter, extents};
use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

use super::transformer::{STD, Transformer, TransformerConfig, drop_some, dropout};

/// Which [`Gpt`]. The default reads and writes bytes: 6 layers of 384 numbers and 6 heads over 256 places.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GptConfig {
    /// Blocks.
    pub layers: usize,
    /// Numbers at each place.
    pub width: usize,
    /// Heads of an attention; they divide the width.
    pub heads: usize,
    /// Most places.
    pub sequence: usize,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// The last layer's weight is the table of tokens; otherwise it has one of its own.
    pub tied: bool,
    /// Probability with which a number of the embedding, or one that a block adds, is dropped in training.
    pub dropout: f64,
}

impl Default for GptConfig {
    fn default() -> Self {
        GptConfig { layers: 6, width: 384, heads: 6, sequence: 256, vocabulary: 256, tied: false, dropout: 0.0 }
    }
}

/// A decoder-only transformer (Radford et al., 2019) with learned positions and norms before attention and layers:
/// tokens `[n, t]` of any integer dtype to logits `[n, t, vocabulary]` of the token that comes next.
///
/// The parameters are `(vocabulary + sequence) width` numbers beside those of [`Transformer`], and
/// `vocabulary width` more unless tied.
///
/// Errors: Axis for another rank, Shape for more places than `sequence`, DType for tokens that are no integers; at run
/// time, Index for one that is not in the vocabulary.
///
/// ```
/// use remat_zoo::models::{Gpt, GptConfig};
/// use remat_nn::{InitCx, Layer};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let config = GptConfig { layers: 2, width: 16, heads: 2, sequence: 8, ..GptConfig::default() };
/// let gpt = Gpt::new(&mut InitCx::new(&device, 1), &config)?;
/// let tokens = Tensor::new(&device, b"to be", [1, 5])?;
/// assert_eq!(gpt.forward(&tokens)?.dims(), [1, 5, 256]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Gpt {
    tokens: Embedding,
    positions: Parameter,
    dropout: Option<Dropout>,
    body: Transformer,
    head: Option<Linear>,
}

impl Gpt {
    /// A network with scopes named `gpt`. Errors: Value for heads that do not divide the width or a dropout outside
    /// 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &GptConfig) -> Result<Self> {
        let GptConfig { layers, width, heads, sequence, vocabulary, tied, dropout: p } = *config;
        let init = Init::Normal { mean: 0.0, std: STD };
        let options = LinearOptions { bias: false, weight_init: init, ..LinearOptions::default() };
        let net = Gpt {
            tokens: Embedding::with(cx, vocabulary, width, init)?,
            positions: cx.parameter([sequence, width], init)?,
            dropout: dropout(cx, p)?,
            body: Transformer::new(cx, &TransformerConfig { layers, width, heads, causal: true, dropout: p })?,
            head: if tied { None } else { Some(Linear::with(cx, width, vocabulary, options)?) },
        };
        net.name_scopes("gpt");
        Ok(net)
    }

    /// The mean cross entropy, in nats, of `next: [n, t]`, the token that follows each of `tokens: [n, t]`. Errors: also
    /// Shape for another shape of `next`.
    pub fn loss(&self, tokens: &Tensor, next: &Tensor) -> Result<Tensor> {
        if next.shape() != tokens.shape() {
            let text = format!("tokens of shape {} are followed by ones of shape {}", tokens.shape(), next.shape());
            return Err(Error::new(ErrorKind::Shape, text).with_op("gpt"));
        }
        let logits = self.forward(tokens)?;
        let classes = *logits.dims().last().unwrap_or(&0) as isize;
        logits.reshape(&[-1, classes])?.cross_entropy(&next.reshape(&[-1])?)
    }
}

impl Gpt {
    /// Room for the keys and values of `n` texts, one cache a block. Errors: Budget if it does not fit.
    pub fn caches(&self, n: usize) -> Result<Vec<KvCache>> {
        let mut cx = InitCx::new(self.positions.device(), 0);
        cx.dtype = self.positions.dtype();
        self.body.caches(&mut cx, n, self.positions.shape()[0])
    }

    /// The logits `[n, t, vocabulary]` of the tokens `[n, t]` that follow those of the caches, to which they are added. Nothing is
    /// dropped. Errors: as for all tokens at once; Arity for another number of caches than blocks.
    ///
    /// ```
    /// # use remat_zoo::models::{Gpt, GptConfig};
    /// # use remat_nn::{InitCx, Layer};
    /// # use remat_runtime::Device;
    /// # use remat_tensor::Tensor;
    /// # fn main() -> remat_types::Result<()> {
    /// # let device = Device::cpu(Default::default())?;
    /// # let config = GptConfig { layers: 2, width: 16, heads: 2, sequence: 8, ..GptConfig::default() };
    /// let gpt = Gpt::new(&mut InitCx::new(&device, 1), &config)?;
    /// let caches = gpt.caches(1)?;
    /// let at_once = gpt.forward(&Tensor::new(&device, b"to be", [1, 5])?)?;
    /// gpt.forward_cached(&Tensor::new(&device, b"to b", [1, 4])?, &caches)?;
    /// let last = gpt.forward_cached(&Tensor::new(&device, b"e", [1, 1])?, &caches)?;
    /// assert!(last.allclose(&at_once.narrow(1, 4, 1)?, 1e-4, 1e-5)?.item::<bool>()?);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn forward_cached(&self, tokens: &Tensor, caches: &[KvCache]) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [_, t] = extents(tokens, "gpt")?;
        if caches.len() != self.body.depth() {
            let text = format!("{} caches for {} blocks", caches.len(), self.body.depth());
            return Err(Error::new(ErrorKind::Arity, text).with_op("gpt"));
        }
        let (places, seen) = (self.positions.shape()[0], caches.first().map_or(0, KvCache::len));
        if seen + t > places {
            let text = format!("{t} tokens behind {seen}; the network has positions for {places}");
            return Err(Error::new(ErrorKind::Shape, text).with_op("gpt"));
        }
        let positions = self.positions.get()?.narrow(0, seen as isize, t)?;
        let y = self.body.forward_cached(&(self.tokens.forward(tokens)? + positions)?, caches)?;
        self.logits(&y)
    }

    #[track_caller]
    fn logits(&self, y: &Tensor) -> Result<Tensor> {
        match &self.head {
            Some(head) => head.forward(y),
            None => y.matmul(&self.tokens.weight.get()?.t()?),
        }
    }
}

impl Layer for Gpt {
    #[track_caller]
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [_, t] = extents(tokens, "gpt")?;
        let places = self.positions.shape()[0];
        if t > places {
            let text = format!("{t} tokens; the network has positions for {places}");
            return Err(Error::new(ErrorKind::Shape, text).with_op("gpt"));
        }
        let positions = self.positions.get()?.narrow(0, 0, t)?;
        let x = drop_some((self.tokens.forward(tokens)? + positions)?, self.dropout.as_ref())?;
        self.logits(&self.body.forward(&x)?)
    }
}
