//! Along an axis, in order.

use remat_ops::order::{OrderFn, OrderStatistic, SearchSorted, Sort, TopK};
use remat_types::{DType, Result};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] = &[row::<TopK>(), row::<Sort>(), row::<OrderStatistic>(), row::<SearchSorted>()];

/// Booleans have no order in the standard: they are numbers.
fn numbers(c: &mut Cx<'_>, i: usize) -> Result<(Name, DType)> {
    let (x, dtype) = (c.x(i)?, c.dtype(i)?);
    let own = if dtype == DType::Bool { DType::U8 } else { dtype };
    Ok((c.cast_from(&x, dtype, own), own))
}

/// The first `k` in order, and their places.
fn top(c: &mut Cx<'_>, k: usize, axis: usize, largest: bool, sorted: bool) -> Result<[Name; 2]> {
    let (from, (x, own)) = (c.dtype(0)?, numbers(c, 0)?);
    let k = c.sizes(&[k])?;
    let attributes = vec![attr::size("axis", axis), attr::flag("largest", largest), attr::flag("sorted", sorted)];
    let y = c.nodes("TopK", &[Some(&x), Some(&k)], attributes, 2);
    Ok([c.cast_from(&y[0], own, from), y[1].clone()])
}

/// A single number has no axis to be in order along.
fn alone(c: &mut Cx<'_>) -> Result<Option<Vec<Name>>> {
    if c.fact(0)?.rank() > 0 {
        return Ok(None);
    }
    let x = c.x(0)?;
    Ok(Some(vec![c.op("Identity", &[&x]), c.int(0)]))
}

impl Rule for TopK {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        if let Some(y) = alone(c)? {
            return Ok(y);
        }
        Ok(top(c, self.k, self.axis, self.largest, self.sorted)?.to_vec())
    }
}

impl Rule for Sort {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        if let Some(y) = alone(c)? {
            return Ok(y);
        }
        let n = c.dims(0)?[self.axis];
        Ok(top(c, n, self.axis, self.descending, true)?.to_vec())
    }
}

impl Rule for OrderStatistic {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (dtype, shape) = (c.dtype(0)?, c.dims(0)?);
        let n = shape[self.axis];
        let one: Vec<Name> = match self.f {
            OrderFn::Mode => mode(c, self.axis, n)?,
            OrderFn::Median | OrderFn::NanMedian if dtype.is_float() => {
                let at = middle(c, self, n)?;
                let all = top(c, n, self.axis, false, true)?;
                let mut one = Vec::new();
                for y in &all {
                    one.push(c.with("GatherElements", &[y, &at], vec![attr::size("axis", self.axis)]));
                }
                one
            }
            _ => {
                let k = if self.f == OrderFn::Kth { self.k } else { n.saturating_sub(1) / 2 };
                let all = top(c, k + 1, self.axis, false, true)?;
                let mut one = Vec::new();
                for y in &all {
                    one.push(c.slice(y, self.axis, k, 1)?);
                }
                one
            }
        };
        if self.keepdims {
            return Ok(one);
        }
        one.iter().map(|y| c.squeeze(y, self.axis)).collect()
    }
}

