//! Attention and its kin.

use remat_tensor::{Attend, QueryPlace, Tensor};
use remat_types::{DType, Error, ErrorKind, Result};

use super::{Row, free, of, row};
use crate::graph::{Cx, one, shape_error, size};
use crate::tensor::dtype_of;
use crate::value::Value;

pub(super) const ROWS: &[Row] = &[
    row("Attention", 23, attention),
    row("LinearAttention", 27, linear_attention),
    row("RotaryEmbedding", 23, |c| rotary(c, [1, 2, 3], "rotary_embedding_dim")),
    Row { domain: "ai.onnx.preview", ..free("FlexAttention", 1, flex_attention) },
    of("com.microsoft", "RotaryEmbedding", 1, |c| rotary(c, [2, 3, 1], "rotary_embedding_dim")),
];

/// `[batch, t, heads d]` as `[batch, heads, t, d]`; of rank 4 as it is.
fn by_heads(x: &Tensor, heads: Option<i64>, name: &str) -> Result<Tensor> {
    if x.rank() == 4 {
        return Ok(x.clone());
    }
    let [n, t, all] = x.dims_n()?;
    let heads = size(heads.ok_or_else(|| Error::new(ErrorKind::Format, format!("attribute `{name}` is missing")))?)?;
    if heads == 0 || !all.is_multiple_of(heads) {
        return Err(shape_error(format!("shape {} in {heads} heads", x.shape())));
    }
    x.reshape(&[n as isize, t as isize, heads as isize, (all / heads) as isize])?.transpose(1, 2)
}

/// `[batch, heads, t, d]` as `[batch, t, heads d]`.
fn joined(x: &Tensor) -> Result<Tensor> {
    let [n, heads, t, d] = x.dims_n()?;
    x.transpose(1, 2)?.reshape(&[n as isize, t as isize, (heads * d) as isize])
}

/// Heads of keys or values, as many as there are of queries: each is there for some in a row.
fn shared(x: &Tensor, heads: usize) -> Result<Tensor> {
    let [_, have, _, _] = x.dims_n()?;
    if have == heads {
        return Ok(x.clone());
    }
    if !heads.is_multiple_of(have) {
        return Err(shape_error(format!("{heads} heads of queries share {have}")));
    }
    x.repeat_interleave(heads.checked_div(have).unwrap_or(0), 1)
}

fn attention(c: &Cx<'_>) -> Result<Vec<Value>> {
    let flat = c.x(0)?.rank() == 3;
    let q = by_heads(c.x(0)?, c.opt_int("q_num_heads")?, "q_num_heads")?;
    let mut k = by_heads(c.x(1)?, c.opt_int("kv_num_heads")?, "kv_num_heads")?;
    let mut v = by_heads(c.x(2)?, c.opt_int("kv_num_heads")?, "kv_num_heads")?;
    let mut past = 0;
    if let Some(before) = c.opt(4)? {
        past = before.dims().get(2).copied().unwrap_or(0);
        k = Tensor::concat(&[before, &k], 2)?;
    }
    if let Some(before) = c.opt(5)? {
        v = Tensor::concat(&[before, &v], 2)?;
    }
    let (heads, d) = (q.dims()[1], q.dims()[3]);
    let scale = c.opt_real("scale")?.unwrap_or_else(|| (d.max(1) as f64).sqrt().recip());
    let cap = c.real("softcap", 0.0)?;
    let mask = Mask::of(c, &q, &k, past)?;
    let mut y = Vec::new();
    if !c.wants(3) && !c.has("softmax_precision") {
        let causal = c.flag("is_causal", false)?;
        let attend = Attend {
            causal,
            mask: mask.shows.as_ref(),
            bias: mask.bias.as_ref(),
            scale: Some(scale),
            place: QueryPlace::At(past as isize),
            soft_cap: (cap > 0.0).then_some(cap),
            ..Attend::ALL
        };
        // the operator takes [n, t, heads, d], and gives that
        let turn = |t: &Tensor| t.transpose(1, 2);
        let of = turn(&q)?.attention(&turn(&k)?, &turn(&v)?, attend)?;
        y.push(Value::Tensor(if flat { of.flatten_from(2)? } else { turn(&of)? }));
    } else {
        let root = scale.sqrt();
        let all = q.mul(root)?.matmul(&shared(&k, heads)?.mul(root)?.t()?)?;
        let capped = if cap > 0.0 { all.div(cap)?.tanh()?.mul(cap)? } else { all.clone() };
        let biased = mask.apply(c, &capped, past)?;
        let wide = match c.opt_int("softmax_precision")? {
            Some(to) => biased.cast(dtype_of(i32::try_from(to).unwrap_or(-1))?)?,
            None => biased.clone(),
        };
        let shares = wide.softmax(-1)?.cast(q.dtype())?;
        let of = shares.matmul(&shared(&v, heads)?)?;
        y.push(Value::Tensor(if flat { joined(&of)? } else { of }));
        y.push(k.clone().into());
        y.push(v.clone().into());
        y.push(Value::Tensor(match c.int("qk_matmul_output_mode", 0)? {
            0 if cap > 0.0 => capped,
            0 => all,
            1 => capped,
            2 => biased,
            3 => shares,
            other => return Err(c.unknown("qk_matmul_output_mode", other)),
        }));
        return Ok(y);
    }
    y.push(k.into());
    y.push(v.into());
    Ok(y)
}

