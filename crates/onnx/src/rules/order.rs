//! Order: the largest elements, running sums, what there is of each.

use remat_import::{Cx, Value, one, size};
use remat_ops::order::CumulateFn;
use remat_tensor::Tensor;
use remat_types::{DType, HostTensor, Result, axis_of};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("ArgMax", 1, |c| arg(c, Tensor::argmax_over)),
    row("ArgMin", 1, |c| arg(c, Tensor::argmin_over)),
    row("CumProd", 26, |c| cumulate(c, CumulateFn::Prod)),
    row("CumSum", 11, |c| cumulate(c, CumulateFn::Sum)),
    row("TopK", 1, top_k),
    row("Unique", 11, unique),
];

fn arg(c: &Cx<'_>, f: fn(&Tensor, isize, bool) -> Result<Tensor>) -> Result<Vec<Value>> {
    let (x, axis, keep) = (c.x(0)?, c.axis("axis", 0)?, c.flag("keepdims", true)?);
    if !c.flag("select_last_index", false)? {
        return one(f(x, axis, keep)?);
    }
    let last = x.dims()[axis_of(axis, x.rank())?] as i64 - 1;
    let y = f(&x.flip(&[axis])?, axis, keep)?;
    one(y.neg()?.add(last)?)
}

fn cumulate(c: &Cx<'_>, f: CumulateFn) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let axis = c.number(1)? as isize;
    let y = x.cumulate(f, axis, c.flag("exclusive", false)?, c.flag("reverse", false)?)?;
    one(y.cast(x.dtype())?)
}

fn top_k(c: &Cx<'_>) -> Result<Vec<Value>> {
    let k = size(if c.version() < 10 { c.int_of("k")? } else { c.number(1)? })?;
    let (largest, sorted) = (c.flag("largest", true)?, c.flag("sorted", true)?);
    let (values, places) = c.x(0)?.topk(k, c.axis("axis", -1)?, largest, sorted)?;
    Ok(vec![values.into(), places.into()])
}

/// The distinct values, their first places, for each element the place of its value, and counts.
fn unique(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, sorted) = (c.x(0)?, c.flag("sorted", true)?);
    if let Some(axis) = c.opt_int("axis")? {
        return unique_slices(c, axis as isize, sorted);
    }
    let (values, first, inverse, counts) = x.unique_all()?;
    let inverse = inverse.reshape(&[-1])?;
    if sorted {
        return Ok(vec![values.into(), first.into(), inverse.into(), counts.into()]);
    }
    // in the order in which they come
    let order = first.argsort(0, false)?;
    let rank = order.argsort(0, false)?;
    let by = |t: &Tensor| t.index_select(0, &order).map(Value::Tensor);
    Ok(vec![by(&values)?, by(&first)?, rank.index_select(0, &inverse)?.into(), by(&counts)?])
}

/// Equal slices of an axis: compared on the host.
fn unique_slices(c: &Cx<'_>, axis: isize, sorted: bool) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let at = axis_of(axis, x.rank())?;
    let n = x.dims()[at];
    let rows = x.movedim(at as isize, 0)?.to_host()?.to_f64_vec();
    let width = rows.len().checked_div(n).unwrap_or(0);
    let row = |i: usize| &rows[i * width..(i + 1) * width];
    let compare = |a: usize, b: usize| {
        row(a).iter().zip(row(b)).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| compare(*a, *b).then(a.cmp(b)));
    // groups of equal slices, each by its first place
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match groups.last_mut() {
            Some(g) if compare(g[0], i).is_eq() => g.push(i),
            _ => groups.push(vec![i]),
        }
    }
    if !sorted {
        groups.sort_by_key(|g| g[0]);
    }
    let mut inverse = vec![0i64; n];
    for (k, g) in groups.iter().enumerate() {
        g.iter().for_each(|i| inverse[*i] = k as i64);
    }
    let first: Vec<i64> = groups.iter().map(|g| g[0] as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|g| g.len() as i64).collect();
    let vector = |v: &[i64]| c.constant(&HostTensor::from_slice(v, [v.len()])?);
    let places = Tensor::from_slice(c.device(), &first, [first.len()])?.cast(DType::I64)?;
    Ok(vec![x.index_select(at as isize, &places)?.into(), vector(&first)?, vector(&inverse)?, vector(&counts)?])
}
