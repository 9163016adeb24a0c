//! The device of a command's work.

use remat::runtime::{Device, DeviceOptions};
use remat::types::{Error, ErrorKind, Result};

/// The device that is used unless another is asked for.
pub(crate) const CPU: &str = "cpu";

/// Checks the name of a device that computes values, for the options of commands.
pub(crate) fn computing_device(name: &str) -> Result<String> {
    Device::check_name(name)?;
    match name {
        "dry" => Err(Error::new(ErrorKind::Value, "device `dry` computes no values")),
        _ => Ok(name.to_owned()),
    }
}

/// A device by its name, and its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct On<'n> {
    pub(crate) device: &'n str,
    /// `None` for the processors of the machine.
    pub(crate) threads: Option<usize>,
}

impl On<'_> {
    /// The CPU with a thread for each processor.
    pub(crate) const CPU: On<'static> = On { device: CPU, threads: None };

    /// Opens the device with these options, or one that computes nothing and has its kernels.
    pub(crate) fn open(self, options: DeviceOptions, is_dry: bool) -> Result<Device> {
        let threads = self.threads.unwrap_or(options.threads);
        let options = DeviceOptions { threads, ..options };
        match is_dry {
            true => Device::dry(DeviceOptions { dry_of: Some(self.device.to_owned()), ..options }),
            false => Device::open(self.device, options),
        }
    }
}
