//! Recurrent layers and their gradients written with other ops, step by step: the rule of second derivatives. It is here and not
//! among the compositions, which then need to know nothing of these ops.

use remat_types::{DType, Result, Scalar, Shape, SmallVec, smallvec};

use super::{CellKind, Recurrent, RecurrentGrad};
use crate::Apply;
use crate::args::want_int;
use crate::compose::{Arith, cast, permuted, shaped, widened};
use crate::linalg::MatMul;
use crate::pointwise::{Compare, CompareFn, Fill, UnaryFn, Where};
use crate::shape::{Concat, Slice};

/// A seam and the sizes of a layer.
struct Steps<'a, A: Apply> {
    cx: &'a A,
    of: &'a Recurrent,
    steps: usize,
    batch: usize,
    hidden: usize,
    lengths: Option<A::Value>,
}

impl<A: Apply> Steps<'_, A> {
    fn slice(&self, v: &A::Value, axis: usize, start: usize, len: usize) -> Result<A::Value> {
        self.cx.apply1(Slice { axis, start, len, step: 1 }, [v.clone()])
    }

    /// Step `t` of `[steps, batch, n]`, as `[batch, n]`.
    fn at(&self, v: &A::Value, t: usize) -> Result<A::Value> {
        let n = self.cx.fact(v).shape[2];
        shaped(self.cx, self.slice(v, 0, t, 1)?, [self.batch, n])
    }

    /// Columns of gate `k`.
    fn gate(&self, v: &A::Value, k: usize) -> Result<A::Value> {
        self.slice(v, self.cx.fact(v).rank() - 1, k * self.hidden, self.hidden)
    }

    fn join(&self, parts: Vec<A::Value>) -> Result<A::Value> {
        let axis = self.cx.fact(&parts[0]).rank() - 1;
        self.cx.apply1(Concat { axis }, parts)
    }

    /// `[steps, batch, n]` from `[batch, n]` of each.
    fn stack(&self, parts: Vec<Option<A::Value>>, like: &A::Value, n: usize) -> Result<A::Value> {
        if parts.is_empty() {
            return self.zeros(like, [0, self.batch, n].into());
        }
        let parts = parts.into_iter().flatten().map(|v| shaped(self.cx, v, [1, self.batch, n]));
        self.cx.apply1(Concat { axis: 0 }, parts.collect::<Result<Vec<_>>>()?)
    }

    fn zeros(&self, like: &A::Value, shape: Shape) -> Result<A::Value> {
        self.cx.apply1(Fill { dtype: self.cx.fact(like).dtype, shape, value: Scalar::Float(0.0) }, [])
    }

    fn product(&self, a: A::Value, b: A::Value) -> Result<A::Value> {
        self.cx.apply1(MatMul {}, [a, b])
    }

    fn by_rows(&self, a: A::Value, w: &A::Value) -> Result<A::Value> {
        self.product(a, permuted(self.cx, w.clone(), &[1, 0])?)
    }

    /// Steps in the order of time.
    fn order(&self) -> Vec<usize> {
        if self.of.reverse { (0..self.steps).rev().collect() } else { (0..self.steps).collect() }
    }

    /// Bool `[batch, 1]`: the rows that have step `t`.
    fn has(&self, t: usize) -> Result<Option<A::Value>> {
        let Some(lengths) = &self.lengths else { return Ok(None) };
        let t = self.cx.scalar(self.cx.fact(lengths).dtype, Scalar::Int(t as i64))?;
        let has = self.cx.apply1(Compare { f: CompareFn::Lt }, [t, lengths.clone()])?;
        Ok(Some(shaped(self.cx, has, [self.batch, 1])?))
    }

    /// `v` of rows that have the step, `other` of those that do not.
    fn choose(&self, has: &Option<A::Value>, v: A::Value, other: A::Value) -> Result<A::Value> {
        match has {
            None => Ok(v),
            Some(has) => self.cx.apply1(Where, [has.clone(), v, other]),
        }
    }

    /// `v` of rows that have the step, 0 of those that do not.
    fn keep(&self, has: &Option<A::Value>, v: A::Value) -> Result<A::Value> {
        has.as_ref().map_or(Ok(v.clone()), |has| Arith(self.cx).keep_where(has.clone(), v))
    }

    fn one_minus(&self, v: A::Value) -> Result<A::Value> {
        Arith(self.cx).offset(Arith(self.cx).neg(v)?, 1.0)
    }

    /// `s (1 - s)`.
    fn slope(&self, s: &A::Value) -> Result<A::Value> {
        Arith(self.cx).mul(s.clone(), self.one_minus(s.clone())?)
    }

    /// `1 - y^2`.
    fn tanh_slope(&self, y: &A::Value) -> Result<A::Value> {
        self.one_minus(Arith(self.cx).square(y.clone())?)
    }
}

