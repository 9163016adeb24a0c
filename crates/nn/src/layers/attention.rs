use remat_ops::pointwise::Where;
use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, Result, Shape};

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

    /// The output for `x` where query `i` sees key `j` if `mask[.., i, j]` is true; `mask` broadcasts to
    /// `[n, heads, t, t]`. A query that sees nothing gives NaN. Errors: also DType for a mask that is not of bools, and
    /// Shape for one that does not broadcast.
    pub fn forward_with(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let [n, t, d] = extents(x, "attention")?;
        let qkv = self.qkv.forward(x)?;
        let y = self.heads_of(&qkv, [n, t, d], mask);
        drop(qkv);
        self.out.forward(&y?)
    }

    /// What the heads give, side by side, from `q, k, v` side by side.
    fn heads_of(&self, qkv: &Tensor, [n, t, d]: [usize; 3], mask: Option<&Tensor>) -> Result<Tensor> {
        let _scope = self.label.enter();
        let qkv = qkv.reshape(&[n, t, 3, self.heads, d / self.heads].map(|e| e as isize))?;
        let part = |i| qkv.select(2, i)?.permute(&[0, 2, 1, 3]);
        let scale = ((d / self.heads) as f64).sqrt().recip();
        let y = attend(&part(0)?.mul(scale)?, &part(1)?, &part(2)?, mask)?;
        y.permute(&[0, 2, 1, 3])?.reshape(&[n, t, d].map(|e| e as isize))
    }
}

impl Layer for MultiHeadAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, None)
    }
}

/// `softmax(q k^T) v` over the last two axes; what the mask hides is -inf before the softmax.
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let scores = q.matmul(&k.transpose(-1, -2)?)?;
    let scores = match mask {
        None => scores,
        Some(mask) => {
            if scores.shape().broadcast(mask.shape())? != *scores.shape() {
                let text = format!("a mask of shape {} does not broadcast to {}", mask.shape(), scores.shape());
                return Err(Error::new(ErrorKind::Shape, text).with_op("attention"));
            }
            let hidden = Tensor::full(&q.device(), Shape::from([]), q.dtype(), f64::NEG_INFINITY)?;
            // handed over: written in place
            Tensor::apply_owned(Where, [mask.clone(), scores, hidden])?
        }
    };
    scores.softmax(-1)?.matmul(v)
}

/// The mask of causal attention over `t` places, bool `[t, t]`: place `i` sees `j <= i`. One serves every layer of a
/// model and every head. Errors: Budget if it does not fit.
pub fn causal_mask(device: &remat_runtime::Device, t: usize) -> Result<Tensor> {
    let places = Tensor::arange(device, 0, t as i64, 1, DType::I32)?;
    places.le(places.unsqueeze(1)?)
}
