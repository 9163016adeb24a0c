//! Gradients against central differences, in f64, to first and second order.
//!
//! The loss is a random projection of the outputs. Its derivative along one element is the five-point central
//! difference, whose error at `STEP` is below the bound for the smooth functions that samples choose.

use remat_types::{DType, Error, ErrorKind, HostTensor, Result, SmallVec};

use super::tape::{HostTape, TapeVar, dot, random_cotangent};
use super::{Check, Harness, checked_inputs, inputs_in_f64, succeeds, text};
use crate::{Apply, Entry, OpRef, Sample};

/// Distance between the points of a difference, relative to magnitude (at least 1).
const STEP: f64 = 1e-4;
/// Largest difference between the two gradients, relative to the largest element (at least 1).
const BOUND: f64 = 1e-8;
/// As `BOUND`, for second derivatives, whose projected losses are larger.
const SECOND_BOUND: f64 = 1e-7;
/// A gradient that is nowhere above this is not tested by comparing it.
const ALIVE: f64 = 1e-3;
/// Elements of an input that are perturbed; larger inputs are sampled evenly.
const MAX_ELEMS: usize = 64;
/// As `MAX_ELEMS`, for the second order.
const MAX_ELEMS_SECOND: usize = 12;

/// Cotangents for the float outputs: one (output, tensor) each.
fn cotangents(y: &[HostTensor], seed: u64) -> Result<Vec<(usize, HostTensor)>> {
    (y.iter().enumerate().filter(|(_, t)| t.dtype().is_float()))
        .map(|(j, t)| Ok((j, random_cotangent(seed + j as u64, DType::F64, t.shape())?)))
        .collect()
}

/// The derivative of `f` with respect to element `at` of `x[i]`.
fn central(x: &[HostTensor], i: usize, at: usize, f: &dyn Fn(&[HostTensor]) -> Result<f64>) -> Result<f64> {
    let mut values = x[i].to_f64_vec();
    let (here, h) = (values[at], STEP * values[at].abs().max(1.0));
    let mut at_offset = |steps: f64| {
        values[at] = here + steps * h;
        let mut x = x.to_vec();
        x[i] = HostTensor::from_f64_slice(&values, DType::F64, x[i].shape().clone())?;
        f(&x)
    };
    let (near, far) = (at_offset(1.0)? - at_offset(-1.0)?, at_offset(2.0)? - at_offset(-2.0)?);
    Ok((8.0 * near - far) / (12.0 * h))
}

/// Compares `analytic` with central differences of `f` along input `i`; gives the largest analytic element.
fn compare(
    x: &[HostTensor],
    i: usize,
    analytic: &HostTensor,
    max_elems: usize,
    bound: f64,
    f: &dyn Fn(&[HostTensor]) -> Result<f64>,
) -> std::result::Result<f64, String> {
    let analytic = analytic.to_f64_vec();
    let largest = analytic.iter().fold(0.0f64, |m, v| if v.is_nan() { f64::NAN } else { m.max(v.abs()) });
    let stride = analytic.len().div_ceil(max_elems).max(1);
    for at in (0..analytic.len()).step_by(stride) {
        let numeric = central(x, i, at, f).map_err(text)?;
        let allowed = bound * largest.max(numeric.abs()).max(1.0);
        let close = (analytic[at] - numeric).abs() <= allowed;
        if !close {
            return Err(format!("input {i} element {at}: the rule gives {:e}, differences {numeric:e}", analytic[at]));
        }
    }
    Ok(largest)
}

