//! Along an axis, one element after the other: what the standard has no operator for is a `Scan`.

use remat_ops::order::{Cumulate, CumulateFn, Recurrence};
use remat_ops::pointwise::BinaryFn;
use remat_types::{DType, Fact, HostTensor, Result, Shape};

use super::{Row, Rule, pointwise, reduce, row};
use crate::export::attribute as attr;
use crate::export::emit::{Emit, Name, declared_fact};
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] = &[row::<Recurrence>(), row::<Cumulate>()];

/// A value that goes from step to step, or one that is read row by row: its name and its dtype.
pub(super) type Typed = (Name, DType);

/// The results of a step: the next states, and rows of results.
pub(super) type Given = (Vec<Typed>, Vec<Typed>);

/// A walk along an axis of inputs of this shape. States have the shape of a row. Gives the rows of results, stacked along the
/// axis.
pub(super) fn walk(
    c: &mut Cx<'_>,
    (shape, axis, reverse): (&[usize], usize, bool),
    states: &[Typed],
    inputs: &[Typed],
    step: impl FnOnce(&mut Emit, &[Name], &[Name]) -> Result<Given>,
) -> Result<Vec<Name>> {
    let mut row = shape.to_vec();
    row.remove(axis);
    let fact = |dtype| Fact::new(dtype, Shape::from(row.clone()));
    let own: Vec<Name> = states.iter().map(|_| c.unique("state")).collect();
    let rows: Vec<Name> = inputs.iter().map(|_| c.unique("row")).collect();
    let dtypes = states.iter().chain(inputs).map(|t| t.1);
    let declared = own.iter().chain(&rows).zip(dtypes).map(|(name, dtype)| declared_fact(name, &fact(dtype))).collect();
    c.begin();
    let (next, given) = match step(c, &own, &rows) {
        Ok(all) => all,
        Err(e) => {
            c.end("", Vec::new(), Vec::new());
            return Err(e);
        }
    };
    let results = given.len();
    let mut outputs = Vec::new();
    for (name, dtype) in next.iter().chain(&given) {
        // each is made here, and given once
        let own = c.op("Identity", &[name]);
        outputs.push(declared_fact(&own, &fact(*dtype)));
    }
    let body = c.end("step", declared, outputs);
    let direction = usize::from(reverse);
    let attributes = vec![
        attr::graph("body", body),
        attr::size("num_scan_inputs", inputs.len()),
        attr::ints("scan_input_axes", &vec![axis; inputs.len()]),
        attr::ints("scan_input_directions", &vec![direction; inputs.len()]),
        attr::ints("scan_output_axes", &vec![axis; results]),
        attr::ints("scan_output_directions", &vec![direction; results]),
    ];
    let x: Vec<Option<&Name>> = states.iter().chain(inputs).map(|t| Some(&t.0)).collect();
    let y = c.nodes("Scan", &x, attributes, states.len() + results);
    Ok(y[states.len()..].to_vec())
}

/// A row of one number.
fn row_of(c: &mut Cx<'_>, shape: &[usize], axis: usize, dtype: DType, value: f64) -> Result<Name> {
    let mut row = shape.to_vec();
    row.remove(axis);
    let value = c.number(dtype, value);
    c.expand(&value, &row)
}

impl Rule for Recurrence {
    /// The state is the last result, in f64.
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (a, b, dtype, shape) = (c.x(0)?, c.x(1)?, c.dtype(0)?, c.dims(0)?);
        if shape.contains(&0) {
            return Ok(vec![c.op("Identity", &[&b])]);
        }
        let wide = DType::F64;
        let (a, b) = (c.cast_from(&a, dtype, wide), c.cast_from(&b, dtype, wide));
        let start = row_of(c, &shape, self.axis, wide, 0.0)?;
        // what is kept of nothing is nothing, whatever the first rate is
        let along = (&shape[..], self.axis, self.reverse);
        let mut first = vec![1; shape.len()];
        first[self.axis] = shape[self.axis];
        let mut is_first = vec![false; shape[self.axis]];
        let at = if self.reverse { shape[self.axis] - 1 } else { 0 };
        is_first[at] = true;
        let mask = c.tensor(HostTensor::from_slice(&is_first, first)?);
        let mask = c.expand(&mask, &shape)?;
        let inputs = [(a, wide), (b, wide), (mask, DType::Bool)];
        let y = walk(c, along, &[(start, wide)], &inputs, |e, s, x| {
            let kept = e.op("Mul", &[&x[0], &s[0]]);
            let sum = e.op("Add", &[&kept, &x[1]]);
            let next = e.op("Where", &[&x[2], &x[1], &sum]);
            Ok((vec![(next.clone(), wide)], vec![(next, wide)]))
        })?;
        Ok(vec![c.cast_from(&y[0], wide, dtype)])
    }
}

