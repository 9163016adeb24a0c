//! Connectionist temporal classification.

use remat_types::{DType, Error, ErrorKind, Result};

use super::{at_least_number, reduced};
use crate::Apply;
use crate::compose::{Arith, cast, shaped};
use crate::loss::{CtcLoss, Reduction};

/// [`CtcLoss`] and its reduction. The mean divides each loss by the length of its target, at least 1, before. Without a
/// batch, `log_probs: [t, c]`, `targets: [s]`, and `steps` and `lengths` of rank 0 give a loss of rank 0. Errors: as there.
#[track_caller]
pub fn ctc_loss<A: Apply>(
    cx: &A,
    log_probs: A::Value,
    targets: A::Value,
    [steps, lengths]: [A::Value; 2],
    op: CtcLoss,
    reduction: Reduction,
) -> Result<A::Value> {
    let shape = cx.fact(&log_probs).shape;
    let single = shape.rank() == 2;
    let [mut log_probs, mut targets, mut steps, mut lengths] = [log_probs, targets, steps, lengths];
    if single {
        if cx.fact(&targets).rank() != 1 {
            return Err(Error::new(ErrorKind::Axis, "one sequence without a batch has targets of rank 1"));
        }
        let labels = cx.fact(&targets).elems();
        log_probs = shaped(cx, log_probs, [shape[0], 1, shape[1]])?;
        targets = shaped(cx, targets, [1, labels])?;
        steps = shaped(cx, steps, [1])?;
        lengths = shaped(cx, lengths, [1])?;
    }
    let mut each = cx.apply1(op, [log_probs, targets, steps, lengths.clone()])?;
    if reduction == Reduction::Mean {
        let real = crate::args::real_dtype(cx.fact(&each).dtype);
        let by = at_least_number(cx, cast(cx, cast(cx, lengths, DType::I64)?, real)?, 1.0)?;
        each = Arith(cx).div(each, by)?;
    }
    if single && reduction == Reduction::None {
        return shaped(cx, each, [0usize; 0]);
    }
    reduced(cx, each, reduction)
}
