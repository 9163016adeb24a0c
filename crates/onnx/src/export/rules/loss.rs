//! Losses: part of a model that measures itself.

use remat_ops::loss::{CrossEntropy, Reduction};
use remat_types::{DType, Result};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] = &[row::<CrossEntropy>()];

impl Rule for CrossEntropy {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (logits, labels, from, dtype) = (c.x(0)?, c.x(1)?, c.dtype(1)?, c.dtype(0)?);
        let (classes, rank) = (c.dims(0)?.get(1).copied().unwrap_or(0), c.fact(1)?.rank());
        let labels = c.cast_from(&labels, from, DType::I64);
        let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
        let logits = c.cast_from(&logits, dtype, wide);
        let reduction = match self.reduction {
            Reduction::None => "none",
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
        };
        let mut attributes = vec![attr::text("reduction", reduction)];
        if let Some(label) = self.ignore_index {
            attributes.push(attr::int("ignore_index", label));
        }
        let x = [Some(&logits), Some(&labels)];
        let smoothing = self.smoothing.to_f64();
        if smoothing == 0.0 {
            let y = c.nodes("SoftmaxCrossEntropyLoss", &x, attributes, 1);
            return Ok(vec![c.cast_from(&y[0], wide, dtype)]);
        }
        // the other share of the labels is spread over all classes
        let y = c.nodes("SoftmaxCrossEntropyLoss", &x, attributes, 2);
        let of_all = c.reduce("ReduceSum", &y[1], &[1], false)?;
        let spread = put_together(self, c, &of_all, &labels, rank, wide)?;
        let (own, share) = (c.number(wide, 1.0 - smoothing), c.number(wide, -smoothing / classes.max(1) as f64));
        let (own, spread) = (c.op("Mul", &[&y[0], &own]), c.op("Mul", &[&spread, &share]));
        let sum = c.op("Add", &[&own, &spread]);
        Ok(vec![c.cast_from(&sum, wide, dtype)])
    }
}

/// Numbers of the examples, those of ignored ones 0, and their sum or the mean of the others.
fn put_together(op: &CrossEntropy, c: &mut Cx<'_>, x: &Name, labels: &Name, rank: usize, dtype: DType) -> Result<Name> {
    let axes: Vec<usize> = (0..rank).collect();
    let (mut x, mut count) = (x.clone(), None);
    if let Some(label) = op.ignore_index {
        let (label, zero) = (c.int(label), c.number(dtype, 0.0));
        let ignored = c.op("Equal", &[labels, &label]);
        x = c.op("Where", &[&ignored, &zero, &x]);
        let counted = c.op("Not", &[&ignored]);
        let counted = c.cast(&counted, dtype);
        count = Some(c.reduce("ReduceSum", &counted, &axes, false)?);
    }
    match (op.reduction, count) {
        (Reduction::None, _) => Ok(x),
        (Reduction::Sum, _) => c.reduce("ReduceSum", &x, &axes, false),
        (Reduction::Mean, None) => c.reduce("ReduceMean", &x, &axes, false),
        (Reduction::Mean, Some(count)) => {
            let sum = c.reduce("ReduceSum", &x, &axes, false)?;
            Ok(c.op("Div", &[&sum, &count]))
        }
    }
}
