//! Memory and copies.

use std::sync::Arc;

use super::Device;
use super::error::{CudaError, ErrorCode, Outcome};
use super::order::{Access, HOST};
use super::queue::{Sink, Source, Work, memory_error};
use super::streams::Stream;
use crate::exec::Ranges;

impl Device {
    /// `cuMemGetInfo`: free and all bytes of the device.
    pub fn mem_get_info(&self) -> Outcome<(u64, u64)> {
        self.alive()?;
        let used: u64 = self.allocated.values().sum();
        Ok((self.options.memory_bytes - used, self.options.memory_bytes))
    }

    /// `cuMemAlloc`. Nobody has written the bytes. Errors: no bytes are asked for, or more than are free.
    pub fn mem_alloc(&mut self, bytes: u64) -> Outcome<u64> {
        let (free, _) = self.mem_get_info()?;
        if bytes == 0 {
            return Err(CudaError::new(ErrorCode::InvalidValue, "an allocation of no bytes"));
        }
        if bytes > free {
            let message = format!("an allocation of {bytes} bytes, and {free} are free");
            return Err(CudaError::new(ErrorCode::OutOfMemory, message));
        }
        let at = self.memory.allocate(bytes);
        self.allocated.insert(at, bytes);
        Ok(at)
    }

    /// `cuMemFree`. Like the driver, it waits for all work first.
    pub fn mem_free(&mut self, at: u64) -> Outcome<()> {
        self.synchronize()?;
        if self.allocated.remove(&at).is_none() {
            return Err(CudaError::new(ErrorCode::InvalidValue, format!("no allocation begins at {at:#x}")));
        }
        self.memory.free(at).map(|_| ()).map_err(memory_error)
    }

    /// `cuMemHostAlloc`: pinned memory of the host, which the device reaches under the same address.
    pub fn host_alloc(&mut self, bytes: u64) -> Outcome<u64> {
        self.alive()?;
        if bytes == 0 {
            return Err(CudaError::new(ErrorCode::InvalidValue, "an allocation of no bytes"));
        }
        let at = self.memory.allocate(bytes);
        self.pinned.insert(at, bytes);
        Ok(at)
    }

    /// `cuMemFreeHost`.
    pub fn host_free(&mut self, at: u64) -> Outcome<()> {
        self.synchronize()?;
        if self.pinned.remove(&at).is_none() {
            return Err(CudaError::new(ErrorCode::InvalidValue, format!("no pinned allocation begins at {at:#x}")));
        }
        self.memory.free(at).map(|_| ()).map_err(memory_error)
    }

    /// The host writes pinned memory. Errors: work of the device that the host has not waited for uses it.
    pub fn host_write(&mut self, at: u64, data: &[u8]) -> Outcome<()> {
        self.alive()?;
        self.check_pinned(at, data.len() as u64)?;
        self.memory.write(at, data).map_err(memory_error)?;
        self.host_access("a write", Vec::new(), vec![(at, at + data.len() as u64)])
    }

    /// The host reads pinned memory. Errors: work of the device that the host has not waited for writes it.
    pub fn host_read(&mut self, at: u64, out: &mut [u8]) -> Outcome<()> {
        self.alive()?;
        self.check_pinned(at, out.len() as u64)?;
        self.host_access("a read", vec![(at, at + out.len() as u64)], Vec::new())?;
        self.memory.read(at, out).map_err(memory_error)
    }

    fn check_pinned(&self, at: u64, bytes: u64) -> Outcome<()> {
        match self.pinned.range(..=at).next_back() {
            Some((base, size)) if at - base < *size && bytes <= size - (at - base) => Ok(()),
            _ => {
                Err(CudaError::new(ErrorCode::InvalidValue, format!("{bytes} bytes at {at:#x} are not pinned memory")))
            }
        }
    }

    /// Notes an access of the host. It comes after all that the host has seen, and before all that it queues later.
    fn host_access(&mut self, label: &str, reads: Ranges, writes: Ranges) -> Outcome<()> {
        let number = self.host.get(HOST) + 1;
        let before = self.host.clone();
        let access = Access { place: HOST, number, reads, writes, label: label.to_string() };
        self.host.set(HOST, number);
        let outcome = self.note(access, &before);
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
        }
        outcome
    }

    /// Says, in the order of a stream, that nobody has written these bytes, as after an allocation: a region of an arena was
    /// given anew. The driver has no such call; it does nothing on hardware.
    pub fn mem_forget_async(&mut self, at: u64, bytes: u64, stream: Stream) -> Outcome<()> {
        self.check_range(at, bytes)?;
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
        self.check_range(to, bytes)?;
        self.check_range(from, bytes)?;
        self.submit(stream, Work::Copy { to, from, bytes })
    }

    fn check_range(&self, at: u64, bytes: u64) -> Outcome<()> {
        let refused = |e: crate::exec::MemoryError| CudaError::new(ErrorCode::InvalidValue, e.to_string());
        self.memory.check(at, bytes).map_err(refused)
    }

    /// `cuMemcpyHtoDAsync` from memory that is not pinned: the bytes are taken at the call.
    pub fn memcpy_htod_async(&mut self, to: u64, data: &[u8], stream: Stream) -> Outcome<()> {
        let data = data.to_vec();
        self.memcpy_htod_with(to, data.len() as u64, Arc::new(move |out: &mut [u8]| out.copy_from_slice(&data)), stream)
    }

    /// `cuMemcpyHtoDAsync` from memory of the caller: the source is asked for the bytes when the copy runs.
    pub fn memcpy_htod_with(&mut self, to: u64, bytes: u64, source: Source, stream: Stream) -> Outcome<()> {
        self.check_range(to, bytes)?;
        self.submit(stream, Work::Give { to, bytes, source })
    }

    /// `cuMemcpyDtoHAsync` to memory of the caller: the sink is given the bytes when the copy runs.
    pub fn memcpy_dtoh_with(&mut self, from: u64, bytes: u64, sink: Sink, stream: Stream) -> Outcome<()> {
        self.check_range(from, bytes)?;
        self.submit(stream, Work::Take { from, bytes, sink })
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
        self.check_range(to, count.saturating_mul(width as u64))?;
        self.submit(stream, Work::Fill { to, value, width, count })
    }

    /// `cuLaunchHostFunc`.
    pub fn launch_host_function(&mut self, function: Arc<dyn Fn() + Send + Sync>, stream: Stream) -> Outcome<()> {
        self.submit(stream, Work::Host(function))
    }
}
