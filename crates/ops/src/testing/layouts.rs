//! Checks that the layout of inputs in memory does not change results.

use remat_types::{DType, HostTensor, Layout, Result, Shape};

use super::compare::{bit_differences, differences};
use super::{Check, Harness, succeeds, text};
use crate::host::{HostRun, eval_views};
use crate::{Entry, OpRef, Sample, Tolerance};

/// Elements before the first one, so that an ignored offset shows.
const LEAD: usize = 3;

/// A storage in which the elements of `t` lie under a layout that is not contiguous.
///
/// Axes are stored in the order `order` (outermost first), each `gap` apart, and those with `flip` backwards.
fn scattered(t: &HostTensor, order: &[usize], gap: usize, flip: bool) -> Result<(Layout, HostTensor)> {
    let shape = t.shape();
    let mut strides = vec![0isize; shape.rank()];
    let mut step = gap;
    for &axis in order.iter().rev() {
        strides[axis] = step as isize;
        step *= shape[axis].max(1) + gap - 1;
    }
    let mut offset = LEAD as isize;
    if flip {
        for axis in 0..shape.rank() {
            offset += strides[axis] * shape[axis].saturating_sub(1) as isize;
            strides[axis] = -strides[axis];
        }
    }
    let layout = Layout::new(shape.clone(), &strides, offset as usize)?;
    let mut storage = HostTensor::zeros(t.dtype(), [step + LEAD])?;
    // what lies between the elements must not be read
    let garbage = if t.dtype() == DType::Bool { 1 } else { 0x7B };
    let size = t.dtype().size_bytes();
    let bytes = storage.bytes_mut();
    bytes.fill(garbage);
    for (src, at) in t.bytes().chunks_exact(size).zip(layout.indices()) {
        bytes[at * size..(at + 1) * size].copy_from_slice(src);
    }
    Ok((layout, storage))
}

/// The ways in which the harness scatters inputs: name, axes reversed, gap, backwards.
const WAYS: [(&str, bool, usize, bool); 4] = [
    ("offset", false, 1, false),
    ("permuted", true, 1, false),
    ("gaps", false, 2, false),
    ("permuted backwards with gaps", true, 2, true),
];

fn scattered_all(x: &[HostTensor], reverse: bool, gap: usize, flip: bool) -> Result<Vec<(Layout, HostTensor)>> {
    (x.iter())
        .map(|t| {
            let mut order: Vec<usize> = (0..t.shape().rank()).collect();
            if reverse {
                order.reverse();
            }
            scattered(t, &order, gap, flip)
        })
        .collect()
}

/// The differences that strides cause: none are allowed, except for samples that give a reason for a loose tolerance.
fn layout_differences(s: &Sample<OpRef>, got: &[HostTensor], want: &[HostTensor]) -> Option<String> {
    match s.tolerance {
        Tolerance::Loose(..) => differences(got, want, s.tolerance),
        _ => bit_differences(got, want),
    }
}

fn eval_at(h: &Harness, op: &OpRef, x: &[(Layout, HostTensor)]) -> Result<Vec<HostTensor>> {
    let views: Vec<(Layout, &HostTensor)> = x.iter().map(|(l, t)| (l.clone(), t)).collect();
    eval_views(&**op, &views, h.pool(), &HostRun::default())
}

pub(super) fn strided_inputs_give_the_same_bits(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    let want = h.eval(&s.op, &s.x).map_err(text)?;
    for (name, reverse, gap, flip) in WAYS {
        let all = scattered_all(&s.x, reverse, gap, flip).map_err(text)?;
        let got = eval_at(h, &s.op, &all).map_err(|e| format!("{name}: {e:?}"))?;
        if let Some(d) = layout_differences(s, &got, &want) {
            return Err(format!("inputs with {name}: {d}"));
        }
        for only in 0..if s.x.len() > 1 { s.x.len() } else { 0 } {
            let x: Vec<(Layout, HostTensor)> = (all.iter().zip(&s.x).enumerate())
                .map(|(i, (a, t))| match i == only {
                    true => a.clone(),
                    false => (Layout::contiguous(t.shape().clone()), t.clone()),
                })
                .collect();
            let got = eval_at(h, &s.op, &x).map_err(|e| format!("{name}, input {only}: {e:?}"))?;
            if let Some(d) = layout_differences(s, &got, &want) {
                return Err(format!("input {only} with {name}: {d}"));
            }
        }
    }
    Ok(())
}