/// Outputs and last states of `op`: of floats of 16 bits, computed in f32, and with lengths of any integer dtype. `x` are the
/// inputs but for the lengths. Errors: as [`Recurrent`].
#[track_caller]
pub fn recurrent_layer<A: Apply>(
    cx: &A,
    op: Recurrent,
    x: Vec<A::Value>,
    lengths: Option<A::Value>,
) -> Result<SmallVec<[A::Value; 2]>> {
    let dtype = x.first().map_or(DType::F32, |x| cx.fact(x).dtype);
    let states = op.kept_at();
    let mut all: SmallVec<[A::Value; 4]> = SmallVec::new();
    for v in x {
        all.push(widened(cx, v)?);
    }
    if let Some(lengths) = lengths {
        want_int(&cx.fact(&lengths), "lengths")?;
        all.push(cast(cx, lengths, DType::I64)?);
    }
    let mut y = cx.apply(op.into(), all)?;
    y.truncate(states);
    y.into_iter().map(|y| cast(cx, y, dtype)).collect()
}

/// All outputs of `of` from its inputs.
pub(super) fn recurrent<A: Apply>(cx: &A, of: &Recurrent, x: &[A::Value]) -> Result<SmallVec<[A::Value; 2]>> {
    let (c, shape, width) = (Arith(cx), cx.fact(&x[0]).shape, cx.fact(&x[2]).shape[1]);
    let hidden = cx.fact(&x[2]).shape[0] / of.cell.gates();
    let lengths = of.lengths_at().map(|at| x[at].clone());
    let s = Steps { cx, of, steps: shape[0], batch: shape[1], hidden, lengths };
    let rows = s.steps * s.batch;
    let mut of_x = s.by_rows(shaped(cx, x[0].clone(), [rows, shape[2]])?, &x[1])?;
    if let Some(at) = of.bias_at() {
        of_x = c.add(of_x, x[at].clone())?;
    }
    let of_x = shaped(cx, of_x, [s.steps, s.batch, of.cell.gates() * hidden])?;
    let initial = |i: usize, n: usize| match of.state_at() {
        Some(at) => Ok(x[at + i].clone()),
        None => s.zeros(&x[0], [s.batch, n].into()),
    };
    let mut h = initial(0, width)?;
    let mut cell = if of.cell == CellKind::Lstm { Some(initial(1, hidden)?) } else { None };
    let (mut y, mut gates, mut cells) = (vec![None; s.steps], vec![None; s.steps], vec![None; s.steps]);
    for t in s.order() {
        let has = s.has(t)?;
        let a = s.at(&of_x, t)?;
        let mut b = s.by_rows(h.clone(), &x[2])?;
        if let Some(at) = of.bias_at() {
            b = c.add(b, x[at + 1].clone())?;
        }
        let sigmoid = |v| c.un(UnaryFn::Sigmoid, v);
        let next = match (of.cell, &mut cell) {
            (CellKind::RnnTanh, _) => c.un(UnaryFn::Tanh, c.add(a, b)?)?,
            (CellKind::RnnRelu, _) => c.un(UnaryFn::Relu, c.add(a, b)?)?,
            (CellKind::Lstm, Some(cell)) => {
                let sum = c.add(a, b)?;
                let [i, f, o] = [0, 1, 3].map(|k| s.gate(&sum, k).and_then(sigmoid));
                let (i, f, g, o) = (i?, f?, c.un(UnaryFn::Tanh, s.gate(&sum, 2)?)?, o?);
                let new = c.add(c.mul(f.clone(), cell.clone())?, c.mul(i.clone(), g.clone())?)?;
                let m = c.mul(o.clone(), c.un(UnaryFn::Tanh, new.clone())?)?;
                gates[t] = Some(s.keep(&has, s.join(vec![i, f, g, o])?)?);
                cells[t] = Some(s.keep(&has, new.clone())?);
                *cell = s.choose(&has, new, cell.clone())?;
                match of.projection_at() {
                    Some(at) => s.by_rows(m, &x[at])?,
                    None => m,
                }
            }
            _ => {
                let [r, z] = [0, 1].map(|k| sigmoid(c.add(s.gate(&a, k)?, s.gate(&b, k)?)?));
                let (r, z, of_h) = (r?, z?, s.gate(&b, 2)?);
                let n = c.un(UnaryFn::Tanh, c.add(s.gate(&a, 2)?, c.mul(r.clone(), of_h.clone())?)?)?;
                let next = c.add(n.clone(), c.mul(z.clone(), c.sub(h.clone(), n.clone())?)?)?;
                gates[t] = Some(s.keep(&has, s.join(vec![n, r, z, of_h])?)?);
                next
            }
        };
        y[t] = Some(s.keep(&has, next.clone())?);
        h = s.choose(&has, next, h)?;
    }
    let mut all: SmallVec<[A::Value; 2]> = smallvec![s.stack(y, &x[0], width)?, h];
    all.extend(cell);
    if of.keep && of.cell.kept() > 0 {
        all.push(s.stack(gates, &x[0], 4 * hidden)?);
    }
    if of.keep && of.cell == CellKind::Lstm {
        all.push(s.stack(cells, &x[0], hidden)?);
    }
    Ok(all)
}

