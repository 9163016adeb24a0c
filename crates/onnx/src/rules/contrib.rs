//! Operators that ONNX Runtime adds for transformers: its optimiser and exporters write them.

use remat_import::{Cx, Value, shape_error, size, value_error};
use remat_tensor::{Attend, QueryPlace, Tensor};
use remat_types::{DType, HostTensor, Result};

use super::{Row, of};

const MS: &str = "com.microsoft";

pub(super) const ROWS: &[Row] = &[
    of(MS, "Attention", 1, attention),
    of(MS, "EmbedLayerNormalization", 1, embed_layer_norm),
    of(MS, "MultiHeadAttention", 1, multi_head_attention),
];

/// `[batch, t, heads d]` as `[batch, t, heads, d]`.
fn heads_of(x: &Tensor, heads: usize) -> Result<Tensor> {
    let [n, t, all] = x.dims_n()?;
    if heads == 0 || !all.is_multiple_of(heads) {
        return Err(shape_error(format!("shape {} in {heads} heads", x.shape())));
    }
    x.reshape(&[n as isize, t as isize, heads as isize, (all / heads) as isize])
}

/// Keys that queries see. What the others' scores are lowered by, `mask_filter_value`, is taken as minus infinity.
struct Seen {
    mask: Option<Tensor>,
}

impl Seen {
    /// From lengths `[n]`, a row of keys `[n, keys]`, or a row for each query `[n, queries, keys]`.
    fn of(c: &Cx<'_>, input: usize, n: usize, keys: usize) -> Result<Seen> {
        let Some(m) = c.opt(input)? else { return Ok(Seen { mask: None }) };
        let mask = match m.dims() {
            [lengths] if *lengths == n => {
                let places = Tensor::arange(c.device(), 0, keys as i64, 1, DType::I64)?;
                places.lt(&m.cast(DType::I64)?.reshape(&[-1, 1, 1, 1])?)?
            }
            [_, _] => m.cast(DType::Bool)?.unsqueeze(1)?.unsqueeze(1)?,
            [_, _, _] => m.cast(DType::Bool)?.unsqueeze(1)?,
            _ => return Err(shape_error(format!("a mask of shape {} for {n} sequences of {keys} keys", m.shape()))),
        };
        Ok(Seen { mask: Some(mask) })
    }
}

/// Attention of `q, k, v: [n, t, heads, d]`, keys and values of before in `past`: `[n, t, heads d]`, and keys and values as
/// `[n, heads, t, d]`.
fn attend(
    c: &Cx<'_>,
    [q, k, v]: [&Tensor; 3],
    past: Option<[&Tensor; 2]>,
    mask_input: usize,
    bias: Option<&Tensor>,
) -> Result<[Tensor; 3]> {
    let (mut k, mut v) = (k.transpose(1, 2)?, v.transpose(1, 2)?);
    let mut before = 0;
    if let Some([pk, pv]) = past {
        before = pk.dims().get(2).copied().unwrap_or(0);
        (k, v) = (Tensor::concat(&[pk, &k], 2)?, Tensor::concat(&[pv, &v], 2)?);
    }
    let seen = Seen::of(c, mask_input, q.dims()[0], k.dims()[2])?;
    let scale = match c.real("scale", 0.0)? {
        0.0 => None,
        s => Some(s),
    };
    let options = Attend {
        causal: c.flag("unidirectional", false)?,
        mask: seen.mask.as_ref(),
        bias,
        scale,
        place: QueryPlace::At(before as isize),
        ..Attend::ALL
    };
    let y = q.attention(&k.transpose(1, 2)?, &v.transpose(1, 2)?, options)?;
    Ok([y.flatten_from(2)?, k, v])
}

