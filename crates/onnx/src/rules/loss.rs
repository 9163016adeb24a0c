//! Losses of classes.

use remat_import::{Cx, shape_error};
use remat_tensor::Tensor;
use remat_types::{DType, Result};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("NegativeLogLikelihoodLoss", 12, |c| Ok(vec![loss(c, c.x(0)?)?.into()])),
    row("SoftmaxCrossEntropyLoss", 12, |c| {
        let log = c.x(0)?.log_softmax(1)?;
        Ok(vec![loss(c, &log)?.into(), log.into()])
    }),
];

/// `-weight[class] log p[class]` of each place, those of a class that is ignored being 0; or its sum or weighted mean.
/// `log: [n, classes, size..]`, `target: [n, size..]`, `weight: [classes]`.
fn loss(c: &Cx<'_>, log: &Tensor) -> Result<Tensor> {
    let target = c.x(1)?.cast(DType::I64)?;
    if log.rank() != target.rank() + 1 {
        return Err(shape_error(format!("scores of shape {} and classes of shape {}", log.shape(), target.shape())));
    }
    let ignored = c.opt_int("ignore_index")?.map(|i| target.eq(i)).transpose()?;
    let class = match &ignored {
        Some(ignored) => ignored.where_cond(&target.zeros_like()?, &target)?,
        None => target,
    };
    let of_class = log.gather(1, &class.unsqueeze(1)?)?.squeeze(&[1])?.neg()?;
    let mut weight = c.opt(2)?.map(|w| w.take(0, &class)).transpose()?;
    if let Some(ignored) = &ignored {
        let all = weight.map_or_else(|| of_class.ones_like(), Ok)?;
        weight = Some(ignored.where_cond(&all.zeros_like()?, &all)?);
    }
    let each = match (&weight, &ignored) {
        (Some(w), Some(ignored)) => {
            // an ignored loss is 0, also where it is infinite
            let safe = ignored.where_cond(&of_class.zeros_like()?, &of_class)?;
            safe.mul(w)?
        }
        (Some(w), None) => of_class.mul(w)?,
        (None, _) => of_class,
    };
    match c.string("reduction", "mean")? {
        "none" => Ok(each),
        "sum" => each.sum(),
        "mean" => match weight {
            Some(w) => each.sum()?.div(&w.sum()?),
            None => each.mean(),
        },
        other => Err(c.unknown("reduction", other)),
    }
}
