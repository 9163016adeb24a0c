use remat_tensor::{Attend, QueryPlace, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::KvCache;
use super::extents;
use super::linear::{Linear, LinearOptions};
use crate::{InitCx, Label, Layer, Module};

/// `softmax(q k^T / sqrt(d / heads)) v` for each of several heads, and a linear layer over all of them (Vaswani et al.,
/// 2017); `x, y: [n, t, d]`, where `q, k, v` are three thirds of one linear layer of `x`.
///
/// Errors: Axis for another rank, Shape for another last extent.
#[derive(Module)]
#[module(crate = crate)]
pub struct MultiHeadAttention {
    #[module(flatten)]
    label: Label,
    /// From `d` to `3 d`: first all heads of `q`, then of `k`, then of `v`.
    pub qkv: Linear,
    /// From `d` to `d`.
    pub out: Linear,
    heads: usize,
}

/// How a [`MultiHeadAttention`] is made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// Of the layer of `q, k, v`.
    pub qkv: LinearOptions,
    /// Of the layer behind the heads.
    pub out: LinearOptions,
}

impl MultiHeadAttention {
    /// `heads` heads of `d / heads` numbers each. Errors: Value if `heads` does not divide `d`; Budget if it does not
    /// fit.
    pub fn new(cx: &mut InitCx, d: usize, heads: usize) -> Result<Self> {
        MultiHeadAttention::with(cx, d, heads, AttentionOptions::default())
    }

    /// As [`MultiHeadAttention::new`] with options. Errors: also those of the initialisers.
    pub fn with(cx: &mut InitCx, d: usize, heads: usize, options: AttentionOptions) -> Result<Self> {
        if heads == 0 || !d.is_multiple_of(heads) {
            let text = format!("{heads} heads do not divide a width of {d}");
            return Err(Error::new(ErrorKind::Value, text).with_op("attention"));
        }
        Ok(MultiHeadAttention {
            label: Label::new("attention"),
            qkv: Linear::with(cx, d, 3 * d, options.qkv)?,
            out: Linear::with(cx, d, d, options.out)?,
            heads,
        })
    }

    /// The output for `x` where `attend` says what a place sees: its mask broadcasts to `[n, heads, t, t]`. A query that
    /// sees nothing gives 0. Errors: also DType for a mask that is not of bools, Shape for one that does not broadcast,
    /// and Value for a scale that is not finite.
    #[track_caller]
    pub fn forward_with(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [_, _, _] = extents(x, "attention")?;
        let qkv = self.qkv.forward(x)?;
        let y = {
            let _scope = self.label.enter();
            attend_heads(qkv, self.heads, attend)?
        };
        self.out.forward(&y)
    }

    /// The output for places `x: [n, t, d]` behind those of a cache, to which their keys and values are added; a place sees
    /// itself and the places before it. Errors: also Shape where the cache has no room.
    #[track_caller]
    pub fn forward_cached(&self, x: &Tensor, cache: &KvCache) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [_, _, _] = extents(x, "attention")?;
        let qkv = self.qkv.forward(x)?;
        let y = {
            let _scope = self.label.enter();
            attend_cached(qkv, self.heads, cache)?
        };
        self.out.forward(&y)
    }

    /// A cache for `n` texts of at most `places` tokens. Errors: Budget if it does not fit.
    pub fn cache(&self, cx: &mut InitCx, n: usize, places: usize) -> Result<KvCache> {
        let d = self.out.weight.shape()[1];
        KvCache::new(cx, n, places, self.heads, d / self.heads)
    }

    /// The number of heads.
    pub fn heads(&self) -> usize {
        self.heads
    }
}

/// The outputs of `heads` heads, side by side, from `q, k, v` side by side.
#[track_caller]
pub(crate) fn attend_heads(qkv: Tensor, heads: usize, attend: Attend<'_>) -> Result<Tensor> {
    let (qkv, beside) = by_heads(&qkv, heads)?;
    qkv.self_attention(attend)?.reshape(&beside)
}

/// The same of places behind those of a cache, to which their keys and values are added; a place sees itself and the places
/// before it.
#[track_caller]
pub(crate) fn attend_cached(qkv: Tensor, heads: usize, cache: &KvCache) -> Result<Tensor> {
    let (qkv, beside) = by_heads(&qkv, heads)?;
    let part = |i: isize| qkv.select(2, i);
    let (k, v) = cache.append(&part(1)?, &part(2)?)?;
    let attend = Attend { place: QueryPlace::End, ..Attend::CAUSAL };
    part(0)?.attention(&k, &v, attend)?.reshape(&beside)
}

/// `[n, t, 3 d]` as `[n, t, 3, heads, d / heads]`, and the extents `[n, t, d]` of the result.
#[track_caller]
fn by_heads(qkv: &Tensor, heads: usize) -> Result<(Tensor, [isize; 3])> {
    let [n, t, all] = extents(qkv, "attention")?;
    let signed = |e: usize| e as isize;
    let parts = [n, t, 3, heads, all / (3 * heads).max(1)].map(signed);
    Ok((qkv.reshape(&parts)?, [n, t, all / 3].map(signed)))
}

impl Layer for MultiHeadAttention {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, Attend::default())
    }
}
