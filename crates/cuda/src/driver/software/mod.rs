//! The driver's table filled from the software device of `remat_cuda_sim`, so that what stands above the table is tested without
//! a GPU.
//!
//! **How a call finds its driver.** The functions of a table have no pointer of their user's, so what they work on is in a
//! registry of the process (`registry.rs`), and every handle names its driver: a device's number, a context, a stream and all else
//! has the driver's number within. Calls without a handle are for the thread's current context, as CUDA has it. Only the number
//! of devices and the device of an ordinal are asked before there is a handle; these two functions are made once for each of
//! [`SLOTS`] places, and a driver takes one while it lives. So drivers see nothing of one another, and a driver may be used
//! by any thread. The other way, a current driver of the thread, would have had a driver without devices on every thread but
//! the one that made it.
//!
//! **Trust.** No handle is a pointer. One that is unknown, or of another driver, is `CUDA_ERROR_INVALID_HANDLE`. A panic becomes
//! `CUDA_ERROR_UNKNOWN`. Pointers to results are checked for null only; those to arguments of a launch are the caller's promise.
//!
//! **What differs from hardware.** The text of an error is that of the thread's last failure, with the kernel, the place and the
//! address. A failure ends all devices of its driver. Work runs while a call waits or asks, on that thread. Host memory of copies
//! must be pinned. Machine code cannot be loaded: [`Compiler::ptx`](super::Compiler::ptx) makes what can. No kernel reaches
//! another device's memory, and `cuDeviceCanAccessPeer` says so; copies between devices work.

mod call;
mod devices;
mod entries;
mod errors;
mod memory;
mod pinned;
mod registry;
mod work;

use remat_cuda_sim::{Checks, Device, DeviceOptions, ExecOptions};
use remat_types::{Error, ErrorKind, Result};

use super::Driver;
use registry::{MOST_DEVICES, Registration, SLOTS, State};

/// The options of a driver of software devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftwareOptions {
    /// The number of devices.
    pub devices: usize,
    /// Memory of each device.
    pub memory_bytes: u64,
    /// The seed of the order in which streams and blocks run.
    pub seed: u64,
    /// False leaves out the search for races and for reads of bytes that nobody wrote.
    pub is_checked: bool,
    /// Threads of the host on which blocks run.
    pub threads: usize,
    /// The most instructions of a launch; one with more hangs.
    pub instruction_limit: u64,
}

impl Default for SoftwareOptions {
    fn default() -> Self {
        let ExecOptions { threads, instruction_limit, .. } = ExecOptions::default();
        SoftwareOptions { devices: 1, memory_bytes: 1 << 30, seed: 0, is_checked: true, threads, instruction_limit }
    }
}

/// A driver of devices in software. Errors: Value for more devices than a driver may have; Device if as many drivers live as there
/// may be in a process.
pub fn software(options: SoftwareOptions) -> Result<Driver> {
    if options.devices > MOST_DEVICES {
        let text = format!("{} devices: a software driver has at most {MOST_DEVICES}", options.devices);
        return Err(Error::new(ErrorKind::Value, text));
    }
    let checks = if options.is_checked { Checks::All } else { Checks::Bounds };
    let exec = ExecOptions { threads: options.threads, checks, instruction_limit: options.instruction_limit, seed: 0 };
    let SoftwareOptions { devices, memory_bytes, seed, .. } = options;
    let device = Device::new(DeviceOptions { devices, memory_bytes, seed, exec });
    let Some((registration, slot)) = Registration::of(State::new(device, devices)) else {
        let text = format!("{SLOTS} software drivers are in use, and there may be no more: drop one first");
        return Err(Error::new(ErrorKind::Device, text));
    };
    let Driver(table, _) = Driver::with_table(entries::table(slot, registration))?;
    Ok(Driver(table, false))
}
