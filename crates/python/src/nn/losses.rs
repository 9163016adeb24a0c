//! Losses by name. Python's functions have the names of arguments and their defaults.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use remat::nn::loss as losses;
use remat::nn::loss::{CtcOptions, TripletOptions};

use super::no_such;
use crate::ops::{Args, Row};

/// A loss of two tensors and a reduction.
macro_rules! plain {
    ($($name:ident)*) => { &[$((stringify!($name), |a: &Args<'_, '_>| {
        let (x, y, reduction) = (a.tensor(0)?, a.tensor(1)?, a.choice(2)?);
        a.run(move || losses::$name(&x, &y, reduction))
    })),*] };
}

/// A loss of two tensors, a number and a reduction.
macro_rules! with_number {
    ($($name:ident)*) => { &[$((stringify!($name), |a: &Args<'_, '_>| {
        let (x, y, number, reduction) = (a.tensor(0)?, a.tensor(1)?, a.get(2)?, a.choice(3)?);
        a.run(move || losses::$name(&x, &y, number, reduction))
    })),*] };
}

/// The losses that differ by more than their names.
const OTHERS: &[Row] = &[
    ("bce", |a| {
        let (x, y, weight, reduction) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2)?, a.choice(3)?);
        a.run(move || losses::bce(&x, &y, weight.as_ref(), reduction))
    }),
    ("bce_with_logits_weighted", |a| {
        let (x, y, weight, pos) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2)?, a.opt_tensor(3)?);
        let reduction = a.choice(4)?;
        a.run(move || losses::bce_with_logits_weighted(&x, &y, weight.as_ref(), pos.as_ref(), reduction))
    }),
    ("sigmoid_focal", |a| {
        let (x, y, alpha, gamma) = (a.tensor(0)?, a.tensor(1)?, a.get(2)?, a.get(3)?);
        let reduction = a.choice(4)?;
        a.run(move || losses::sigmoid_focal(&x, &y, alpha, gamma, reduction))
    }),
    ("cross_entropy_weighted", |a| {
        let (x, labels, weight, reduction) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.choice(3)?);
        let (smoothing, ignored) = (a.get(4)?, a.get(5)?);
        a.run(move || losses::cross_entropy_weighted(&x, &labels, &weight, reduction, smoothing, ignored))
    }),
    ("cross_entropy_soft", |a| {
        let (x, target, weight, reduction) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2)?, a.choice(3)?);
        let smoothing = a.get(4)?;
        a.run(move || losses::cross_entropy_soft(&x, &target, weight.as_ref(), reduction, smoothing))
    }),
    ("nll_weighted", |a| {
        let (x, labels, weight, ignored) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2)?, a.get(3)?);
        let reduction = a.choice(4)?;
        a.run(move || losses::nll_weighted(&x, &labels, weight.as_ref(), ignored, reduction))
    }),
    ("ctc", |a| {
        let (x, targets, steps, lengths) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.tensor(3)?);
        let options = CtcOptions { blank: a.get(4)?, reduction: a.choice(5)?, zero_infinity: a.get(6)? };
        a.run(move || losses::ctc(&x, &targets, &steps, &lengths, options))
    }),
    ("kl_div", |a| {
        let (x, y, log_target, reduction) = (a.tensor(0)?, a.tensor(1)?, a.get(2)?, a.choice(3)?);
        a.run(move || losses::kl_div(&x, &y, log_target, reduction))
    }),
    ("kl_div_batch_mean", |a| {
        let (x, y, log_target) = (a.tensor(0)?, a.tensor(1)?, a.get(2)?);
        a.run(move || losses::kl_div_batch_mean(&x, &y, log_target))
    }),
    ("gaussian_nll", |a| {
        let (x, y, var, full) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.get(3)?);
        let (eps, reduction) = (a.get(4)?, a.choice(5)?);
        a.run(move || losses::gaussian_nll(&x, &y, &var, full, eps, reduction))
    }),
    ("poisson_nll", |a| {
        let (x, y, log_input, full) = (a.tensor(0)?, a.tensor(1)?, a.get(2)?, a.get(3)?);
        let (eps, reduction) = (a.get(4)?, a.choice(5)?);
        a.run(move || losses::poisson_nll(&x, &y, log_input, full, eps, reduction))
    }),
    ("margin_ranking", |a| {
        let (x1, x2, y, margin) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.get(3)?);
        let reduction = a.choice(4)?;
        a.run(move || losses::margin_ranking(&x1, &x2, &y, margin, reduction))
    }),
    ("triplet_margin", |a| {
        let (anchor, positive, negative) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
        let options = TripletOptions { margin: a.get(3)?, p: a.get(4)?, eps: a.get(5)?, swap: a.get(6)? };
        let reduction = a.choice(7)?;
        a.run(move || losses::triplet_margin(&anchor, &positive, &negative, options, reduction))
    }),
    ("cosine_embedding", |a| {
        let (x1, x2, labels, margin) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.get(3)?);
        let reduction = a.choice(4)?;
        a.run(move || losses::cosine_embedding(&x1, &x2, &labels, margin, reduction))
    }),
    ("multi_margin", |a| {
        let (x, labels, p, margin) = (a.tensor(0)?, a.tensor(1)?, a.get(2)?, a.get(3)?);
        let (weight, reduction) = (a.opt_tensor(4)?, a.choice(5)?);
        a.run(move || losses::multi_margin(&x, &labels, p, margin, weight.as_ref(), reduction))
    }),
    ("multilabel_soft_margin", |a| {
        let (x, y, weight, reduction) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2)?, a.choice(3)?);
        a.run(move || losses::multilabel_soft_margin(&x, &y, weight.as_ref(), reduction))
    }),
];

const TABLES: [&[Row]; 3] = [
    plain! { mse l1 bce_with_logits nll soft_margin multilabel_margin },
    with_number! { smooth_l1 huber dice info_nce nt_xent hinge_embedding },
    OTHERS,
];

/// The loss of that name. Arguments have the order of the library's function.
#[pyfunction]
pub(crate) fn loss(name: &str, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let row = TABLES.iter().copied().flatten().find(|row| row.0 == name);
    row.ok_or_else(|| no_such("loss", name))?.1(&Args(args))
}
