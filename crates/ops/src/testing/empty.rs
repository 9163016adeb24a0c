//! Samples without elements: extents become 0 wherever inference takes them, alone and together.

use std::collections::BTreeSet;

use remat_types::{ErrorKind, Fact, HostTensor, Layout, Result};

use super::compare::bit_differences;
use super::values::GARBAGE;
use super::{Check, Harness, succeeds, text};
use crate::host::{HostRun, eval_views};
use crate::{Entry, OpRef, Sample};

/// Axes, each as an input and one of its axes.
type Axes = BTreeSet<(usize, usize)>;

/// The sets of axes that are made empty: each axis, each two, and all of one extent.
fn sets(x: &[HostTensor]) -> BTreeSet<Axes> {
    let all: Vec<(usize, usize)> =
        x.iter().enumerate().flat_map(|(i, t)| (0..t.shape().rank()).map(move |a| (i, a))).collect();
    let extent = |&(i, a): &(usize, usize)| x[i].shape()[a];
    let mut sets: BTreeSet<Axes> = all.iter().map(|a| Axes::from([*a])).collect();
    for (k, a) in all.iter().enumerate() {
        sets.extend(all[..k].iter().map(|b| Axes::from([*a, *b])));
        sets.insert(all.iter().filter(|b| extent(b) == extent(a)).copied().collect());
    }
    sets
}

/// The inputs with extents of 0 along these axes; those that keep their shape keep their values.
fn emptied(x: &[HostTensor], axes: &Axes) -> Result<Vec<HostTensor>> {
    let one = |(i, t): (usize, &HostTensor)| {
        let mut shape = t.shape().clone();
        axes.iter().filter(|a| a.0 == i).for_each(|a| shape.dims_mut()[a.1] = 0);
        if shape == *t.shape() { Ok(t.clone()) } else { HostTensor::zeros(t.dtype(), shape) }
    };
    x.iter().enumerate().map(one).collect()
}

/// If inference accepts empty inputs, evaluation computes them or refuses them by name: it does not panic and returns
/// no `Internal`. It writes every element of an output; an output may have elements although no input has any.
pub(super) fn empty_inputs_evaluate(h: &Harness, _: &Entry, s: &Sample<OpRef>) -> Check {
    if !succeeds(s) {
        return Ok(());
    }
    for axes in sets(&s.x) {
        let x = emptied(&s.x, &axes).map_err(text)?;
        let facts: Vec<Fact> = x.iter().map(Fact::of).collect();
        if s.op.infer(&facts.iter().collect::<Vec<_>>()).is_err() {
            continue;
        }
        let views: Vec<(Layout, &HostTensor)> = x.iter().map(|t| (Layout::contiguous(t.shape().clone()), t)).collect();
        let shapes = || x.iter().map(|t| t.shape().to_string()).collect::<Vec<_>>().join(", ");
        let mut first: Option<Vec<HostTensor>> = None;
        for (pool, fill) in h.pools.iter().zip([0, GARBAGE, 0]) {
            let run = || eval_views(&*s.op, &views, pool, &HostRun { fill, donate: &[] });
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let y = match caught.map_err(|_| format!("panics on {}", shapes()))? {
                Ok(y) => y,
                Err(e) if e.kind() == ErrorKind::Internal => return Err(format!("{} give {e:?}", shapes())),
                Err(_) => break,
            };
            match &first {
                Some(first) => {
                    if let Some(d) = bit_differences(&y, first) {
                        return Err(format!("{} in memory filled with {fill:#x}: {d}", shapes()));
                    }
                }
                None => first = Some(y),
            }
        }
    }
    Ok(())
}
