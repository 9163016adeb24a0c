//! Gradients against central differences, in f64, to first and second order.
//!
//! The loss is a random projection of the outputs. Its derivative along one element is the five-point central
//! difference, whose error at `STEP` is below the bound for the smooth functions that samples choose.

use remat_types::{DType, ErrorKind, HostTensor, Result, SmallVec};

use super::tape::{HostTape, TapeVar, dot, random_cotangent};
use super::{Check, Harness, checked_inputs, inputs_in_f64, succeeds, text};
use crate::{Apply, Entry, OpRef, Sample};

/// Distance between the points of a difference, relative to magnitude (at least 1).
const STEP: f64 = 1e-4;
/// Largest difference between the two gradients, relative to the largest element (at least 1).
const BOUND: f64 = 1e-8;
/// As `BOUND`, for second derivatives, whose projected losses are larger.
const SECOND_BOUND: f64 = 1e-7;
/// A gradient that is nowhere above this is not tested by comparing it: at 1e5 times `BOUND` what agrees, agrees in five
/// digits.
pub const ALIVE: f64 = 1e-3;
/// Elements of an input that are perturbed; larger inputs are sampled evenly.
const MAX_ELEMS: usize = 64;
/// As `MAX_ELEMS`, for the second order.
const MAX_ELEMS_SECOND: usize = 12;

/// Cotangents: one (output, tensor) each.
type Cotangents = Vec<(usize, HostTensor)>;

/// Cotangents for the float outputs: for all of them, and where there are several, for each alone, since a rule may go
/// another way when an output is unused.
fn cotangents(y: &[HostTensor], seed: u64) -> Result<Vec<Cotangents>> {
    let all: Cotangents = (y.iter().enumerate().filter(|(_, t)| t.dtype().is_float()))
        .map(|(j, t)| Ok((j, random_cotangent(seed + j as u64, DType::F64, t.shape())?)))
        .collect::<Result<_>>()?;
    let alone = all.iter().map(|c| vec![c.clone()]).filter(|_| all.len() > 1);
    Ok(alone.chain([all.clone()]).collect())
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

/// Compares `analytic`, said to be the gradient of `f` with respect to the f64 tensor `x[i]`, with central differences,
/// at up to 64 elements. Gives its largest element, which below [`ALIVE`] shows little; or what differs.
pub fn compare_gradient(
    x: &[HostTensor],
    i: usize,
    analytic: &HostTensor,
    f: &dyn Fn(&[HostTensor]) -> Result<f64>,
) -> std::result::Result<f64, String> {
    compare(x, i, analytic, MAX_ELEMS, BOUND, f)
}

pub(super) fn agrees_with_central_differences(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let checked = checked_inputs(s);
    if !succeeds(s) || checked.is_empty() {
        return Ok(());
    }
    let x = inputs_in_f64(s).map_err(text)?;
    let sets = cotangents(&h.eval(&s.op, &x).map_err(text)?, 1).map_err(text)?;
    for (i, &input) in checked.iter().enumerate() {
        let (mut largest, mut connected) = (0.0f64, false);
        for dy in &sets {
            let g = first_gradients(h, s, &x, &checked, dy).map_err(text)?.swap_remove(i);
            connected |= g.is_some();
            // a missing gradient claims that these outputs do not depend on the input
            let zeros = HostTensor::zeros(DType::F64, x[input].shape().clone()).map_err(text)?;
            let g = g.unwrap_or(zeros);
            let loss = |x: &[HostTensor]| -> Result<f64> {
                let y = h.eval(&s.op, x)?;
                dy.iter().map(|(j, d)| dot(&y[*j], d)).sum()
            };
            largest = largest.max(compare(&x, input, &g, MAX_ELEMS, BOUND, &loss)?);
        }
        if !connected {
            return Err(format!("input {input} has no gradient; the sample says that it has one"));
        }
        // without an output element the gradient is zero, and must still have the input's shape
        let some_output = sets.iter().flatten().any(|(_, d)| d.elems() > 0);
        let alive = largest > ALIVE;
        if some_output && !alive {
            return Err(format!("the gradient of input {input} is at most {largest:e}: nothing is tested here"));
        }
    }
    Ok(())
}

/// The gradients of the checked inputs by the rules; `None` where no path of differentiable ops leads there.
fn first_gradients(
    h: &Harness,
    s: &Sample<OpRef>,
    x: &[HostTensor],
    checked: &[usize],
    dy: &Cotangents,
) -> Result<Vec<Option<HostTensor>>> {
    let tape = HostTape::new(h.pool());
    let vars: SmallVec<[TapeVar; 4]> = x.iter().map(|t| tape.leaf(t.clone())).collect();
    let y = tape.apply(s.op.clone(), vars.clone())?;
    let roots: Vec<_> = dy.iter().map(|(j, d)| (y[*j], tape.leaf(d.clone()))).collect();
    let wrt: Vec<TapeVar> = checked.iter().map(|&i| vars[i]).collect();
    Ok(tape.gradients(&roots, &wrt)?.into_iter().map(|g| g.map(|g| tape.value(g))).collect())
}

/// Values and their cotangents on a tape.
type Roots = Vec<(TapeVar, TapeVar)>;

/// The loss of the second order: a random projection of the first gradients, as a function of inputs and cotangents.
struct FirstGradient<'a> {
    op: &'a OpRef,
    checked: &'a [usize],
    outputs: &'a [usize],
    inputs: usize,
}

impl FirstGradient<'_> {
    /// Puts inputs and cotangents on the tape; gives them and the projected gradients as roots.
    fn on<'t>(&self, tape: &HostTape<'t>, z: &[HostTensor]) -> Result<(Vec<TapeVar>, Roots)> {
        let vars: Vec<TapeVar> = z.iter().map(|t| tape.leaf(t.clone())).collect();
        let y = tape.apply(self.op.clone(), SmallVec::from_slice(&vars[..self.inputs]))?;
        let roots: Vec<_> = self.outputs.iter().zip(&vars[self.inputs..]).map(|(&j, d)| (y[j], *d)).collect();
        let wrt: Vec<TapeVar> = self.checked.iter().map(|&i| vars[i]).collect();
        let grads = tape.gradients(&roots, &wrt)?;
        let mut projected = Vec::new();
        for (k, g) in grads.into_iter().enumerate() {
            // a missing gradient means a constant, as the first order has checked
            let Some(g) = g else { continue };
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
    let x = inputs_in_f64(s).map_err(text)?;
    for dy in cotangents(&h.eval(&s.op, &x).map_err(text)?, 1).map_err(text)? {
        second_order_for(h, s, &checked, &x, dy)?;
    }
    Ok(())
}

fn second_order_for(h: &Harness, s: &Sample<OpRef>, checked: &[usize], x: &[HostTensor], dy: Cotangents) -> Check {
    let outputs: Vec<usize> = dy.iter().map(|d| d.0).collect();
    let first = FirstGradient { op: &s.op, checked, outputs: &outputs, inputs: x.len() };
    let wrt: Vec<usize> = checked.iter().copied().chain(x.len()..x.len() + dy.len()).collect();
    let mut z = x.to_vec();
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
            .map_err(|e| format!("second order, outputs {outputs:?}: {e}"))?;
    }
    Ok(())
}
