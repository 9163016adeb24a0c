//! Choices and loops.
//!
//! A condition that the host knows is decided while the graph runs. Eagerly the host knows all conditions; in a compiled function
//! it knows those that follow from shapes. The others become operators with bodies. A loop of unknown length that collects values
//! has no shape before it ran: a compiled function is an error there, an eager one just runs.

use std::cell::Cell;

use remat_import::{Cx, Graph, Value, ValueType, shape_error, size, value_error};
use remat_tensor::{Collect, ScanOptions, Tensor, cond, scan, while_loop};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result, axis_of};

use super::{Row, free};

pub(super) const ROWS: &[Row] = &[free("If", 1, branch), free("Loop", 1, repeat), free("Scan", 8, walk)];

/// Steps of a loop that are written out in a compiled function; longer ones become an operator.
const MOST_UNROLLED: i64 = 4;

/// Steps of a loop that are written out if an operator cannot be made of them, since a value that is carried changes its shape. The
/// graph of more of them takes longer than running them one by one.
const MOST_GROWING: i64 = 1024;

/// The truth value of a tensor if it can be had now: not in a trace unless it is known.
fn decided(c: &Cx<'_>, v: &Value) -> Result<Option<bool>> {
    let host = match v.known() {
        Some(host) => host,
        None if c.is_tracing() => return Ok(None),
        None => v.tensor()?.to_host()?,
    };
    match host.to_i64_vec()[..] {
        [b] => Ok(Some(b != 0)),
        _ => Err(shape_error(format!("a condition of shape {}", host.shape()))),
    }
}

fn tensors(all: Vec<Value>) -> Result<Vec<Tensor>> {
    all.iter().map(|v| v.tensor().cloned()).collect()
}

fn branch(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (yes, no) = (c.graph("then_branch")?, c.graph("else_branch")?);
    match decided(c, c.needed(0)?)? {
        Some(true) => c.run(yes, Vec::new()),
        Some(false) => c.run(no, Vec::new()),
        None => {
            let chosen = c.x(0)?.reshape(&[])?;
            let run = |g: &Graph| tensors(c.run(g, Vec::new())?);
            match cond(&chosen, &[&chosen], |_| run(yes), |_| run(no)) {
                Ok(y) => Ok(y.into_iter().map(Value::Tensor).collect()),
                // branches of several shapes, or that read sizes, are chosen at a cut of the compiled function
                Err(e) => match chosen.cast(DType::I64)?.as_size() {
                    Ok(0) => c.run(no, Vec::new()),
                    Ok(_) => c.run(yes, Vec::new()),
                    Err(cut) if cut.kind() == ErrorKind::NoValue => Err(cut),
                    Err(_) => Err(e),
                },
            }
        }
    }
}

/// `for i in 0 .. M while cond`: the body takes the step, the condition and carried values; gives a condition, the next carried
/// values, and rows that are collected.
fn repeat(c: &Cx<'_>) -> Result<Vec<Value>> {
    let body = c.graph("body")?;
    let most = match c.value(0) {
        Some(_) => Some(c.number(0)?.max(0)),
        None => None,
    };
    let carried: Vec<Value> = (2..c.input_count()).map(|i| c.needed(i).cloned()).collect::<Result<_>>()?;
    if body.input_count() != carried.len() + 2 || body.output_count() < carried.len() + 1 {
        let text = format!("a body of {} inputs and {} outputs", body.input_count(), body.output_count());
        return Err(Error::new(ErrorKind::Arity, format!("{text} for {} carried values", carried.len())));
    }
    let begins = c.value(1).cloned();
    let first = begins.as_ref().map_or(Ok(Some(true)), |v| decided(c, v))?;
    if c.is_tracing() && (first.is_none() || most.is_none_or(|m| m > MOST_UNROLLED)) {
        return traced_loop(c, body, most, begins, carried);
    }
    match written_out(c, body, most, first.unwrap_or(false), carried.clone())? {
        Some(y) => Ok(y),
        // what has no condition of its own gives back the one that it got
        None => traced_loop(c, body, most, begins, carried),
    }
}

