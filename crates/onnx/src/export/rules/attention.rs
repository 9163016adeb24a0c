//! Attention: the standard's operator, and before that the products and the softmax that it is.

use remat_ops::attention::Attention;
use remat_types::{DType, HostTensor, Result, SmallVec};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};

pub(super) const ROWS: &[Row] = &[row::<Attention>()];

/// The parts of an attention: inputs `[n, t, heads, d]`, and the keys that queries see.
struct Parts {
    q: Name,
    k: Name,
    v: Name,
    mask: Option<Name>,
    bias: Option<Name>,
    dtype: DType,
    n: usize,
    tq: usize,
    tk: usize,
    heads: usize,
    heads_kv: usize,
    d: usize,
    dv: usize,
}

/// A mask or a bias with all keys: the standard reads one that ends early as if the rest were hidden, and takes a matrix at
/// least.
fn keys(c: &mut Cx<'_>, i: usize, tk: usize) -> Result<Name> {
    let (x, dims) = (c.x(i)?, c.dims(i)?);
    if dims.len() >= 2 && dims.last() == Some(&tk) {
        return Ok(x);
    }
    let mut shape = vec![1; 2usize.saturating_sub(dims.len())];
    shape.extend(&dims);
    let last = shape.len() - 1;
    shape[last] = tk;
    c.expand(&x, &shape)
}

impl Parts {
    fn of(op: &Attention, c: &mut Cx<'_>) -> Result<Parts> {
        if op.dropout.to_f64() > 0.0 {
            return Err(left_out("dropout; call `eval` before the function is compiled"));
        }
        let (q, k, v, next, [n, tq, tk, heads, heads_kv, d, dv]) = match op.packed_qkv {
            true => {
                let (x, s) = (c.x(0)?, c.dims(0)?);
                let mut parts = Vec::new();
                for i in 0..3 {
                    let place = c.int(i);
                    parts.push(c.with("Gather", &[&x, &place], vec![attr::int("axis", 2)]));
                }
                let [q, k, v] = [0, 1, 2].map(|i| parts[i].clone());
                (q, k, v, 1, [s[0], s[1], s[1], s[3], s[3], s[4], s[4]])
            }
            false => {
                let (q, k, v) = (c.dims(0)?, c.dims(1)?, c.dims(2)?);
                (c.x(0)?, c.x(1)?, c.x(2)?, 3, [q[0], q[1], k[1], q[2], k[2], q[3], v[3]])
            }
        };
        let (mut mask, mut bias) = (None, None);
        for i in next..c.len() {
            let own = keys(c, i, tk)?;
            match c.dtype(i)? {
                DType::Bool => mask = Some(own),
                _ => bias = Some(own),
            }
        }
        let dtype = c.dtype(0)?;
        Ok(Parts { q, k, v, mask, bias, dtype, n, tq, tk, heads, heads_kv, d, dv })
    }

    /// The places that the parameters hide beyond the standard's `is_causal`: bools `[tq, tk]`, or nothing.
    fn span(&self, op: &Attention) -> Result<Option<HostTensor>> {
        let right = if op.causal { Some(0) } else { op.right };
        if right.is_none() && op.left.is_none() {
            return Ok(None);
        }
        let mut sees = Vec::with_capacity(self.tq * self.tk);
        for i in 0..self.tq as i128 {
            for j in 0..self.tk as i128 {
                let at = i + op.offset as i128;
                let after = op.left.is_none_or(|left| j >= at - left as i128);
                sees.push(after && right.is_none_or(|right| j <= at + right as i128));
            }
        }
        HostTensor::from_slice(&sees, [self.tq, self.tk]).map(Some)
    }

    /// The mask, with what the parameters hide.
    fn shows(&self, c: &mut Cx<'_>, span: Option<HostTensor>) -> Option<Name> {
        let span = span.map(|s| c.tensor(s));
        match (&self.mask, span) {
            (Some(a), Some(b)) => Some(c.op("And", &[a, &b])),
            (a, b) => b.or_else(|| a.clone()),
        }
    }

    /// `[n, heads, tq, tk]`: with all that is not seen at minus infinity.
    fn scores(&self, op: &Attention, c: &mut Cx<'_>, wide: DType) -> Result<Name> {
        let q = c.cast_from(&self.q, self.dtype, wide);
        let q = c.transpose(&q, &[0, 2, 1, 3]);
        let k = c.cast_from(&self.k, self.dtype, wide);
        let k = self.shared(c, &k, self.d)?;
        let k = c.transpose(&k, &[0, 2, 3, 1]);
        let scale = c.number(wide, op.scale);
        let q = c.op("Mul", &[&q, &scale]);
        let mut y = c.op("MatMul", &[&q, &k]);
        if op.cap.to_f64() != 0.0 {
            let cap = c.number(wide, op.cap);
            y = c.op("Div", &[&y, &cap]);
            y = c.op("Tanh", &[&y]);
            y = c.op("Mul", &[&y, &cap]);
        }
        if let Some(bias) = &self.bias {
            let bias = c.cast_from(bias, self.dtype, wide);
            y = c.op("Add", &[&y, &bias]);
        }
        let span = self.span(op)?;
        if let Some(shows) = self.shows(c, span) {
            let low = c.number(wide, f64::NEG_INFINITY);
            y = c.op("Where", &[&shows, &y, &low]);
        }
        Ok(y)
    }

