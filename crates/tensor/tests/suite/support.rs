//! What the tests share.

use remat_runtime::{Device, DeviceOptions};

/// A device with one thread, so that tests do not compete for cores.
pub(crate) fn cpu(options: DeviceOptions) -> Device {
    Device::cpu(DeviceOptions { threads: 1, ..options }).expect("a CPU")
}
