use remat_types::{DType, HostTensor, Result};

use super::{NumericEffect, PassCx, PassOptions, optimize_with};
use crate::ir::{Graph, Values};

/// The first place at which an optimised graph computes something else.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The pass after which it was so.
    pub pass: &'static str,
    /// The output or next state, by name.
    pub value: String,
    /// The index of the element in row-major order.
    pub element: usize,
    /// The element before the pass.
    pub expected: f64,
    /// The element after it.
    pub found: f64,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference { pass, value, element, expected, found } = self;
        write!(f, "after pass `{pass}` element {element} of `{value}` is {found} instead of {expected}")
    }
}

/// Runs the raw graph and the graph after every pass on the same data, and gives the first difference, if there is one. NaN
/// equals NaN. Everything else is compared by bits after a pass that moves nothing, and after another one within [`CLOSE`],
/// or [`HALF_ROUNDINGS`] roundings to half, of the largest magnitude of its tensor. Later passes are compared with the
/// result of that pass.
///
/// Errors: those of [`Graph::evaluate`].
pub fn verify(g: &Graph, inputs: &[HostTensor], states: &[HostTensor], cx: &PassCx<'_>) -> Result<Option<Difference>> {
    let raw = g.evaluate(inputs, states, cx.pool)?;
    let mut wanted = results(g, &raw);
    let mut found = None;
    optimize_with(g.clone(), cx, |pass, _, after| {
        if found.is_none() {
            let values = after.evaluate(inputs, states, cx.pool)?;
            let given = results(after, &values);
            found = differs(pass.name, &wanted, &given, close(pass.effect, cx.options));
            if pass.effect != NumericEffect::None {
                wanted = given;
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// How far a pass that is not exact may move an element, relative to the largest magnitude of its tensor: sums of some
/// thousand products in f32 end within it.
pub const CLOSE: f64 = 1e-5;

/// The permitted number of roundings to f16 or bf16 in a result, relative to the largest magnitude of its tensor.
/// Roundings go either way, so the result of a network of some tens of layers stays within it.
pub const HALF_ROUNDINGS: f64 = 8.0;

fn close(effect: NumericEffect, options: &PassOptions) -> f64 {
    match (effect, options.half) {
        (NumericEffect::None, _) => 0.0,
        (NumericEffect::LastDigits, _) => CLOSE,
        (NumericEffect::HalfStorage, Some(DType::BF16)) => HALF_ROUNDINGS / 256.0,
        (NumericEffect::HalfStorage, _) => HALF_ROUNDINGS / 2048.0,
    }
}

/// Outputs and next states with their names.
fn results(g: &Graph, values: &Values) -> Vec<(String, HostTensor)> {
    let outputs = g.outputs().iter().map(|o| (o.name.to_string(), o.value));
    let states = g.states().iter().filter_map(|s| Some((format!("next {}", g.label(s.value)), s.next?)));
    outputs.chain(states).filter_map(|(name, v)| Some((name, values.get(v)?.clone()))).collect()
}

pub(super) fn differs(
    pass: &'static str,
    expected: &[(String, HostTensor)],
    found: &[(String, HostTensor)],
    close: f64,
) -> Option<Difference> {
    for ((value, a), (_, b)) in expected.iter().zip(found) {
        let size = a.dtype().size_bytes();
        let pairs = a.bytes().chunks(size).zip(b.bytes().chunks(size));
        let (left, right) = (a.to_f64_vec(), b.to_f64_vec());
        let most = left.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
        let unequal = |i: usize, x: &[u8], y: &[u8]| {
            let near = close > 0.0 && (left[i] - right[i]).abs() <= close * most;
            x != y && !near && !(left[i].is_nan() && right[i].is_nan())
        };
        if let Some(element) = pairs.enumerate().position(|(i, (x, y))| unequal(i, x, y)) {
            let value = value.clone();
            return Some(Difference { pass, value, element, expected: left[element], found: right[element] });
        }
    }
    None
}
