//! Losses: part of a model that measures itself.

use remat_ops::loss::{CrossEntropy, Reduction};
use remat_types::{DType, Result};

use super::Rule;
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};

impl Rule for CrossEntropy {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        if self.smoothing.to_f64() != 0.0 {
            return Err(left_out("smoothed labels, which the standard's loss has not"));
        }
        let (logits, labels, from, dtype) = (c.x(0)?, c.x(1)?, c.dtype(1)?, c.dtype(0)?);
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
        let y = c.with("SoftmaxCrossEntropyLoss", &[&logits, &labels], attributes);
        Ok(vec![c.cast_from(&y, wide, dtype)])
    }
}
