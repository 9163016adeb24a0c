//! Virtual memory of a device: physical memory, and addresses at which it is mapped.

use super::Device;
use super::error::{CudaError, ErrorCode, Outcome};
use crate::exec::{MemoryError, Physical};

/// Physical memory and mappings are multiples of this, as on hardware.
const GRANULARITY_BYTES: u64 = 2 << 20;
/// The most addresses that are reserved at once. Memory of the device has that many.
const MOST_RESERVED_BYTES: u64 = 1 << 46;

/// Physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalMemory(pub u32);

/// Physical memory behind a handle.
#[derive(Debug)]
pub(super) struct PhysicalState {
    pub(super) device: usize,
    pub(super) bytes: u64,
    /// The address at which it is mapped.
    at: Option<u64>,
    /// The memory, where it is not mapped.
    memory: Option<Physical>,
    /// The handle was given back.
    is_released: bool,
}

impl Device {
    /// `cuMemGetAllocationGranularity`.
    pub fn mem_granularity(&self) -> u64 {
        GRANULARITY_BYTES
    }

    /// `cuMemAddressReserve`: addresses without memory, an access to which is a fault. All devices share them. Errors: the size or
    /// the alignment is not a multiple of the granularity.
    pub fn mem_address_reserve(&mut self, bytes: u64, alignment: u64) -> Outcome<u64> {
        self.alive()?;
        check_granularity(bytes)?;
        let alignment = alignment.max(GRANULARITY_BYTES);
        if !alignment.is_power_of_two() || alignment > MOST_RESERVED_BYTES || bytes > MOST_RESERVED_BYTES {
            let message = format!("{bytes} bytes of addresses from a multiple of {alignment} on");
            return Err(CudaError::new(ErrorCode::InvalidValue, message));
        }
        Ok(self.memory.reserve(bytes, alignment))
    }

    /// `cuMemAddressFree`. Errors: the range is not a reservation, or memory is mapped there.
    pub fn mem_address_free(&mut self, at: u64, bytes: u64) -> Outcome<()> {
        self.memory.unreserve(at, bytes).map_err(invalid)
    }

    /// `cuMemCreate`: memory of the current device without an address. Errors: as much is not free.
    pub fn mem_create(&mut self, bytes: u64) -> Outcome<PhysicalMemory> {
        check_granularity(bytes)?;
        self.check_free(bytes)?;
        let (device, memory) = (self.current, Some(Physical::new(bytes, !self.memory.is_unchecked())));
        self.physical.push(Some(PhysicalState { device, bytes, at: None, memory, is_released: false }));
        Ok(PhysicalMemory(self.physical.len() as u32 - 1))
    }

    fn physical(&mut self, memory: PhysicalMemory) -> Outcome<&mut PhysicalState> {
        match self.physical.get_mut(memory.0 as usize) {
            Some(Some(state)) if !state.is_released => Ok(state),
            _ => Err(CudaError::new(ErrorCode::InvalidHandle, format!("memory {} does not exist", memory.0))),
        }
    }

    /// `cuMemRelease`: ends the handle. The memory is freed once it is not mapped.
    pub fn mem_release(&mut self, memory: PhysicalMemory) -> Outcome<()> {
        self.physical(memory)?.is_released = true;
        self.free_released();
        Ok(())
    }

    fn free_released(&mut self) {
        for slot in &mut self.physical {
            if slot.as_ref().is_some_and(|p| p.is_released && p.at.is_none()) {
                *slot = None;
            }
        }
    }

    /// `cuMemMap`: gives all of a piece of memory an address. It cannot be accessed before [`Device::mem_set_access`]. Errors: the
    /// addresses are not reserved or not free, or the memory has another size or an address.
    pub fn mem_map(&mut self, at: u64, bytes: u64, memory: PhysicalMemory) -> Outcome<()> {
        self.alive()?;
        check_granularity(at)?;
        self.memory.check_map(at, bytes).map_err(invalid)?;
        let state = self.physical(memory)?;
        if state.bytes != bytes {
            let message = format!("a mapping of {bytes} bytes of memory of {}: only all of it is mapped", state.bytes);
            return Err(CudaError::new(ErrorCode::InvalidValue, message));
        }
        let Some(piece) = state.memory.take() else {
            return Err(CudaError::new(ErrorCode::InvalidValue, "the memory is mapped already"));
        };
        state.at = Some(at);
        self.memory.map(at, piece);
        Ok(())
    }

    /// `cuMemSetAccess`, for reading and writing by a device. Errors: the range is not all of one or more pieces; the memory is of
    /// another device, for no kernel here reaches a peer's.
    pub fn mem_set_access(&mut self, at: u64, bytes: u64, device: usize) -> Outcome<()> {
        self.alive()?;
        if let Some(other) = self.device_of(at).filter(|d| *d != device) {
            let message = format!("device {device} cannot reach memory of device {other} at {at:#x}");
            return Err(CudaError::new(ErrorCode::InvalidValue, message));
        }
        self.memory.give_access(at, bytes).map_err(invalid)
    }

    /// `cuMemUnmap`. The memory keeps its bytes. Errors: the range is not all of one or more pieces; work uses it that the host has
    /// not waited for. Such work that has not run will find no memory.
    pub fn mem_unmap(&mut self, at: u64, bytes: u64) -> Outcome<()> {
        let unmapped = self.memory.unmap(at, bytes).map_err(invalid)?;
        for (base, piece) in unmapped {
            if let Some(state) = self.physical.iter_mut().flatten().find(|p| p.at == Some(base)) {
                (state.at, state.memory) = (None, Some(piece));
            }
        }
        self.free_released();
        match self.alive() {
            Ok(()) => self.host_access("an unmapping", Vec::new(), vec![(at, at + bytes)]),
            // what is left after a failure may be cleaned up
            Err(_) => Ok(()),
        }
    }

    /// The device of mapped memory that holds an address.
    pub(super) fn device_of_mapped(&self, address: u64) -> Option<usize> {
        let holds = |p: &&PhysicalState| p.at.is_some_and(|at| address.wrapping_sub(at) < p.bytes);
        self.physical.iter().flatten().find(holds).map(|p| p.device)
    }
}

fn check_granularity(bytes: u64) -> Outcome<()> {
    match bytes > 0 && bytes.is_multiple_of(GRANULARITY_BYTES) {
        true => Ok(()),
        false => {
            let message = format!("{bytes} is not a multiple of {GRANULARITY_BYTES}, the unit of physical memory");
            Err(CudaError::new(ErrorCode::InvalidValue, message))
        }
    }
}

fn invalid(error: MemoryError) -> CudaError {
    CudaError::new(ErrorCode::InvalidValue, error.to_string())
}
