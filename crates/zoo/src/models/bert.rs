use remat_nn::{
    AttentionOptions, Dropout, Embedding, Init, InitCx, Layer, LayerNorm, Linear, LinearOptions, Module,
    MultiHeadAttention, Parameter, extents,
};
use remat_tensor::{Attend, Tensor};
use remat_types::{CallSite, DType, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

use super::transformer::{STD, drop_some, dropout};

/// Which [`Bert`]. The default is BERT base, uncased: 109,482,240 parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BertConfig {
    /// Blocks.
    pub layers: usize,
    /// Numbers at each place.
    pub width: usize,
    /// Heads of an attention; they divide the width.
    pub heads: usize,
    /// Numbers of a block's hidden layer.
    pub hidden: usize,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Most places.
    pub sequence: usize,
    /// Kinds of segments.
    pub kinds: usize,
    /// Probability with which a number that a block adds is dropped in training.
    pub dropout: f64,
}

impl BertConfig {
    /// BERT base, uncased: 109,482,240 parameters with the pooler, 11.2 G multiply-adds for 128 tokens.
    pub fn base() -> Self {
        BertConfig {
            layers: 12,
            width: 768,
            heads: 12,
            hidden: 3072,
            vocabulary: 30522,
            sequence: 512,
            kinds: 2,
            dropout: 0.1,
        }
    }

    /// BERT large, uncased: 335,141,888 parameters with the pooler.
    pub fn large() -> Self {
        BertConfig { layers: 24, width: 1024, heads: 16, hidden: 4096, ..BertConfig::base() }
    }
}

impl Default for BertConfig {
    fn default() -> Self {
        BertConfig::base()
    }
}

const EPS: f64 = 1e-12;

fn options() -> LinearOptions {
    let weight_init = Init::Normal { mean: 0.0, std: STD };
    LinearOptions { weight_init, bias_init: Some(Init::Zeros), ..LinearOptions::default() }
}

/// `norm(x + attention(x))`, then `norm(x + down(gelu(up(x))))`; `x: [n, t, width]`.
#[derive(Module)]
#[module(crate = remat_nn)]
struct BertBlock {
    attention: MultiHeadAttention,
    norm1: LayerNorm,
    up: Linear,
    down: Linear,
    norm2: LayerNorm,
    dropout: Option<Dropout>,
}

impl BertBlock {
    fn new(cx: &mut InitCx, c: &BertConfig) -> Result<Self> {
        let attention = AttentionOptions { qkv: options(), out: options() };
        Ok(BertBlock {
            attention: MultiHeadAttention::with(cx, c.width, c.heads, attention)?,
            norm1: LayerNorm::with(cx, [c.width], EPS)?,
            up: Linear::with(cx, c.width, c.hidden, options())?,
            down: Linear::with(cx, c.hidden, c.width, options())?,
            norm2: LayerNorm::with(cx, [c.width], EPS)?,
            dropout: dropout(cx, c.dropout)?,
        })
    }

    fn forward(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let y = drop_some(self.attention.forward_with(x, attend)?, self.dropout.as_ref())?;
        let x = self.norm1.forward(&(y + x)?)?;
        let y = self.down.forward(&self.up.forward(&x)?.gelu()?)?;
        self.norm2.forward(&(drop_some(y, self.dropout.as_ref())? + x)?)
    }
}

/// The inputs of a [`Bert`] beside the tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct BertInput<'a> {
    /// The kind of segment of each token, `[n, t]` of any integer dtype; the first if there are none.
    pub kinds: Option<&'a Tensor>,
    /// Where there is a token, not padding: bools `[n, t]`; everywhere if it is left out.
    pub mask: Option<&'a Tensor>,
}

/// A transformer that reads both ways (Devlin et al., NAACL 2019): tokens `[n, t]` of any integer dtype to `[n, t, width]`;
/// norms stand behind what they normalise.
///
/// Errors: Axis for another rank, Shape for more places than `sequence`, DType for tokens that are no integers; at run
/// time, Index for one that is not in the vocabulary.
///
/// ```
/// use remat_zoo::models::{Bert, BertConfig, BertInput};
/// use remat_nn::InitCx;
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let config = BertConfig { layers: 2, width: 16, heads: 2, hidden: 32, vocabulary: 9, ..BertConfig::base() };
/// let bert = Bert::new(&mut InitCx::new(&device, 1), &config)?;
/// let tokens = Tensor::new(&device, &[3i64, 1, 4, 1], [2, 2])?;
/// let y = bert.forward_with(&tokens, BertInput::default())?;
/// assert_eq!((y.dims(), bert.pooled(&y)?.dims()), (&[2, 2, 16][..], &[2, 16][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Bert {
    words: Embedding,
    positions: Parameter,
    kinds: Embedding,
    norm: LayerNorm,
    dropout: Option<Dropout>,
    blocks: Vec<BertBlock>,
    pooler: Linear,
}

impl Bert {
    /// A network with scopes named `bert`. Errors: Value for heads that do not divide the width or a dropout outside
    /// 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &BertConfig) -> Result<Self> {
        let (c, init) = (config, Init::Normal { mean: 0.0, std: STD });
        let net = Bert {
            words: Embedding::with(cx, c.vocabulary, c.width, init)?,
            positions: cx.parameter([c.sequence, c.width], init)?,
            kinds: Embedding::with(cx, c.kinds, c.width, init)?,
            norm: LayerNorm::with(cx, [c.width], EPS)?,
            dropout: dropout(cx, c.dropout)?,
            blocks: (0..c.layers).map(|_| BertBlock::new(cx, c)).collect::<Result<_>>()?,
            pooler: Linear::with(cx, c.width, c.width, options())?,
        };
        net.name_scopes("bert");
        Ok(net)
    }

    /// The output for `tokens` with kinds and padding. Errors: also those of their shapes, and DType for a mask that is not of
    /// bools.
    #[track_caller]
    pub fn forward_with(&self, tokens: &Tensor, input: BertInput<'_>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [n, t] = extents(tokens, "bert")?;
        let places = self.positions.shape()[0];
        if t > places {
            let text = format!("{t} tokens; the network has positions for {places}");
            return Err(Error::new(ErrorKind::Shape, text).with_op("bert"));
        }
        let kinds = match input.kinds {
            Some(kinds) => kinds.clone(),
            None => Tensor::zeros(&tokens.device(), [1, t], DType::I32)?,
        };
        let x = (self.words.forward(tokens)? + self.kinds.forward(&kinds)?)?;
        let x = self.norm.forward(&(x + self.positions.get()?.narrow(0, 0, t)?)?)?;
        let mut x = drop_some(x, self.dropout.as_ref())?;
        let mask = input.mask.map(|m| m.reshape(&[n as isize, 1, 1, t as isize])).transpose()?;
        let attend = Attend { mask: mask.as_ref(), ..Attend::default() };
        for block in &self.blocks {
            x = block.forward(&x, attend)?;
        }
        Ok(x)
    }

    /// `tanh(linear(y))` of the first place of `y: [n, t, width]`: `[n, width]`, what stands for a whole text. Errors: Index
    /// without places.
    #[track_caller]
    pub fn pooled(&self, y: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.pooler.forward(&y.select(1, 0)?)?.tanh()
    }
}

impl Layer for Bert {
    #[track_caller]
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.forward_with(tokens, BertInput::default())
    }
}
