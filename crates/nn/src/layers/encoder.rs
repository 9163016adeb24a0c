//! Blocks of an encoder and a decoder as PyTorch has them, and stacks of them.

use remat_ops::schema::{Choice, Params};
use remat_tensor::{Attend, Tensor};
use remat_types::{CallSite, Result, Scope};
use serde::{Deserialize, Serialize};

use super::linear::{Linear, plus};
use super::{CrossAttention, CrossAttentionOptions, Dropout, LayerNorm};
use crate::{InitCx, Layer, Module};

/// The function between the two linear layers of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "snake_case")]
pub enum FeedForwardActivation {
    /// The paper's.
    #[default]
    Relu,
    /// BERT's.
    Gelu,
}

/// How a block is made. The default is PyTorch's, and the paper's (Vaswani et al., 2017): norms after the sum.
#[derive(Clone, Copy, Debug, PartialEq, Params)]
#[op(default)]
pub struct BlockOptions {
    /// Numbers between the two linear layers.
    pub feedforward: usize,
    /// Probability with which a probability, a number between the layers, or one that is added, is dropped in training.
    pub dropout: f64,
    /// The function between the layers.
    pub activation: FeedForwardActivation,
    /// Norms come before attention and linear layers, not after the sum.
    pub norm_first: bool,
    /// Of the norms.
    pub eps: f64,
}

impl Default for BlockOptions {
    fn default() -> Self {
        BlockOptions {
            feedforward: 2048,
            dropout: 0.1,
            activation: FeedForwardActivation::Relu,
            norm_first: false,
            eps: 1e-5,
        }
    }
}

/// The common part of both kinds of blocks: two layers with a function between them, and dropout.
#[derive(Module)]
#[module(crate = crate)]
struct FeedForward {
    up: Linear,
    down: Linear,
    between: Option<Dropout>,
    #[module(skip)]
    activation: FeedForwardActivation,
}

impl FeedForward {
    fn new(cx: &mut InitCx, d: usize, options: &BlockOptions) -> Result<Self> {
        Ok(FeedForward {
            up: Linear::new(cx, d, options.feedforward)?,
            down: Linear::new(cx, options.feedforward, d)?,
            between: dropout(cx, options.dropout)?,
            activation: options.activation,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.up.forward(x)?;
        let y = match self.activation {
            FeedForwardActivation::Relu => y.relu()?,
            FeedForwardActivation::Gelu => y.gelu()?,
        };
        self.down.forward(&dropped(y, self.between.as_ref())?)
    }
}

fn dropout(cx: &mut InitCx, p: f64) -> Result<Option<Dropout>> {
    if p == 0.0 { Ok(None) } else { Dropout::new(p, &mut cx.rng).map(Some) }
}

fn dropped(x: Tensor, dropout: Option<&Dropout>) -> Result<Tensor> {
    match dropout {
        Some(d) => d.forward(&x),
        None => Ok(x),
    }
}

/// `x` and what `part` adds to it, with the norm before or behind.
#[track_caller]
fn added(
    x: &Tensor,
    norm: &LayerNorm,
    first: bool,
    dropout: Option<&Dropout>,
    part: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if first {
        return plus(dropped(part(&norm.forward(x)?)?, dropout)?, x.clone());
    }
    norm.forward(&plus(dropped(part(x)?, dropout)?, x.clone())?)
}

fn attention(cx: &mut InitCx, d: usize, heads: usize, options: &BlockOptions) -> Result<CrossAttention> {
    let attention = CrossAttentionOptions { dropout: options.dropout, ..CrossAttentionOptions::default() };
    CrossAttention::with(cx, d, heads, attention)
}

/// A block of an encoder: attention of a text to itself and two linear layers, each added to its input and normalised;
/// `x, y: [n, t, d]`. Errors: as [`CrossAttention`].
///
/// ```
/// use remat_nn::{BlockOptions, EncoderBlock, InitCx, Layer};
/// # use remat_runtime::Device;
/// # use remat_tensor::Tensor;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(Default::default())?;
/// let options = BlockOptions { feedforward: 32, ..BlockOptions::default() };
/// let block = EncoderBlock::new(&mut InitCx::new(&device, 1), 8, 2, options)?;
/// assert_eq!(block.forward(&Tensor::ones(&device, [1, 5, 8], remat_types::DType::F32)?)?.dims(), [1, 5, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct EncoderBlock {
    /// Of the text to itself.
    pub attention: CrossAttention,
    norm1: LayerNorm,
    layers: FeedForward,
    norm2: LayerNorm,
    dropout1: Option<Dropout>,
    dropout2: Option<Dropout>,
    #[module(skip)]
    options: BlockOptions,
}

impl EncoderBlock {
    /// `heads` heads of `d / heads` numbers each. Errors: Value for heads that do not divide `d` or a dropout outside 0 ..= 1;
    /// Budget if it does not fit.
    pub fn new(cx: &mut InitCx, d: usize, heads: usize, options: BlockOptions) -> Result<Self> {
        Ok(EncoderBlock {
            attention: attention(cx, d, heads, &options)?,
            norm1: LayerNorm::with(cx, [d], options.eps)?,
            layers: FeedForward::new(cx, d, &options)?,
            norm2: LayerNorm::with(cx, [d], options.eps)?,
            dropout1: dropout(cx, options.dropout)?,
            dropout2: dropout(cx, options.dropout)?,
            options,
        })
    }

    /// The output where `attend` says what a place sees.
    #[track_caller]
    pub fn forward_with(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let first = self.options.norm_first;
        let own = |x: &Tensor| self.attention.forward_with(x, x, x, attend);
        let x = added(x, &self.norm1, first, self.dropout1.as_ref(), own)?;
        added(&x, &self.norm2, first, self.dropout2.as_ref(), |x| self.layers.forward(x))
    }
}

impl Layer for EncoderBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, Attend::default())
    }
}

