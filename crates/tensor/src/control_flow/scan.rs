//! Loops over closures.

use remat_graph::ir::{Builder, Graph, ValueId};
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_runtime::control_flow::{Body, Loop};
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, Result, Shape};

use super::{Traced, apply, device_of, fact, traced};
use crate::Tensor;
use crate::site::InOp;

/// The way in which a [`scan`] collects a value from each step.
pub enum Collect {
    /// That of the last step; 0 without a step.
    Last(Tensor),
    /// Those of all steps, stacked along a new first axis.
    All(Tensor),
    /// Their sum, in the order of the steps.
    Sum(Tensor),
}

/// The kind of a [`Collect`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Last,
    All,
    Sum,
}

impl Collect {
    fn parts(self) -> (Kept, Tensor) {
        match self {
            Collect::Last(t) => (Kept::Last, t),
            Collect::All(t) => (Kept::All, t),
            Collect::Sum(t) => (Kept::Sum, t),
        }
    }
}

/// How a [`scan`] runs.
#[derive(Clone, Default)]
pub struct ScanOptions {
    /// The number of steps; unless set, the first extent of the scanned inputs.
    pub trips: Option<usize>,
    /// From the last row to the first.
    pub reverse: bool,
    /// An integer of one element: how many steps are made, at most `trips`. It is read when the op runs.
    pub count: Option<Tensor>,
}

/// Calls `f(step, carried)` `trips` times; each step gets the result of the one before. `step` is an I64 of rank 0.
///
/// Random keys that modules draw differ from step to step; a key tensor from outside is the same in all of them, see
/// [`Tensor::fold_in`].
///
/// The loop is one op; its gradient is a loop, which runs the forward one once more instead of keeping its steps.
///
/// Errors: Arity without a carried value, and for `f` that gives another number of them; Shape for one that changes its
/// type; those of `f` and of [`call`](crate::call).
///
/// ```
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::{Tensor, fori_loop};
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::cpu(DeviceOptions::default())?;
/// let x = Tensor::new(&device, &[2f32], [1])?;
/// let y = fori_loop(3, &[&x], |_, c| Ok(vec![(&c[0] * &x)?]))?;
/// assert_eq!(y[0].to_vec::<f32>()?, [16.0]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn fori_loop(
    trips: usize,
    init: &[&Tensor],
    f: impl FnOnce(&Tensor, &[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    let site = CallSite::here();
    let options = ScanOptions { trips: Some(trips), ..Default::default() };
    let (carried, _) =
        repeat(&options, init, &[], site, |k, c, _| Ok((f(k, c)?, Vec::new(), None))).in_op_at("fori_loop", site)?;
    Ok(carried)
}

/// `f(step, carried)` as long as the Bool of one element that it gives beside the next carried values is true, at least
/// once and at most `most` times. Gives the last carried values and the number of steps, an I64 of rank 0.
///
/// Errors: those of [`fori_loop`]; DType or Shape for another condition.
#[track_caller]
pub fn while_loop(
    most: usize,
    init: &[&Tensor],
    f: impl FnOnce(&Tensor, &[Tensor]) -> Result<(Vec<Tensor>, Tensor)>,
) -> Result<(Vec<Tensor>, Tensor)> {
    let site = CallSite::here();
    let options = ScanOptions { trips: Some(most), ..Default::default() };
    let step = |k: &Tensor, c: &[Tensor], _: &[Tensor]| {
        let (next, go_on) = f(k, c)?;
        Ok((next, Vec::new(), Some(go_on)))
    };
    let (carried, mut beside) = repeat(&options, init, &[], site, step).in_op_at("while_loop", site)?;
    let count = beside.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "a loop without its number of steps"))?;
    Ok((carried, count))
}

/// `f(step, carried, rows)` for each row of `xs`, tensors of `[steps, ..]`. Returns the last carried values, and the
/// collected values of the others.
///
/// Errors: those of [`fori_loop`]; Shape for `xs` of different lengths, Arity if nothing says how many steps there are.
#[track_caller]
pub fn scan(
    options: &ScanOptions,
    init: &[&Tensor],
    xs: &[&Tensor],
    f: impl FnOnce(&Tensor, &[Tensor], &[Tensor]) -> Result<(Vec<Tensor>, Vec<Collect>)>,
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let site = CallSite::here();
    let step = |k: &Tensor, c: &[Tensor], x: &[Tensor]| {
        let (next, collected) = f(k, c, x)?;
        Ok((next, collected, None))
    };
    repeat(options, init, xs, site, step).in_op_at("scan", site)
}

/// The results of a step: carried values, collected values, and whether to go on.
type Step = (Vec<Tensor>, Vec<Collect>, Option<Tensor>);

/// The fact of a row of each tensor. Errors (Shape) unless they have `trips` rows.
fn rows(xs: &[&Tensor], trips: usize) -> Result<Vec<Fact>> {
    let row = |t: &&Tensor| match t.dims().split_first() {
        Some((first, rest)) if *first == trips => Ok(Fact::new(t.dtype(), rest)),
        _ => Err(Error::new(ErrorKind::Shape, format!("{} has not {trips} rows", t.shape()))),
    };
    xs.iter().map(row).collect()
}

