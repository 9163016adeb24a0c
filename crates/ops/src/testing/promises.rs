//! Checks that the claims of ops to passes are true.

use remat_types::{Fact, HostTensor, Layout};

use super::{Check, Harness, bit_differences, succeeds, text};
use crate::{Class, Entry, OpRef, Sample, WeightChannels};

/// Checks the claims that passes act upon: an op may claim that it returns its input, repeats it, converts it, merges with
/// the op before it, or has channels of a weight.
pub(super) fn what_passes_are_told_is_so(harness: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    let y = harness.eval(&s.op, &s.x).map_err(text)?;
    let ([x], [y]) = (&s.x[..], &y[..]) else { return channels(harness, s, &y) };
    let fact = Fact::of(x);
    let equal = |what: &str, have: &HostTensor, want: &HostTensor| match bit_differences(
        std::slice::from_ref(have),
        std::slice::from_ref(want),
    ) {
        None => Ok(()),
        Some(difference) => Err(format!("{what}: {difference}")),
    };
    if s.op.is_identity(&fact) && fact.same_type(&Fact::of(y)) {
        equal("is no identity", y, x)?;
    }
    let class = s.op.class();
    if matches!(class, Class::Broadcast) {
        let layout = Layout::contiguous(x.shape().clone()).broadcast_to(y.shape()).map_err(text)?;
        equal("is no broadcast", y, &HostTensor::gather(x.dtype(), &layout, x.bytes()).map_err(text)?)?;
    }
    if class.casts_to().is_some_and(|dtype| dtype != y.dtype() || x.shape() != y.shape()) {
        return Err(format!("does not cast to {:?}", class.casts_to()));
    }
    if let Some(both) = s.op.after(&*s.op, &fact)
        && let Ok(twice) = harness.eval(&s.op, std::slice::from_ref(y))
    {
        let at_once = harness.eval(&both, std::slice::from_ref(x)).map_err(text)?;
        equal("twice is not at once", &at_once[0], &twice[0])?;
    }
    Ok(())
}

/// Channels of the weight times powers of two are channels of the output times the same.
fn channels(harness: &Harness, s: &Sample<OpRef>, y: &[HostTensor]) -> Check {
    let facts: Vec<Fact> = s.x.iter().map(Fact::of).collect();
    let Some(at) = s.op.weight_channels(&facts.iter().collect::<Vec<_>>()) else { return Ok(()) };
    let WeightChannels { input, weight_axis, output_axis } = at;
    if s.x[input].shape().get(weight_axis) != y[0].shape().get(output_axis) {
        return Err(format!("axis {weight_axis} of the weight is not as long as axis {output_axis} of the output"));
    }
    let finite = |t: &HostTensor| t.to_f64_vec().iter().all(|v| v.is_finite() && v.abs() < 1e3);
    if !s.x[input].dtype().is_float() || !finite(&y[0]) {
        return Ok(());
    }
    let scaled = |t: &HostTensor, axis: usize| {
        let step: usize = t.shape()[axis + 1..].iter().product();
        let factor = |i: usize| if (i / step.max(1) % t.shape()[axis]).is_multiple_of(2) { 2.0 } else { 1.0 };
        let v: Vec<f64> = t.to_f64_vec().iter().enumerate().map(|(i, v)| v * factor(i)).collect();
        HostTensor::from_f64_slice(&v, t.dtype(), t.shape().clone()).map_err(text)
    };
    let mut x = s.x.clone();
    x[input] = scaled(&x[input], weight_axis)?;
    let have = harness.eval(&s.op, &x).map_err(text)?;
    match bit_differences(&have[..1], &[scaled(&y[0], output_axis)?]) {
        None => Ok(()),
        Some(difference) => Err(format!("the channels of the weight are others: {difference}")),
    }
}
