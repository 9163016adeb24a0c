//! Attention and its gradients written with other ops: the rule of second derivatives, and of the gradient of `lse`.

use remat_types::{DType, Result, Shape, SmallVec, smallvec};

use super::{Arith, narrowed, permuted, shaped, widened};
use crate::Apply;
use crate::attention::Attention;
use crate::linalg::MatMul;
use crate::pointwise::{Arange, Compare, CompareFn, Fill, UnaryFn, Where};
use crate::random::Dropout;
use crate::reduce::LogSumExp;
use crate::shape::{BroadcastTo, Concat, Slice};

/// `[n, heads, t, d]` each, in the dtype of sums.
struct Heads<V> {
    /// Times the scale.
    q: V,
    k: V,
    v: V,
    /// Capped and biased; minus infinity where a key is hidden.
    scores: V,
    /// The derivative of the cap, if there is one.
    slopes: Option<V>,
    /// The factors of the probabilities, if some are dropped.
    kept: Option<V>,
    /// Heads of queries that share a head of keys.
    group: usize,
}

/// `[n, t, heads, d]` to `[n, heads, t, d]`, and back.
fn by_head<A: Apply>(cx: &A, v: A::Value) -> Result<A::Value> {
    permuted(cx, v, &[0, 2, 1, 3])
}

fn transposed<A: Apply>(cx: &A, v: A::Value) -> Result<A::Value> {
    permuted(cx, v, &[0, 1, 3, 2])
}

fn product<A: Apply>(cx: &A, a: A::Value, b: A::Value) -> Result<A::Value> {
    cx.apply1(MatMul {}, [a, b])
}

impl<V: Clone> Heads<V> {
    /// `x` are inputs of `op`.
    fn of<A: Apply<Value = V>>(cx: &A, op: &Attention, x: &[V]) -> Result<Heads<V>> {
        let part = |i: usize| {
            let v = if op.packed_qkv {
                let v = cx.apply1(Slice { axis: 2, start: i, len: 1, step: 1 }, [x[0].clone()])?;
                let s = cx.fact(&v).shape;
                Arith(cx).reshape(v, &Shape::from([s[0], s[1], s[3], s[4]]))?
            } else {
                x[i].clone()
            };
            by_head(cx, widened(cx, v)?)
        };
        let c = Arith(cx);
        let (q, k, v) = (c.scale(part(0)?, op.scale.to_f64())?, part(1)?, part(2)?);
        let group = cx.fact(&q).shape[1] / cx.fact(&k).shape[1].max(1);
        let (k, v) = (shared(cx, k, group)?, shared(cx, v, group)?);
        let mut scores = product(cx, q.clone(), transposed(cx, k.clone())?)?;
        let (cap, mut slopes) = (op.cap.to_f64(), None);
        if cap != 0.0 {
            let t = c.un(UnaryFn::Tanh, c.scale(scores, 1.0 / cap)?)?;
            slopes = Some(c.offset(c.neg(c.square(t.clone())?)?, 1.0)?);
            scores = c.scale(t, cap)?;
        }
        let dtypes: Vec<DType> = x.iter().map(|x| cx.fact(x).dtype).collect();
        let extras = op.extras(&dtypes)?;
        if let Some(bias) = extras.bias {
            scores = c.add(scores, widened(cx, x[bias].clone())?)?;
        }
        let shape = cx.fact(&scores).shape;
        let mut seen = within(cx, op, &shape)?;
        seen.extend(extras.mask.map(|at| x[at].clone()));
        for seen in seen {
            let hidden = c.constant(f64::NEG_INFINITY, &scores)?;
            scores = cx.apply1(Where, [seen, scores, hidden])?;
        }
        let kept = extras.key.map(|at| kept(cx, op, &scores, x[at].clone())).transpose()?;
        Ok(Heads { q, k, v, scores, slopes, kept, group })
    }