/// Each input is replaced by one that is constant along an axis: once spread out, once with stride zero.
pub(super) fn broadcast_inputs_give_the_same_bits(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    for (i, t) in s.x.iter().enumerate() {
        for axis in (0..t.shape().rank()).filter(|&a| t.shape()[a] > 1) {
            let first = Layout::contiguous(t.shape().clone()).slice(axis, 0, 1, 1).map_err(text)?;
            let small = HostTensor::gather(t.dtype(), &first, t.bytes()).map_err(text)?;
            let zero = Layout::contiguous(small.shape().clone()).broadcast_to(t.shape()).map_err(text)?;
            let mut x = s.x.clone();
            x[i] = HostTensor::gather(t.dtype(), &zero, small.bytes()).map_err(text)?;
            let mut views: Vec<(Layout, HostTensor)> =
                x.iter().map(|t| (Layout::contiguous(t.shape().clone()), t.clone())).collect();
            views[i] = (zero, small);
            match (h.eval(&s.op, &x), eval_at(h, &s.op, &views)) {
                (Ok(want), Ok(got)) => {
                    if let Some(d) = layout_differences(s, &got, &want) {
                        return Err(format!("input {i} broadcast along axis {axis}: {d}"));
                    }
                }
                (Err(a), Err(b)) if a.kind() == b.kind() => {}
                (a, b) => return Err(format!("input {i} broadcast along axis {axis}: {b:?}, spread out: {a:?}")),
            }
        }
    }
    Ok(())
}

/// Where an op says that its output is a view, the view's elements are what `eval` computes.
pub(super) fn view_equals_eval(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let Some(x0) = s.x.first().filter(|_| succeeds(s)) else { return Ok(()) };
    let want = h.eval(&s.op, &s.x).map_err(text)?;
    let plain = (Layout::contiguous(x0.shape().clone()), x0.clone());
    let mut stores = vec![("contiguous", plain)];
    for (name, reverse, gap, flip) in WAYS {
        let one = scattered_all(std::slice::from_ref(x0), reverse, gap, flip).map_err(text)?;
        stores.extend(one.into_iter().map(|v| (name, v)));
    }
    for (name, (layout, storage)) in stores {
        let Some(view) = s.op.view(&layout) else { continue };
        let got = HostTensor::gather(want[0].dtype(), &view, storage.bytes()).map_err(text)?;
        if let Some(d) = bit_differences(std::slice::from_ref(&got), &want[..1]) {
            return Err(format!("view of an input with {name}: {d}"));
        }
    }
    Ok(())
}

pub(super) fn donation_gives_the_same_bits(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    let all = s.op.overwrite();
    if !succeeds(s) || all.is_empty() {
        return Ok(());
    }
    let want = h.eval(&s.op, &s.x).map_err(text)?;
    let views: Vec<(Layout, &HostTensor)> = s.x.iter().map(|t| (Layout::contiguous(t.shape().clone()), t)).collect();
    // a pair whose shapes differ here (a broadcast) is one that the runtime does not use either
    let fits = |&(i, j): &(usize, usize)| {
        let shape = |t: &HostTensor| -> (DType, Shape) { (t.dtype(), t.shape().clone()) };
        s.x.get(i).map(shape) == want.get(j).map(shape)
    };
    let pairs: Vec<(usize, usize)> = all.iter().copied().filter(fits).collect();
    let mut sets: Vec<Vec<(usize, usize)>> = pairs.iter().map(|p| vec![*p]).collect();
    let disjoint = pairs.iter().enumerate().all(|(k, a)| pairs[..k].iter().all(|b| a.0 != b.0 && a.1 != b.1));
    if pairs.len() > 1 && disjoint {
        sets.push(pairs);
    }
    for donate in &sets {
        for pool in &h.pools {
            let run = HostRun { fill: 0xA5, donate };
            let got = eval_views(&*s.op, &views, pool, &run).map_err(|e| format!("{donate:?}: {e:?}"))?;
            if let Some(d) = bit_differences(&got, &want) {
                return Err(format!("inputs given to outputs {donate:?}: {d}"));
            }
        }
    }
    Ok(())
}