    /// `[n, t, heads_kv, d]` with a head for each of the queries'.
    fn shared(&self, c: &mut Cx<'_>, x: &Name, d: usize) -> Result<Name> {
        if self.heads == self.heads_kv {
            return Ok(x.clone());
        }
        let each = self.heads / self.heads_kv.max(1);
        let x = c.unsqueeze(x, 3)?;
        let x = c.expand(&x, &[self.n, self.tk, self.heads_kv, each, d])?;
        c.reshape(&x, &[self.n, self.tk, self.heads, d])
    }

    /// The products and the softmax; a query that sees nothing gives 0.
    fn composed(&self, op: &Attention, c: &mut Cx<'_>, wide: DType) -> Result<Name> {
        let scores = self.scores(op, c, wide)?;
        let mut shares = c.with("Softmax", &[&scores], vec![attr::int("axis", -1)]);
        if self.mask.is_some() || self.span(op)?.is_some() {
            let blind = c.op("IsNaN", &[&shares]);
            let zero = c.number(wide, 0.0);
            shares = c.op("Where", &[&blind, &zero, &shares]);
        }
        let v = c.cast_from(&self.v, self.dtype, wide);
        let v = self.shared(c, &v, self.dv)?;
        let v = c.transpose(&v, &[0, 2, 1, 3]);
        let y = c.op("MatMul", &[&shares, &v]);
        let y = c.transpose(&y, &[0, 2, 1, 3]);
        Ok(c.cast_from(&y, wide, self.dtype))
    }

    /// The standard's operator, on `[n, t, heads d]`.
    fn operator(&self, op: &Attention, c: &mut Cx<'_>) -> Result<Name> {
        let flat = |c: &mut Cx<'_>, x: &Name, shape: [usize; 3]| c.reshape(x, &shape);
        let q = flat(c, &self.q.clone(), [self.n, self.tq, self.heads * self.d])?;
        let k = flat(c, &self.k.clone(), [self.n, self.tk, self.heads_kv * self.d])?;
        let v = flat(c, &self.v.clone(), [self.n, self.tk, self.heads_kv * self.dv])?;
        // beside a mask it is a part of that: a query that sees nothing is less certain there
        let alone = c.compared || self.mask.is_none() && self.bias.is_none();
        let simple = op.causal && op.offset == 0 && op.left.is_none() && alone;
        let span = if simple { None } else { self.span(op)? };
        let shows = self.shows(c, span);
        let mask = match (shows, &self.bias) {
            (Some(shows), Some(bias)) => {
                let low = c.number(self.dtype, f64::NEG_INFINITY);
                Some(c.op("Where", &[&shows, bias, &low]))
            }
            (shows, bias) => shows.or_else(|| bias.clone()),
        };
        let mut attributes = vec![
            attr::size("q_num_heads", self.heads),
            attr::size("kv_num_heads", self.heads_kv),
            attr::float("scale", op.scale.to_f64()),
        ];
        if simple {
            attributes.push(attr::flag("is_causal", true));
        }
        if op.cap.to_f64() != 0.0 {
            attributes.push(attr::float("softcap", op.cap.to_f64()));
        }
        let mut x: SmallVec<[Option<&Name>; 4]> = [Some(&q), Some(&k), Some(&v)].into_iter().collect();
        if mask.is_some() {
            x.push(mask.as_ref());
        }
        let y = c.nodes("Attention", &x, attributes, 1);
        c.reshape(&y[0], &[self.n, self.tq, self.heads, self.dv])
    }
}

impl Rule for Attention {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let p = Parts::of(self, c)?;
        let wide = if p.dtype == DType::F64 { p.dtype } else { DType::F32 };
        // the standard finds heads from extents, and no extent may be 0
        let some = [p.n, p.tq, p.tk, p.heads_kv, p.d, p.dv].iter().all(|n| *n > 0);
        let y = if c.has(23) && some { p.operator(self, c)? } else { p.composed(self, c, wide)? };
        if !c.wants(1) {
            return Ok(vec![y]);
        }
        let scores = p.scores(self, c, wide)?;
        Ok(vec![y, c.reduce("ReduceLogSumExp", &scores, &[3], false)?])
    }
}