/// Step by step: what a run does, and a trace of few steps. `None` if it is not known in a trace whether the loop goes on.
fn written_out(
    c: &Cx<'_>,
    body: &Graph,
    most: Option<i64>,
    begins: bool,
    mut carried: Vec<Value>,
) -> Result<Option<Vec<Value>>> {
    let mut rows: Vec<Vec<Value>> = vec![Vec::new(); row_count(c, body)];
    let (mut step, mut go_on) = (0i64, begins);
    while go_on && most.is_none_or(|m| step < m) {
        let mut inputs = vec![c.constant(&HostTensor::scalar(step))?, c.constant(&HostTensor::scalar(true))?];
        inputs.append(&mut carried);
        let mut y = c.run(body, inputs)?.into_iter();
        let next = y.next().ok_or_else(|| value_error("a body without a condition"))?;
        let n = c.input_count().saturating_sub(2);
        carried = y.by_ref().take(n).collect();
        rows.iter_mut().zip(y).for_each(|(all, v)| all.push(v));
        step += 1;
        go_on = match decided(c, &next)? {
            Some(b) => b,
            None => return Ok(None),
        };
    }
    for (k, all) in rows.into_iter().enumerate() {
        carried.push(stacked(c, body, k, all)?);
    }
    Ok(Some(carried))
}

/// Rows of a loop as one tensor. Of no rows the body's declaration says the type.
fn stacked(c: &Cx<'_>, body: &Graph, k: usize, rows: Vec<Value>) -> Result<Value> {
    if rows.is_empty() {
        let at = body.output_count() - row_count(c, body) + k;
        let Some(ValueType::Tensor(Some(dtype), Some(extents))) = body.output_type(at) else {
            return Err(shape_error("rows of a loop that makes no step, and whose type is not declared"));
        };
        let shape: Vec<usize> = std::iter::once(0).chain(extents.iter().map(|e| e.fixed().unwrap_or(0))).collect();
        return Tensor::zeros(c.device(), shape, *dtype).map(Value::Tensor);
    }
    let rows = tensors(rows)?;
    Tensor::stack(&rows.iter().collect::<Vec<_>>(), 0).map(Value::Tensor)
}

fn row_count(c: &Cx<'_>, body: &Graph) -> usize {
    body.output_count().saturating_sub(1 + c.input_count().saturating_sub(2))
}

/// A loop with many steps, or with steps that a trace does not know. It becomes an operator. If a carried value changes its
/// shape, which no operator allows, the loop is unrolled.
fn traced_loop(
    c: &Cx<'_>,
    body: &Graph,
    most: Option<i64>,
    begins: Option<Value>,
    carried: Vec<Value>,
) -> Result<Vec<Value>> {
    let grows = Cell::new(false);
    let known = begins.as_ref().map_or(Ok(Some(true)), |v| decided(c, v))?;
    let y = loop_operator(c, body, most, (begins, known), &carried, &grows);
    if y.is_ok() || !grows.get() {
        return y;
    }
    let written = match (most, known) {
        (Some(steps), Some(true)) if steps <= MOST_GROWING => written_out(c, body, most, true, carried)?,
        _ => None,
    };
    // the kind says that the model can be run node by node
    let text = "a loop whose carried values change their shapes, of a number of steps that only a run tells";
    written.ok_or_else(|| Error::new(ErrorKind::NoValue, text))
}

