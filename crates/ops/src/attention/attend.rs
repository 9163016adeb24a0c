use remat_kernels::attention::{self as kernel, Drops, Inputs, Span, Strided, forward, forward_workspace_bytes};
use remat_kernels::philox::Stream;
use remat_types::{
    DType, Error, ErrorKind, Fact, Facts, Layout, Result, Scalar, Shape, SmallVec, Storage, for_float, smallvec,
};

use super::AttentionGrad;
use crate::args::{
    checked_fact, not_taken, number, outputs, real_dtype, want_dtype, want_float, want_rank, want_shape,
};
use crate::compose;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, In, LayoutReq, Op, Var};

/// `y = softmax(scale q k^T) v` for each image and head (Vaswani et al., 2017): `(q, k, v, ..) -> (y, lse)` with
/// `lse = ln sum exp(scale q k^T)` in the dtype that sums have.
///
/// `q: [n, tq, heads, d]`, `k: [n, tk, heads_kv, d]`, `v: [n, tk, heads_kv, dv]`, `y: [n, tq, heads, dv]`,
/// `lse: [n, heads, tq]`, of any strides. `heads / heads_kv` heads of `q` share a head of `k` and `v` (Ainslie et al., 2023,
/// arXiv:2305.13245), which is read where it is.
///
/// Behind them there may be, in this order: a mask of bools that broadcasts to `[n, heads, tq, tk]`, where it is true, query `i`
/// sees key `j`; a bias in the dtype of `q` that broadcasts to the same, and is added to the scores; and, if probabilities are
/// dropped, a key `u64 [2]`. A query that sees nothing gives 0, with an `lse` of minus infinity, and contributes to no gradient.
/// The scores exist in tiles only. Keys that the parameters hide from all queries of a tile are not read, so a NaN in them has no
/// effect. The gradient for a bias materialises all scores.
///
/// Errors: DType for inputs that are no floats or differ; Axis for other ranks; Shape for extents that do not fit or do not
/// broadcast; Arity; Value for a scale or cap that is not finite, a negative cap, or a probability outside 0 ..= 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(q_or_qkv: float, rest..: any), gradient(q_or_qkv, rest))]
pub struct Attention {
    /// Factor of the scores; `1 / sqrt(d)` in the paper.
    pub scale: Scalar,
    /// Query `i` sees keys `j <= i + offset` only, mask or not.
    #[param(default = false)]
    pub causal: bool,
    /// `q, k, v` are `[.., 0, .., ..]` to `[.., 2, .., ..]` of one input `[n, t, 3, heads, d]`, and so are their gradients.
    #[param(rename = "joined", default = false)]
    pub packed_qkv: bool,
    /// The place among the keys of the first query.
    #[param(default = 0, since = 2)]
    pub offset: isize,
    /// Query `i` sees keys `j >= i + offset - left` only.
    #[param(default = None, since = 2)]
    pub left: Option<usize>,
    /// Query `i` sees keys `j <= i + offset + right` only.
    #[param(default = None, since = 2)]
    pub right: Option<usize>,
    /// Scores become `cap tanh(score / cap)` before mask and bias (Gemma Team, 2024, arXiv:2408.00118), if not 0.
    #[param(default = 0.0.into(), since = 2)]
    pub cap: Scalar,
    /// The probability with which a probability is dropped; the others are over `1 - dropout`.
    #[param(default = 0.0.into(), since = 2)]
    pub dropout: Scalar,
}

/// The operands after queries, keys and values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    pub(crate) mask: Option<usize>,
    pub(crate) bias: Option<usize>,
    pub(crate) key: Option<usize>,
}

impl Attention {
    /// All keys, and nothing else.
    #[must_use]
    pub fn plain(scale: f64) -> Self {
        Attention {
            scale: scale.into(),
            causal: false,
            packed_qkv: false,
            offset: 0,
            left: None,
            right: None,
            cap: 0.0.into(),
            dropout: 0.0.into(),
        }
    }

    /// Number of inputs before the mask.
    pub(crate) fn tensors(&self) -> usize {
        if self.packed_qkv { 1 } else { 3 }
    }

    /// Which keys a query sees.
    pub(crate) fn span(&self) -> Span {
        Span { offset: self.offset, left: self.left, right: if self.causal { Some(0) } else { self.right } }
    }

