//! Calls of layers with several inputs, some of them optional: recurrent layers, attention, pairs.

use pyo3::prelude::*;
use remat::nn::{
    Bilinear, CrossAttention, DecoderBlock, DeformConv2d, EmbeddingBag, EncoderBlock, EncoderDecoder, Gru, GruCell,
    InitCx, KvCache, Lstm, LstmCell, MaxUnpool, Module, MultiHeadAttention, RegionRestrictedConv2d, Rnn, RnnCell,
};
use remat::{Attend, Error, ErrorKind, QueryPlace, Result, Tensor};

/// A layer of several tensors.
pub(crate) trait MultiInput: Module {
    /// The outputs for the tensors of a call, in the order that the Python class has them.
    fn call(&self, x: &Inputs, o: &CallOptions) -> Result<Vec<Tensor>>;

    /// Itself as a layer that keeps keys and values, if it is one.
    fn as_cached(&self) -> Option<&dyn Cached> {
        None
    }
}

/// A layer that keeps the keys and values of the places that it has seen.
pub(crate) trait Cached {
    /// Caches with room for `n` texts of at most `places` tokens, one for each attention.
    fn caches(&self, n: usize, places: usize) -> Result<Vec<KvCache>>;

    /// The output for the places that follow those of the caches. The call adds them to the caches.
    fn forward_cached(&self, x: &Tensor, caches: &[KvCache]) -> Result<Tensor>;
}

/// The tensors of a call.
pub(crate) struct Inputs(pub(crate) Vec<Option<Tensor>>);

impl Inputs {
    pub(super) fn opt(&self, i: usize) -> Option<&Tensor> {
        self.0.get(i).and_then(Option::as_ref)
    }

    /// Tensor `i`. Errors (Value): it was left out.
    pub(super) fn get(&self, i: usize) -> Result<&Tensor> {
        let none = || Error::new(ErrorKind::Value, format!("tensor {i} of the layer's call is missing"));
        self.opt(i).ok_or_else(none)
    }
}

/// The options of a call, which say what attention sees.
#[derive(Default)]
pub(crate) struct CallOptions {
    pub(super) causal: bool,
    pub(super) scale: Option<f64>,
    pub(super) window: Option<[usize; 2]>,
    pub(super) soft_cap: Option<f64>,
    /// True if the queries are the last places of the keys.
    pub(super) at_end: bool,
}

impl CallOptions {
    fn attend<'a>(&self, mask: Option<&'a Tensor>, bias: Option<&'a Tensor>) -> Attend<'a> {
        Attend {
            causal: self.causal,
            mask,
            bias,
            scale: self.scale,
            window: self.window,
            soft_cap: self.soft_cap,
            place: if self.at_end { QueryPlace::End } else { QueryPlace::Start },
            dropout: None,
        }
    }
}

/// The calls of layers: an expression for the outputs, from the layer, its inputs and the options. `as_cached` marks
/// layers that keep keys and values.
macro_rules! calls {
    ($($name:ident $(<$d:ident>)?: |$layer:ident, $x:ident, $o:tt| $outputs:expr $(, $cached:ident)?;)+) => { $(
        impl $(<const $d: usize>)? $crate::nn::multi_input::MultiInput for $name $(<$d>)? {
            fn call(&self, $x: &Inputs, $o: &CallOptions) -> Result<Vec<Tensor>> {
                let $layer = self;
                Ok($outputs)
            }

            $(fn $cached(&self) -> Option<&dyn $crate::nn::multi_input::Cached> {
                Some(self)
            })?
        }
    )+ };
}
pub(super) use calls;

