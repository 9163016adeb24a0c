//! Normalisation.

use remat_ops::activation::Softmax;
use remat_ops::norm::{BatchNorm, BatchNormInfer, LayerNorm, RmsNorm};
use remat_types::{DType, Result};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};

pub(super) const ROWS: &[Row] =
    &[row::<Softmax>(), row::<BatchNorm>(), row::<BatchNormInfer>(), row::<LayerNorm>(), row::<RmsNorm>()];

impl Rule for Softmax {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.x(0)?;
        let op = if self.log { "LogSoftmax" } else { "Softmax" };
        Ok(vec![c.with(op, &[&x], vec![attr::size("axis", self.axis)])])
    }
}

/// The statistics of one image, whose channels are rows that are normalised by themselves: norms of groups and of instances are such.
/// Those of a batch are no part of an inference.
impl Rule for BatchNorm {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let is_one = matches!(c.dims(0)?[..], [1, _, _]);
        if !is_one || c.wants(1) || c.wants(2) {
            return Err(left_out("statistics of a batch; call `eval` before the function is compiled"));
        }
        let x = c.all();
        let eps = vec![attr::float("epsilon", self.eps.to_f64())];
        Ok(vec![c.with("InstanceNormalization", &x.iter().collect::<Vec<_>>(), eps)])
    }
}

impl Rule for BatchNormInfer {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.all();
        let eps = vec![attr::float("epsilon", self.eps.to_f64())];
        Ok(vec![c.with("BatchNormalization", &x.iter().collect::<Vec<_>>(), eps)])
    }
}

impl Rule for LayerNorm {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.all();
        let attributes = vec![attr::int("axis", -(self.axes as i64)), attr::float("epsilon", self.eps.to_f64())];
        Ok(vec![c.with("LayerNormalization", &x.iter().collect::<Vec<_>>(), attributes)])
    }
}

impl Rule for RmsNorm {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, scale, dtype, rank) = (c.x(0)?, c.x(1)?, c.dtype(0)?, c.fact(0)?.rank());
        if c.has(23) {
            let attributes = vec![attr::int("axis", -(self.axes as i64)), attr::float("epsilon", self.eps.to_f64())];
            return Ok(vec![c.with("RMSNormalization", &[&x, &scale], attributes)]);
        }
        let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
        let (x, scale) = (c.cast_from(&x, dtype, wide), c.cast_from(&scale, dtype, wide));
        let square = c.op("Mul", &[&x, &x]);
        let axes: Vec<usize> = (rank - self.axes..rank).collect();
        let mean = c.reduce("ReduceMean", &square, &axes, true)?;
        let eps = c.number(wide, self.eps);
        let sum = c.op("Add", &[&mean, &eps]);
        let rms = c.op("Sqrt", &[&sum]);
        let y = c.op("Div", &[&x, &rms]);
        let y = c.op("Mul", &[&y, &scale]);
        Ok(vec![c.cast_from(&y, wide, dtype)])
    }
}