fn repeat(
    options: &ScanOptions,
    init: &[&Tensor],
    xs: &[&Tensor],
    site: CallSite,
    f: impl FnOnce(&Tensor, &[Tensor], &[Tensor]) -> Result<Step>,
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let given: Vec<&Tensor> = init.iter().chain(xs).copied().collect();
    let device = device_of(&given)?;
    let first = xs.first().and_then(|x| x.dims().first().copied());
    let trips = options.trips.or(first).ok_or_else(|| Error::new(ErrorKind::Arity, "nothing says how many steps"))?;
    let (n, step) = (init.len(), Fact::new(DType::I64, Shape::scalar()));
    let facts: Vec<Fact> = std::iter::once(step).chain(init.iter().map(|t| fact(t))).chain(rows(xs, trips)?).collect();
    let mut kinds: Vec<Kept> = Vec::new();
    let mut conditional = false;
    let Traced { graph, captured } = traced(&device, &facts, true, |x| {
        let (next, collected, go_on) = f(&x[0], &x[1..=n], &x[1 + n..])?;
        if next.len() != n {
            let text = format!("{n} carried values become {}", next.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        conditional = go_on.is_some();
        let go_on = go_on.map(|t| t.reshape(&[])).transpose()?;
        let values: Vec<Tensor>;
        (kinds, values) = collected.into_iter().map(Collect::parts).unzip();
        Ok(next.into_iter().chain(values).chain(go_on).collect())
    })?;
    let looped = Looped { graph: &graph, facts: &facts, captured: &captured, kinds: &kinds, n, conditional };
    let (body, kept) = looped.body()?;
    let op = Loop {
        body,
        trips,
        carried: n + kept.len(),
        sliced: xs.len(),
        reverse: options.reverse,
        counted: options.count.is_some(),
        conditional,
    };
    let zeros = kept.iter().map(|f| Tensor::zeros(&device, f.shape.clone(), f.dtype)).collect::<Result<Vec<_>>>()?;
    let count = match &options.count {
        Some(c) => Some(c.cast(DType::I64)?.reshape(&[])?),
        None => None,
    };
    let all = init.iter().map(|t| (*t).clone()).chain(zeros).chain(xs.iter().map(|t| (*t).clone()));
    let mut y = apply(&device, op, all.chain(captured.iter().cloned()).chain(count).collect(), site)?;
    let mut rest = y.split_off(n);
    let mut stacked = rest.split_off(kept.len()).into_iter();
    let mut kept = rest.into_iter();
    let mut beside: Vec<Tensor> = Vec::new();
    for k in &kinds {
        beside.extend(if *k == Kept::All { stacked.next() } else { kept.next() });
    }
    beside.extend(stacked);
    Ok((y, beside))
}

/// A traced step on its way to a loop's body.
struct Looped<'a> {
    graph: &'a Graph,
    /// Of the step's number, carried values and rows.
    facts: &'a [Fact],
    captured: &'a [Tensor],
    kinds: &'a [Kept],
    n: usize,
    conditional: bool,
}

impl Looped<'_> {
    /// The body, in which last values and sums are carried as well, and the facts of these.
    fn body(&self) -> Result<(Body, Vec<Fact>)> {
        let (b, n) = (Builder::new(), self.n);
        let given: Vec<Fact> = self.graph.outputs().iter().map(|o| self.graph.fact(o.value).clone()).collect();
        let collected = given[n..].iter().zip(self.kinds);
        let kept: Vec<Fact> = collected.filter(|(_, k)| **k != Kept::All).map(|(f, _)| f.clone()).collect();
        let input = |f: &Fact| b.input(f.clone(), None);
        let mut x: Vec<ValueId> = self.facts[..=n].iter().map(input).collect();
        let before: Vec<ValueId> = kept.iter().map(input).collect();
        x.extend(self.facts[1 + n..].iter().map(input));
        x.extend(self.captured.iter().map(|t| input(&fact(t))));
        let y = self.graph.inline(&b, &x)?;
        let mut next: Vec<ValueId> = y[..n].to_vec();
        let mut stacked = Vec::new();
        let mut before = before.into_iter();
        for (v, k) in y[n..].iter().zip(self.kinds) {
            match (k, if *k == Kept::All { None } else { before.next() }) {
                (Kept::Sum, Some(sum)) => next.push(b.node(Binary { f: BinaryFn::Add }.into(), &[sum, *v], None)?[0]),
                (Kept::Last, _) => next.push(*v),
                _ => stacked.push(*v),
            }
        }
        let go_on = y.last().filter(|_| self.conditional);
        let all = next.into_iter().chain(stacked).chain(go_on.copied());
        all.enumerate().for_each(|(i, v)| b.output(v, &format!("y{i}")));
        Ok((Body::new(b.finish()?)?, kept))
    }
}
