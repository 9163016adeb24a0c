//! The gradient rule: one op through the steps, then a product over all steps for each weight.

use remat_types::{DType, Result, Shape, SmallVec};

use super::compose::recurrent;
use super::{CellKind, Recurrent, RecurrentGrad};
use crate::index::TakeAlong;
use crate::linalg::MatMul;
use crate::pointwise::{BinaryFn, Fill, UnaryFn};
use crate::shape::{BroadcastTo, Concat, Permute, Slice};
use crate::{GradCx, Grads, Var};

/// The state of the gradient rule.
struct Rule<'a, 'b> {
    cx: &'a GradCx<'b>,
    of: &'a Recurrent,
    steps: usize,
    batch: usize,
    hidden: usize,
}

/// The gradients of the inputs of `of`.
pub(super) fn gradients(of: &Recurrent, cx: &mut GradCx<'_>) -> Result<Grads> {
    let mut grads: Grads = SmallVec::from_elem(None, cx.x_count());
    let outputs = of.kept_at() + if of.keep { of.cell.kept() } else { 0 };
    if (of.kept_at()..outputs).any(|j| cx.dy(j).is_some()) {
        return cx.grad_via_composite(|cx, x| recurrent(cx, of, x));
    }
    if (0..of.kept_at()).all(|j| cx.dy(j).is_none()) {
        return Ok(grads);
    }
    let (x, w) = (cx.fact(cx.x(0)).shape, cx.fact(cx.x(2)).shape);
    let (steps, batch, hidden) = (x[0], x[1], w[0] / of.cell.gates());
    let rule = Rule { cx, of, steps, batch, hidden };
    let kept = rule.kept()?;
    let through = rule.through_time(&kept)?;
    let dgates = through[0];
    if cx.needs(0) {
        let dx = rule.product(rule.flat(rule.of_input(dgates)?)?, rule.input_weights()?)?;
        grads[0] = Some(cx.build().reshape(dx, &x)?);
    }
    if cx.needs(1) {
        let dw = rule.turned_product(rule.flat(rule.of_input(dgates)?)?, rule.flat(cx.x(0))?)?;
        grads[1] = Some(rule.in_order(dw)?);
    }
    if cx.needs(2) {
        grads[2] = Some(rule.recurrent_weights(dgates)?);
    }
    if let Some(at) = of.state_at() {
        (0..of.cell.states()).for_each(|i| grads[at + i] = Some(through[1 + i]));
    }
    if let Some(at) = of.bias_at()
        && (cx.needs(at) || cx.needs(at + 1))
    {
        [grads[at], grads[at + 1]] = rule.biases(dgates)?.map(Some);
    }
    if let Some(at) = of.projection_at().filter(|at| cx.needs(*at)) {
        let n = rule.hidden;
        let o = cx.apply(Slice { axis: 2, start: 3 * n, len: n, step: 1 }, &[kept[0]])?;
        let m = cx.build().mul(o, cx.build().un(UnaryFn::Tanh, kept[1])?)?;
        grads[at] = Some(rule.turned_product(rule.flat(through[3])?, rule.flat(m)?)?);
    }
    Ok(grads)
}

impl Rule<'_, '_> {
    /// The values of the forward pass that the gradient reads: outputs of it, or of a second run that gives them.
    fn kept(&self) -> Result<SmallVec<[Var; 2]>> {
        let (of, cx) = (self.of, self.cx);
        let places = of.kept_at()..of.kept_at() + of.cell.kept();
        if of.keep || places.is_empty() {
            return Ok(places.map(|j| cx.y(j)).collect());
        }
        let x: SmallVec<[Var; 8]> = (0..cx.x_count()).map(|i| cx.x(i)).collect();
        let all = cx.apply_all(Recurrent { keep: true, ..of.clone() }, &x)?;
        Ok(places.map(|j| all[j]).collect())
    }

    /// The outputs of [`RecurrentGrad`].
    fn through_time(&self, kept: &[Var]) -> Result<SmallVec<[Var; 2]>> {
        let (of, cx) = (self.of, self.cx);
        let mut x: SmallVec<[Var; 12]> = SmallVec::new();
        for j in 0..of.kept_at() {
            x.push(match cx.dy(j) {
                Some(dy) => dy,
                None => self.zeros(&cx.fact(cx.y(j)).shape)?,
            });
        }
        x.push(cx.x(2));
        x.extend_from_slice(kept);
        if of.cell != CellKind::Lstm {
            x.push(cx.y(0));
        }
        match (of.state_at(), of.cell) {
            (Some(at), CellKind::Lstm) => x.push(cx.x(at + 1)),
            (Some(at), CellKind::Gru) => x.push(cx.x(at)),
            _ => {}
        }
        x.extend(of.projection_at().into_iter().chain(of.lengths_at()).map(|at| cx.x(at)));
        cx.apply_all(RecurrentGrad { of: Recurrent { keep: false, ..of.clone() } }, &x)
    }