    /// The probabilities that are left, of all.
    fn left<A: Apply<Value = V>>(&self, cx: &A, p: V) -> Result<V> {
        match &self.kept {
            Some(kept) => Arith(cx).mul(p, kept.clone()),
            None => Ok(p),
        }
    }
}

/// `[n, heads_kv, t, d]`, each head `group` times.
fn shared<A: Apply>(cx: &A, v: A::Value, group: usize) -> Result<A::Value> {
    if group <= 1 {
        return Ok(v);
    }
    let s = cx.fact(&v).shape;
    let apart = shaped(cx, v, [s[0], s[1], 1, s[2], s[3]])?;
    let all = cx.apply1(BroadcastTo { shape: [s[0], s[1], group, s[2], s[3]].into() }, [apart])?;
    shaped(cx, all, [s[0], s[1] * group, s[2], s[3]])
}

/// The sum over the heads that share one: what [`shared`] has for a gradient.
fn gathered<A: Apply>(cx: &A, v: A::Value, group: usize) -> Result<A::Value> {
    if group <= 1 {
        return Ok(v);
    }
    let s = cx.fact(&v).shape;
    let apart = shaped(cx, v, [s[0], s[1] / group, group, s[2], s[3]])?;
    let sum = Arith(cx).sum_over(apart, &[2])?;
    shaped(cx, sum, [s[0], s[1] / group, s[2], s[3]])
}

/// Bools `[tq, tk]`, one for each bound: whether query `i` sees key `j`.
fn within<A: Apply>(cx: &A, op: &Attention, scores: &Shape) -> Result<Vec<A::Value>> {
    let places = |start: isize, len| {
        let start = i64::try_from(start).unwrap_or(i64::MAX).into();
        cx.apply1(Arange { dtype: DType::I64, start, step: 1.into(), len }, [])
    };
    let span = op.span();
    // a bound that lies beyond all keys is none
    let far = (scores[2] + scores[3]) as isize + span.offset.saturating_abs();
    let held = |by: usize| isize::try_from(by).unwrap_or(isize::MAX).min(far);
    let bounds = [
        (span.right, CompareFn::Le, span.right.map_or(0, |r| span.offset.saturating_add(held(r)))),
        (span.left, CompareFn::Ge, span.left.map_or(0, |l| span.offset.saturating_sub(held(l)))),
    ];
    let one = |(_, f, start): (_, CompareFn, isize)| {
        let queries = Arith(cx).reshape(places(start, scores[2])?, &Shape::from([scores[2], 1]))?;
        cx.apply1(Compare { f }, [places(0, scores[3])?, queries])
    };
    bounds.into_iter().filter(|(bound, ..)| bound.is_some()).map(one).collect()
}

/// The factors by which the kernel multiplies probabilities, in the shape of the scores. Its random words are those of keys and
/// padded queries.
fn kept<A: Apply>(cx: &A, op: &Attention, scores: &A::Value, key: A::Value) -> Result<A::Value> {
    let (s, dtype) = (cx.fact(scores).shape, cx.fact(scores).dtype);
    let padded = s[2].next_multiple_of(64);
    let ones = cx.apply1(Fill { dtype, shape: [s[0], s[1], s[3], padded].into(), value: 1.0.into() }, [])?;
    let all = cx.apply1(Dropout { p: op.dropout }, [ones, key])?;
    transposed(cx, cx.apply1(Slice { axis: 3, start: 0, len: s[2], step: 1 }, [all])?)
}

/// `exp(scores - lse)` with an `lse` a row, 0 for a query that sees nothing.
fn probabilities<A: Apply>(cx: &A, scores: A::Value, lse: &A::Value) -> Result<A::Value> {
    let c = Arith(cx);
    let mut rows = cx.fact(lse).shape;
    rows.push(1);
    let lse = c.reshape(lse.clone(), &rows)?;
    let nothing = cx.apply1(Compare { f: CompareFn::Eq }, [lse.clone(), c.constant(f64::NEG_INFINITY, &lse)?])?;
    c.un(UnaryFn::Exp, c.sub(scores, c.drop_where(nothing, lse)?)?)
}