/// What queries see, beside what `is_causal` says.
struct Mask {
    shows: Option<Tensor>,
    bias: Option<Tensor>,
}

impl Mask {
    fn of(c: &Cx<'_>, q: &Tensor, k: &Tensor, _past: usize) -> Result<Mask> {
        let keys = k.dims()[2];
        let mut mask = Mask { shows: None, bias: None };
        if let Some(m) = c.opt(3)? {
            let have = m.dims().last().copied().ok_or_else(|| shape_error("a mask without axes"))?;
            // a mask that ends early shows nothing of the rest
            let m = match keys.checked_sub(have) {
                Some(missing) if missing > 0 => {
                    let mut grown = vec![(0, 0); m.rank()];
                    grown[m.rank() - 1] = (0, missing);
                    if m.dtype() == DType::Bool { m.pad(&grown, 0)? } else { m.pad(&grown, f64::NEG_INFINITY)? }
                }
                _ => m.clone(),
            };
            if m.dtype() == DType::Bool { mask.shows = Some(m) } else { mask.bias = Some(m.cast(q.dtype())?) }
        }
        if let Some(lengths) = c.opt(6)? {
            let places = Tensor::arange(c.device(), 0, keys as i64, 1, DType::I64)?;
            let within = places.lt(&lengths.cast(DType::I64)?.reshape(&[-1, 1, 1, 1])?)?;
            mask.shows = Some(match mask.shows {
                Some(m) => m.logical_and(&within)?,
                None => within,
            });
        }
        Ok(mask)
    }

    /// Scores with what is not seen at minus infinity.
    fn apply(&self, c: &Cx<'_>, scores: &Tensor, past: usize) -> Result<Tensor> {
        let mut y = scores.clone();
        if let Some(bias) = &self.bias {
            y = y.add(bias)?;
        }
        let low = Tensor::full(c.device(), remat_types::Shape::scalar(), y.dtype(), f64::NEG_INFINITY)?;
        if let Some(shows) = &self.shows {
            y = shows.where_cond(&y, &low)?;
        }
        if c.flag("is_causal", false)? {
            let [_, _, tq, tk] = scores.dims_n()?;
            let count = |n: usize| Tensor::arange(c.device(), 0, n as i64, 1, DType::I64);
            let seen = count(tk)?.le(&count(tq)?.add(past as i64)?.unsqueeze(1)?)?;
            y = seen.where_cond(&y, &low)?;
        }
        Ok(y)
    }
}

/// Pairs of numbers turned by angles whose cosines and sines come in tables: inputs are `x`, and by `at` those of the cosines, the
/// sines, and the places.
fn rotary(c: &Cx<'_>, at: [usize; 3], width: &str) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let flat = x.rank() == 3;
    // [n, t, heads, d]
    let x = if flat {
        let [n, t, all] = x.dims_n()?;
        let heads = size(c.int("num_heads", 0)?)?;
        if heads == 0 || !all.is_multiple_of(heads) {
            return Err(shape_error(format!("shape {} in {heads} heads", x.shape())));
        }
        x.reshape(&[n as isize, t as isize, heads as isize, (all / heads) as isize])?
    } else {
        x.transpose(1, 2)?
    };
    let [n, t, heads, d] = x.dims_n()?;
    let turned = match size(c.int(width, 0)?)? {
        0 => d,
        w => w,
    };
    let rest = d.checked_sub(turned).ok_or_else(|| shape_error(format!("{turned} of {d} numbers are turned")))?;
    let table = |i: usize| -> Result<Tensor> {
        let all = c.x(at[i])?;
        let rows = match c.opt(at[2])? {
            // one place is that of the first of a row
            Some(places) if places.elems() == 1 && t != 1 => {
                let first = Tensor::arange(c.device(), 0, t as i64, 1, DType::I64)?;
                all.take(0, &first.add(&places.cast(DType::I64)?.reshape(&[1])?)?)?.unsqueeze(0)?
            }
            Some(places) => all.take(0, places)?,
            None => all.clone(),
        };
        rows.unsqueeze(2)
    };
    let (cos, sin) = (table(0)?, table(1)?);
    let part = x.narrow(3, 0, turned)?;
    let half = turned / 2;
    let interleaved = c.flag("interleaved", false)?;
    let (a, b) = if interleaved {
        let pairs = part.reshape(&[n as isize, t as isize, heads as isize, half as isize, 2])?;
        (pairs.select(4, 0)?, pairs.select(4, 1)?)
    } else {
        (part.narrow(3, 0, half)?, part.narrow(3, half as isize, half)?)
    };
    let re = cos.mul(&a)?.sub(&sin.mul(&b)?)?;
    let im = sin.mul(&a)?.add(&cos.mul(&b)?)?;
    let y = match interleaved {
        true => Tensor::stack(&[&re, &im], 4)?.reshape(&[n as isize, t as isize, heads as isize, turned as isize])?,
        false => Tensor::concat(&[&re, &im], 3)?,
    };
    let y = if rest == 0 { y } else { Tensor::concat(&[&y, &x.narrow(3, turned as isize, rest)?], 3)? };
    one(if flat { y.flatten_from(2)? } else { y.transpose(1, 2)? })
}

