//! Parts that other tensors name.

use remat_ops::index::{Index, IndexPut, NonZero, OneHot, PutFn, Scatter, Take, TakeAlong, TakeGrad};
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result, Shape, for_dtype};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::file;
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] = &[
    row::<Take>(),
    row::<TakeAlong>(),
    row::<Scatter>(),
    row::<TakeGrad>(),
    row::<OneHot>(),
    row::<NonZero>(),
    row::<Index>(),
    row::<IndexPut>(),
];

/// An index as one of the two dtypes that the standard takes.
fn index(c: &mut Cx<'_>, i: usize) -> Result<Name> {
    let (x, dtype) = (c.x(i)?, c.dtype(i)?);
    let own = if dtype == DType::I32 { dtype } else { DType::I64 };
    Ok(c.cast_from(&x, dtype, own))
}

fn reduction(f: PutFn) -> &'static str {
    match f {
        PutFn::Set => "none",
        PutFn::Add => "add",
        PutFn::Mul => "mul",
        PutFn::Max => "max",
        PutFn::Min => "min",
    }
}

impl Rule for Take {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, index) = (c.x(0)?, index(c, 1)?);
        Ok(vec![c.with("Gather", &[&x, &index], vec![attr::size("axis", self.axis)])])
    }
}

impl Rule for TakeAlong {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (mut x, shape, of) = (c.x(0)?, c.dims(0)?, c.dims(1)?);
        // beside the axis both have one extent
        for a in (0..shape.len()).filter(|a| *a != self.axis && of[*a] != shape[*a]) {
            x = c.slice(&x, a, 0, of[a])?;
        }
        let index = index(c, 1)?;
        Ok(vec![c.with("GatherElements", &[&x, &index], vec![attr::size("axis", self.axis)])])
    }
}

impl Rule for Scatter {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, mut src, shape, of) = (c.x(0)?, c.x(1)?, c.dims(1)?, c.dims(2)?);
        for a in (0..shape.len()).filter(|a| of[*a] != shape[*a]) {
            src = c.slice(&src, a, 0, of[a])?;
        }
        let index = index(c, 2)?;
        let attributes = vec![attr::size("axis", self.axis), attr::text("reduction", reduction(self.f))];
        Ok(vec![c.with("ScatterElements", &[&x, &index, &src], attributes)])
    }
}

/// Rows of a table added up by the places that they are for.
impl Rule for TakeGrad {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (dy, shape, dtype) = (c.x(0)?, c.dims(0)?, c.dtype(0)?);
        let (places, rank) = (c.fact(1)?.elems(), c.fact(1)?.rank());
        let index = index(c, 1)?;
        let mut flat: Vec<usize> = shape[..self.axis].to_vec();
        flat.push(places);
        flat.extend(&shape[self.axis + rank..]);
        let mut whole = flat.clone();
        whole[self.axis] = self.extent;
        let dy = c.reshape(&dy, &flat)?;
        let zero = for_dtype!(dtype, T => HostTensor::from_slice(&[T::default()], [1]))?;
        let whole = c.sizes(&whole)?;
        let zeros = c.with("ConstantOfShape", &[&whole], vec![attr::tensor("value", file::literal(zero))]);
        let mut beside = vec![1; flat.len()];
        beside[self.axis] = places;
        let index = c.reshape(&index, &beside)?;
        let index = c.expand(&index, &flat)?;
        let attributes = vec![attr::size("axis", self.axis), attr::text("reduction", "add")];
        Ok(vec![c.with("ScatterElements", &[&zeros, &index, &dy], attributes)])
    }
}

impl Rule for OneHot {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (mut index, rank) = (index(c, 0)?, c.fact(0)?.rank());
        if rank == 0 {
            index = c.unsqueeze(&index, 0)?;
        }
        let depth = c.int(self.depth as i64);
        let values = for_dtype!(self.dtype, T => {
            let (off, on) = (<T as remat_types::Element>::from_i64(0), <T as remat_types::Element>::from_i64(1));
            HostTensor::from_slice(&[off, on], [2])
        })?;
        let values = c.tensor(values);
        let y = c.with("OneHot", &[&index, &depth, &values], vec![attr::int("axis", -1)]);
        Ok(vec![if rank == 0 { c.squeeze(&y, 0)? } else { y }])
    }
}

