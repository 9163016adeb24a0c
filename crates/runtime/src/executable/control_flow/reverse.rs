//! The gradient of a loop.
//!
//! The loop runs a second time and stacks the values with which each step began. Another loop then visits the steps
//! from the last to the first, with the gradient graph of the body. So the forward loop keeps only its inputs for the
//! backward pass. A loop under a budget costs one more run, not the memory of all its steps from forward to backward.

use remat_graph::ir::{Builder, ValueId};
use remat_ops::pointwise::{Binary, BinaryFn, Fill};
use remat_ops::{GradCx, Grads, Var};
use remat_types::{Fact, Result, Scalar, SmallVec};

use super::Loop;
use super::body::Body;

pub(super) fn grad(op: &Loop, cx: &GradCx<'_>) -> Result<Grads> {
    let r = Reverse::new(op, cx);
    let none = SmallVec::from_elem(None, cx.x_count());
    if !r.has_dy.contains(&true) || !r.needs.contains(&true) {
        return Ok(none);
    }
    let mut x: SmallVec<[Var; 8]> = SmallVec::new();
    for j in r.floats() {
        x.push(match cx.dy(j) {
            Some(dy) => dy,
            None => zeros(cx, &cx.fact(cx.x(j)))?,
        });
    }
    for i in r.needed_constants() {
        x.push(zeros(cx, &cx.fact(cx.x(i)))?);
    }
    x.extend(history(op, cx)?);
    let (n, m, q) = (op.carried, op.sliced, op.constants());
    x.extend((n..n + m).map(|i| cx.x(i)));
    x.extend((n..n + op.stacked()).filter_map(|j| cx.dy(j).filter(|_| r.has_dy[j])));
    x.extend((n + m..n + m + q).map(|i| cx.x(i)));
    x.extend(count(op, cx));
    let dx = cx.apply_all(r.backward()?, &x)?;
    let mut all: Grads = none;
    let order = r.floats().chain(r.needed_constants()).chain(r.needed_slices());
    for (i, v) in order.zip(dx) {
        all[i] = Some(v).filter(|_| cx.needs(i));
    }
    Ok(all)
}

fn zeros(cx: &GradCx<'_>, f: &Fact) -> Result<Var> {
    cx.apply(Fill { dtype: f.dtype, shape: f.shape.clone(), value: Scalar::Float(0.0) }, &[])
}

/// The number of steps that ran, where it may differ from `trips`.
fn count(op: &Loop, cx: &GradCx<'_>) -> Option<Var> {
    match (op.conditional, op.counted) {
        (true, _) => Some(cx.y(op.carried + op.stacked())),
        (_, true) => Some(cx.x(cx.x_count() - 1)),
        _ => None,
    }
}

/// The carried values with which each step began, row by row.
fn history(op: &Loop, cx: &GradCx<'_>) -> Result<Vec<Var>> {
    if op.carried == 0 {
        return Ok(Vec::new());
    }
    let g = op.body.graph();
    let b = Builder::new();
    let x: Vec<ValueId> = op.body.x().map(|f| b.input(f.clone(), None)).collect();
    let next = g.inline(&b, &x)?;
    let outputs = next[..op.carried].iter().chain(&x[1..=op.carried]);
    outputs.enumerate().for_each(|(i, v)| b.output(*v, &format!("y{i}")));
    let counted = op.counted || op.conditional;
    let again = Loop { body: Body::new(b.finish()?)?, counted, conditional: false, ..op.clone() };
    let given = op.carried + op.sliced + op.constants();
    let x: SmallVec<[Var; 8]> = (0..given).map(|i| cx.x(i)).chain(count(op, cx)).collect();
    Ok(cx.apply_all(again, &x)?[op.carried..].to_vec())
}

