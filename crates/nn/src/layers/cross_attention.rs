use remat_tensor::{Attend, QueryPlace, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope, Shape};

use super::extents;
use super::linear::{Linear, LinearOptions};
use crate::{Init, InitCx, Label, Layer, Mode, Module, Parameter, RngCell};

/// Which [`CrossAttention`]. The default: keys and values as wide as queries, a head of keys for each head of queries, biases,
/// and nothing dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossAttentionOptions {
    /// Numbers of what keys are made of, if not those of a query.
    pub kdim: Option<usize>,
    /// Numbers of what values are made of, if not those of a query.
    pub vdim: Option<usize>,
    /// Heads of keys and values, each shared by as many heads of queries (Ainslie et al., EMNLP 2023), if fewer.
    pub heads_kv: Option<usize>,
    /// Probability with which a probability is dropped in training.
    pub dropout: f64,
    /// A key and a value that are learnt stand before those of every text, and every query sees them.
    pub add_bias_kv: bool,
    /// A key and a value of zeros stand before those of every text, and every query sees them.
    pub add_zero_attn: bool,
    /// Tensors are `[t, n, ..]`, not `[n, t, ..]`.
    pub time_first: bool,
    /// Of the layers of queries, keys and values.
    pub parts: LinearOptions,
    /// Of the layer behind the heads.
    pub out: LinearOptions,
}

/// `softmax(q k^T / sqrt(d / heads)) v` for each of several heads, and a linear layer over all of them (Vaswani et al.,
/// 2017), where queries, keys and values are linear layers of three tensors: `q: [n, tq, d]`, `k: [n, tk, kdim]`,
/// `v: [n, tk, vdim]`, `y: [n, tq, d]`. As a [`Layer`] all three are the same one.
///
/// Errors: Axis for another rank, Shape for another extent.
///
/// ```
/// use remat_nn::{Attend, CrossAttention, CrossAttentionOptions, InitCx};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # use remat_types::DType;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let options = CrossAttentionOptions { kdim: Some(6), vdim: Some(6), heads_kv: Some(1), ..Default::default() };
/// let layer = CrossAttention::with(&mut InitCx::new(&device, 1), 8, 4, options)?;
/// let (text, image) = (Tensor::ones(&device, [1, 3, 8], DType::F32)?, Tensor::ones(&device, [1, 10, 6], DType::F32)?);
/// assert_eq!(layer.forward_with(&text, &image, &image, Attend::default())?.dims(), [1, 3, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct CrossAttention {
    #[module(flatten)]
    label: Label,
    /// From `d` to `d`.
    pub q: Linear,
    /// From `kdim` to `d heads_kv / heads`.
    pub k: Linear,
    /// From `vdim` to `d heads_kv / heads`.
    pub v: Linear,
    /// From `d` to `d`.
    pub out: Linear,
    /// The key that is learnt, `[1, 1, d heads_kv / heads]`.
    pub bias_k: Option<Parameter>,
    /// Its value.
    pub bias_v: Option<Parameter>,
    mode: Mode,
    rng: RngCell,
    heads: usize,
    heads_kv: usize,
    #[module(skip)]
    options: CrossAttentionOptions,
}

