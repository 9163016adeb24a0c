//! Shared parts of the tests.

use remat_runtime::{Device, DeviceOptions};
use remat_tensor::Tensor;
use remat_types::Shape;

/// A device with one thread, so that tests do not compete for cores.
pub(crate) fn cpu(options: DeviceOptions) -> Device {
    Device::cpu(DeviceOptions { threads: 1, ..options }).expect("a CPU")
}

/// [`cpu`] with default options.
pub(crate) fn plain() -> Device {
    cpu(DeviceOptions::default())
}

/// A tensor of f64.
pub(crate) fn tensor(d: &Device, v: &[f64], shape: impl Into<Shape>) -> Tensor {
    Tensor::from_slice(d, v, shape).expect("fits")
}

/// A leaf of f64.
pub(crate) fn leaf(d: &Device, v: &[f64]) -> Tensor {
    tensor(d, v, [v.len()]).requires_grad().expect("a float")
}

/// Values of both signs without a pattern, away from 0.
pub(crate) fn wave(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i as f64 * 1.27 + 0.3).sin() * 1.5 + 0.01).collect()
}

/// The values of a tensor of f64.
pub(crate) fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec().expect("a value of f64")
}

/// The accumulated gradient of a leaf.
pub(crate) fn grad_of(t: &Tensor) -> Vec<f64> {
    values(&t.grad().expect("a gradient"))
}

/// Asserts equality up to rounding, relative to the larger of 1 and the wanted value.
#[track_caller]
pub(crate) fn assert_close(got: &[f64], want: &[f64]) {
    const ROUNDING: f64 = 1e-12;
    assert_eq!(got.len(), want.len(), "{got:?} against {want:?}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= ROUNDING * w.abs().max(1.0), "element {i}: {g} against {w}\n{got:?}\n{want:?}");
    }
}
