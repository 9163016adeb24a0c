use remat_nn::{Embedding, Init, InitCx, KvCache, Layer, Linear, LinearOptions, Module, RmsNorm, extents};
use remat_tensor::{Attend, QueryPlace, Rope, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

use super::transformer::STD;

/// Which [`Llama`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlamaConfig {
    /// Blocks.
    pub layers: usize,
    /// Numbers at each place.
    pub width: usize,
    /// Heads of queries; they divide the width.
    pub heads: usize,
    /// Heads of keys and values, each seen by the same number of heads of queries.
    pub kv_heads: usize,
    /// Numbers of a block's hidden layer.
    pub hidden: usize,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Base of the wavelengths of positions.
    pub theta: f64,
    /// Added to the mean square of a normalisation.
    pub eps: f64,
    /// The last layer's weight is the table of tokens.
    pub tied: bool,
}

impl LlamaConfig {
    /// Llama 2 7B: 6,738,415,616 parameters.
    pub fn llama2_7b() -> Self {
        LlamaConfig {
            layers: 32,
            width: 4096,
            heads: 32,
            kv_heads: 32,
            hidden: 11008,
            vocabulary: 32000,
            theta: 1e4,
            eps: 1e-5,
            tied: false,
        }
    }

    /// Llama 3 8B, whose heads are grouped by four: 8,030,261,248 parameters.
    pub fn llama3_8b() -> Self {
        LlamaConfig { kv_heads: 8, hidden: 14336, vocabulary: 128_256, theta: 5e5, ..LlamaConfig::llama2_7b() }
    }

    /// TinyLlama 1.1B (Zhang et al., 2024), whose heads are grouped by eight: 1,100,048,384 parameters.
    pub fn tiny_1b() -> Self {
        LlamaConfig { layers: 22, width: 2048, kv_heads: 4, hidden: 5632, ..LlamaConfig::llama2_7b() }
    }

    /// Errors (Value) unless heads, groups and pairs of numbers come out even.
    fn check(&self) -> Result<()> {
        let fault = match *self {
            LlamaConfig { heads: 0, .. } | LlamaConfig { kv_heads: 0, .. } => "no heads".to_owned(),
            c if !c.width.is_multiple_of(2 * c.heads) => {
                format!("{} heads do not divide a width of {} into pairs", c.heads, c.width)
            }
            c if !c.heads.is_multiple_of(c.kv_heads) => {
                format!("{} heads of keys do not divide {} heads of queries", c.kv_heads, c.heads)
            }
            c if !(c.theta.is_finite() && c.theta > 0.0) => format!("theta is {}, must be above 0", c.theta),
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Value, fault).with_op("llama"))
    }
}

/// Causal attention whose heads of keys and values serve several of queries (Ainslie et al., EMNLP 2023).
#[derive(Module)]
#[module(crate = remat_nn)]
struct GroupedAttention {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    heads: usize,
    kv_heads: usize,
    theta: f64,
}

impl GroupedAttention {
    fn new(cx: &mut InitCx, c: &LlamaConfig) -> Result<Self> {
        let kv = c.width / c.heads * c.kv_heads;
        Ok(GroupedAttention {
            q: linear(cx, c.width, c.width)?,
            k: linear(cx, c.width, kv)?,
            v: linear(cx, c.width, kv)?,
            o: linear(cx, c.width, c.width)?,
            heads: c.heads,
            kv_heads: c.kv_heads,
            theta: c.theta,
        })
    }

    /// For places behind those of the cache, if there is one, to which theirs are added.
    fn forward(&self, x: &Tensor, cache: Option<&KvCache>) -> Result<Tensor> {
        let [n, t, d] = extents(x, "llama")?;
        let heads = |y: Tensor, heads: usize| y.reshape(&[n, t, heads, d / self.heads].map(|e| e as isize));
        let rope = Rope { base: self.theta, offset: cache.map_or(0, KvCache::len), ..Rope::default() };
        let q = heads(self.q.forward(x)?, self.heads)?.rope(rope)?;
        let k = heads(self.k.forward(x)?, self.kv_heads)?.rope(rope)?;
        let v = heads(self.v.forward(x)?, self.kv_heads)?;
        let y = match cache {
            Some(cache) => {
                let (k, v) = cache.append(&k, &v)?;
                q.attention(&k, &v, Attend { place: QueryPlace::End, ..Attend::CAUSAL })?
            }
            None => q.attention(&k, &v, Attend::CAUSAL)?,
        };
        self.o.forward(&y.reshape(&[n, t, d].map(|e| e as isize))?)
    }
}

fn linear(cx: &mut InitCx, inputs: usize, outputs: usize) -> Result<Linear> {
    let weight_init = Init::Normal { mean: 0.0, std: STD };
    Linear::with(cx, inputs, outputs, LinearOptions { bias: false, weight_init, ..LinearOptions::default() })
}