/// A loop as an operator: of rows only if its number of steps is known, and nothing can end it earlier. `begins` is the first
/// condition, and its value if that is known. `grows` becomes true if a step changes the shape of a carried value.
fn loop_operator(
    c: &Cx<'_>,
    body: &Graph,
    most: Option<i64>,
    (begins, known): (Option<Value>, Option<bool>),
    carried: &[Value],
    grows: &Cell<bool>,
) -> Result<Vec<Value>> {
    let (rows, n) = (row_count(c, body), carried.len());
    let mut init = tensors(carried.to_vec())?;
    let begin = match &begins {
        Some(v) => v.tensor()?.reshape(&[])?,
        None => Tensor::from_host(c.device(), &HostTensor::scalar(true))?,
    };
    // the next condition, the carried values, and rows
    let run = |k: &Tensor, carried: &[Tensor]| -> Result<(Tensor, Vec<Tensor>, Vec<Tensor>)> {
        let mut inputs = vec![Value::Tensor(k.clone()), c.constant(&HostTensor::scalar(true))?];
        inputs.extend(carried.iter().cloned().map(Value::Tensor));
        let mut y = tensors(c.run(body, inputs)?)?.into_iter();
        let go_on = y.next().ok_or_else(|| value_error("a body without a condition"))?;
        let next: Vec<Tensor> = y.by_ref().take(n).collect();
        if carried.iter().zip(&next).any(|(before, after)| before.shape() != after.shape()) {
            grows.set(true);
        }
        Ok((go_on, next, y.collect()))
    };
    if rows > 0 {
        let (Some(trips), Some(true)) = (most, known) else {
            let text = "a loop that collects rows, of a number of steps that is not known when it is compiled";
            return Err(Error::new(ErrorKind::NoValue, text));
        };
        let options = ScanOptions { trips: Some(size(trips)?), ..Default::default() };
        init.push(begin);
        let refs: Vec<&Tensor> = init.iter().collect();
        let (last, stacked) = scan(&options, &refs, &[], |k, carried, _| {
            let (go_on, mut next, rows) = run(k, &carried[..n])?;
            if go_on.handle().fact().value.as_ref().is_none_or(|v| v.to_i64_vec() != [1]) {
                let text = "a loop that collects rows and may end early has no shape before it runs";
                return Err(Error::new(ErrorKind::NoValue, text));
            }
            next.push(go_on.reshape(&[])?);
            Ok((next, rows.into_iter().map(Collect::All).collect()))
        })?;
        return Ok(last.into_iter().take(n).chain(stacked).map(Value::Tensor).collect());
    }
    // the operator makes at least one step: a loop that makes none is a branch around it
    let most = most.map_or(Ok(usize::MAX >> 1), size)?;
    if most == 0 {
        return Ok(init.into_iter().map(Value::Tensor).collect());
    }
    let refs: Vec<&Tensor> = init.iter().collect();
    let some = |init: &[Tensor]| -> Result<Vec<Tensor>> {
        let refs: Vec<&Tensor> = init.iter().collect();
        let (y, _) = while_loop(most, &refs, |k, carried| {
            let (go_on, next, _) = run(k, carried)?;
            Ok((next, go_on.reshape(&[])?))
        })?;
        Ok(y)
    };
    let y = match known {
        Some(true) => some(&init)?,
        Some(false) => init,
        None => cond(&begin, &refs, some, |x| Ok(x.to_vec()))?,
    };
    Ok(y.into_iter().map(Value::Tensor).collect())
}

/// The body over rows of tensors, with carried values: steps written out if they are few or a step's values are no tensors.
fn walk(c: &Cx<'_>) -> Result<Vec<Value>> {
    let body = c.graph("body")?;
    let count = size(c.int_of("num_scan_inputs")?)?;
    // version 8 has the lengths first, and a batch
    if c.version() < 9 {
        return walk_batch(c, body, count);
    }
    let inputs = c.all()?;
    one_walk(c, body, count, inputs.into_iter().cloned().collect())
}

fn list(c: &Cx<'_>, name: &str, n: usize) -> Result<Vec<i64>> {
    let all = c.ints(name)?.map_or_else(|| vec![0; n], <[i64]>::to_vec);
    if all.len() == n {
        Ok(all)
    } else {
        Err(shape_error(format!("attribute `{name}` has {} numbers, not {n}", all.len())))
    }
}

