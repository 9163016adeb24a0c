use remat_tensor::comm::Communicator;
use remat_tensor::{Attend, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::conjugate::{enter_parallel, take_part};
use super::parallel_linear::{ColumnParallelLinear, ColumnParallelOptions, RowParallelLinear, RowParallelOptions};
use crate::layers::{attend_cached, attend_heads, extents};
use crate::{AttentionOptions, InitCx, KvCache, Label, Layer, Module, MultiHeadAttention};

/// A [`MultiHeadAttention`] whose heads are divided by ranks (Shoeybi et al., Megatron-LM, 2019, section 3): each rank has `heads /
/// ranks` heads, their part of the layer in front and of the layer behind. `x, y: [n, t, d]`, which all ranks have alike.
///
/// Gradients, names and state are as [`ColumnParallelLinear`] says. Errors: those of [`MultiHeadAttention`]. On the device: those of a
/// collective.
///
/// ```
/// # use remat_nn::distributed::{ParallelAttention, threads};
/// # use remat_nn::{InitCx, Layer};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// let shapes = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let layer = ParallelAttention::new(&mut InitCx::new(&device, 1), 8, 4, &ranks)?;
///     Ok(layer.forward(&Tensor::ones(&device, [1, 5, 8], remat_types::DType::F32)?)?.dims().to_vec())
/// })?;
/// assert_eq!(shapes, [[1, 5, 8]; 2]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct ParallelAttention {
    #[module(flatten)]
    label: Label,
    /// From `d` to `3 d / ranks`: this rank's heads of `q`, then of `k`, then of `v`.
    pub qkv: ColumnParallelLinear,
    /// From `d / ranks` to `d`.
    pub out: RowParallelLinear,
    /// This rank's.
    heads: usize,
}

impl ParallelAttention {
    /// `heads` heads of `d / heads` numbers each, on all ranks together; drawn as [`ColumnParallelLinear::new`] says. Errors: Value if
    /// the heads do not divide `d`, or the ranks the heads; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, d: usize, heads: usize, group: &Communicator) -> Result<Self> {
        ParallelAttention::with(cx, d, heads, AttentionOptions::default(), group)
    }

    /// As [`ParallelAttention::new`] with options. Errors: also those of the initialisers.
    pub fn with(
        cx: &mut InitCx,
        d: usize,
        heads: usize,
        options: AttentionOptions,
        group: &Communicator,
    ) -> Result<Self> {
        ParallelAttention::from_attention(&MultiHeadAttention::with(cx, d, heads, options)?, group)
    }

    /// This rank's part of a layer that all ranks have alike. Errors: Value if the ranks do not divide the heads; Budget if the part
    /// does not fit beside the whole.
    pub fn from_attention(whole: &MultiHeadAttention, group: &Communicator) -> Result<Self> {
        let heads = whole.heads();
        if !heads.is_multiple_of(group.size()) {
            let text = format!("{} ranks do not divide {heads} heads", group.size());
            return Err(Error::new(ErrorKind::Value, text).with_op("attention"));
        }
        let three = ColumnParallelOptions { blocks: 3, ..Default::default() };
        Ok(ParallelAttention {
            label: Label::new("attention"),
            qkv: ColumnParallelLinear::from_linear(&whole.qkv, three, group)?,
            out: RowParallelLinear::from_linear(&whole.out, RowParallelOptions::default(), group)?,
            heads: heads / group.size(),
        })
    }

    /// As [`MultiHeadAttention::forward_with`]: mask and bias are of all heads, or of one for all, and all ranks have them alike.
    ///
    /// Errors: as there; Value for a dropout, whose numbers are drawn for all heads at once.
    #[track_caller]
    pub fn forward_with(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        if attend.dropout.is_some_and(|(p, _)| p > 0.0) && self.group().size() > 1 {
            let text = "what drops probabilities is drawn for all heads at once: ranks cannot draw their part";
            return Err(Error::new(ErrorKind::Value, text).with_op("attention"));
        }
        let [_, _, _] = extents(x, "attention")?;
        let qkv = self.qkv.forward(x)?;
        let y = {
            let _scope = self.label.enter();
            let mask = attend.mask.map(|m| self.of_own_heads(m)).transpose()?;
            let bias = attend.bias.map(|b| self.of_own_heads(b)).transpose()?;
            attend_heads(qkv, self.heads, Attend { mask: mask.as_ref(), bias: bias.as_ref(), ..attend })?
        };
        self.out.forward(&y)
    }

    /// As [`MultiHeadAttention::forward_cached`], with a cache of [`ParallelAttention::cache`]. Errors: as there.
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

    /// A cache of this rank's heads for `n` texts of at most `places` tokens. Errors: Budget if it does not fit.
    pub fn cache(&self, cx: &mut InitCx, n: usize, places: usize) -> Result<KvCache> {
        KvCache::new(cx, n, places, self.heads, self.out.weight.part().shape()[1] / self.heads)
    }

    fn group(&self) -> &Communicator {
        self.qkv.weight.group()
    }

    /// The part for this rank's heads of a tensor that broadcasts to `[n, heads, tq, tk]`.
    #[track_caller]
    fn of_own_heads(&self, x: &Tensor) -> Result<Tensor> {
        let all = self.heads * self.group().size();
        match x.dims() {
            [.., heads, _, _] if *heads == all => take_part(x, -3, self.group()),
            [.., heads, _, _] if *heads != 1 => {
                let text = format!("a mask or bias of shape {} is for {heads} heads, not for all {all}", x.shape());
                Err(Error::new(ErrorKind::Shape, text).with_op("attention"))
            }
            // every rank's heads see all of it, and its gradient is the sum of theirs
            _ => enter_parallel(x, self.group()),
        }
    }
}

impl Layer for ParallelAttention {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, Attend::default())
    }
}