/// All outputs of `op` from its inputs.
pub(super) fn recurrent_gradients<A: Apply>(
    cx: &A,
    op: &RecurrentGrad,
    x: &[A::Value],
) -> Result<SmallVec<[A::Value; 2]>> {
    let (c, of, places) = (Arith(cx), &op.of, op.places());
    let shape = cx.fact(&x[0]).shape;
    let (steps, batch, width) = (shape[0], shape[1], shape[2]);
    let w_hh = &x[places.w_hh];
    let hidden = cx.fact(w_hh).shape[0] / of.cell.gates();
    let s = Steps { cx, of, steps, batch, hidden, lengths: places.lengths.map(|at| x[at].clone()) };
    let columns = of.cell.cell().columns() * hidden;
    let (mut dh, mut dc) = (x[1].clone(), places.dc.map(|at| x[at].clone()));
    let (mut dgates, mut douts) = (vec![None; steps], vec![None; steps]);
    let mut order = s.order();
    order.reverse();
    for (i, &t) in order.iter().enumerate() {
        let has = s.has(t)?;
        // the state before, of what the forward pass has kept
        let before = |all: &A::Value, n: usize| -> Result<A::Value> {
            let first = match places.initial {
                Some(at) => x[at].clone(),
                None => s.zeros(all, [batch, n].into())?,
            };
            let Some(&earlier) = order.get(i + 1) else { return Ok(first) };
            s.choose(&s.has(earlier)?, s.at(all, earlier)?, first)
        };
        let d = c.add(dh.clone(), s.at(&x[0], t)?)?;
        let mut dm = d.clone();
        if let Some(at) = places.w_hr {
            douts[t] = Some(s.keep(&has, d.clone())?);
            dm = s.product(d, x[at].clone())?;
        }
        let (of_gates, mut past) = match (of.cell, places.y.map(|at| &x[at]), &mut dc) {
            (CellKind::RnnTanh, Some(y), _) => (c.mul(dm, s.tanh_slope(&s.at(y, t)?)?)?, None),
            (CellKind::RnnRelu, Some(y), _) => {
                let y = s.at(y, t)?;
                let alive = cx.apply1(Compare { f: CompareFn::Gt }, [y.clone(), c.constant(0.0, &y)?])?;
                (c.keep_where(alive, dm)?, None)
            }
            (CellKind::Gru, Some(y), _) => {
                let all = s.at(&x[places.gates.unwrap_or_default()], t)?;
                let [n, r, z, of_h] = [0, 1, 2, 3].map(|k| s.gate(&all, k));
                let (n, r, z, of_h) = (n?, r?, z?, of_h?);
                let dn = c.mul(c.mul(dm.clone(), s.one_minus(z.clone())?)?, s.tanh_slope(&n)?)?;
                let dz = c.mul(c.mul(dm.clone(), c.sub(before(y, width)?, n)?)?, s.slope(&z)?)?;
                let dr = c.mul(c.mul(dn.clone(), of_h)?, s.slope(&r)?)?;
                let of_state = c.mul(dn.clone(), r)?;
                (s.join(vec![dn, dr, dz, of_state])?, Some(c.mul(dm, z)?))
            }
            (_, _, dc) => {
                let all = s.at(&x[places.gates.unwrap_or_default()], t)?;
                let cells = &x[places.cells.unwrap_or_default()];
                let [i, f, g, o] = [0, 1, 2, 3].map(|k| s.gate(&all, k));
                let (i, f, g, o) = (i?, f?, g?, o?);
                let tanh = c.un(UnaryFn::Tanh, s.at(cells, t)?)?;
                let mut d = c.mul(c.mul(dm.clone(), o.clone())?, s.tanh_slope(&tanh)?)?;
                if let Some(dc) = dc {
                    d = c.add(d, dc.clone())?;
                }
                let d_o = c.mul(c.mul(dm, tanh)?, s.slope(&o)?)?;
                let di = c.mul(c.mul(d.clone(), g.clone())?, s.slope(&i)?)?;
                let df = c.mul(c.mul(d.clone(), before(cells, hidden)?)?, s.slope(&f)?)?;
                let dg = c.mul(c.mul(d.clone(), i)?, s.tanh_slope(&g)?)?;
                if let Some(dc) = dc {
                    *dc = s.choose(&has, c.mul(d, f)?, dc.clone())?;
                }
                (s.join(vec![di, df, dg, d_o])?, None)
            }
        };
        let of_gates = s.keep(&has, of_gates)?;
        let first = if of.cell == CellKind::Gru { hidden } else { 0 };
        let of_state = s.slice(&of_gates, 1, first, of.cell.gates() * hidden)?;
        let mut next = s.product(of_state, w_hh.clone())?;
        if let Some(past) = past.take() {
            next = c.add(past, next)?;
        }
        dgates[t] = Some(of_gates);
        dh = s.choose(&has, next, dh)?;
    }
    let mut all: SmallVec<[A::Value; 2]> = smallvec![s.stack(dgates, &x[0], columns)?, dh];
    all.extend(dc);
    if of.project {
        all.push(s.stack(douts, &x[0], width)?);
    }
    Ok(all)
}