fn one_walk(c: &Cx<'_>, body: &Graph, count: usize, inputs: Vec<Tensor>) -> Result<Vec<Value>> {
    let n =
        inputs.len().checked_sub(count).ok_or_else(|| Error::new(ErrorKind::Arity, "fewer inputs than are scanned"))?;
    let outputs =
        body.output_count().checked_sub(n).ok_or_else(|| Error::new(ErrorKind::Arity, "a body of too few outputs"))?;
    let (axes, backwards) = (list(c, "scan_input_axes", count)?, list(c, names(c).0, count)?);
    let (out_axes, out_backwards) = (list(c, "scan_output_axes", outputs)?, list(c, names(c).1, outputs)?);
    let mut xs = Vec::new();
    for (k, x) in inputs[n..].iter().enumerate() {
        let x = x.movedim(axes[k] as isize, 0)?;
        xs.push(if backwards[k] != 0 { x.flip(&[0])? } else { x });
    }
    let init = &inputs[..n];
    let trips = xs.first().map(|x| x.dims()[0]).ok_or_else(|| value_error("nothing is scanned"))?;
    let (last, rows) = if c.is_tracing() && trips as i64 > MOST_UNROLLED {
        let (init, refs): (Vec<&Tensor>, Vec<&Tensor>) = (init.iter().collect(), xs.iter().collect());
        scan(&ScanOptions::default(), &init, &refs, |_, carried, row| {
            let inputs = carried.iter().chain(row).cloned().map(Value::Tensor).collect();
            let mut y = tensors(c.run(body, inputs)?)?;
            let rows = y.split_off(n);
            Ok((y, rows.into_iter().map(Collect::All).collect()))
        })?
    } else {
        let (mut carried, mut rows) = (init.to_vec(), vec![Vec::new(); outputs]);
        for t in 0..trips {
            let row = xs.iter().map(|x| x.select(0, t as isize)).collect::<Result<Vec<_>>>()?;
            let inputs = carried.iter().cloned().chain(row).map(Value::Tensor).collect();
            let mut y = tensors(c.run(body, inputs)?)?;
            let given = y.split_off(n);
            carried = y;
            rows.iter_mut().zip(given).for_each(|(all, v)| all.push(v));
        }
        let stack = |all: &Vec<Tensor>| match all.is_empty() {
            true => Err(shape_error("nothing is scanned")),
            false => Tensor::stack(&all.iter().collect::<Vec<_>>(), 0),
        };
        (carried, rows.iter().map(stack).collect::<Result<Vec<_>>>()?)
    };
    let mut y: Vec<Value> = last.into_iter().map(Value::Tensor).collect();
    for (k, t) in rows.into_iter().enumerate() {
        let t = if out_backwards[k] != 0 { t.flip(&[0])? } else { t };
        let axis = axis_of(out_axes[k] as isize, t.rank())?;
        y.push(t.movedim(0, axis as isize)?.into());
    }
    Ok(y)
}

/// The names of the attributes of directions.
fn names(c: &Cx<'_>) -> (&'static str, &'static str) {
    if c.version() < 9 { ("directions", "-") } else { ("scan_input_directions", "scan_output_directions") }
}

/// Version 8: each part of a batch by itself, of a length of its own.
fn walk_batch(c: &Cx<'_>, body: &Graph, count: usize) -> Result<Vec<Value>> {
    let inputs: Vec<Tensor> = (1..c.input_count()).map(|i| c.x(i).cloned()).collect::<Result<_>>()?;
    let batch = inputs.first().and_then(|t| t.dims().first().copied()).unwrap_or(0);
    let lengths = c.opt_numbers(0)?;
    let mut parts: Vec<Vec<Tensor>> = Vec::new();
    for b in 0..batch {
        let mut of = inputs.iter().map(|t| t.select(0, b as isize)).collect::<Result<Vec<_>>>()?;
        let n = of.len().saturating_sub(count);
        if let Some(len) = lengths.as_ref().and_then(|l| l.get(b)) {
            for t in &mut of[n..] {
                *t = t.narrow(0, 0, size(*len)?)?;
            }
        }
        parts.push(tensors(one_walk(c, body, count, of)?)?);
    }
    let outputs = parts.first().map_or(0, Vec::len);
    (0..outputs)
        .map(|k| Tensor::stack(&parts.iter().map(|p| &p[k]).collect::<Vec<_>>(), 0).map(Value::Tensor))
        .collect()
}
