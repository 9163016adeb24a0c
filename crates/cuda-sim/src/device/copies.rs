//! Copies and fills.

use std::sync::Arc;

use super::Device;
use super::error::{CudaError, ErrorCode, Outcome};
use super::queue::{Sink, Source, Work};
use super::streams::Stream;

impl Device {
    /// Says, in the order of a stream, that nobody has written these bytes, as after an allocation: a region of an arena was
    /// given anew. The driver has no such call; it does nothing on hardware.
    pub fn mem_forget_async(&mut self, at: u64, bytes: u64, stream: Stream) -> Outcome<()> {
        self.check_range(at, bytes, stream)?;
        self.submit(stream, Work::Forget { at, bytes })
    }

    pub(super) fn submit(&mut self, stream: Stream, work: Work) -> Outcome<()> {
        self.alive()?;
        let number = self.stream(stream)?;
        if self.captures.at(number).is_some() {
            self.captures.add(number, work);
        } else {
            self.queue(number, work);
        }
        Ok(())
    }

    /// `cuMemcpyAsync` between places of the device and of pinned memory.
    pub fn memcpy_async(&mut self, to: u64, from: u64, bytes: u64, stream: Stream) -> Outcome<()> {
        self.check_range(to, bytes, stream)?;
        self.check_range(from, bytes, stream)?;
        self.submit(stream, Work::Copy { to, from, bytes })
    }

    /// `cuMemcpyPeerAsync`, on a stream of either device. Errors: an address is not of the device that is named with it.
    pub fn memcpy_peer_async(
        &mut self,
        (to, to_device): (u64, usize),
        (from, from_device): (u64, usize),
        bytes: u64,
        stream: Stream,
    ) -> Outcome<()> {
        self.check_range_of(to, bytes, to_device)?;
        self.check_range_of(from, bytes, from_device)?;
        let device = self.device_of_stream(stream)?;
        if device != to_device && device != from_device {
            let message =
                format!("a copy from device {from_device} to device {to_device} on a stream of device {device}");
            return Err(CudaError::new(ErrorCode::InvalidHandle, message));
        }
        self.submit(stream, Work::Copy { to, from, bytes })
    }

    /// Errors unless a range is memory of a stream's device, or pinned memory.
    fn check_range(&self, at: u64, bytes: u64, stream: Stream) -> Outcome<()> {
        self.check_range_of(at, bytes, self.device_of_stream(stream)?)
    }

    fn check_range_of(&self, at: u64, bytes: u64, device: usize) -> Outcome<()> {
        let refused = |e: crate::exec::MemoryError| CudaError::new(ErrorCode::InvalidValue, e.to_string());
        self.memory.check(at, bytes).map_err(refused)?;
        match self.device_of(at) {
            Some(other) if other != device && bytes > 0 => {
                let message = format!("{bytes} bytes at {at:#x} are memory of device {other}, not {device}");
                Err(CudaError::new(ErrorCode::InvalidValue, message))
            }
            _ => Ok(()),
        }
    }

    /// `cuMemcpyHtoDAsync` from memory that is not pinned: the bytes are taken at the call.
    pub fn memcpy_htod_async(&mut self, to: u64, data: &[u8], stream: Stream) -> Outcome<()> {
        let data = data.to_vec();
        self.memcpy_htod_with(to, data.len() as u64, Arc::new(move |out: &mut [u8]| out.copy_from_slice(&data)), stream)
    }

    /// `cuMemcpyHtoDAsync` from memory of the caller: the source is asked for the bytes when the copy runs.
    pub fn memcpy_htod_with(&mut self, to: u64, bytes: u64, source: Source, stream: Stream) -> Outcome<()> {
        self.check_range(to, bytes, stream)?;
        self.submit(stream, Work::Give { to, bytes, source, host: None })
    }

    /// As [`Device::memcpy_htod_with`], from registered memory, whose uses the checks of the order know.
    pub fn memcpy_htod_registered(
        &mut self,
        to: u64,
        from: u64,
        bytes: u64,
        source: Source,
        stream: Stream,
    ) -> Outcome<()> {
        self.check_range(to, bytes, stream)?;
        self.check_registered(from, bytes)?;
        self.submit(stream, Work::Give { to, bytes, source, host: Some(from) })
    }