impl Rule for NonZero {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, rank) = (c.x(0)?, c.fact(0)?.rank());
        if rank == 0 {
            // the place of a single number has no axes
            let y = c.result(0)?.shape.clone();
            let none = HostTensor::from_slice::<i64>(&[], y)?;
            return Ok(vec![c.tensor(none)]);
        }
        let y = c.op("NonZero", &[&x]);
        Ok(vec![c.with("Transpose", &[&y], vec![attr::ints("perm", &[1, 0])])])
    }
}

/// Several indices, the last axis of one tensor: `[p.., axes]`, and the shape `p`.
fn places(c: &mut Cx<'_>, first: usize) -> Result<(Name, Vec<usize>)> {
    let facts: Vec<Fact> = c.x[first..].to_vec();
    let mut shape = Shape::scalar();
    for f in &facts {
        shape = shape.broadcast(&f.shape)?;
    }
    let shape = shape.dims().to_vec();
    let mut parts = Vec::new();
    for (k, f) in facts.iter().enumerate() {
        let x = c.x(first + k)?;
        let x = c.cast_from(&x, f.dtype, DType::I64);
        let x = if f.shape.dims() == shape { x } else { c.expand(&x, &shape)? };
        parts.push(c.unsqueeze(&x, shape.len())?);
    }
    let refs: Vec<&Name> = parts.iter().collect();
    let all = match refs[..] {
        [only] => only.clone(),
        _ => c.with("Concat", &refs, vec![attr::int("axis", -1)]),
    };
    Ok((all, shape))
}

/// The order of axes that has those of an index first, and where the results' axes go: from `[p.., r..]` to the op's own order.
fn orders(axes: &[usize], rank: usize, p: usize) -> Result<(Vec<usize>, Vec<usize>)> {
    let first = *axes.first().ok_or_else(|| Error::new(ErrorKind::Arity, "no axes"))?;
    let rest: Vec<usize> = (0..rank).filter(|a| !axes.contains(a)).collect();
    let front: Vec<usize> = axes.iter().copied().chain(rest.iter().copied()).collect();
    let together = axes.windows(2).all(|w| w[0] + 1 == w[1]);
    let back = match together {
        // the axes before the first stay in front
        true => (0..first).map(|a| p + a).chain(0..p).chain((first..rest.len()).map(|a| p + a)).collect(),
        false => (0..p + rest.len()).collect(),
    };
    Ok((front, back))
}

fn inverse(order: &[usize]) -> Vec<usize> {
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, a)| back[*a] = i);
    back
}

impl Rule for Index {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, rank) = (c.x(0)?, c.fact(0)?.rank());
        if let [axis] = self.axes[..] {
            let index = index(c, 1)?;
            return Ok(vec![c.with("Gather", &[&x, &index], vec![attr::size("axis", axis)])]);
        }
        let (index, p) = places(c, 1)?;
        let (front, back) = orders(&self.axes, rank, p.len())?;
        let x = c.transpose(&x, &front);
        let y = c.op("GatherND", &[&x, &index]);
        Ok(vec![c.transpose(&y, &back)])
    }
}

impl Rule for IndexPut {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, src, rank) = (c.x(0)?, c.x(1)?, c.fact(0)?.rank());
        let (index, p) = places(c, 2)?;
        let (front, back) = orders(&self.axes, rank, p.len())?;
        let x = c.transpose(&x, &front);
        let src = c.transpose(&src, &inverse(&back));
        let y = c.with("ScatterND", &[&x, &index, &src], vec![attr::text("reduction", reduction(self.f))]);
        Ok(vec![c.transpose(&y, &inverse(&front))])
    }
}