    /// Where mask, bias and key are among inputs of these dtypes. Errors: Arity.
    pub(crate) fn extras(&self, dtypes: &[DType]) -> Result<Extras> {
        let (tensors, mut all) = (self.tensors(), Extras::default());
        let drops = number(self.dropout, "dropout", "within 0 ..= 1", |p| (0.0..=1.0).contains(&p))? > 0.0;
        let wrong = || {
            let key = if drops { ", and a key" } else { "" };
            let text =
                format!("attends to {tensors} inputs, perhaps a mask and a bias{key}, not to {} of them", dtypes.len());
            Error::new(ErrorKind::Arity, text)
        };
        let mut at = tensors;
        if dtypes.len() < tensors {
            return Err(wrong());
        }
        let is = |at: usize, wanted: &dyn Fn(DType) -> bool| dtypes.get(at).is_some_and(|d| wanted(*d));
        if is(at, &|d| d == DType::Bool) {
            all.mask = Some(at);
            at += 1;
        }
        if is(at, &DType::is_float) {
            all.bias = Some(at);
            at += 1;
        }
        if drops && at < dtypes.len() {
            all.key = Some(at);
            at += 1;
        }
        if let Some(other) = dtypes.get(at).filter(|d| !(d.is_float() || matches!(d, DType::U64 | DType::Bool))) {
            let text = format!("input {at} is of {other}, neither a mask of bools nor a bias of floats");
            return Err(Error::new(ErrorKind::DType, text));
        }
        if at != dtypes.len() || drops != all.key.is_some() { Err(wrong()) } else { Ok(all) }
    }

    /// Extents of `q, k, v`. Errors as [`Attention`].
    fn extents(&self, x: &[&Fact]) -> Result<[[usize; 4]; 3]> {
        let of = |f: &Fact, name: &str| {
            want_dtype(f, x[0].dtype, name)?;
            want_rank(f, 4, name)?;
            Ok::<_, Error>([f.shape[0], f.shape[1], f.shape[2], f.shape[3]])
        };
        if !self.packed_qkv {
            want_float(x[0], "q")?;
            return Ok([of(x[0], "q")?, of(x[1], "k")?, of(x[2], "v")?]);
        }
        want_float(x[0], "qkv")?;
        want_rank(x[0], 5, "qkv")?;
        let s = &x[0].shape;
        want_shape(x[0], &[s[0], s[1], 3, s[3], s[4]], "qkv")?;
        Ok([[s[0], s[1], s[3], s[4]]; 3])
    }