calls! {
    Rnn: |layer, x, _| layer.forward_with(x.get(0)?, x.opt(1), x.opt(2)).map(|(y, h)| vec![y, h])?;
    Gru: |layer, x, _| layer.forward_with(x.get(0)?, x.opt(1), x.opt(2)).map(|(y, h)| vec![y, h])?;
    Lstm: |layer, x, _| layer.forward_with(x.get(0)?, both(x)?, x.opt(3)).map(|(y, [h, c])| vec![y, h, c])?;
    RnnCell: |layer, x, _| vec![layer.forward(x.get(0)?, x.opt(1))?];
    GruCell: |layer, x, _| vec![layer.forward(x.get(0)?, x.opt(1))?];
    LstmCell: |layer, x, _| layer.forward(x.get(0)?, both(x)?)?.into();
    MultiHeadAttention: |layer, x, o| vec![layer.forward_with(x.get(0)?, o.attend(x.opt(1), x.opt(2)))?], as_cached;
    CrossAttention: |layer, x, o| {
        vec![layer.forward_with(x.get(0)?, x.get(1)?, x.get(2)?, o.attend(x.opt(3), x.opt(4)))?]
    };
    EncoderBlock: |layer, x, o| vec![layer.forward_with(x.get(0)?, o.attend(x.opt(1), x.opt(2)))?];
    DecoderBlock: |layer, x, o| {
        let memory = Attend { mask: x.opt(3), ..Attend::default() };
        vec![layer.forward_with(x.get(0)?, x.get(1)?, o.attend(x.opt(2), None), memory)?]
    };
    // without a source, the decoder alone, on an earlier output of the encoder; without a target, the encoder alone
    EncoderDecoder: |layer, x, _| vec![match (x.opt(0), x.opt(1), x.opt(2)) {
        (Some(source), Some(target), mask) => layer.forward_with(source, target, mask)?,
        (Some(source), None, mask) => layer.encode(source, mask)?,
        (None, _, mask) => layer.decode(x.get(1)?, x.get(3)?, mask)?,
    }];
    EmbeddingBag: |layer, x, _| vec![layer.forward_with(x.get(0)?, x.opt(1), x.opt(2))?];
    DeformConv2d: |layer, x, _| vec![layer.forward(x.get(0)?, x.get(1)?, x.opt(2))?];
    RegionRestrictedConv2d: |layer, x, _| vec![layer.forward(x.get(0)?, x.get(1)?, x.get(2)?)?];
    Bilinear: |layer, x, _| vec![layer.forward(x.get(0)?, x.get(1)?)?];
    MaxUnpool<D>: |layer, x, _| vec![layer.forward(x.get(0)?, x.get(1)?)?];
}

/// The two states of an LSTM. Errors: Value if only one of them is given.
pub(super) fn both(x: &Inputs) -> Result<Option<[&Tensor; 2]>> {
    match (x.opt(1), x.opt(2)) {
        (None, None) => Ok(None),
        _ => Ok(Some([x.get(1)?, x.get(2)?])),
    }
}

impl Cached for MultiHeadAttention {
    fn caches(&self, n: usize, places: usize) -> Result<Vec<KvCache>> {
        let none = || Error::new(ErrorKind::Internal, "an attention without parameters");
        let weight = self.parameters().into_iter().next().ok_or_else(none)?;
        let cx = &mut InitCx::new(weight.device(), 0).with_dtype(weight.dtype());
        Ok(vec![self.cache(cx, n, places)?])
    }

    fn forward_cached(&self, x: &Tensor, caches: &[KvCache]) -> Result<Tensor> {
        match caches {
            [one] => self.forward_cached(x, one),
            _ => Err(Error::new(ErrorKind::Arity, format!("{} caches for an attention", caches.len()))),
        }
    }
}

/// Keys and values of texts that grow, for one attention or for all of a network. It has room for `places` tokens,
/// which it takes on the device from the beginning. `MultiHeadAttention.cache` and `remat.models.Gpt.cache` make one.
/// `len` of it is the number of tokens it holds.
///
/// >>> import remat
/// >>> attention = remat.nn.MultiHeadAttention(8, 2)
/// >>> cache = attention.cache(batch=1, places=16)
/// >>> _ = attention(remat.ones(1, 3, 8), cache=cache)
/// >>> len(cache), cache.places
/// (3, 16)
#[pyclass(name = "KvCache", module = "remat.nn", frozen)]
pub(crate) struct NativeCache(pub(crate) Vec<KvCache>);

/// The layer as one that keeps keys and values. Errors (Value): it keeps none.
pub(crate) fn cached(layer: &dyn MultiInput) -> Result<&dyn Cached> {
    let not = || Error::new(ErrorKind::Value, "this layer keeps no keys and values");
    layer.as_cached().ok_or_else(not)
}

#[pymethods]
impl NativeCache {
    /// The number of tokens it holds.
    fn __len__(&self) -> usize {
        self.0.first().map_or(0, KvCache::len)
    }

    /// The number of tokens that it has room for.
    #[getter]
    fn places(&self) -> usize {
        self.0.first().map_or(0, KvCache::places)
    }

    /// Forgets all tokens but the first `length`. Errors: ArgumentError if it holds fewer.
    fn truncate(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        crate::call::run(py, || self.0.iter().try_for_each(|c| c.truncate(length)))
    }

    /// Forgets all tokens.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.truncate(py, 0)
    }
}
