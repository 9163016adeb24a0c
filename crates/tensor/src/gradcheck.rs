//! Gradient checking as a public tool: the tape against central differences.

use remat_runtime::Device;
use remat_types::{CallSite, DType, Error, ErrorKind, HostTensor, Result};

use crate::site::InOp;
use crate::{Tensor, grad_with};

/// The result of [`gradcheck`].
#[derive(Clone, Debug, PartialEq)]
pub struct GradCheckReport {
    /// Largest deviation, relative to the larger of 1 and the gradient's magnitude.
    pub max_error: f64,
    /// Input and element where it occurs.
    pub at: (usize, usize),
    /// Largest magnitude of the gradient: near zero, the check shows little.
    pub max_gradient: f64,
}

/// Step of the central differences: the cube root of f64's epsilon, where truncation and rounding balance.
const STEP: f64 = 6e-6;

/// Compares the gradient of `f` at `x` with central differences, element by element, along a fixed direction of the
/// output in which no two elements weigh the same.
///
/// `f` gets f64 tensors of the shapes of `x`. Errors: DType if an input or the result is not f64; NotDifferentiable if
/// the result does not depend on any input; those of `f`.
#[track_caller]
pub fn gradcheck(
    device: &Device,
    x: &[HostTensor],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<GradCheckReport> {
    let site = CallSite::here();
    let check = |dtype: DType, what: &str| match dtype {
        DType::F64 => Ok(()),
        other => Err(Error::new(ErrorKind::DType, format!("{what} is {other}, not f64"))).in_op_at("gradcheck", site),
    };
    x.iter().try_for_each(|t| check(t.dtype(), "an input"))?;
    let leaves: Vec<Tensor> = x.iter().map(|t| Tensor::from_host(device, t)?.requires_grad()).collect::<Result<_>>()?;
    let y = f(&leaves)?;
    check(y.dtype(), "the result")?;
    let weight = |i: usize| 0.5 + ((i as f64 + 1.0) * 0.754_877_666).fract();
    let weights: Vec<f64> = (0..y.elems()).map(weight).collect();
    let dy = Tensor::from_slice(device, &weights, y.shape())?;
    let refs: Vec<&Tensor> = leaves.iter().collect();
    let grads = grad_with(&y, Some(&dy), &refs, false)?;
    let project = |x: &[HostTensor]| -> Result<f64> {
        let x: Vec<Tensor> = x.iter().map(|t| Tensor::from_host(device, t)).collect::<Result<_>>()?;
        Ok(f(&x)?.to_vec::<f64>()?.iter().zip(&weights).map(|(y, w)| y * w).sum())
    };
    let mut report = GradCheckReport { max_error: 0.0, at: (0, 0), max_gradient: 0.0 };
    for (i, g) in grads.iter().enumerate() {
        let g = match g {
            Some(g) => g.to_vec::<f64>()?,
            None => vec![0.0; x[i].elems()],
        };
        for (k, &g) in g.iter().enumerate() {
            let mut moved = x.to_vec();
            let mut at = |v: f64| -> Result<f64> {
                let mut all = x[i].to_vec::<f64>()?;
                all[k] = v;
                moved[i] = HostTensor::from_slice(&all, x[i].shape())?;
                project(&moved)
            };
            let v = x[i].as_slice::<f64>()?[k];
            let h = STEP * v.abs().max(1.0);
            let numeric = (at(v + h)? - at(v - h)?) / (2.0 * h);
            let error = (g - numeric).abs() / g.abs().max(numeric.abs()).max(1.0);
            report.max_gradient = report.max_gradient.max(g.abs());
            if error > report.max_error || error.is_nan() {
                (report.max_error, report.at) = (error, (i, k));
            }
        }
    }
    Ok(report)
}