impl CrossAttention {
    /// `heads` heads of `d / heads` numbers each. Errors: Value if `heads` does not divide `d`; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, d: usize, heads: usize) -> Result<Self> {
        CrossAttention::with(cx, d, heads, CrossAttentionOptions::default())
    }

    /// As [`CrossAttention::new`] with options. Errors: also those of the initialisers; Value for heads of keys that do not
    /// divide those of queries, or a dropout outside 0 ..= 1.
    pub fn with(cx: &mut InitCx, d: usize, heads: usize, options: CrossAttentionOptions) -> Result<Self> {
        let no = |text: String| Err(Error::new(ErrorKind::Value, text).with_op("attention"));
        let heads_kv = options.heads_kv.unwrap_or(heads);
        if heads == 0 || !d.is_multiple_of(heads) {
            return no(format!("{heads} heads do not divide a width of {d}"));
        }
        if heads_kv == 0 || !heads.is_multiple_of(heads_kv) {
            return no(format!("{heads_kv} heads of keys do not divide {heads} heads"));
        }
        if !(0.0..=1.0).contains(&options.dropout) {
            return no(format!("dropout is {}, must be 0 to 1", options.dropout));
        }
        let shared = d / heads * heads_kv;
        let own = |cx: &mut InitCx| -> Result<Option<Parameter>> {
            let init = Init::Normal { mean: 0.0, std: (shared.max(1) as f64).sqrt().recip() };
            if options.add_bias_kv { cx.parameter([1, 1, shared], init).map(Some) } else { Ok(None) }
        };
        Ok(CrossAttention {
            label: Label::new("attention"),
            q: Linear::with(cx, d, d, options.parts)?,
            k: Linear::with(cx, options.kdim.unwrap_or(d), shared, options.parts)?,
            v: Linear::with(cx, options.vdim.unwrap_or(d), shared, options.parts)?,
            out: Linear::with(cx, d, d, options.out)?,
            bias_k: own(cx)?,
            bias_v: own(cx)?,
            mode: Mode::default(),
            rng: RngCell::new(cx.rng.split()),
            heads,
            heads_kv,
            options,
        })
    }

    /// The output for queries of `q`, keys of `k` and values of `v`, where `attend` says what a query sees: its mask
    /// broadcasts to `[n, heads, tq, tk]`, so that one of keys alone is `[n, 1, 1, tk]`. In training the layer's own dropout
    /// takes the place of that of `attend`. A query that sees nothing gives what the last layer makes of 0.
    ///
    /// Errors: also those of [`Tensor::attention`]; Value for a window beside keys that every query sees.
    #[track_caller]
    pub fn forward_with(&self, q: &Tensor, k: &Tensor, v: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        if self.options.time_first {
            let turned = |x: &Tensor| x.transpose(0, 1);
            return self.attended(&turned(q)?, &turned(k)?, &turned(v)?, attend)?.transpose(0, 1);
        }
        self.attended(q, k, v, attend)
    }

    #[track_caller]
    fn attended(&self, q: &Tensor, k: &Tensor, v: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let [n, t, d] = extents(q, "attention")?;
        let [_, tk, _] = extents(k, "attention")?;
        let hq = self.by_heads(&self.q.forward(q)?, self.heads)?;
        let hk = self.by_heads(&self.with_own(self.k.forward(k)?, self.bias_k.as_ref())?, self.heads_kv)?;
        let hv = self.by_heads(&self.with_own(self.v.forward(v)?, self.bias_v.as_ref())?, self.heads_kv)?;
        let own = self.own();
        let mask = attend.mask.map(|m| shown(m, own, tk, 1)).transpose()?;
        let bias = attend.bias.map(|b| shown(b, own, tk, 0)).transpose()?;
        if own > 0 && attend.window.is_some() {
            let text = "a window beside keys that every query sees (add_bias_kv, add_zero_attn)";
            return Err(Error::new(ErrorKind::Value, text).with_op("attention"));
        }
        let place = match attend.place {
            QueryPlace::Start => QueryPlace::At(own as isize),
            QueryPlace::At(i) => QueryPlace::At(i.saturating_add_unsigned(own)),
            QueryPlace::End => QueryPlace::End,
        };
        let drops = self.options.dropout > 0.0 && self.mode.is_training();
        let key = if drops { Some(self.rng.next_key(&q.device())?) } else { None };
        let y = {
            let _scope = self.label.enter();
            let dropout = key.as_ref().map(|key| (self.options.dropout, key)).or(attend.dropout);
            let attend = Attend { dropout, mask: mask.as_ref(), bias: bias.as_ref(), place, ..attend };
            hq.attention(&hk, &hv, attend)?.reshape(&[n, t, d].map(|e| e as isize))?
        };
        self.out.forward(&y)
    }

    /// How many keys of the layer's own stand before those of a text.
    fn own(&self) -> usize {
        usize::from(self.options.add_bias_kv) + usize::from(self.options.add_zero_attn)
    }

    #[track_caller]
    fn by_heads(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let [n, t, d] = extents(x, "attention")?;
        x.reshape(&[n, t, heads, d / heads.max(1)].map(|e| e as isize))
    }

    /// `x: [n, t, ..]` behind the rows of the layer's own.
    #[track_caller]
    fn with_own(&self, x: Tensor, bias: Option<&Parameter>) -> Result<Tensor> {
        let [n, _, d] = extents(&x, "attention")?;
        let mut rows = Vec::new();
        if self.options.add_zero_attn {
            rows.push(Tensor::zeros(&x.device(), [n, 1, d], x.dtype())?);
        }
        if let Some(bias) = bias {
            rows.push(bias.get()?.broadcast_to([n, 1, d])?);
        }
        if rows.is_empty() {
            return Ok(x);
        }
        rows.push(x);
        Tensor::concat(&rows.iter().collect::<Vec<_>>(), 1)
    }
}

/// A mask or a bias of `tk` keys in the last axis, or of one for all, behind `own` of the layer's own with `value`.
#[track_caller]
fn shown(x: &Tensor, own: usize, tk: usize, value: i64) -> Result<Tensor> {
    let Some((last, others)) = x.dims().split_last().filter(|_| own > 0) else { return Ok(x.clone()) };
    let of = |n: usize| -> Shape { others.iter().copied().chain([n]).collect() };
    let all = if *last == 1 { x.broadcast_to(of(tk))? } else { x.clone() };
    let before = Tensor::full(&x.device(), of(own), x.dtype(), value)?;
    Tensor::concat(&[&before, &all], -1)
}

impl Layer for CrossAttention {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, x, x, Attend::default())
    }
}
