//! Several devices: which is current, and what belongs to which.

use super::error::{CudaError, ErrorCode, Outcome};
use super::streams::Stream;
use super::{Device, LoadedFunction};
use crate::exec::Ranges;

impl Device {
    /// The number of devices.
    pub fn devices(&self) -> usize {
        self.options.devices.max(1)
    }

    /// `cudaSetDevice`: calls from now on are for this device. Errors: there is no such device.
    pub fn set_current(&mut self, device: usize) -> Outcome<()> {
        if device >= self.devices() {
            let message = format!("there is no device {device}: there are {}", self.devices());
            return Err(CudaError::new(ErrorCode::InvalidDevice, message));
        }
        self.current = device;
        Ok(())
    }

    /// The device whose memory is at an address; `None` for memory of the host, and where nothing is.
    pub(super) fn device_of(&self, address: u64) -> Option<usize> {
        let allocated = self.allocated.range(..=address).next_back().filter(|(base, a)| address - *base < a.1);
        allocated.map(|(_, a)| a.0).or_else(|| self.device_of_mapped(address))
    }

    pub(super) fn device_of_stream(&self, stream: Stream) -> Outcome<usize> {
        Ok(self.streams[self.stream(stream)?].device)
    }

    /// Errors unless what a kernel used is memory of its device, or of the host.
    pub(super) fn check_devices(&self, function: &LoadedFunction, reads: &Ranges, writes: &Ranges) -> Outcome<()> {
        if self.devices() == 1 {
            return Ok(());
        }
        let ends = reads.iter().chain(writes).flat_map(|&(first, end)| [first, end - 1]);
        for address in ends {
            if let Some(other) = self.device_of(address).filter(|d| *d != function.device) {
                let (kernel, device) = (function.kernel.name(), function.device);
                let message = format!(
                    "kernel {kernel} of device {device} uses address {address:#x}, which is memory of device {other}"
                );
                return Err(CudaError::new(ErrorCode::IllegalAddress, message));
            }
        }
        Ok(())
    }
}
