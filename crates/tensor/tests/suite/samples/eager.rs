//! On a device an op gives the bits that it gives on the host, and the same kinds of errors.

use remat_emulated::EmulatedOptions;
use remat_ops::shape::Permute;
use remat_ops::testing::{bit_differences, differences};
use remat_ops::{Expect, OpRef, Sample, Tolerance, eval_inline};
use remat_runtime::{AsyncLevel, Device, DeviceOptions};
use remat_tensor::Tensor;
use remat_types::{HostTensor, Result, SmallVec};

use super::{apply, put, to_hosts, walk};
use crate::support::cpu;

/// How inputs reach the op.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The caller keeps them.
    Kept,
    /// They die in the op, which may write over them.
    HandedOver,
    /// As views whose axes lie in memory in reverse order.
    Permuted,
}

const WAYS: [Way; 3] = [Way::Kept, Way::HandedOver, Way::Permuted];

/// `x` as a view of a tensor with the axes reversed.
fn permuted(x: Tensor) -> Result<Tensor> {
    let order: SmallVec<[usize; 4]> = (0..x.rank()).rev().collect();
    let back = Tensor::apply1(Permute { order: order.clone() }, &[&x])?.contiguous()?;
    Tensor::apply1(Permute { order }, &[&back])
}

fn run(d: &Device, s: &Sample<OpRef>, way: Way) -> Result<Vec<HostTensor>> {
    let x = put(d, &s.x)?;
    let x: Vec<Tensor> = if way == Way::Permuted { x.into_iter().map(permuted).collect::<Result<_>>()? } else { x };
    let kept = x.clone();
    if way == Way::HandedOver {
        drop(kept);
        return to_hosts(&apply(d, &s.op, x)?);
    }
    let y = to_hosts(&apply(d, &s.op, x)?)?;
    // what the caller keeps is as it was
    for (kept, x) in kept.iter().zip(&s.x) {
        assert!(kept.to_host()? == *x, "{:?} changed its input", s.op);
    }
    Ok(y)
}

fn agrees(s: &Sample<OpRef>, way: Way, got: Result<Vec<HostTensor>>) -> std::result::Result<(), String> {
    let want = eval_inline(&*s.op, &s.x);
    match (&s.expect, got, want) {
        (Expect::Error(kind), Err(e), _) if e.kind() == *kind => {
            let here = e.call_site().is_some_and(|c| c.file() == file!());
            if e.op() != Some(s.op.label()) || !here {
                return Err(format!("the error does not name its op and the caller's line: {e:?}"));
            }
            Ok(())
        }
        (Expect::Error(kind), got, _) => Err(format!("expected an error of kind {}, got {got:?}", kind.name())),
        (_, Ok(got), Ok(want)) => {
            // only a sample that says why may depend on strides
            let loose = way == Way::Permuted && matches!(s.tolerance, Tolerance::Loose(..));
            let differ = if loose { differences(&got, &want, s.tolerance) } else { bit_differences(&got, &want) };
            differ.map_or(Ok(()), Err)
        }
        (_, Err(e), _) => Err(format!("fails: {e:?}")),
        (_, _, Err(e)) => Err(format!("fails on the host: {e:?}")),
    }
}

/// Runs the table on a device, which lives on from sample to sample, errors included.
fn check(d: &Device) {
    let (mut values, mut errors) = (0, 0);
    walk(|s| {
        match s.expect {
            Expect::Error(_) => errors += 1,
            _ => values += 1,
        }
        for way in WAYS {
            agrees(s, way, run(d, s, way)).map_err(|e| format!("{way:?}: {e}"))?;
        }
        Ok(())
    });
    assert!(values > 300 && errors > 100, "only {values} samples with values and {errors} with errors");
    d.channel().verify().expect("consistent");
    let left = d.channel().stats().expect("open");
    assert_eq!((left.tensors, left.storages, left.in_use_bytes), (0, 0, 0), "{left:?}");
}

#[test]
fn eager_results_on_the_cpu_have_the_bits_of_the_host() {
    check(&cpu(DeviceOptions::default()));
    // small integers too are computed by the device, not by folding
    check(&cpu(DeviceOptions { host_compute: false, always_record: true, ..DeviceOptions::default() }));
    check(&cpu(DeviceOptions { host_compute: false, async_level: AsyncLevel::Sync, ..DeviceOptions::default() }));
}

#[test]
fn eager_results_on_the_emulated_device_have_the_bits_of_the_host() {
    for (streams, host_compute) in [(1, true), (3, false)] {
        let e = EmulatedOptions { streams, seed: 11, max_delay_us: 20, ..EmulatedOptions::default() };
        let log = e.log.clone();
        let options = DeviceOptions { host_compute, threads: 1, ..DeviceOptions::default() };
        check(&e.open().and_then(|b| Device::with_backend(b, options)).expect("opens"));
        assert_eq!(log.races(), Vec::<String>::new());
    }
}