    /// Zeros that take no memory.
    fn zeros(&self, shape: &Shape) -> Result<Var> {
        let dtype = self.cx.fact(self.cx.x(0)).dtype;
        let zero = self.cx.apply(Fill { dtype, shape: Shape::scalar(), value: 0.0.into() }, &[])?;
        self.cx.apply(BroadcastTo { shape: shape.clone() }, &[zero])
    }

    /// `[a, b, c]` as `[a b, c]`.
    fn flat(&self, v: Var) -> Result<Var> {
        let s = self.cx.fact(v).shape;
        self.cx.build().reshape(v, &Shape::from([s[0] * s[1], s[2]]))
    }

    fn columns(&self, v: Var, start: usize, len: usize) -> Result<Var> {
        let axis = self.cx.fact(v).rank() - 1;
        if self.cx.fact(v).shape[axis] == len {
            return Ok(v);
        }
        self.cx.apply(Slice { axis, start, len, step: 1 }, &[v])
    }

    /// The part of a GRU's rows of gates that meets the input: `n, r, z`.
    fn of_input(&self, dgates: Var) -> Result<Var> {
        self.columns(dgates, 0, self.of.cell.gates() * self.hidden)
    }

    /// The part that meets the state.
    fn of_state(&self, dgates: Var) -> Result<Var> {
        let first = if self.of.cell == CellKind::Gru { self.hidden } else { 0 };
        self.columns(dgates, first, self.of.cell.gates() * self.hidden)
    }

    fn product(&self, a: Var, b: Var) -> Result<Var> {
        self.cx.apply(MatMul {}, &[a, b])
    }

    /// `a^T b`.
    fn turned_product(&self, a: Var, b: Var) -> Result<Var> {
        let a = self.cx.apply(Permute { order: [1, 0].into_iter().collect() }, &[a])?;
        self.product(a, b)
    }

    /// Rows `r, z, n` of `w_ih` in the order of a row of gates: `n, r, z`.
    fn input_weights(&self) -> Result<Var> {
        self.moved(self.cx.x(1), 2)
    }

    /// Rows in the order of a row of gates in the order of the weights.
    fn in_order(&self, v: Var) -> Result<Var> {
        self.moved(v, 1)
    }

    /// The rows of a GRU from gate `first` on, then those before.
    fn moved(&self, v: Var, first: usize) -> Result<Var> {
        if self.of.cell != CellKind::Gru {
            return Ok(v);
        }
        let n = self.hidden;
        let rows =
            |start: usize, len: usize| self.cx.apply(Slice { axis: 0, start: start * n, len: len * n, step: 1 }, &[v]);
        self.cx.apply(Concat { axis: 0 }, &[rows(first, 3 - first)?, rows(0, first)?])
    }

    /// The gradient of `w_hh`: that of the gates times the states before.
    fn recurrent_weights(&self, dgates: Var) -> Result<Var> {
        let (cx, of, later) = (self.cx, self.of, self.steps.saturating_sub(1));
        let [first, last] = [0, self.steps.min(1)];
        let steps = |v: Var, start: usize, len: usize| cx.apply(Slice { axis: 0, start, len, step: 1 }, &[v]);
        let (of_gates, of_y) = if of.reverse { (first, last) } else { (last, first) };
        let later_gates = self.of_state(self.flat(steps(dgates, of_gates, later)?)?)?;
        let dw = self.turned_product(later_gates, self.flat(steps(cx.y(0), of_y, later)?)?)?;
        let Some(at) = of.state_at().filter(|_| self.steps > 0) else { return Ok(dw) };
        // a row's first step, which with lengths is not everyone's when going backwards
        let first = match of.lengths_at().filter(|_| of.reverse) {
            Some(lengths) => cx.apply(TakeAlong { axis: 0 }, &[dgates, self.last_steps(cx.x(lengths), dgates)?])?,
            None => steps(dgates, if of.reverse { later } else { 0 }, 1)?,
        };
        let of_first = self.turned_product(self.of_state(self.flat(first)?)?, cx.x(at))?;
        cx.build().add(dw, of_first)
    }

    /// `max(length - 1, 0)` of each row, for each column of `dgates`: `[1, b, columns]`.
    fn last_steps(&self, lengths: Var, dgates: Var) -> Result<Var> {
        let c = self.cx.build();
        let [one, zero] = [1i64, 0]
            .map(|value| self.cx.apply(Fill { dtype: DType::I64, shape: Shape::scalar(), value: value.into() }, &[]));
        let last = c.bin(BinaryFn::Max, c.sub(lengths, one?)?, zero?)?;
        let last = c.reshape(last, &Shape::from([1, self.batch, 1]))?;
        let columns = self.cx.fact(dgates).shape[2];
        self.cx.apply(BroadcastTo { shape: Shape::from([1, self.batch, columns]) }, &[last])
    }

    /// The gradients of `b_ih` and `b_hh`.
    fn biases(&self, dgates: Var) -> Result<[Var; 2]> {
        let c = self.cx.build();
        let sum = c.sum_over(self.flat(dgates)?, &[0])?;
        let sum = c.reshape(sum, &Shape::from([self.cx.fact(sum).shape[1]]))?;
        Ok([self.in_order(self.of_input(sum)?)?, self.of_state(sum)?])
    }
}