/// One product makes queries, keys and values.
fn attention(c: &Cx<'_>) -> Result<Vec<Value>> {
    let heads = size(c.int_of("num_heads")?)?;
    if c.flag("do_rotary", false)? {
        return Err(c.unknown("do_rotary", 1));
    }
    refuse(c, &[(6, "past_sequence_length")])?;
    let mut qkv = c.x(0)?.matmul(c.x(1)?)?;
    if let Some(b) = c.opt(2)? {
        qkv = qkv.add(b)?;
    }
    let all = qkv.dims().last().copied().unwrap_or(0);
    let widths = match c.sizes("qkv_hidden_sizes")? {
        Some(w) if w.len() == 3 => w,
        _ => vec![all / 3; 3],
    };
    let parts = qkv.split(&widths, -1)?;
    let parts = parts.iter().map(|t| heads_of(t, heads)).collect::<Result<Vec<_>>>()?;
    let past = match c.opt(4)? {
        Some(p) => Some([p.select(0, 0)?, p.select(0, 1)?]),
        None => None,
    };
    let past = past.as_ref().map(|[k, v]| [k, v]);
    let [y, k, v] = attend(c, [&parts[0], &parts[1], &parts[2]], past, 3, c.opt(5)?)?;
    let mut out = vec![Value::Tensor(y)];
    if c.wants(1) {
        out.push(Tensor::stack(&[&k, &v], 0)?.into());
    }
    Ok(out)
}

/// Errors (Value): an input that no rule here reads.
fn refuse(c: &Cx<'_>, inputs: &[(usize, &str)]) -> Result<()> {
    match inputs.iter().find(|(i, _)| c.value(*i).is_some()) {
        Some((i, name)) => Err(value_error(format!("input {i}, `{name}`, is not supported"))),
        None => Ok(()),
    }
}

fn multi_head_attention(c: &Cx<'_>) -> Result<Vec<Value>> {
    refuse(c, &[(8, "past_sequence_length"), (9, "cache_indirection")])?;
    let heads = size(c.int_of("num_heads")?)?;
    let (q, k, v) = (c.x(0)?, c.opt(1)?, c.opt(2)?);
    let [q, k, v] = match (k, v) {
        // [n, t, heads, 3, d]
        (None, None) if q.rank() == 5 => [q.select(3, 0)?, q.select(3, 1)?, q.select(3, 2)?],
        // [n, t, heads, 2, d]
        (Some(kv), None) if kv.rank() == 5 => [heads_of(q, heads)?, kv.select(3, 0)?, kv.select(3, 1)?],
        // keys and values that are by heads already: [n, heads, t, d]
        (Some(k), Some(v)) if k.rank() == 4 => [heads_of(q, heads)?, k.transpose(1, 2)?, v.transpose(1, 2)?],
        (Some(k), Some(v)) => [heads_of(q, heads)?, heads_of(k, heads)?, heads_of(v, heads)?],
        _ => return Err(shape_error("keys without values")),
    };
    if let Some(t) = [&q, &k, &v].into_iter().find(|t| t.rank() != 4) {
        return Err(shape_error(format!("queries, keys or values of shape {}, not by heads", t.shape())));
    }
    let mut parts = [q, k, v];
    if let Some(bias) = c.opt(3)? {
        let widths: Vec<usize> = parts.iter().map(|t| t.dims()[2] * t.dims()[3]).collect();
        for (t, b) in parts.iter_mut().zip(bias.split(&widths, 0)?) {
            *t = t.add(&b.reshape(&[t.dims()[2] as isize, t.dims()[3] as isize])?)?;
        }
    }
    let past = match (c.opt(6)?, c.opt(7)?) {
        (Some(k), Some(v)) => Some([k, v]),
        _ => None,
    };
    let [y, k, v] = attend(c, [&parts[0], &parts[1], &parts[2]], past, 4, c.opt(5)?)?;
    Ok(vec![y.into(), k.into(), v.into()])
}

/// The sum of the rows of words, places and segments, normalised; and how many places of each sequence the mask shows.
fn embed_layer_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let words = c.x(0)?;
    let [n, t] = words.dims_n()?;
    let mut sum = c.x(2)?.take(0, words)?;
    let places = match c.opt(8)? {
        Some(p) => c.x(3)?.take(0, p)?,
        None => c.x(3)?.narrow(0, 0, t)?,
    };
    sum = sum.add(&places)?;
    if let (Some(ids), Some(table)) = (c.opt(1)?, c.opt(4)?) {
        sum = sum.add(&table.take(0, ids)?)?;
    }
    let y = sum.layer_norm(c.x(5)?, c.x(6)?, 1, c.real("epsilon", 1e-12)?)?;
    let counts = match c.opt(7)? {
        Some(m) => m.cast(DType::I32)?.sum_over(&[1], false)?.cast(DType::I32)?,
        None => Tensor::from_host(c.device(), &HostTensor::zeros(DType::I32, [n])?)?,
    };
    Ok(vec![y.into(), counts.into(), sum.into()])
}
