use std::collections::BTreeSet;

use remat_ops::pointwise::{Binary, BinaryFn};
use remat_ops::reduce::{Reduce, ReduceFn};
use remat_runtime::Kind;
use remat_tensor::comm::Communicator;
use remat_tensor::{Tensor, no_grad};
use remat_types::{DType, Error, ErrorKind, Result};

use crate::Parameter;

/// Kept away from zero: the norm's divisor, as in PyTorch.
const NORM_EPS: f64 = 1e-6;

/// Scales all gradients by `min(1, max_norm / (norm + 1e-6))`, where `norm` is that of all of them as one vector, and
/// gives the norm (rank 0, f32, or f64 if a gradient is). A parameter that is named twice counts once.
///
/// Of gradients that are divided among ranks ([`Gradients::Divided`](crate::distributed::Gradients::Divided)) all ranks call it and get the
/// same norm: that of the whole. Each gives the norms of its parts, which all add up in the order of ranks, so that every run with as
/// many ranks has the same bits; those of whole gradients, whose sums are taken in another order, may differ in the last ones.
///
/// Norms and factor are never of 16 bits: a large gradient of f16 is scaled to the right value, not to 0. Nothing waits for the
/// device. A norm that is not finite makes the gradients NaN or zero, as in PyTorch; the returned norm shows it. Errors: Value
/// for a `max_norm` that is negative or NaN, or without any gradient.
pub fn clip_grad_norm(parameters: &[Parameter], max_norm: f64) -> Result<Tensor> {
    clip_grad_norm_with(parameters, max_norm, 2.0)
}

/// As [`clip_grad_norm`] with the `p`-norm. For `p` infinite it is the largest element. Errors: as there, and Value for a
/// `p` that is not above 0.
pub fn clip_grad_norm_with(parameters: &[Parameter], max_norm: f64, p: f64) -> Result<Tensor> {
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(Error::new(ErrorKind::Value, format!("max_norm is {max_norm}, must not be negative")));
    }
    if p.is_nan() || p <= 0.0 {
        return Err(Error::new(ErrorKind::Value, format!("p is {p}, must be above 0")));
    }
    let _quiet = no_grad();
    let parameters = with_gradients(parameters);
    if parameters.is_empty() {
        return Err(Error::new(ErrorKind::Value, "no parameter has a gradient to clip"));
    }
    let is_wide = parameters.iter().any(|p| p.dtype() == DType::F64);
    let norm = whole_norm(&norms(&parameters, p, if is_wide { DType::F64 } else { DType::F32 })?, p)?;
    let scale = (max_norm / norm.add(NORM_EPS)?)?.minimum(1.0)?;
    replace(&parameters, |g| {
        // a factor of f32 enters unrounded beside 16-bit floats
        let scale = scale.cast(if g.dtype() == DType::F64 { DType::F64 } else { DType::F32 })?;
        Tensor::apply_owned(Binary { f: BinaryFn::Mul }, [g, scale])
    })?;
    Ok(norm)
}

/// The `p`-norms of the gradients: `[norms]`. For divided gradients these are the norms of all ranks' parts.
fn norms(parameters: &[Parameter], p: f64, dtype: DType) -> Result<Tensor> {
    let mut own = Vec::new();
    let mut divided: Vec<(&Communicator, Vec<Tensor>)> = Vec::new();
    for parameter in parameters {
        let Some(g) = parameter.grad() else { continue };
        let norm = whole_norm(&g, p)?.cast(dtype)?;
        match parameter.division().map(|d| &d.group) {
            None => own.push(norm),
            Some(group) => match divided.iter_mut().find(|(other, _)| *other == group) {
                Some((_, norms)) => norms.push(norm),
                None => divided.push((group, vec![norm])),
            },
        }
    }
    let stack = |norms: &[Tensor]| Tensor::stack(&norms.iter().collect::<Vec<_>>(), 0);
    let mut all = Vec::new();
    if !own.is_empty() {
        all.push(stack(&own)?);
    }
    for (group, norms) in divided {
        all.push(stack(&norms)?.all_gather(0, group)?);
    }
    match &all[..] {
        [one] => Ok(one.clone()),
        all => Tensor::concat(&all.iter().collect::<Vec<_>>(), 0),
    }
}

/// The `p`-norm of all elements, rank 0, of f32 for 16-bit floats.
fn whole_norm(x: &Tensor, p: f64) -> Result<Tensor> {
    let reduced = |x: &Tensor, f| {
        let axes = (0..x.rank()).collect();
        Tensor::apply1(Reduce { f, axes, keepdims: false }, &[x])
    };
    if p == 2.0 {
        return reduced(x, ReduceFn::Norm);
    }
    // powers and their sums are beyond 16 bits
    let wide = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let size = x.cast(wide)?.abs()?;
    if p == f64::INFINITY {
        // the largest of nothing is 0
        return if x.elems() == 0 { reduced(&size, ReduceFn::Sum) } else { reduced(&size, ReduceFn::Max) };
    }
    if p == 1.0 {
        return reduced(&size, ReduceFn::Sum);
    }
    reduced(&size.pow(p)?, ReduceFn::Sum)?.pow(1.0 / p)
}

/// The parameters, or parts of them, that hold gradients; each once.
fn with_gradients(parameters: &[Parameter]) -> Vec<Parameter> {
    let mut seen = BTreeSet::new();
    let each_once = parameters.iter().filter(|p| seen.insert(p.address()));
    let and_part = each_once.flat_map(|p| [Some(p.clone()), p.part()]);
    and_part.flatten().filter(|p| p.grad().is_some()).collect()
}

/// Limits every element of every gradient to `-limit ..= limit`. Errors: Value for a limit that is negative or NaN.
pub fn clip_grad_value(parameters: &[Parameter], limit: f64) -> Result<()> {
    if limit.is_nan() || limit < 0.0 {
        return Err(Error::new(ErrorKind::Value, format!("the limit is {limit}, must not be negative")));
    }
    let _quiet = no_grad();
    replace(&with_gradients(parameters), |g| {
        Tensor::apply_owned(remat_ops::pointwise::Clamp { lo: (-limit).into(), hi: limit.into() }, [g])
    })
}

/// Replaces each gradient by `f` of it, which is handed its last owner.
fn replace(parameters: &[Parameter], f: impl Fn(Tensor) -> Result<Tensor>) -> Result<()> {
    for p in parameters {
        if let Some(g) = p.take_grad() {
            let g = f(g)?;
            g.tag(Kind::Gradient)?;
            p.set_grad(Some(g))?;
        }
    }
    Ok(())
}