    /// The sizes, without a stream of random numbers. Errors as [`Attention`].
    pub(super) fn sizes(&self, x: &[&Fact]) -> Result<kernel::Attention> {
        let dtypes: SmallVec<[DType; 8]> = x.iter().map(|x| x.dtype).collect();
        let extras = self.extras(&dtypes)?;
        let [[n, tq, heads, d], [nk, tk, heads_kv, dk], [nv, tv, heads_v, dv]] = self.extents(x)?;
        let groups = heads_kv == heads || heads_kv > 0 && heads.is_multiple_of(heads_kv);
        if (nk, dk) != (n, d) || (nv, tv, heads_v) != (n, tk, heads_kv) || !groups {
            let text = format!("q, k and v have shapes {}, {} and {}", x[0].shape, x[1].shape, x[2].shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        // its operations can be counted, and so can all bytes of a workspace
        let pair_elems = d.saturating_add(dv).saturating_mul(64);
        Shape::from([n, heads, tq, tk, pair_elems]).checked_elems()?;
        let scores = Shape::from([n, heads, tq, tk]);
        for (at, name) in [(extras.mask, "mask"), (extras.bias, "bias")] {
            let Some(f) = at.map(|at| x[at]) else { continue };
            if name == "bias" {
                want_dtype(f, x[0].dtype, "the bias")?;
            }
            if f.shape.broadcast(&scores).ok().as_ref() != Some(&scores) {
                let text = format!("a {name} of shape {} does not broadcast to {scores}", f.shape);
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
        if let Some(at) = extras.key {
            want_dtype(x[at], DType::U64, "the key")?;
            want_shape(x[at], &[2], "the key")?;
        }
        let scale = number(self.scale, "scale", "finite", f64::is_finite)?;
        let cap = number(self.cap, "cap", "finite and not negative", |c| c.is_finite() && c >= 0.0)?;
        let p = self.dropout.to_f64();
        let drops = extras.key.map(|_| Drops { p, stream: Stream { key: 0, stream: 0 } });
        Ok(kernel::Attention { n, heads, heads_kv, tq, tk, d, dv, span: self.span(), scale, cap, drops })
    }

    /// [`Attention::sizes`] of inputs, with their key.
    pub(super) fn sizes_of(&self, x: &[In<'_>]) -> Result<kernel::Attention> {
        let facts: SmallVec<[Fact; 6]> = x.iter().map(|x| Fact::new(x.dtype(), x.shape().clone())).collect();
        let mut a = self.sizes(&facts.iter().collect::<SmallVec<[&Fact; 6]>>())?;
        if let (Some(drops), Some(key)) = (&mut a.drops, x.last()) {
            let (words, layout) = (key.storage::<u64>()?, key.layout());
            let at = |i: isize| words[(layout.offset() as isize + i * layout.strides()[0]) as usize];
            drops.stream = Stream { key: at(0), stream: at(1) };
        }
        Ok(a)
    }

    /// The inputs as the kernel takes them.
    pub(super) fn inputs<'a, T: Storage>(&self, x: &[In<'a>], a: &kernel::Attention) -> Result<Inputs<'a, T>> {
        let dtypes: SmallVec<[DType; 8]> = x.iter().map(In::dtype).collect();
        let (extras, scores) = (self.extras(&dtypes)?, Shape::from([a.n, a.heads, a.tq, a.tk]));
        let mask = match extras.mask.map(|at| &x[at]) {
            Some(x) => Some(strided(x.storage()?, &x.layout().broadcast_to(&scores)?)),
            None => None,
        };
        let bias = match extras.bias.map(|at| &x[at]) {
            Some(x) => Some(strided(x.storage()?, &x.layout().broadcast_to(&scores)?)),
            None => None,
        };
        let of = |i: usize| {
            if !self.packed_qkv {
                return Ok::<_, Error>(strided(x[i].storage()?, x[i].layout()));
            }
            Ok(strided(x[0].storage()?, &x[0].layout().slice(2, i, 1, 1)?.permute(&[2, 0, 1, 3, 4])?))
        };
        Ok(Inputs { q: of(0)?, k: of(1)?, v: of(2)?, mask, bias })
    }
}

/// The last four axes of a layout.
pub(super) fn strided<'a, T>(data: &'a [T], layout: &Layout) -> Strided<'a, T> {
    let mut strides = [0; 4];
    strides.iter_mut().rev().zip(layout.strides().iter().rev()).for_each(|(to, from)| *to = *from);
    Strided { data, offset: layout.offset(), strides }
}

impl Op for Attention {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let a = self.sizes(x)?;
        let dtype = x[0].dtype;
        let lse = checked_fact(real_dtype(dtype), [a.n, a.heads, a.tq])?;
        Ok(smallvec![checked_fact(dtype, [a.n, a.tq, a.heads, a.dv])?, lse])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (x, a, dtype) = (cx.x, self.sizes_of(cx.x)?, cx.x[0].dtype());
        let [y, lse] = outputs(cx.y)?;
        for_float!(dtype, T => {
            let inputs = self.inputs::<T>(x, &a)?;
            forward(cx.pool, &a, &inputs, y.slice_mut()?, lse.slice_mut()?, cx.workspace);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        if cx.dy(1).is_some() {
            return cx.grad_via_composite(|cx, x| compose::attention(cx, self, x));
        }
        let mut grads: Grads = SmallVec::from_elem(None, cx.x_count());
        let Some(dy) = cx.dy(0) else { return Ok(grads) };
        let dtypes: SmallVec<[DType; 8]> = (0..cx.x_count()).map(|i| cx.fact(cx.x(i)).dtype).collect();
        if let Some(bias) = self.extras(&dtypes)?.bias.filter(|b| cx.needs(*b)) {
            let x: SmallVec<[Var; 8]> = [cx.y(1), dy].into_iter().chain((0..cx.x_count()).map(|i| cx.x(i))).collect();
            grads[bias] = Some(compose::attention_bias_gradient(cx, self, &x, bias)?);
        }
        let x: SmallVec<[Var; 8]> = [cx.y(1), dy].into_iter().chain((0..cx.x_count()).map(|i| cx.x(i))).collect();
        let found = cx.apply_all(AttentionGrad { of: self.clone() }, &x)?;
        grads.iter_mut().zip(found).for_each(|(to, g)| *to = Some(g));
        Ok(grads)
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(a) = self.sizes(x) else { return 0 };
        for_float!(x[0].dtype, T => forward_workspace_bytes::<T>(&a, threads), else 0)
    }

    /// Products alone, as published figures have them.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = self.sizes(x).map_or(0, |a| 2 * a.pairs() * (a.d + a.dv));
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
