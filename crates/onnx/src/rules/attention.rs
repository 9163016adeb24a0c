//! Attention and similar operators.

use remat_import::{Cx, Value, one, shape_error, size};
use remat_tensor::{Attend, QueryPlace, Tensor};
use remat_types::{DType, Error, ErrorKind, Result};

use super::{Row, dtype, free, of, row};
use crate::tensor::dtype_of;

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
    match (c.opt(4)?, c.opt(5)?) {
        (Some(keys), Some(values)) => {
            past = keys.dims().get(2).copied().unwrap_or(0);
            k = Tensor::concat(&[keys, &k], 2)?;
            v = Tensor::concat(&[values, &v], 2)?;
        }
        (None, None) => {}
        _ => return Err(shape_error("keys of before without their values, or values without keys")),
    }
    let (heads, d) = (q.dims()[1], q.dims()[3]);
    let scale = c.opt_real("scale")?.unwrap_or_else(|| (d.max(1) as f64).sqrt().recip());
    let cap = c.real("softcap", 0.0)?;
    let seen = Seen::of(c, &q, &k, past)?;
    if !c.wants(3) && !c.has("softmax_precision") {
        let attend = Attend {
            causal: seen.causal,
            mask: seen.mask.as_ref(),
            bias: seen.bias.as_ref(),
            scale: Some(scale),
            window: seen.window,
            place: QueryPlace::At(past as isize),
            soft_cap: (cap > 0.0).then_some(cap),
            ..Attend::ALL
        };
        // the operator takes [n, t, heads, d], and gives that
        let turn = |t: &Tensor| t.transpose(1, 2);
        let of = turn(&q)?.attention(&turn(&k)?, &turn(&v)?, attend)?;
        let y = if flat { of.flatten_from(2)? } else { turn(&of)? };
        return Ok(vec![y.into(), k.into(), v.into()]);
    }
    let root = scale.sqrt();
    let all = q.mul(root)?.matmul(&shared(&k, heads)?.mul(root)?.t()?)?;
    let capped = if cap > 0.0 { all.div(cap)?.tanh()?.mul(cap)? } else { all };
    let biased = match &seen.bias {
        Some(bias) => capped.add(bias)?,
        None => capped.clone(),
    };
    let shows = seen.shows(c, &capped)?;
    let low = Tensor::full(c.device(), remat_types::Shape::scalar(), biased.dtype(), f64::NEG_INFINITY)?;
    let biased = shows.as_ref().map_or(Ok(biased.clone()), |shows| shows.where_cond(&biased, &low))?;
    let wide = match c.opt_int("softmax_precision")? {
        Some(to) => biased.cast(dtype_of(i32::try_from(to).unwrap_or(-1))?)?,
        None => biased.clone(),
    };
    let mut shares = wide.softmax(-1)?.cast(q.dtype())?;
    if let Some(shows) = &shows {
        // a query that sees nothing gives 0, and the softmax of its scores is no number
        let sees = shows.any_over(&[-1], true)?;
        shares = sees.where_cond(&shares, &Tensor::zeros(c.device(), remat_types::Shape::scalar(), q.dtype())?)?;
    }
    let of = shares.matmul(&shared(&v, heads)?)?;
    let y = if flat { joined(&of)? } else { of };
    // the reference has the cap in the scores of mode 0 too
    let scores = match c.int("qk_matmul_output_mode", 0)? {
        0 | 1 => capped,
        2 => biased,
        3 => shares,
        other => return Err(c.unknown("qk_matmul_output_mode", other)),
    };
    Ok(vec![y.into(), k.into(), v.into(), scores.into()])
}

/// The keys that queries see, and the bias of their scores. Query `i` stands at key `offset + i`. The offset is the number of
/// keys before the queries: the past keys, or the length of a sequence without its padding, less the queries.
struct Seen {
    causal: bool,
    window: Option<[usize; 2]>,
    /// Where this is true a key is seen, unless `causal` or `window` say otherwise.
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    past: usize,
}

