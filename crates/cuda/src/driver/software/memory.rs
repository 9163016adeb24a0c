//! Functions of the table for memory of devices and of the host, and for copies.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::call::{Here, give, run};
use super::errors::{Failure, INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use super::pinned::Block;
use super::registry::{Kind, device_number, word};
use crate::driver::Status;
use crate::driver::table::{Access, Address, AllocationProperties, Location, Raw};

/// `CU_MEM_LOCATION_TYPE_DEVICE`, and also `CU_MEM_ALLOCATION_TYPE_PINNED`.
const DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: c_int = 3;

pub(super) unsafe extern "C" fn allocate(address: *mut Address, bytes: usize) -> Status {
    // SAFETY: the caller's.
    unsafe { give(address, |here| Ok(here.state.device.mem_alloc(bytes as u64)?)) }
}

pub(super) extern "C" fn free(address: Address) -> Status {
    run(|here| Ok(here.state.device.mem_free(address)?))
}

pub(super) unsafe extern "C" fn reserve_addresses(
    address: *mut Address,
    bytes: usize,
    alignment: usize,
    _near: Address,
    _flags: u64,
) -> Status {
    // SAFETY: the caller's.
    unsafe { give(address, |here| Ok(here.state.device.mem_address_reserve(bytes as u64, alignment as u64)?)) }
}

pub(super) extern "C" fn free_addresses(address: Address, bytes: usize) -> Status {
    run(|here| Ok(here.state.device.mem_address_free(address, bytes as u64)?))
}

/// The ordinal of a place, which must be a device of the call's driver.
fn ordinal(here: &Here<'_>, location: Location) -> Outcome<usize> {
    let known = (0..here.state.contexts.len()).find(|o| device_number(here.driver, *o) == location.id);
    known.filter(|_| location.kind == DEVICE).ok_or_else(|| {
        let message = format!("{location:?} is no device of the driver");
        Failure::new(INVALID_VALUE, message)
    })
}

/// Checks the properties of physical memory, and gives the device.
///
/// # Safety
///
/// The pointer is null, or that of properties.
unsafe fn device_of(here: &Here<'_>, properties: *const AllocationProperties) -> Outcome<usize> {
    // SAFETY: the caller's.
    let Some(properties) = (unsafe { properties.as_ref() }) else {
        return Err(Failure::new(INVALID_VALUE, "memory without properties"));
    };
    if properties.kind != DEVICE || properties.handle_kinds != 0 || properties.flags != [0; 8] {
        return Err(Failure::new(INVALID_VALUE, format!("{properties:?} are not known to software devices")));
    }
    ordinal(here, properties.location)
}

pub(super) unsafe extern "C" fn memory_granularity(
    bytes: *mut usize,
    properties: *const AllocationProperties,
    _kind: c_int,
) -> Status {
    // SAFETY: the caller's.
    unsafe {
        give(bytes, |here| {
            device_of(here, properties)?;
            Ok(here.state.device.mem_granularity() as usize)
        })
    }
}

pub(super) unsafe extern "C" fn create_memory(
    memory: *mut u64,
    bytes: usize,
    properties: *const AllocationProperties,
    _flags: u64,
) -> Status {
    // SAFETY: the caller's.
    unsafe {
        give(memory, |here| {
            let device = device_of(here, properties)?;
            here.state.device.set_current(device)?;
            Ok(word(Kind::Memory, here.driver, here.state.device.mem_create(bytes as u64)?.0))
        })
    }
}

pub(super) extern "C" fn release_memory(memory: u64) -> Status {
    run(|here| {
        let memory = here.memory(memory)?;
        Ok(here.state.device.mem_release(memory)?)
    })
}

pub(super) extern "C" fn map_memory(address: Address, bytes: usize, offset: usize, memory: u64, _flags: u64) -> Status {
    run(|here| {
        if offset != 0 {
            return Err(Failure::new(INVALID_VALUE, "software devices map memory from its beginning on"));
        }
        let memory = here.memory(memory)?;
        Ok(here.state.device.mem_map(address, bytes as u64, memory)?)
    })
}

pub(super) extern "C" fn unmap_memory(address: Address, bytes: usize) -> Status {
    run(|here| Ok(here.state.device.mem_unmap(address, bytes as u64)?))
}

pub(super) unsafe extern "C" fn set_access(
    address: Address,
    bytes: usize,
    access: *const Access,
    count: usize,
) -> Status {
    run(|here| {
        // SAFETY: the caller's; one is looked at.
        let access = if count == 1 { unsafe { access.as_ref() } } else { None };
        let Some(access) = access.filter(|a| a.flags == READ_AND_WRITE) else {
            let message = "access is given to one device at a time, for reading and writing";
            return Err(Failure::new(INVALID_VALUE, message));
        };
        let device = ordinal(here, access.location)?;
        Ok(here.state.device.mem_set_access(address, bytes as u64, device)?)
    })
}

pub(super) unsafe extern "C" fn allocate_host(pointer: *mut Raw, bytes: usize, _flags: c_uint) -> Status {
    let allocate = |here: &mut Here<'_>| {
        if bytes == 0 {
            return Err(Failure::new(INVALID_VALUE, "an allocation of no bytes"));
        }
        let Some(block) = Block::new(bytes) else {
            return Err(Failure::new(OUT_OF_MEMORY, format!("the host has not {bytes} bytes")));
        };
        here.state.device.host_register(block.address(), bytes as u64)?;
        let pointer = block.pointer().cast();
        here.state.pinned.insert(block.address(), Arc::new(block));
        Ok(pointer)
    };
    // SAFETY: the caller's.
    unsafe { give(pointer, allocate) }
}

