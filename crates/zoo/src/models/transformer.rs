use remat_nn::{
    Attend, AttentionOptions, Dropout, Init, InitCx, KvCache, Layer, LayerNorm, Linear, LinearOptions, Module,
    MultiHeadAttention, extents,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};
use serde::{Deserialize, Serialize};

/// Which [`Transformer`]. The default is a small encoder, the body of a BERT: 6 layers of 384 numbers and 6 heads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    /// Blocks.
    pub layers: usize,
    /// Numbers at each place.
    pub width: usize,
    /// Heads of an attention; they divide the width.
    pub heads: usize,
    /// A place sees itself and those before it, no others.
    pub causal: bool,
    /// Probability with which a number that a block adds is dropped in training.
    pub dropout: f64,
}

impl Default for TransformerConfig {
    fn default() -> Self {
        TransformerConfig { layers: 6, width: 384, heads: 6, causal: false, dropout: 0.0 }
    }
}

/// Standard deviation of a transformer's first weights, as in GPT-2 (Radford et al., 2019).
pub(super) const STD: f64 = 0.02;

/// `x + attention(norm(x))`, then `x + down(gelu(up(norm(x))))`, where `up` widens by four: norms stand before what they
/// normalise for. `x, y: [n, t, d]`. Errors: as [`MultiHeadAttention`].
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct TransformerBlock {
    norm1: LayerNorm,
    attention: MultiHeadAttention,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    dropout: Option<Dropout>,
}

impl TransformerBlock {
    /// Block of a transformer of `config`. Weights begin as in GPT-2: normal, those of layers that add to `x` divided by
    /// the root of their number. Errors: Value for heads that do not divide the width or a dropout outside 0 ..= 1;
    /// Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &TransformerConfig) -> Result<Self> {
        let d = config.width;
        let linear = |std| LinearOptions {
            weight_init: Init::Normal { mean: 0.0, std },
            bias_init: Some(Init::Zeros),
            ..LinearOptions::default()
        };
        let (plain, adds) = (linear(STD), linear(STD / ((2 * config.layers.max(1)) as f64).sqrt()));
        let attention = AttentionOptions { qkv: plain, out: adds };
        Ok(TransformerBlock {
            norm1: LayerNorm::new(cx, [d])?,
            attention: MultiHeadAttention::with(cx, d, config.heads, attention)?,
            norm2: LayerNorm::new(cx, [d])?,
            up: Linear::with(cx, d, 4 * d, plain)?,
            down: Linear::with(cx, 4 * d, d, adds)?,
            dropout: dropout(cx, config.dropout)?,
        })
    }

    /// The output for `x` whose places see what [`MultiHeadAttention::forward_with`] is told.
    #[track_caller]
    pub fn forward_with(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let y = self.attention.forward_with(&self.norm1.forward(x)?, attend)?;
        let x = (drop_some(y, self.dropout.as_ref())? + x)?;
        let y = self.down.forward(&self.up.forward(&self.norm2.forward(&x)?)?.gelu()?)?;
        drop_some(y, self.dropout.as_ref())? + x
    }
}

impl TransformerBlock {
    /// As [`TransformerBlock::forward_with`] for places behind those of a cache, to which theirs are added.
    #[track_caller]
    pub(super) fn forward_cached(&self, x: &Tensor, cache: &KvCache) -> Result<Tensor> {
        let y = self.attention.forward_cached(&self.norm1.forward(x)?, cache)?;
        let x = (y + x)?;
        let y = self.down.forward(&self.up.forward(&self.norm2.forward(&x)?)?.gelu()?)?;
        y + x
    }
}

impl Layer for TransformerBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, Attend::default())
    }
}

/// A layer that drops, if it ever does.
pub(super) fn dropout(cx: &mut InitCx, p: f64) -> Result<Option<Dropout>> {
    if p == 0.0 { Ok(None) } else { Dropout::new(p, &mut cx.rng).map(Some) }
}

pub(super) fn drop_some(x: Tensor, dropout: Option<&Dropout>) -> Result<Tensor> {
    match dropout {
        Some(d) => d.forward(&x),
        None => Ok(x),
    }
}

/// Blocks, and a norm behind the last; `x, y: [n, t, width]`. Errors: as [`MultiHeadAttention`].
///
/// The parameters are `layers (12 width^2 + 13 width) + 2 width` numbers.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Transformer {
    blocks: Vec<TransformerBlock>,
    norm: LayerNorm,
    causal: bool,
}

impl Transformer {
    /// A network with scopes named `transformer`. Errors: as [`TransformerBlock::new`].
    pub fn new(cx: &mut InitCx, config: &TransformerConfig) -> Result<Self> {
        let blocks = (0..config.layers).map(|_| TransformerBlock::new(cx, config)).collect::<Result<_>>()?;
        let net = Transformer { blocks, norm: LayerNorm::new(cx, [config.width])?, causal: config.causal };
        net.name_scopes("transformer");
        Ok(net)
    }
}

impl Transformer {
    /// The output for places behind those of the caches, one a block, to which theirs are added.
    #[track_caller]
    pub(super) fn forward_cached(&self, x: &Tensor, caches: &[KvCache]) -> Result<Tensor> {
        let mut y = x.clone();
        for (block, cache) in self.blocks.iter().zip(caches) {
            y = block.forward_cached(&y, cache)?;
        }
        self.norm.forward(&y)
    }

    /// Room for the keys and values of `n` texts of at most `places` tokens, one cache a block.
    pub(super) fn caches(&self, cx: &mut InitCx, n: usize, places: usize) -> Result<Vec<KvCache>> {
        self.blocks.iter().map(|b| b.attention.cache(cx, n, places)).collect()
    }

    pub(super) fn depth(&self) -> usize {
        self.blocks.len()
    }
}

impl Layer for Transformer {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        extents::<3>(x, "transformer")?;
        let attend = Attend { causal: self.causal, ..Attend::default() };
        let mut y = x.clone();
        for block in &self.blocks {
            y = block.forward_with(&y, attend)?;
        }
        self.norm.forward(&y)
    }
}