/// A block of a decoder: attention of a text to itself, to what an encoder gives, and two linear layers; `x, y: [n, t, d]`,
/// `memory: [n, tk, d]`. Errors: as [`CrossAttention`].
#[derive(Module)]
#[module(crate = crate)]
pub struct DecoderBlock {
    /// Of the text to itself.
    pub attention: CrossAttention,
    norm1: LayerNorm,
    /// To what the encoder gives.
    pub cross: CrossAttention,
    norm2: LayerNorm,
    layers: FeedForward,
    norm3: LayerNorm,
    dropout1: Option<Dropout>,
    dropout2: Option<Dropout>,
    dropout3: Option<Dropout>,
    #[module(skip)]
    options: BlockOptions,
}

impl DecoderBlock {
    /// `heads` heads of `d / heads` numbers each. Errors: as [`EncoderBlock::new`].
    pub fn new(cx: &mut InitCx, d: usize, heads: usize, options: BlockOptions) -> Result<Self> {
        Ok(DecoderBlock {
            attention: attention(cx, d, heads, &options)?,
            norm1: LayerNorm::with(cx, [d], options.eps)?,
            cross: attention(cx, d, heads, &options)?,
            norm2: LayerNorm::with(cx, [d], options.eps)?,
            layers: FeedForward::new(cx, d, &options)?,
            norm3: LayerNorm::with(cx, [d], options.eps)?,
            dropout1: dropout(cx, options.dropout)?,
            dropout2: dropout(cx, options.dropout)?,
            dropout3: dropout(cx, options.dropout)?,
            options,
        })
    }

    /// The output for a text. `own` selects the places of the text that a place sees ([`Attend::CAUSAL`] in most decoders), and
    /// `other` those of the encoder's output.
    #[track_caller]
    pub fn forward_with(&self, x: &Tensor, memory: &Tensor, own: Attend<'_>, other: Attend<'_>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let first = self.options.norm_first;
        let to_itself = |x: &Tensor| self.attention.forward_with(x, x, x, own);
        let x = added(x, &self.norm1, first, self.dropout1.as_ref(), to_itself)?;
        let to_memory = |x: &Tensor| self.cross.forward_with(x, memory, memory, other);
        let x = added(&x, &self.norm2, first, self.dropout2.as_ref(), to_memory)?;
        added(&x, &self.norm3, first, self.dropout3.as_ref(), |x| self.layers.forward(x))
    }
}

/// Blocks of an encoder, blocks of a decoder, and a norm behind each: `source: [n, tk, d]` and `target: [n, t, d]` to
/// `[n, t, d]` (Vaswani et al., 2017). A place of the target sees itself and the places before it.
///
/// ```
/// use remat_nn::{BlockOptions, EncoderDecoder, InitCx};
/// # use remat_runtime::Device;
/// # use remat_tensor::Tensor;
/// # use remat_types::DType;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(Default::default())?;
/// let options = BlockOptions { feedforward: 32, ..BlockOptions::default() };
/// let net = EncoderDecoder::new(&mut InitCx::new(&device, 1), 8, 2, [2, 1], options)?;
/// let (source, target) = (Tensor::ones(&device, [1, 5, 8], DType::F32)?, Tensor::ones(&device, [1, 3, 8], DType::F32)?);
/// assert_eq!(net.forward_with(&source, &target, None)?.dims(), [1, 3, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct EncoderDecoder {
    encoder: Vec<EncoderBlock>,
    encoder_norm: LayerNorm,
    decoder: Vec<DecoderBlock>,
    decoder_norm: LayerNorm,
}

impl EncoderDecoder {
    /// As many blocks of an encoder and of a decoder. Errors: as [`EncoderBlock::new`].
    pub fn new(
        cx: &mut InitCx,
        d: usize,
        heads: usize,
        [encoders, decoders]: [usize; 2],
        options: BlockOptions,
    ) -> Result<Self> {
        Ok(EncoderDecoder {
            encoder: (0..encoders).map(|_| EncoderBlock::new(cx, d, heads, options)).collect::<Result<_>>()?,
            encoder_norm: LayerNorm::with(cx, [d], options.eps)?,
            decoder: (0..decoders).map(|_| DecoderBlock::new(cx, d, heads, options)).collect::<Result<_>>()?,
            decoder_norm: LayerNorm::with(cx, [d], options.eps)?,
        })
    }

    /// The output of the encoder for `source`. A place sees the places where `mask` is true: bools that broadcast to
    /// `[n, heads, tk, tk]`. Errors: as [`CrossAttention`].
    #[track_caller]
    pub fn encode(&self, source: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let attend = Attend { mask, ..Attend::default() };
        let mut x = source.clone();
        for block in &self.encoder {
            x = block.forward_with(&x, attend)?;
        }
        self.encoder_norm.forward(&x)
    }

    /// The output of the decoder for `target` and the encoder's output `memory`. Errors: as [`CrossAttention`].
    #[track_caller]
    pub fn decode(&self, target: &Tensor, memory: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let other = Attend { mask, ..Attend::default() };
        let mut x = target.clone();
        for block in &self.decoder {
            x = block.forward_with(&x, memory, Attend::CAUSAL, other)?;
        }
        self.decoder_norm.forward(&x)
    }

    /// Both, where `mask: [n, 1, 1, tk]`, of bools, shows the places of the source. Errors: as [`CrossAttention`].
    #[track_caller]
    pub fn forward_with(&self, source: &Tensor, target: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let memory = self.encode(source, mask)?;
        self.decode(target, &memory, mask)
    }
}
