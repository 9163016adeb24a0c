use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::transformer::{STD, Transformer, TransformerConfig, drop_some, dropout};
use crate::layers::{extents, plus};
use crate::{Dropout, Embedding, Init, InitCx, Layer, Linear, LinearOptions, Module, Parameter};

/// Which [`Gpt`]. The default reads and writes bytes: 6 layers of 384 numbers and 6 heads over 256 places.
#[derive(Clone, Copy, Debug, PartialEq)]
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
/// use remat_nn::models::{Gpt, GptConfig};
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
#[module(crate = crate)]
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
        let x = drop_some(plus(self.tokens.forward(tokens)?, positions)?, self.dropout.as_ref())?;
        let y = self.body.forward(&x)?;
        match &self.head {
            Some(head) => head.forward(&y),
            None => y.matmul(&self.tokens.weight.get()?.t()?),
        }
    }
}