pub(super) fn agrees_with_central_differences(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let checked = checked_inputs(s);
    if !succeeds(s) || checked.is_empty() {
        return Ok(());
    }
    let x = inputs_in_f64(s).map_err(text)?;
    let dy = cotangents(&h.eval(&s.op, &x).map_err(text)?, 1).map_err(text)?;
    // without an output element the gradient is zero, and must still have the input's shape
    let some_output = dy.iter().any(|(_, d)| d.elems() > 0);
    let loss = |x: &[HostTensor]| -> Result<f64> {
        let y = h.eval(&s.op, x)?;
        dy.iter().map(|(j, d)| dot(&y[*j], d)).sum()
    };
    let tape = HostTape::new(h.pool());
    let vars: SmallVec<[TapeVar; 4]> = x.iter().map(|t| tape.leaf(t.clone())).collect();
    let y = tape.apply(s.op.clone(), vars.clone()).map_err(text)?;
    let roots: Vec<_> = dy.iter().map(|(j, d)| (y[*j], tape.leaf(d.clone()))).collect();
    let wrt: Vec<TapeVar> = checked.iter().map(|&i| vars[i]).collect();
    let grads = tape.gradients(&roots, &wrt).map_err(text)?;
    for (&i, g) in checked.iter().zip(grads) {
        let Some(g) = g else { return Err(format!("input {i} has no gradient; the sample says that it has one")) };
        let largest = compare(&x, i, &tape.value(g), MAX_ELEMS, BOUND, &loss)?;
        let alive = largest > ALIVE;
        if some_output && !alive {
            return Err(format!("the gradient of input {i} is at most {largest:e}: nothing is tested here"));
        }
    }
    Ok(())
}

/// The loss of the second order: a random projection of the first gradients, as a function of inputs and cotangents.
struct FirstGradient<'a> {
    op: &'a OpRef,
    checked: &'a [usize],
    outputs: &'a [usize],
    inputs: usize,
}

impl FirstGradient<'_> {
    /// Puts inputs and cotangents on the tape; gives them and the projected gradients as roots.
    fn on<'t>(&self, tape: &HostTape<'t>, z: &[HostTensor]) -> Result<(Vec<TapeVar>, Vec<(TapeVar, TapeVar)>)> {
        let vars: Vec<TapeVar> = z.iter().map(|t| tape.leaf(t.clone())).collect();
        let y = tape.apply(self.op.clone(), SmallVec::from_slice(&vars[..self.inputs]))?;
        let roots: Vec<_> = self.outputs.iter().zip(&vars[self.inputs..]).map(|(&j, d)| (y[j], *d)).collect();
        let wrt: Vec<TapeVar> = self.checked.iter().map(|&i| vars[i]).collect();
        let grads = tape.gradients(&roots, &wrt)?;
        let mut projected = Vec::new();
        for (k, g) in grads.into_iter().enumerate() {
            let g = g.ok_or_else(|| Error::new(ErrorKind::NotDifferentiable, "an input has no gradient"))?;
            let fact = tape.fact(&g);
            projected.push((g, tape.leaf(random_cotangent(77 + k as u64, DType::F64, &fact.shape)?)));
        }
        Ok((vars, projected))
    }

    fn loss(&self, h: &Harness, z: &[HostTensor]) -> Result<f64> {
        let tape = HostTape::new(h.pool());
        let (_, projected) = self.on(&tape, z)?;
        projected.iter().map(|(g, r)| dot(&tape.value(*g), &tape.value(*r))).sum()
    }
}

pub(super) fn second_order_agrees(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let checked = checked_inputs(s);
    if !succeeds(s) || checked.is_empty() {
        return Ok(());
    }
    let mut z = inputs_in_f64(s).map_err(text)?;
    let dy = cotangents(&h.eval(&s.op, &z).map_err(text)?, 1).map_err(text)?;
    let outputs: Vec<usize> = dy.iter().map(|d| d.0).collect();
    let first = FirstGradient { op: &s.op, checked: &checked, outputs: &outputs, inputs: z.len() };
    let wrt: Vec<usize> = checked.iter().copied().chain(z.len()..z.len() + dy.len()).collect();
    z.extend(dy.into_iter().map(|d| d.1));
    let tape = HostTape::new(h.pool());
    let (vars, projected) = first.on(&tape, &z).map_err(text)?;
    let wrt_vars: Vec<TapeVar> = wrt.iter().map(|&i| vars[i]).collect();
    let grads = match tape.gradients(&projected, &wrt_vars) {
        Err(e) if e.kind() == ErrorKind::NotDifferentiable => return Ok(()),
        other => other.map_err(text)?,
    };
    for (&i, g) in wrt.iter().zip(grads) {
        let g = match g {
            Some(g) => tape.value(g),
            None => HostTensor::zeros(DType::F64, z[i].shape().clone()).map_err(text)?,
        };
        compare(&z, i, &g, MAX_ELEMS_SECOND, SECOND_BOUND, &|z| first.loss(h, z))
            .map_err(|e| format!("second order: {e}"))?;
    }
    Ok(())
}