/// The values that take part in the gradient.
struct Reverse<'a> {
    op: &'a Loop,
    /// For each input of the op up to the constants, whether a gradient is computed. Carried floats always have one:
    /// each may depend on another.
    needs: Vec<bool>,
    /// For each output of the body, whether it has a cotangent.
    has_dy: Vec<bool>,
}

impl<'a> Reverse<'a> {
    fn new(op: &'a Loop, cx: &GradCx<'_>) -> Self {
        let is_float = |f: &Fact| f.dtype.is_float();
        let needs: Vec<bool> =
            op.body.x().skip(1).enumerate().map(|(i, f)| is_float(f) && (i < op.carried || cx.needs(i))).collect();
        let dy = |j: usize| j < op.carried + op.stacked() && cx.dy(j).is_some();
        let has_dy: Vec<bool> = op.body.y().enumerate().map(|(j, f)| is_float(f) && dy(j)).collect();
        Reverse { op, needs, has_dy }
    }

    /// Carried values that have gradients.
    fn floats(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.op.carried).filter(|i| self.needs[*i])
    }

    fn needed_slices(&self) -> impl Iterator<Item = usize> + '_ {
        (self.op.carried..self.op.carried + self.op.sliced).filter(|i| self.needs[*i])
    }

    fn needed_constants(&self) -> impl Iterator<Item = usize> + '_ {
        (self.op.carried + self.op.sliced..self.needs.len()).filter(|i| self.needs[*i])
    }

    /// `(step, dcarried.., sums.., carried.., slices.., dstacked.., constants..)
    ///  -> (dcarried.., sums.., dslices..)`, from the last step to the first.
    fn backward(&self) -> Result<Loop> {
        let op = self.op;
        let (n, m) = (op.carried, op.sliced);
        let own: Vec<&Fact> = op.body.x().collect();
        let b = Builder::new();
        let input = |f: &Fact| b.input(f.clone(), None);
        let step = input(own[0]);
        let dcarried: Vec<ValueId> = self.floats().map(|i| input(own[1 + i])).collect();
        let sums: Vec<ValueId> = self.needed_constants().map(|i| input(own[1 + i])).collect();
        let before: Vec<ValueId> = own[1..1 + n + m].iter().map(|f| input(f)).collect();
        let stacked: Vec<(usize, &Fact)> = op.body.y().enumerate().skip(n).filter(|(j, _)| self.has_dy[*j]).collect();
        let dstacked: Vec<ValueId> = stacked.iter().map(|(_, f)| input(f)).collect();
        let constants: Vec<ValueId> = own[1 + n + m..].iter().map(|f| input(f)).collect();
        // every carried float has a cotangent here: the cotangent of the step after it
        let has_dy: Vec<bool> =
            (0..self.has_dy.len()).map(|j| if j < n { self.needs[j] } else { self.has_dy[j] }).collect();
        let needs: Vec<bool> = std::iter::once(false).chain(self.needs.iter().copied()).collect();
        let gradient = op.body.graph().gradient(&needs, &has_dy)?;
        let x: Vec<ValueId> =
            [&[step][..], &before, &constants, &dcarried, &dstacked].into_iter().flatten().copied().collect();
        let dx = gradient.inline(&b, &x)?;
        let (floats, slices) = (dcarried.len(), self.needed_slices().count());
        let mut y: Vec<ValueId> = dx[..floats].to_vec();
        for (sum, d) in sums.iter().zip(&dx[floats + slices..]) {
            y.push(b.node(Binary { f: BinaryFn::Add }.into(), &[*sum, *d], None)?[0]);
        }
        y.extend(&dx[floats..floats + slices]);
        y.iter().enumerate().for_each(|(i, v)| b.output(*v, &format!("y{i}")));
        Ok(Loop {
            body: Body::new(b.finish()?)?,
            trips: op.trips,
            carried: floats + sums.len(),
            sliced: n + m + dstacked.len(),
            reverse: !op.reverse,
            counted: op.counted || op.conditional,
            conditional: false,
        })
    }
}