pub(super) extern "C" fn free_host(pointer: Raw) -> Status {
    run(|here| {
        let address = pointer.addr() as u64;
        if !here.state.pinned.contains_key(&address) {
            return Err(Failure::new(INVALID_VALUE, format!("no pinned memory begins at {pointer:?}")));
        }
        let waited = here.state.device.host_unregister(address);
        // work that was captured may hold the block still
        here.state.pinned.remove(&address);
        Ok(waited?)
    })
}

/// The pinned block that holds a range of the host, and the offset there.
fn block(here: &Here<'_>, at: *const c_void, bytes: usize) -> Outcome<(Arc<Block>, usize)> {
    let address = at.addr() as u64;
    let found = here.state.pinned.range(..=address).next_back();
    let found = found.map(|(base, block)| (block, (address - base) as usize));
    match found.filter(|(block, offset)| *offset <= block.bytes() && bytes <= block.bytes() - offset) {
        Some((block, offset)) => Ok((Arc::clone(block), offset)),
        None => {
            let message =
                format!("{bytes} bytes of the host at {at:?} are not pinned: software devices copy no others");
            Err(Failure::new(INVALID_VALUE, message))
        }
    }
}

pub(super) unsafe extern "C" fn copy_in(to: Address, from: *const c_void, bytes: usize, stream: Raw) -> Status {
    run(|here| {
        let (stream, (block, offset)) = (here.stream(stream)?, block(here, from, bytes)?);
        // SAFETY: the range is within the block. Until the copy is done nobody writes it, as the caller of this function says.
        let source = Arc::new(move |out: &mut [u8]| unsafe { block.read(offset, out) });
        let from = from.addr() as u64;
        Ok(here.state.device.memcpy_htod_registered(to, from, bytes as u64, source, stream)?)
    })
}

pub(super) unsafe extern "C" fn copy_out(to: *mut c_void, from: Address, bytes: usize, stream: Raw) -> Status {
    run(|here| {
        let (stream, (block, offset)) = (here.stream(stream)?, block(here, to, bytes)?);
        // SAFETY: the range is within the block. Until the copy is done nobody uses it, as the caller of this function says.
        let sink = Arc::new(move |data: &[u8]| unsafe { block.write(offset, data) });
        let to = to.addr() as u64;
        Ok(here.state.device.memcpy_dtoh_registered(to, from, bytes as u64, sink, stream)?)
    })
}

pub(super) extern "C" fn copy(to: Address, from: Address, bytes: usize, stream: Raw) -> Status {
    run(|here| {
        let stream = here.stream(stream)?;
        Ok(here.state.device.memcpy_async(to, from, bytes as u64, stream)?)
    })
}

pub(super) extern "C" fn copy_peer(
    to: Address,
    to_context: Raw,
    from: Address,
    from_context: Raw,
    bytes: usize,
    stream: Raw,
) -> Status {
    run(|here| {
        let (to, from) = ((to, here.context(to_context)?), (from, here.context(from_context)?));
        let stream = here.stream(stream)?;
        Ok(here.state.device.memcpy_peer_async(to, from, bytes as u64, stream)?)
    })
}

pub(super) extern "C" fn fill(to: Address, byte: u8, count: usize, stream: Raw) -> Status {
    run(|here| {
        let stream = here.stream(stream)?;
        Ok(here.state.device.memset_d8_async(to, byte, count as u64, stream)?)
    })
}