    /// `cuMemcpyDtoHAsync` to memory of the caller: the sink is given the bytes when the copy runs.
    pub fn memcpy_dtoh_with(&mut self, from: u64, bytes: u64, sink: Sink, stream: Stream) -> Outcome<()> {
        self.check_range(from, bytes, stream)?;
        self.submit(stream, Work::Take { from, bytes, sink, host: None })
    }

    /// As [`Device::memcpy_dtoh_with`], to registered memory, whose uses the checks of the order know.
    pub fn memcpy_dtoh_registered(
        &mut self,
        to: u64,
        from: u64,
        bytes: u64,
        sink: Sink,
        stream: Stream,
    ) -> Outcome<()> {
        self.check_range(from, bytes, stream)?;
        self.check_registered(to, bytes)?;
        self.submit(stream, Work::Take { from, bytes, sink, host: Some(to) })
    }

    /// `cuMemcpyHtoD`: on the default stream, and the host waits.
    pub fn memcpy_htod(&mut self, to: u64, data: &[u8]) -> Outcome<()> {
        self.refuse_in_any_capture("a copy that waits")?;
        self.memcpy_htod_async(to, data, Stream::DEFAULT)?;
        self.stream_synchronize(Stream::DEFAULT)
    }

    /// `cuMemcpyDtoH`: on the default stream, and the host waits.
    pub fn memcpy_dtoh(&mut self, out: &mut [u8], from: u64) -> Outcome<()> {
        self.refuse_in_any_capture("a copy that waits")?;
        let bytes = Arc::new(std::sync::Mutex::new(Vec::new()));
        let taken = Arc::clone(&bytes);
        let sink: Sink = Arc::new(move |data: &[u8]| {
            *taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = data.to_vec();
        });
        self.memcpy_dtoh_with(from, out.len() as u64, sink, Stream::DEFAULT)?;
        self.stream_synchronize(Stream::DEFAULT)?;
        out.copy_from_slice(&bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        Ok(())
    }

    /// `cuMemcpyDtoD`: on the default stream, and the host waits.
    pub fn memcpy_dtod(&mut self, to: u64, from: u64, bytes: u64) -> Outcome<()> {
        self.refuse_in_any_capture("a copy that waits")?;
        self.memcpy_async(to, from, bytes, Stream::DEFAULT)?;
        self.stream_synchronize(Stream::DEFAULT)
    }

    /// `cuMemsetD8Async`.
    pub fn memset_d8_async(&mut self, to: u64, value: u8, count: u64, stream: Stream) -> Outcome<()> {
        self.fill(to, [value, 0, 0, 0], 1, count, stream)
    }

    /// `cuMemsetD16Async`.
    pub fn memset_d16_async(&mut self, to: u64, value: u16, count: u64, stream: Stream) -> Outcome<()> {
        let [a, b] = value.to_le_bytes();
        self.fill(to, [a, b, 0, 0], 2, count, stream)
    }

    /// `cuMemsetD32Async`.
    pub fn memset_d32_async(&mut self, to: u64, value: u32, count: u64, stream: Stream) -> Outcome<()> {
        self.fill(to, value.to_le_bytes(), 4, count, stream)
    }

    fn fill(&mut self, to: u64, value: [u8; 4], width: usize, count: u64, stream: Stream) -> Outcome<()> {
        if !to.is_multiple_of(width as u64) {
            return Err(CudaError::new(ErrorCode::InvalidValue, format!("{to:#x} is not a multiple of {width}")));
        }
        self.check_range(to, count.saturating_mul(width as u64), stream)?;
        self.submit(stream, Work::Fill { to, value, width, count })
    }

    /// `cuLaunchHostFunc`.
    pub fn launch_host_function(&mut self, function: Arc<dyn Fn() + Send + Sync>, stream: Stream) -> Outcome<()> {
        self.submit(stream, Work::Host(function))
    }
}
