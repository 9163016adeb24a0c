//! Other shapes and parts of a tensor.

use remat_ops::shape::{BroadcastTo, Concat, Contiguous, Pad, Permute, Reshape, Slice, SliceGrad};
use remat_types::{HostTensor, Result, for_dtype};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::file;
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] = &[
    row::<BroadcastTo>(),
    row::<Concat>(),
    row::<Contiguous>(),
    row::<Pad>(),
    row::<Permute>(),
    row::<Reshape>(),
    row::<Slice>(),
    row::<SliceGrad>(),
];

impl Rule for BroadcastTo {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.x(0)?;
        Ok(vec![c.expand(&x, self.shape.dims())?])
    }
}

impl Rule for Concat {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.all();
        Ok(vec![c.with("Concat", &x.iter().collect::<Vec<_>>(), vec![attr::size("axis", self.axis)])])
    }
}

impl Rule for Contiguous {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.x(0)?;
        Ok(vec![c.op("Identity", &[&x])])
    }
}

impl Rule for Pad {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, dtype) = (c.x(0)?, c.dtype(0)?);
        let amounts: Vec<usize> = self.before.iter().chain(&self.after).copied().collect();
        let (amounts, value) = (c.sizes(&amounts)?, c.number(dtype, self.value));
        Ok(vec![c.op("Pad", &[&x, &amounts, &value])])
    }
}

impl Rule for Permute {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.x(0)?;
        if self.order.is_empty() {
            return Ok(vec![c.op("Identity", &[&x])]);
        }
        Ok(vec![c.with("Transpose", &[&x], vec![attr::ints("perm", &self.order)])])
    }
}

impl Rule for Reshape {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.x(0)?;
        Ok(vec![c.reshape(&x, self.shape.dims())?])
    }
}

impl Rule for Slice {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, start) = (c.x(0)?, self.start as i64);
        let end = start + self.len as i64 * self.step as i64;
        // an end before the first element is not counted from the end of the axis
        let (start, end) = match self.len {
            0 => (0, 0),
            _ => (start, if end < 0 { i64::MIN } else { end }),
        };
        let step = if self.len == 0 { 1 } else { self.step as i64 };
        let (starts, ends) = (c.ints(&[start])?, c.ints(&[end])?);
        let (axes, steps) = (c.sizes(&[self.axis])?, c.ints(&[step])?);
        Ok(vec![match step {
            1 => c.op("Slice", &[&x, &starts, &ends, &axes]),
            _ => c.op("Slice", &[&x, &starts, &ends, &axes, &steps]),
        }])
    }
}

impl Rule for SliceGrad {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, dtype, shape) = (c.x(0)?, c.dtype(0)?, c.dims(0)?);
        let n = shape[self.axis];
        if self.step == 1 {
            let mut amounts = vec![0; 2 * shape.len()];
            amounts[self.axis] = self.start;
            amounts[shape.len() + self.axis] = self.extent.saturating_sub(self.start + n);
            let (amounts, zero) = (c.sizes(&amounts)?, c.number(dtype, 0));
            return Ok(vec![c.op("Pad", &[&x, &amounts, &zero])]);
        }
        let mut whole = shape.clone();
        whole[self.axis] = self.extent;
        let zero = for_dtype!(dtype, T => HostTensor::from_slice(&[T::default()], [1]))?;
        let whole = c.sizes(&whole)?;
        let zeros = c.with("ConstantOfShape", &[&whole], vec![attr::tensor("value", file::literal(zero))]);
        let places: Vec<i64> = (0..n as i64).map(|i| self.start as i64 + i * self.step as i64).collect();
        let places = c.ints(&places)?;
        let mut beside = vec![1; shape.len()];
        beside[self.axis] = n;
        let places = c.reshape(&places, &beside)?;
        let places = c.expand(&places, &shape)?;
        Ok(vec![c.with("ScatterElements", &[&zeros, &places, &x], vec![attr::size("axis", self.axis)])])
    }
}
