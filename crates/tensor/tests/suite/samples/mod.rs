//! The registry's samples on devices and on the tape: the table from which `remat_ops::testing` derives its checks of ops
//! on the host is run here through the eager runtime, under budgets, and through the autodiff of `Tensor`.
//!
//! Every test walks the whole table and says all that failed. What a walk met is counted and asserted, so that it cannot
//! pass for lack of something to compare.

mod budget;
mod eager;
mod gradient;

use remat_ops::testing::each_sample;
use remat_ops::{Expect, OpRef, Registry, Sample};
use remat_runtime::{Device, Kind};
use remat_tensor::Tensor;
use remat_types::{HostTensor, Result, SmallVec};

/// Calls `check` with every sample of the standard registry and panics with all that it found wrong.
fn walk(mut check: impl FnMut(&Sample<OpRef>) -> std::result::Result<(), String>) {
    let mut failures = Vec::new();
    each_sample(&Registry::builtin(), |entry, i, s| {
        if let Err(e) = check(s) {
            failures.push(format!("{} sample {i}, {:?}: {e}", entry.name, s.op));
        }
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// [`walk`] over those samples that are expected to compute something.
fn walk_computing(mut check: impl FnMut(&Sample<OpRef>) -> std::result::Result<(), String>) {
    walk(|s| if matches!(s.expect, Expect::Error(_)) { Ok(()) } else { check(s) });
}

/// Host tensors as data of the device, each a tensor of its own.
fn put(d: &Device, x: &[HostTensor]) -> Result<Vec<Tensor>> {
    x.iter().map(|t| Ok(Tensor::from_handle(d.channel().put_as(t, Kind::Data)?))).collect()
}

/// Applies an op with any number of inputs; those that have no other handle die here.
#[track_caller]
fn apply(d: &Device, op: &OpRef, x: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let x: SmallVec<[_; 4]> = x.into_iter().map(Tensor::into_handle).collect();
    Ok(d.channel().apply(op.clone(), x)?.into_iter().map(Tensor::from_handle).collect())
}

fn to_hosts(y: &[Tensor]) -> Result<Vec<HostTensor>> {
    y.iter().map(Tensor::to_host).collect()
}
