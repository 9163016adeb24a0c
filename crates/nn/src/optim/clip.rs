use remat_ops::pointwise::{Binary, BinaryFn};
use remat_runtime::Kind;
use remat_tensor::{Tensor, no_grad};
use remat_types::{DType, Error, ErrorKind, Result};

use crate::Parameter;

/// Kept away from zero: the norm's divisor, as in PyTorch.
const NORM_EPS: f64 = 1e-6;

/// Scales all gradients by `min(1, max_norm / (norm + 1e-6))`, where `norm` is that of all of them as one vector, and
/// gives the norm (rank 0, f32, or f64 if all gradients are).
///
/// Nothing waits for the device. A norm that is not finite makes the gradients NaN or zero, as in PyTorch: the norm says
/// so. Errors: Value for a `max_norm` that is negative or NaN, or without any gradient.
pub fn clip_grad_norm(parameters: &[Parameter], max_norm: f64) -> Result<Tensor> {
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(Error::new(ErrorKind::Value, format!("max_norm is {max_norm}, must not be negative")));
    }
    let _quiet = no_grad();
    let grads: Vec<Tensor> = parameters.iter().filter_map(Parameter::grad).collect();
    let wide = |g: &Tensor| if g.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let mut total: Option<Tensor> = None;
    for g in &grads {
        let sum = g.cast(wide(g))?.sum_sqr()?;
        total = Some(match total {
            Some(t) => t.add(sum)?,
            None => sum,
        });
    }
    drop(grads);
    let total = total.ok_or_else(|| Error::new(ErrorKind::Value, "no parameter has a gradient to clip"))?;
    let norm = total.sqrt()?;
    let scale = norm.add(NORM_EPS)?.recip()?.mul(max_norm)?.minimum(1.0)?;
    replace(parameters, |g| {
        let scale = scale.cast(g.dtype())?;
        Tensor::apply_owned(Binary { f: BinaryFn::Mul }, [g, scale])
    })?;
    Ok(norm)
}

/// Limits every element of every gradient to `-limit ..= limit`. Errors: Value for a limit that is negative or NaN.
pub fn clip_grad_value(parameters: &[Parameter], limit: f64) -> Result<()> {
    if limit.is_nan() || limit < 0.0 {
        return Err(Error::new(ErrorKind::Value, format!("the limit is {limit}, must not be negative")));
    }
    let _quiet = no_grad();
    replace(parameters, |g| {
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