/// `x + attention(norm(x))`, then `x + down(silu(gate(norm(x))) up(norm(x)))`: a SwiGLU layer (Shazeer, 2020).
#[derive(Module)]
#[module(crate = remat_nn)]
struct LlamaBlock {
    norm1: RmsNorm,
    attention: GroupedAttention,
    norm2: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl LlamaBlock {
    fn new(cx: &mut InitCx, c: &LlamaConfig) -> Result<Self> {
        Ok(LlamaBlock {
            norm1: RmsNorm::with(cx, [c.width], c.eps)?,
            attention: GroupedAttention::new(cx, c)?,
            norm2: RmsNorm::with(cx, [c.width], c.eps)?,
            gate: linear(cx, c.width, c.hidden)?,
            up: linear(cx, c.width, c.hidden)?,
            down: linear(cx, c.hidden, c.width)?,
        })
    }

    fn forward(&self, x: &Tensor, cache: Option<&KvCache>) -> Result<Tensor> {
        let x = (self.attention.forward(&self.norm1.forward(x)?, cache)? + x)?;
        let y = self.norm2.forward(&x)?;
        self.down.forward(&self.gate.forward(&y)?.silu()?.mul(self.up.forward(&y)?)?)? + x
    }
}

/// A decoder-only transformer of Llama's kind (Touvron et al., 2023): tokens `[n, t]` of any integer dtype to logits
/// `[n, t, vocabulary]` of the token that comes next. Positions are rotations of queries and keys, norms are by the mean
/// square and
/// stand first, hidden layers are gated, and no layer has a bias.
///
/// Errors: Axis for another rank, DType for tokens that are no integers; at run time, Index for one that is not in the
/// vocabulary.
///
/// ```
/// use remat_zoo::models::{Llama, LlamaConfig};
/// use remat_nn::{InitCx, Layer};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let small = LlamaConfig { layers: 2, width: 16, heads: 4, kv_heads: 2, hidden: 24, ..LlamaConfig::llama2_7b() };
/// let llama = Llama::new(&mut InitCx::new(&device, 1), &LlamaConfig { vocabulary: 256, ..small })?;
/// let tokens = Tensor::new(&device, b"to be", [1, 5])?;
/// assert_eq!(llama.forward(&tokens)?.dims(), [1, 5, 256]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Llama {
    tokens: Embedding,
    blocks: Vec<LlamaBlock>,
    norm: RmsNorm,
    head: Option<Linear>,
}

impl Llama {
    /// A network with scopes named `llama`. Errors: Value for heads that do not divide the width into pairs, heads of keys
    /// that do not
    /// divide those of queries, or a `theta` that is not positive; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &LlamaConfig) -> Result<Self> {
        let c = config;
        c.check()?;
        let net = Llama {
            tokens: Embedding::with(cx, c.vocabulary, c.width, Init::Normal { mean: 0.0, std: STD })?,
            blocks: (0..c.layers).map(|_| LlamaBlock::new(cx, c)).collect::<Result<_>>()?,
            norm: RmsNorm::with(cx, [c.width], c.eps)?,
            head: if c.tied { None } else { Some(linear(cx, c.width, c.vocabulary)?) },
        };
        net.name_scopes("llama");
        Ok(net)
    }

    /// Room for the keys and values of `n` texts of at most `places` tokens, one cache a block. Errors: Budget if it does
    /// not fit.
    pub fn caches(&self, n: usize, places: usize) -> Result<Vec<KvCache>> {
        let table = &self.tokens.weight;
        let mut cx = InitCx::new(table.device(), 0).with_dtype(table.dtype());
        let of = |b: &LlamaBlock| {
            let (heads, kv_heads) = (b.attention.heads, b.attention.kv_heads);
            KvCache::new(&mut cx, n, places, kv_heads, table.shape()[1] / heads)
        };
        self.blocks.iter().map(of).collect()
    }

    /// The logits `[n, t, vocabulary]` of the tokens `[n, t]` that follow those of the caches, to which they are added.
    /// Errors: as
    /// for all tokens at once; Arity for another number of caches than blocks; Shape for more tokens than there is room for.
    ///
    /// ```
    /// # use remat_zoo::models::{Llama, LlamaConfig};
    /// # use remat_nn::{InitCx, Layer};
    /// # use remat_runtime::Device;
    /// # use remat_tensor::Tensor;
    /// # fn main() -> remat_types::Result<()> {
    /// # let device = Device::cpu(Default::default())?;
    /// # let small = LlamaConfig { layers: 2, width: 16, heads: 4, kv_heads: 2, hidden: 24, ..LlamaConfig::llama2_7b() };
    /// let llama = Llama::new(&mut InitCx::new(&device, 1), &LlamaConfig { vocabulary: 256, ..small })?;
    /// let caches = llama.caches(1, 8)?;
    /// let at_once = llama.forward(&Tensor::new(&device, b"to be", [1, 5])?)?;
    /// llama.forward_cached(&Tensor::new(&device, b"to b", [1, 4])?, &caches)?;
    /// let last = llama.forward_cached(&Tensor::new(&device, b"e", [1, 1])?, &caches)?;
    /// assert!(last.allclose(&at_once.narrow(1, 4, 1)?, 1e-4, 1e-5)?.item::<bool>()?);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn forward_cached(&self, tokens: &Tensor, caches: &[KvCache]) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        if caches.len() != self.blocks.len() {
            let text = format!("{} caches for {} blocks", caches.len(), self.blocks.len());
            return Err(Error::new(ErrorKind::Arity, text).with_op("llama"));
        }
        self.logits(tokens, |i| caches.get(i))
    }

    fn logits<'c>(&self, tokens: &Tensor, cache: impl Fn(usize) -> Option<&'c KvCache>) -> Result<Tensor> {
        extents::<2>(tokens, "llama")?;
        let mut x = self.tokens.forward(tokens)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, cache(i))?;
        }
        let y = self.norm.forward(&x)?;
        match &self.head {
            Some(head) => head.forward(&y),
            None => y.matmul(&self.tokens.weight.get()?.t()?),
        }
    }
}

impl Layer for Llama {
    #[track_caller]
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.logits(tokens, |_| None)
    }
}
