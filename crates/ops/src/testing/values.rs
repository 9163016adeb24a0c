//! Checks of what an op computes: values, facts, dtypes, repeatability.

use remat_types::{DType, ErrorKind, Fact, HostTensor, Layout, Result, Shape, SmallVec};

use super::compare::{bit_differences, differences, float_bound, is_near};
use super::{Check, Harness, inputs_in_f64, succeeds, text};
use crate::host::{HostRun, eval_views};
use crate::schema::Count;
use crate::{Entry, Expect, OpRef, Sample, Tolerance};

/// Fills memory before an evaluation: neither zero nor a small number in any dtype.
pub(super) const GARBAGE: u8 = 0xA5;

pub(super) fn meets_expectation(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let got = h.eval(&s.op, &s.x);
    match (&s.expect, got) {
        (Expect::Values(want), Ok(y)) => differences(&y, want, s.tolerance).map_or(Ok(()), Err),
        (Expect::Anything, Ok(_)) => Ok(()),
        (Expect::Error(kind), Err(e)) if e.kind() == *kind => Ok(()),
        (Expect::Error(kind), Err(e)) => Err(format!("expected an error of kind {}, got {e:?}", kind.name())),
        (Expect::Error(kind), Ok(y)) => Err(format!("expected an error of kind {}, got {y:?}", kind.name())),
        (_, Err(e)) => Err(text(e)),
    }
}

/// Inference alone must predict dtype and shape of the expected values: `eval_on_host` allocates by the inferred
/// facts. So the check compares an inferred fact with the values that the sample's author wrote, and with inference
/// that knows no values.
pub(super) fn facts_equal_outputs(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    let facts: Vec<Fact> = s.x.iter().map(Fact::of).collect();
    let inferred = s.op.infer(&facts.iter().collect::<Vec<_>>()).map_err(text)?;
    let computed = h.eval(&s.op, &s.x).map_err(text)?;
    let want = if let Expect::Values(v) = &s.expect { v } else { &computed };
    if inferred.len() != want.len() {
        return Err(format!("infers {} outputs, not {}", inferred.len(), want.len()));
    }
    for (j, (f, t)) in inferred.iter().zip(want).enumerate() {
        if f.dtype != t.dtype() || f.shape != *t.shape() {
            return Err(format!("output {j} is inferred as {} {}, is {} {}", f.dtype, f.shape, t.dtype(), t.shape()));
        }
        if let Some(value) = &f.value
            && **value != computed[j]
        {
            return Err(format!("output {j} is inferred to be {value:?}, is {:?}", computed[j]));
        }
    }
    Ok(())
}

pub(super) fn f32_agrees_with_f64(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let mut floats = s.x.iter().filter(|t| t.dtype().is_float()).peekable();
    if !succeeds(s) || floats.peek().is_none() || !floats.all(|t| t.dtype() == DType::F32) {
        return Ok(());
    }
    let wide = inputs_in_f64(s).map_err(text)?;
    let y64 = match h.eval(&s.op, &wide) {
        Ok(y) => y,
        Err(e) if e.kind() == ErrorKind::DType => return Ok(()),
        Err(e) => return Err(format!("fails in f64: {e:?}")),
    };
    let y32 = h.eval(&s.op, &s.x).map_err(text)?;
    let loose = if let Tolerance::Loose(bound, _) = s.tolerance { bound } else { 0.0 };
    for (j, (a, b)) in y32.iter().zip(&y64).enumerate() {
        let bound = if a.dtype().is_float() { float_bound(a.dtype()).max(loose) } else { 0.0 };
        let far = |(_, (a, b)): &(usize, (f64, f64))| !is_near(*a, *b, bound);
        if a.shape() != b.shape() || a.elems() != b.elems() {
            return Err(format!("output {j} is {} in f32 and {} in f64", a.shape(), b.shape()));
        }
        if let Some((i, (a, b))) = a.to_f64_vec().into_iter().zip(b.to_f64_vec()).enumerate().find(far) {
            return Err(format!("output {j} element {i} is {a:?} in f32 and {b:?} in f64"));
        }
    }
    Ok(())
}