impl Seen {
    fn of(c: &Cx<'_>, q: &Tensor, k: &Tensor, past: usize) -> Result<Seen> {
        let (queries, keys) = (q.dims()[2], k.dims()[2]);
        let causal = c.flag("is_causal", false)?;
        let side = |name: &str| -> Result<Option<usize>> {
            match c.int(name, -1)? {
                -1 => Ok(None),
                n => usize::try_from(n).map(Some).map_err(|_| c.unknown(name, n)),
            }
        };
        let sides = [side("left_window_size")?, side("right_window_size")?];
        let mut seen = Seen { causal, window: None, mask: None, bias: None, past };
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
            if m.dtype() == DType::Bool {
                seen.mask = Some(m);
            } else {
                // what minus infinity is added to is not seen: of a row of them the softmax would be no number
                seen.mask = Some(m.ne(f64::NEG_INFINITY)?);
                seen.bias = Some(m.cast(q.dtype())?);
            }
        }
        // no side reaches farther than over all keys
        let all = queries.saturating_add(keys).saturating_add(past);
        let bounded = sides.iter().any(Option::is_some);
        let Some(lengths) = c.opt(6)? else {
            seen.window = bounded.then(|| sides.map(|n| n.unwrap_or(all).min(all)));
            return Ok(seen);
        };
        if c.value(4).is_some() {
            return Err(shape_error(
                "lengths without padding beside keys of before: one of them says where queries stand",
            ));
        }
        let lengths = lengths.cast(DType::I64)?.reshape(&[-1, 1, 1, 1])?;
        let places = count(c, keys)?;
        seen.also(&places.lt(&lengths)?)?;
        if seen.causal || bounded {
            // each sequence has an offset of its own: [n, 1, queries, 1]
            let at = lengths.sub(queries as i64)?.add(&count(c, queries)?.unsqueeze(1)?)?;
            let [left, right] = sides.map(|n| n.map(|n| n.min(all) as i64));
            if seen.causal {
                seen.also(&places.le(&at)?)?;
            }
            if let Some(left) = left {
                seen.also(&places.ge(&at.sub(left)?)?)?;
            }
            if let Some(right) = right {
                seen.also(&places.le(&at.add(right)?)?)?;
            }
            seen.causal = false;
        }
        Ok(seen)
    }

    /// Restricts the visible keys.
    fn also(&mut self, shows: &Tensor) -> Result<()> {
        self.mask = Some(match self.mask.take() {
            Some(m) => m.logical_and(shows)?,
            None => shows.clone(),
        });
        Ok(())
    }

    /// All of it as one mask; `None` if everything is seen.
    fn shows(mut self, c: &Cx<'_>, scores: &Tensor) -> Result<Option<Tensor>> {
        if self.causal || self.window.is_some() {
            let [_, _, queries, keys] = scores.dims_n()?;
            let places = count(c, keys)?;
            let at = count(c, queries)?.add(self.past as i64)?.unsqueeze(1)?;
            if self.causal {
                self.also(&places.le(&at)?)?;
            }
            if let Some([left, right]) = self.window {
                self.also(&places.ge(&at.sub(left as i64)?)?)?;
                self.also(&places.le(&at.add(right as i64)?)?)?;
            }
        }
        Ok(self.mask)
    }
}

/// `0, 1, ..` up to `n`, as places of keys and queries.
fn count(c: &Cx<'_>, n: usize) -> Result<Tensor> {
    Tensor::arange(c.device(), 0, n as i64, 1, DType::I64)
}

/// Pairs of numbers turned by angles whose cosines and sines come in tables: inputs are `x`, and by `at` those of the cosines, the
/// sines, and the places.
fn rotary(c: &Cx<'_>, at: [usize; 3], width: &str) -> Result<Vec<Value>> {
    for (name, only) in [("is_packed_batching", 0), ("scale", 1)] {
        let given = match name {
            "scale" => c.real(name, 1.0)?,
            _ => c.int(name, 0)? as f64,
        };
        if given != f64::from(only) {
            return Err(c.unknown(name, given));
        }
    }
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
    let wide = match dtype(c, "softmax_precision")? {
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
