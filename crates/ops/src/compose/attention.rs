//! Attention and its gradients written with other ops: the rule of second derivatives, and of the gradient of `lse`.

use remat_types::{DType, Result, Shape, SmallVec, smallvec};

use super::{Arith, narrowed, permuted, shaped, widened};
use crate::Apply;
use crate::attention::Attention;
use crate::linalg::MatMul;
use crate::pointwise::{Arange, Compare, CompareFn, UnaryFn, Where};
use crate::reduce::LogSumExp;
use crate::shape::{Concat, Slice};

/// `[n, heads, t, d]` each, in the dtype of sums.
struct Heads<V> {
    /// Times the scale.
    q: V,
    k: V,
    v: V,
    /// Minus infinity where a key is hidden.
    scores: V,
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
        let (q, k, v) = (Arith(cx).scale(part(0)?, op.scale.to_f64())?, part(1)?, part(2)?);
        let mut scores = product(cx, q.clone(), transposed(cx, k.clone())?)?;
        let seen = if op.causal { Some(causal(cx, &cx.fact(&scores).shape)?) } else { None };
        for seen in seen.iter().chain(x.get(op.tensors())) {
            let hidden = Arith(cx).constant(f64::NEG_INFINITY, &scores)?;
            scores = cx.apply1(Where, [seen.clone(), scores, hidden])?;
        }
        Ok(Heads { q, k, v, scores })
    }
}

/// Bool `[tq, tk]`: key `j` is not behind query `i`.
fn causal<A: Apply>(cx: &A, scores: &Shape) -> Result<A::Value> {
    let places = |len| cx.apply1(Arange { dtype: DType::I64, start: 0.into(), step: 1.into(), len }, []);
    let queries = Arith(cx).reshape(places(scores[2])?, &Shape::from([scores[2], 1]))?;
    cx.apply1(Compare { f: CompareFn::Le }, [places(scores[3])?, queries])
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
    let y = product(cx, probabilities(cx, h.scores, &lse)?, h.v)?;
    Ok(smallvec![narrowed(cx, by_head(cx, y)?, &x[0])?, lse])
}

/// The gradients of `op` from `(lse, dy)` and its inputs.
pub(crate) fn attention_gradients<A: Apply>(
    cx: &A,
    op: &Attention,
    given: &[A::Value],
) -> Result<SmallVec<[A::Value; 2]>> {
    let (c, x) = (Arith(cx), &given[2..]);
    let h = Heads::of(cx, op, x)?;
    let p = probabilities(cx, h.scores, &given[0])?;
    let dy = by_head(cx, widened(cx, given[1].clone())?)?;
    let dp = product(cx, dy.clone(), transposed(cx, h.v)?)?;
    let ds = c.mul(p.clone(), c.sub(dp.clone(), c.sum_over(c.mul(p.clone(), dp)?, &[3])?)?)?;
    let dq = c.scale(product(cx, ds.clone(), h.k)?, op.scale.to_f64())?;
    let (dk, dv) = (product(cx, transposed(cx, ds)?, h.q)?, product(cx, transposed(cx, p)?, dy)?);
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
