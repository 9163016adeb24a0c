//! Sequences and optional values.

use remat_import::{Cx, Value, one, shape_error, size, value_error};
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, HostTensor, Result, axis_of};

use super::{Row, free, row};

pub(super) const ROWS: &[Row] = &[
    free("ConcatFromSequence", 11, concat),
    free("Optional", 15, optional),
    free("OptionalGetElement", 15, get_element),
    free("OptionalHasElement", 15, has_element),
    free("SequenceAt", 11, at),
    free("SequenceConstruct", 11, |c| {
        let all = (0..c.input_count()).map(|i| c.needed(i).cloned()).collect::<Result<_>>()?;
        Ok(vec![Value::Sequence(all)])
    }),
    free("SequenceEmpty", 11, |_| Ok(vec![Value::Sequence(Vec::new())])),
    free("SequenceErase", 11, erase),
    free("SequenceInsert", 11, insert),
    free("SequenceLength", 11, |c| {
        let n = c.needed(0)?.sequence()?.len() as i64;
        Ok(vec![c.constant(&HostTensor::scalar(n))?])
    }),
    free("SequenceMap", 17, map),
    row("SplitToSequence", 11, split),
];

/// A place in a sequence of `n`, the end included if `ends`.
fn place(c: &Cx<'_>, input: usize, n: usize, ends: bool) -> Result<usize> {
    let i = c.number(input)?;
    let from_start = if i < 0 { i + n as i64 } else { i };
    let found = usize::try_from(from_start).ok().filter(|i| *i < n + usize::from(ends));
    found.ok_or_else(|| Error::new(ErrorKind::Index, format!("place {i} in a sequence of {n}")))
}

fn at(c: &Cx<'_>) -> Result<Vec<Value>> {
    let all = c.needed(0)?.sequence()?;
    Ok(vec![all[place(c, 1, all.len(), false)?].clone()])
}

fn erase(c: &Cx<'_>) -> Result<Vec<Value>> {
    let mut all = c.needed(0)?.sequence()?.to_vec();
    if all.is_empty() {
        return Err(Error::new(ErrorKind::Index, "an empty sequence"));
    }
    let i = if c.value(1).is_some() { place(c, 1, all.len(), false)? } else { all.len() - 1 };
    all.remove(i);
    Ok(vec![Value::Sequence(all)])
}

fn insert(c: &Cx<'_>) -> Result<Vec<Value>> {
    let mut all = c.needed(0)?.sequence()?.to_vec();
    let i = if c.value(2).is_some() { place(c, 2, all.len(), true)? } else { all.len() };
    all.insert(i, c.needed(1)?.clone());
    Ok(vec![Value::Sequence(all)])
}

fn concat(c: &Cx<'_>) -> Result<Vec<Value>> {
    let all = c.needed(0)?.sequence()?.iter().map(Value::tensor).collect::<Result<Vec<_>>>()?;
    let axis = c.int_of("axis")? as isize;
    one(if c.flag("new_axis", false)? { Tensor::stack(&all, axis)? } else { Tensor::concat(&all, axis)? })
}

fn split(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let axis = axis_of(c.axis("axis", 0)?, x.rank())?;
    let extent = x.dims()[axis];
    let (extents, keep) = match c.opt(1)? {
        None => (vec![1; extent], c.flag("keepdims", true)?),
        Some(t) if t.rank() == 0 => {
            let each = size(c.number(1)?)?;
            if each == 0 {
                return Err(value_error("parts of 0 elements"));
            }
            ((0..extent.div_ceil(each)).map(|i| each.min(extent - i * each)).collect(), true)
        }
        Some(_) => (c.numbers(1)?.iter().map(|n| size(*n)).collect::<Result<Vec<_>>>()?, true),
    };
    let parts = x.split(&extents, axis as isize)?;
    let parts = parts.into_iter().map(|t| if keep { Ok(t) } else { t.squeeze(&[axis as isize]) });
    Ok(vec![Value::Sequence(parts.map(|t| t.map(Value::Tensor)).collect::<Result<_>>()?)])
}

fn optional(c: &Cx<'_>) -> Result<Vec<Value>> {
    Ok(vec![Value::Optional(c.value(0).cloned().map(Box::new))])
}

fn has_element(c: &Cx<'_>) -> Result<Vec<Value>> {
    let has = c.value(0).is_some();
    Ok(vec![c.constant(&HostTensor::scalar(has))?])
}

fn get_element(c: &Cx<'_>) -> Result<Vec<Value>> {
    match c.value(0) {
        Some(Value::Optional(Some(v))) => Ok(vec![(**v).clone()]),
        Some(v) => Ok(vec![v.clone()]),
        None => Err(value_error("the optional value is absent")),
    }
}

/// The body for each element of the first sequence; other sequences go along with it, tensors stay.
fn map(c: &Cx<'_>) -> Result<Vec<Value>> {
    let body = c.graph("body")?;
    let n = c.needed(0)?.sequence()?.len();
    let mut y: Vec<Vec<Value>> = vec![Vec::with_capacity(n); body.output_count()];
    for k in 0..n {
        let mut inputs = Vec::new();
        for i in 0..c.input_count() {
            inputs.push(match c.needed(i)? {
                Value::Sequence(all) => {
                    let part = all.get(k).cloned();
                    part.ok_or_else(|| shape_error(format!("sequences of {n} and {} elements", all.len())))?
                }
                other => other.clone(),
            });
        }
        for (all, v) in y.iter_mut().zip(c.run(body, inputs)?) {
            all.push(v);
        }
    }
    Ok(y.into_iter().map(Value::Sequence).collect())
}