/// The most frequent value, the smallest if several are equally frequent, and its last place. Each element is compared with all.
fn mode(c: &mut Cx<'_>, axis: usize, n: usize) -> Result<Vec<Name>> {
    let whole = c.x(0)?;
    let (x, own) = numbers(c, 0)?;
    let nan = if own.is_float() { Some(c.op("IsNaN", &[&x])) } else { None };
    let (a, b) = (c.unsqueeze(&x, axis + 1)?, c.unsqueeze(&x, axis)?);
    let mut same = c.op("Equal", &[&a, &b]);
    if let Some(nan) = &nan {
        let (a, b) = (c.unsqueeze(nan, axis + 1)?, c.unsqueeze(nan, axis)?);
        let both = c.op("And", &[&a, &b]);
        same = c.op("Or", &[&same, &both]);
    }
    let same = c.cast(&same, DType::I64);
    let count = c.reduce("ReduceSum", &same, &[axis + 1], false)?;
    let most = c.reduce("ReduceMax", &count, &[axis], true)?;
    let mut among = c.op("Equal", &[&count, &most]);
    if let Some(nan) = &nan {
        // NaN is the largest: it counts where there is nothing else
        let number = c.op("Not", &[nan]);
        let real = c.op("And", &[&among, &number]);
        let real_bytes = c.cast(&real, DType::U8);
        let some = c.reduce("ReduceMax", &real_bytes, &[axis], true)?;
        let some = c.cast(&some, DType::Bool);
        among = c.op("Where", &[&some, &real, &among]);
    }
    // places in the order of the elements; the smallest that counts comes first
    let k = c.sizes(&[n])?;
    let attributes = vec![attr::size("axis", axis), attr::flag("largest", false), attr::flag("sorted", true)];
    let order = c.nodes("TopK", &[Some(&x), Some(&k)], attributes, 2)[1].clone();
    let attributes = vec![attr::size("axis", axis)];
    let among = c.cast(&among, DType::I64);
    let ranked = c.with("GatherElements", &[&among, &order], attributes.clone());
    let first = c.with("ArgMax", &[&ranked], vec![attr::size("axis", axis), attr::flag("keepdims", true)]);
    let place = c.with("GatherElements", &[&order, &first], attributes.clone());
    // equal ones stand side by side, so the last is as many places behind the first as there are, less one
    let count = c.with("GatherElements", &[&count, &place], attributes.clone());
    let one = c.int(1);
    let more = c.op("Sub", &[&count, &one]);
    let last = c.op("Add", &[&first, &more]);
    let place = c.with("GatherElements", &[&order, &last], attributes.clone());
    Ok(vec![c.with("GatherElements", &[&whole, &place], attributes), place])
}

/// Where the median is in the order: NaN is last, and is the median, or is not counted.
fn middle(c: &mut Cx<'_>, op: &OrderStatistic, n: usize) -> Result<Name> {
    let x = c.x(0)?;
    let nan = c.op("IsNaN", &[&x]);
    let nan = c.cast(&nan, DType::I64);
    let nans = c.reduce("ReduceSum", &nan, &[op.axis], true)?;
    let (all, zero, one, two) = (c.int(n as i64), c.int(0), c.int(1), c.int(2));
    let counted = c.op("Sub", &[&all, &nans]);
    if op.f == OrderFn::Median {
        let some = c.op("Greater", &[&nans, &zero]);
        let half = c.int((n.saturating_sub(1) / 2) as i64);
        return Ok(c.op("Where", &[&some, &counted, &half]));
    }
    let last = c.op("Sub", &[&counted, &one]);
    let last = c.op("Max", &[&last, &zero]);
    Ok(c.op("Div", &[&last, &two]))
}

impl Rule for SearchSorted {
    /// Counts: each value beside each of the sorted ones.
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (sorted, own) = numbers(c, 0)?;
        let (values, _) = numbers(c, 1)?;
        let (rank, values_rank) = (c.fact(0)?.rank(), c.fact(1)?.rank());
        let sorted = if rank > 1 { c.unsqueeze(&sorted, rank - 1)? } else { sorted };
        let values = c.unsqueeze(&values, values_rank)?;
        let op = if self.right { "LessOrEqual" } else { "Less" };
        let mut before = c.op(op, &[&sorted, &values]);
        if own.is_float() {
            // NaN is the largest, and equals NaN
            let mut above = c.op("IsNaN", &[&values]);
            if !self.right {
                let nan = c.op("IsNaN", &[&sorted]);
                let number = c.op("Not", &[&nan]);
                above = c.op("And", &[&above, &number]);
            }
            before = c.op("Or", &[&before, &above]);
        }
        let before = c.cast(&before, DType::I64);
        Ok(vec![c.reduce("ReduceSum", &before, &[values_rank], false)?])
    }
}