/// Evaluation must compute all inputs that inference accepts: without a panic, an `Internal`, or a `DType` from a kernel.
pub(super) fn accepted_dtypes_evaluate(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let Some(first) = s.x.first().map(HostTensor::dtype) else { return Ok(()) };
    for dtype in DType::ALL {
        let x: Vec<HostTensor> = (s.x.iter())
            .map(|t| match t.dtype() == first {
                true => HostTensor::from_f64_slice(&t.to_f64_vec(), dtype, t.shape().clone()),
                false => Ok(t.clone()),
            })
            .collect::<Result<_>>()
            .map_err(text)?;
        let facts: Vec<Fact> = x.iter().map(Fact::of).collect();
        if s.op.infer(&facts.iter().collect::<Vec<_>>()).is_err() {
            continue;
        }
        if let Err(e) = h.eval(&s.op, &x)
            && matches!(e.kind(), ErrorKind::Internal | ErrorKind::DType | ErrorKind::Arity)
        {
            return Err(format!("accepts {dtype} for {first} but does not compute it: {e:?}"));
        }
    }
    Ok(())
}

/// Inputs beyond those of the schema are an error, and so are fewer than it has at least: an op may not leave out one that it was given.
pub(super) fn only_as_many_inputs_as_declared(_: &Harness, entry: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    let declared = entry.schema().inputs;
    let has = |count: Count| declared.iter().filter(|i| i.count == count).count();
    let (least, most) = (has(Count::One), declared.len());
    let refused = |n: usize| {
        let further = Fact::new(DType::F32, [1]);
        let mut facts: Vec<Fact> = s.x.iter().map(Fact::of).collect();
        let last = facts.last().cloned().unwrap_or(further);
        facts.resize(n, last);
        match s.op.infer(&facts.iter().collect::<Vec<_>>()) {
            Ok(_) => Err(format!("{n} inputs are accepted, and the schema has {least} to {most}")),
            Err(_) => Ok(()),
        }
    };
    if has(Count::Many) == 0 {
        refused(most + 1)?;
    }
    least.checked_sub(1).map_or(Ok(()), refused)
}

/// Wrong numbers of inputs, other ranks and empty inputs give errors or results, never a panic.
pub(super) fn odd_arguments_do_not_panic(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let facts: Vec<Fact> = s.x.iter().map(Fact::of).collect();
    for n in 0..s.x.len() {
        let _ = s.op.infer(&facts[..n].iter().collect::<Vec<_>>());
    }
    let twice: Vec<&Fact> = facts.iter().chain(&facts).collect();
    let _ = s.op.infer(&twice);
    for (i, t) in s.x.iter().enumerate() {
        let empty = Shape::from(vec![0; t.shape().rank()]);
        for shape in [Shape::scalar(), empty, Shape::from([1; 7]), Shape::from([2])] {
            let mut x = s.x.clone();
            x[i] = HostTensor::zeros(t.dtype(), shape).map_err(text)?;
            if let Err(e) = h.eval(&s.op, &x)
                && e.kind() == ErrorKind::Internal
            {
                return Err(format!("input {i} of shape {} is an internal error: {e:?}", x[i].shape()));
            }
        }
    }
    Ok(())
}

pub(super) fn same_bits_for_threads_and_garbage(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    let want = h.eval(&s.op, &s.x).map_err(text)?;
    let views: Vec<(Layout, &HostTensor)> = s.x.iter().map(|t| (Layout::contiguous(t.shape().clone()), t)).collect();
    for pool in &h.pools {
        for fill in [0, GARBAGE] {
            let run = HostRun { fill, donate: &[] };
            let got = eval_views(&*s.op, &views, pool, &run).map_err(text)?;
            if let Some(d) = bit_differences(&got, &want) {
                return Err(format!("{} threads, memory filled with {fill:#x}: {d}", pool.threads()));
            }
        }
    }
    Ok(())
}

pub(super) fn workspace_and_cost_are_pure(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    let facts: Vec<Fact> = s.x.iter().map(Fact::of).collect();
    let refs: SmallVec<[&Fact; 4]> = facts.iter().collect();
    let y = s.op.infer(&refs).map_err(text)?;
    for pool in &h.pools {
        let ask = || s.op.workspace(&refs, pool.threads());
        let (first, second) = (ask(), ask());
        if first != second {
            return Err(format!("the workspace is {first} bytes, then {second}"));
        }
    }
    let (first, second) = (s.op.cost(&refs, &y), s.op.cost(&refs, &y));
    let work = y.iter().any(|f| f.elems() > 0);
    let is_view = s.x.first().is_some_and(|t| s.op.view(&Layout::contiguous(t.shape().clone())).is_some());
    if first != second || (work && !is_view && first.flops == 0 && first.bytes == 0) {
        return Err(format!("the cost is {first:?}, then {second:?}"));
    }
    Ok(())
}