/// Attention without a softmax, by a state that each step decays, corrects and adds to (Yang et al., arXiv:2412.06464). States and sums
/// are f32.
fn linear_attention(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (heads, shared_heads) = (c.int_of("q_num_heads")?, c.int_of("kv_num_heads")?);
    let dtype = c.x(0)?.dtype();
    let wide = |t: Tensor| if t.dtype() == DType::F64 { Ok(t) } else { t.cast(DType::F32) };
    let q = wide(by_heads(c.x(0)?, Some(heads), "q_num_heads")?)?;
    let k = wide(by_heads(c.x(1)?, Some(shared_heads), "kv_num_heads")?)?;
    let v = wide(by_heads(c.x(2)?, Some(shared_heads), "kv_num_heads")?)?;
    let [n, h, t, dk] = k.dims_n()?;
    let dv = v.dims()[3];
    let (gates, corrects) = match c.string("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(c.unknown("update_rule", other)),
    };
    let scale = match c.real("scale", 0.0)? {
        0.0 => (dk.max(1) as f64).sqrt().recip(),
        s => s,
    };
    // [n, heads, t, 1 or d]
    let beside = |i: usize| -> Result<Tensor> {
        let x = c.x(i)?;
        let last = x.dims().last().copied().unwrap_or(0);
        let groups = if last == h * dk || last == h { h } else { 1 };
        wide(by_heads(x, Some(groups as i64), "kv_num_heads")?)
    };
    let decay = if gates { Some(beside(4)?.exp()?) } else { None };
    let beta = if corrects { Some(beside(5)?) } else { None };
    let kept = c.opt(3)?.map_or(dtype, Tensor::dtype);
    let mut state = match c.opt(3)? {
        Some(s) => wide(s.clone())?,
        None => Tensor::zeros(c.device(), [n, h, dk, dv], q.dtype())?,
    };
    let mut rows = Vec::with_capacity(t);
    for i in 0..t {
        let at = |x: &Tensor| x.select(2, i as isize);
        if let Some(decay) = &decay {
            state = state.mul(&at(decay)?.unsqueeze(-1)?)?;
        }
        let key = at(&k)?;
        let mut value = at(&v)?;
        if let Some(beta) = &beta {
            let found = key.unsqueeze(2)?.matmul(&state)?.squeeze(&[2])?;
            value = at(beta)?.mul(&value.sub(&found)?)?;
        }
        state = state.add(&key.unsqueeze(3)?.mul(&value.unsqueeze(2)?)?)?;
        let read = shared(&state, q.dims()[1])?;
        rows.push(at(&q)?.unsqueeze(2)?.matmul(&read)?.squeeze(&[2])?.mul(scale)?);
    }
    let y = match rows.is_empty() {
        true => Tensor::zeros(c.device(), [n, q.dims()[1], 0, dv], q.dtype())?,
        false => Tensor::stack(&rows.iter().collect::<Vec<_>>(), 2)?,
    };
    Ok(vec![joined(&y)?.cast(dtype)?.into(), state.cast(kept)?.into()])
}

/// Attention whose scores and shares go through functions that the model gives.
fn flex_attention(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (q, k, v) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let [_, heads, _, d] = q.dims_n()?;
    let scale = c.opt_real("scale")?.unwrap_or_else(|| (d.max(1) as f64).sqrt().recip());
    let root = scale.sqrt();
    let scores = q.mul(root)?.matmul(&shared(k, heads)?.mul(root)?.t()?)?;
    let wide = match c.dtype("softmax_precision")? {
        Some(dtype) => dtype,
        None if q.dtype() == DType::F64 => DType::F64,
        None => DType::F32,
    };
    let through = |name: &str, x: Tensor| -> Result<Tensor> {
        if !c.has(name) {
            return Ok(x);
        }
        let y = c.run(c.graph(name)?, vec![x.into()])?;
        y.first().ok_or_else(|| shape_error("a function without a result"))?.tensor()?.cast(wide)
    };
    let scores = through("score_mod", scores.cast(wide)?)?;
    let shares = through("prob_mod", scores.softmax(-1)?)?;
    one(shares.matmul(&shared(v, heads)?.cast(wide)?)?.cast(v.dtype())?)
}
