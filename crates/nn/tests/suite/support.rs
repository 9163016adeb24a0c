//! Shared parts of the tests, of those of `crates/zoo`, too.

use std::collections::BTreeMap;

use remat_nn::Parameter;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::Tensor;
use remat_types::{DType, ErrorKind, HostTensor, Result, Shape};

/// A device with one thread and no budget.
pub(crate) fn cpu() -> Device {
    Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("a CPU")
}

/// A host tensor of f32.
pub(crate) fn host(v: &[f32], shape: impl Into<Shape>) -> HostTensor {
    HostTensor::from_slice(v, shape).expect("fits")
}

/// A tensor of f32.
pub(crate) fn tensor(d: &Device, v: &[f32], shape: impl Into<Shape>) -> Tensor {
    Tensor::new(d, v, shape).expect("fits")
}

/// Values of both signs without a pattern, away from kinks at 0.
pub(crate) fn wave(n: usize, phase: f64) -> Vec<f64> {
    (0..n).map(|i| ((i as f64 * 1.27 + phase).sin() * 1.5) + 0.01).collect()
}

/// As f32.
pub(crate) fn wave32(n: usize, phase: f64) -> Vec<f32> {
    wave(n, phase).into_iter().map(|v| v as f32).collect()
}

/// The values as f64.
pub(crate) fn values(t: &Tensor) -> Vec<f64> {
    t.to_host().expect("a value").to_f64_vec()
}

/// A parameter's values as f64.
pub(crate) fn state(p: &Parameter) -> Vec<f64> {
    p.to_host().expect("a value").to_f64_vec()
}

/// Sets a parameter to values in its dtype.
pub(crate) fn set(p: &Parameter, v: &[f64]) {
    p.set_host(&HostTensor::from_f64_slice(v, p.dtype(), p.shape()).expect("fits")).expect("same shape");
}

/// Asserts equality up to `tolerance`, relative to the larger of 1 and the wanted value.
#[track_caller]
pub(crate) fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{got:?} against {want:?}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * w.abs().max(1.0), "element {i}: {g} against {w}\n{got:?}\n{want:?}");
    }
}

/// Accuracy of f32 arithmetic over a few terms.
pub(crate) const F32: f64 = 2e-6;

/// Every dtype of floats.
pub(crate) const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// The final weights of a program that trains without reading anything on the way.
pub(crate) type Weights = BTreeMap<String, HostTensor>;

/// Runs under a budget: true if it gave what is wanted, false if it said that it could not.
pub(crate) fn is_the_same_or_refused(
    options: DeviceOptions,
    want: &Weights,
    run: impl FnOnce(&Device) -> Result<Weights>,
) -> bool {
    let what = format!("{options:?}");
    let d = match Device::cpu(options) {
        Ok(d) => d,
        Err(e) => panic!("{what}: {e:?}"),
    };
    let peak = |d: &Device| d.channel().stats().expect("open").peak_bytes;
    match run(&d) {
        Ok(got) => {
            assert!(got == *want, "{what}: other bits and no word of it");
            assert!(peak(&d) <= d.options().budget_bytes.unwrap_or(usize::MAX), "{what}");
            true
        }
        Err(e) => {
            assert!(matches!(e.kind(), ErrorKind::Budget | ErrorKind::Poisoned), "{what}: {e:?}");
            assert!(!e.message().contains("in part"), "{what}: half a step was taken: {e:?}");
            // Failures of other threads of the queue may still be unreported.
            let _ = d.channel().close();
            false
        }
    }
}
