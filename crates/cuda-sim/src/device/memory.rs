//! Memory of devices, and pinned memory of the host.

use super::Device;
use super::error::{CudaError, ErrorCode, Outcome};
use super::order::{Access, HOST};
use super::queue::memory_error;
use crate::exec::Ranges;

impl Device {
    /// `cuMemGetInfo`: free and all bytes of the device.
    pub fn mem_get_info(&self) -> Outcome<(u64, u64)> {
        self.alive()?;
        let is_here = |device: usize| device == self.current;
        let allocated: u64 = self.allocated.values().filter(|a| is_here(a.0)).map(|a| a.1).sum();
        let physical: u64 = self.physical.iter().flatten().filter(|p| is_here(p.device)).map(|p| p.bytes).sum();
        let used = allocated + physical;
        Ok((self.options.memory_bytes - used, self.options.memory_bytes))
    }

    /// `cuMemAlloc`. Nobody has written the bytes. Errors: no bytes are asked for, or more than are free.
    pub fn mem_alloc(&mut self, bytes: u64) -> Outcome<u64> {
        self.check_free(bytes)?;
        let at = self.memory.allocate(bytes);
        self.allocated.insert(at, (self.current, bytes));
        Ok(at)
    }

    /// Errors unless so many bytes are at least one, and free on the current device.
    pub(super) fn check_free(&self, bytes: u64) -> Outcome<()> {
        let (free, _) = self.mem_get_info()?;
        if bytes == 0 {
            return Err(CudaError::new(ErrorCode::InvalidValue, "an allocation of no bytes"));
        }
        if bytes > free {
            let message = format!("an allocation of {bytes} bytes, and {free} are free");
            return Err(CudaError::new(ErrorCode::OutOfMemory, message));
        }
        Ok(())
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
    pub(super) fn host_access(&mut self, label: &str, reads: Ranges, writes: Ranges) -> Outcome<()> {
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

    /// `cuMemHostRegister`: copies may use this memory of the caller, whose addresses are the caller's own.
    pub fn host_register(&mut self, at: u64, bytes: u64) -> Outcome<()> {
        self.alive()?;
        let behind = self.registered.range(..at.saturating_add(bytes)).next_back();
        if bytes == 0 || at.checked_add(bytes).is_none() || behind.is_some_and(|(base, size)| base + size > at) {
            let message =
                format!("{bytes} bytes at {at:#x} cannot be registered: they are none, or registered already");
            return Err(CudaError::new(ErrorCode::InvalidValue, message));
        }
        self.registered.insert(at, bytes);
        Ok(())
    }

    /// `cuMemHostUnregister`. Like `cuMemFreeHost`, it waits for all work first. Work that uses the memory later will fail.
    pub fn host_unregister(&mut self, at: u64) -> Outcome<()> {
        if !self.registered.contains_key(&at) {
            return Err(CudaError::new(ErrorCode::InvalidValue, format!("no registered memory begins at {at:#x}")));
        }
        let waited = self.synchronize();
        self.registered.remove(&at);
        waited
    }

    /// Errors unless all bytes of a range of the caller's memory are registered.
    pub(super) fn check_registered(&self, at: u64, bytes: u64) -> Outcome<()> {
        match self.registered.range(..=at).next_back() {
            Some((base, size)) if at - base <= *size && bytes <= size - (at - base) => Ok(()),
            _ => {
                let message = format!("{bytes} bytes at {at:#x} are not pinned memory of the host, or were freed");
                Err(CudaError::new(ErrorCode::InvalidValue, message))
            }
        }
    }
}