impl Rule for Cumulate {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, from, to, shape) = (c.x(0)?, c.dtype(0)?, c.result(0)?.dtype, c.dims(0)?);
        let extreme = matches!(self.f, CumulateFn::Max | CumulateFn::Min);
        if shape.is_empty() || shape.contains(&0) {
            let y = c.cast_from(&x, from, to);
            let places = c.y.get(1).map(|f| HostTensor::zeros(DType::I64, f.shape.clone())).transpose()?;
            let mut all = vec![if shape.is_empty() && self.exclusive { neutral(c, self.f, to) } else { y }];
            all.extend(places.map(|p| c.tensor(p)));
            return Ok(all);
        }
        let operator = match self.f {
            CumulateFn::Sum => Some("CumSum"),
            CumulateFn::Prod if c.has(26) => Some("CumProd"),
            _ => None,
        };
        if let Some(op) = operator {
            let own = reduce::whole(to, false);
            let (x, axis) = (c.cast_from(&x, from, own), c.int(self.axis as i64));
            let attributes = vec![attr::flag("exclusive", self.exclusive), attr::flag("reverse", self.reverse)];
            let y = c.with(op, &[&x, &axis], attributes);
            return Ok(vec![c.cast_from(&y, own, to)]);
        }
        if extreme { extremes(c, self, &shape) } else { folded(c, self, &shape) }
    }
}

/// The neutral element of `f`.
fn neutral(c: &mut Cx<'_>, f: CumulateFn, dtype: DType) -> Name {
    let value = match f {
        CumulateFn::Prod => 1.0,
        CumulateFn::LogSumExp => f64::NEG_INFINITY,
        _ => 0.0,
    };
    c.number(dtype, value)
}

/// Products, and logarithms of sums of exponentials: floats in f64.
fn folded(c: &mut Cx<'_>, op: &Cumulate, shape: &[usize]) -> Result<Vec<Name>> {
    let (x, from, to) = (c.x(0)?, c.dtype(0)?, c.result(0)?.dtype);
    let wide = if to.is_float() { DType::F64 } else { to };
    let x = c.cast_from(&x, from, wide);
    let log = op.f == CumulateFn::LogSumExp;
    let start = row_of(c, shape, op.axis, wide, if log { f64::NEG_INFINITY } else { 1.0 })?;
    let exclusive = op.exclusive;
    let y = walk(c, (shape, op.axis, op.reverse), &[(start, wide)], &[(x, wide)], |e, s, x| {
        let next = match log {
            true => pointwise::binary(e, BinaryFn::LogAddExp, &s[0], &x[0], wide, false)?,
            false => e.op("Mul", &[&s[0], &x[0]]),
        };
        let given = if exclusive { s[0].clone() } else { next.clone() };
        Ok((vec![(next, wide)], vec![(given, wide)]))
    })?;
    Ok(vec![c.cast_from(&y[0], wide, to)])
}

/// The largest so far and its place: the last of equal ones, or the last NaN.
fn extremes(c: &mut Cx<'_>, op: &Cumulate, shape: &[usize]) -> Result<Vec<Name>> {
    let (x, from) = (c.x(0)?, c.dtype(0)?);
    let own = if from == DType::Bool { DType::U8 } else { from };
    let x = c.cast_from(&x, from, own);
    let n = shape[op.axis];
    let first = if op.reverse { n - 1 } else { 0 };
    let place = c.int(first as i64);
    let start = c.with("Gather", &[&x, &place], vec![attr::size("axis", op.axis)]);
    let at = row_of(c, shape, op.axis, DType::I64, first as f64)?;
    let mut beside = vec![1; shape.len()];
    beside[op.axis] = n;
    let places: Vec<i64> = (0..n as i64).collect();
    let places = c.tensor(HostTensor::from_slice(&places, beside)?);
    let places = c.expand(&places, shape)?;
    let less = if op.f == CumulateFn::Max { "GreaterOrEqual" } else { "LessOrEqual" };
    let states = [(start, own), (at, DType::I64)];
    let y = walk(c, (shape, op.axis, op.reverse), &states, &[(x, own), (places, DType::I64)], |e, s, x| {
        let mut takes = e.op(less, &[&x[0], &s[0]]);
        if own.is_float() {
            let nan = e.op("IsNaN", &[&x[0]]);
            takes = e.op("Or", &[&takes, &nan]);
        }
        let best = e.op("Where", &[&takes, &x[0], &s[0]]);
        let at = e.op("Where", &[&takes, &x[1], &s[1]]);
        let both = vec![(best, own), (at, DType::I64)];
        Ok((both.clone(), both))
    })?;
    Ok(vec![c.cast_from(&y[0], own, from), y[1].clone()])
}
