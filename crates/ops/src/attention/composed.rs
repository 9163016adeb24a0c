//! Attention and its gradients written with other ops: the rule of second derivatives, and of the gradient of `lse`.

use remat_types::{DType, Result, Shape, SmallVec, smallvec};

use super::Attention;
use crate::linalg::MatMul;
use crate::norm::{narrowed, sum_over, widened};
use crate::pointwise::{Arange, Chain, Compare, CompareFn, UnaryFn, Where};
use crate::reduce::LogSumExp;
use crate::shape::{Concat, Permute, Slice};
use crate::{GradCx, Var};

/// `[n, heads, t, d]` each, in the dtype of sums.
struct Heads {
    /// Times the scale.
    q: Var,
    k: Var,
    v: Var,
    /// Minus infinity where a key is hidden.
    scores: Var,
}

fn exchanged(cx: &GradCx<'_>, v: Var, order: [usize; 4]) -> Result<Var> {
    cx.apply(Permute { order: SmallVec::from_slice(&order) }, &[v])
}

/// `[n, t, heads, d]` to `[n, heads, t, d]`, and back.
fn by_head(cx: &GradCx<'_>, v: Var) -> Result<Var> {
    exchanged(cx, v, [0, 2, 1, 3])
}

fn transposed(cx: &GradCx<'_>, v: Var) -> Result<Var> {
    exchanged(cx, v, [0, 1, 3, 2])
}

fn product(cx: &GradCx<'_>, a: Var, b: Var) -> Result<Var> {
    cx.apply(MatMul {}, &[a, b])
}

impl Heads {
    /// `x` are inputs of `op`.
    fn of(cx: &GradCx<'_>, op: &Attention, x: &[Var]) -> Result<Heads> {
        let part = |i: usize| {
            let v = if op.packed_qkv {
                let v = cx.apply(Slice { axis: 2, start: i, len: 1, step: 1 }, &[x[0]])?;
                let s = cx.fact(v).shape;
                Chain(cx).reshape(v, &Shape::from([s[0], s[1], s[3], s[4]]))?
            } else {
                x[i]
            };
            by_head(cx, widened(cx, v)?)
        };
        let (q, k, v) = (Chain(cx).scale(part(0)?, op.scale.to_f64())?, part(1)?, part(2)?);
        let mut scores = product(cx, q, transposed(cx, k)?)?;
        let seen = if op.causal { Some(causal(cx, &cx.fact(scores).shape)?) } else { None };
        for seen in seen.iter().chain(x.get(op.tensors())) {
            let hidden = Chain(cx).constant(f64::NEG_INFINITY, scores)?;
            scores = cx.apply(Where, &[*seen, scores, hidden])?;
        }
        Ok(Heads { q, k, v, scores })
    }
}

/// Bool `[tq, tk]`: key `j` is not behind query `i`.
fn causal(cx: &GradCx<'_>, scores: &Shape) -> Result<Var> {
    let places = |len| cx.apply(Arange { dtype: DType::I64, start: 0.into(), step: 1.into(), len }, &[]);
    let queries = Chain(cx).reshape(places(scores[2])?, &Shape::from([scores[2], 1]))?;
    cx.apply(Compare { f: CompareFn::Le }, &[places(scores[3])?, queries])
}

/// `exp(scores - lse)` with an `lse` a row, 0 for a query that sees nothing.
fn probabilities(cx: &GradCx<'_>, scores: Var, lse: Var) -> Result<Var> {
    let c = Chain(cx);
    let mut rows = cx.fact(lse).shape;
    rows.push(1);
    let lse = c.reshape(lse, &rows)?;
    let nothing = cx.apply(Compare { f: CompareFn::Eq }, &[lse, c.constant(f64::NEG_INFINITY, lse)?])?;
    c.un(UnaryFn::Exp, c.sub(scores, c.drop_where(nothing, lse)?)?)
}

/// `y` and `lse`.
pub(super) fn forward(cx: &GradCx<'_>, op: &Attention, x: &[Var]) -> Result<SmallVec<[Var; 2]>> {
    let h = Heads::of(cx, op, x)?;
    let lse = cx.apply(LogSumExp { axes: smallvec![3], keepdims: false }, &[h.scores])?;
    let y = product(cx, probabilities(cx, h.scores, lse)?, h.v)?;
    Ok(smallvec![narrowed(cx, by_head(cx, y)?, x[0])?, lse])
}

/// The gradients of `op` from `(lse, dy)` and its inputs.
pub(super) fn gradients(cx: &GradCx<'_>, op: &Attention, x: &[Var]) -> Result<SmallVec<[Var; 2]>> {
    let (c, x, like) = (Chain(cx), &x[2..], x);
    let h = Heads::of(cx, op, x)?;
    let p = probabilities(cx, h.scores, like[0])?;
    let dy = by_head(cx, widened(cx, like[1])?)?;
    let dp = product(cx, dy, transposed(cx, h.v)?)?;
    let ds = c.mul(p, c.sub(dp, sum_over(cx, c.mul(p, dp)?, &smallvec![3])?)?)?;
    let dq = c.scale(product(cx, ds, h.k)?, op.scale.to_f64())?;
    let (dk, dv) = (product(cx, transposed(cx, ds)?, h.q)?, product(cx, transposed(cx, p)?, dy)?);
    let mut all: SmallVec<[Var; 2]> = SmallVec::new();
    for g in [dq, dk, dv] {
        all.push(narrowed(cx, by_head(cx, g)?, x[0])?);
    }
    if !op.packed_qkv {
        return Ok(all);
    }
    for g in &mut all {
        let s = cx.fact(*g).shape;
        *g = c.reshape(*g, &Shape::from([s[0], s[1], 1, s[2], s[3]]))?;
    }
    Ok(smallvec![cx.apply(Concat { axis: 2 }, &all)?])
}