/// `y` and `lse` of the inputs of `op`.
pub(crate) fn attention<A: Apply>(cx: &A, op: &Attention, x: &[A::Value]) -> Result<SmallVec<[A::Value; 2]>> {
    let h = Heads::of(cx, op, x)?;
    let lse = cx.apply1(LogSumExp { axes: smallvec![3], keepdims: false }, [h.scores.clone()])?;
    let p = probabilities(cx, h.scores.clone(), &lse)?;
    let y = product(cx, h.left(cx, p)?, h.v)?;
    Ok(smallvec![narrowed(cx, by_head(cx, y)?, &x[0])?, lse])
}

/// The parts from which gradients are built.
struct Slopes<V> {
    heads: Heads<V>,
    /// The gradient of the scores behind cap and bias.
    ds: V,
    /// The probabilities that are left.
    left: V,
    /// By heads.
    dy: V,
}

/// From `(lse, dy)` and the inputs of `op`.
fn score_gradients<A: Apply>(cx: &A, op: &Attention, given: &[A::Value]) -> Result<Slopes<A::Value>> {
    let c = Arith(cx);
    let h = Heads::of(cx, op, &given[2..])?;
    let p = probabilities(cx, h.scores.clone(), &given[0])?;
    let dy = by_head(cx, widened(cx, given[1].clone())?)?;
    let dp = h.left(cx, product(cx, dy.clone(), transposed(cx, h.v.clone())?)?)?;
    let ds = c.mul(p.clone(), c.sub(dp.clone(), c.sum_over(c.mul(p.clone(), dp)?, &[3])?)?)?;
    let left = h.left(cx, p)?;
    Ok(Slopes { heads: h, ds, left, dy })
}

/// The gradient for the bias, input `2 + bias` of `(lse, dy)` and the inputs of `op`. It makes all scores.
pub(crate) fn attention_bias_gradient<A: Apply>(
    cx: &A,
    op: &Attention,
    given: &[A::Value],
    bias: usize,
) -> Result<A::Value> {
    let ds = score_gradients(cx, op, given)?.ds;
    let like = &given[2 + bias];
    let sum = Arith(cx).sum_to(ds, &cx.fact(like).shape)?;
    narrowed(cx, sum, like)
}

/// The gradients of `op` from `(lse, dy)` and its inputs.
pub(crate) fn attention_gradients<A: Apply>(
    cx: &A,
    op: &Attention,
    given: &[A::Value],
) -> Result<SmallVec<[A::Value; 2]>> {
    let (c, x) = (Arith(cx), &given[2..]);
    let Slopes { heads: h, ds, left, dy } = score_gradients(cx, op, given)?;
    let ds = match h.slopes {
        Some(slopes) => c.mul(ds, slopes)?,
        None => ds,
    };
    let dq = c.scale(product(cx, ds.clone(), h.k)?, op.scale.to_f64())?;
    let (dk, dv) = (product(cx, transposed(cx, ds)?, h.q)?, product(cx, transposed(cx, left)?, dy)?);
    let (dk, dv) = (gathered(cx, dk, h.group)?, gathered(cx, dv, h.group)?);
    let mut all: SmallVec<[A::Value; 2]> = SmallVec::new();
    for g in [dq, dk, dv] {
        all.push(narrowed(cx, by_head(cx, g)?, &x[0])?);
    }
    if !op.packed_qkv {
        return Ok(all);
    }
    let mut packed = Vec::with_capacity(all.len());
    for g in all {
        let s = cx.fact(&g).shape;
        packed.push(shaped(cx, g, [s[0], s[1], 1, s[2], s[3]])?);
    }
    Ok(smallvec![cx.apply1(Concat { axis: 2 }, packed)?])
}
