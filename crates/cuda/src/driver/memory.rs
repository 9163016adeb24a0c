//! Memory of a device, and pinned memory of the host.

use std::ffi::c_void;

use remat_types::{Error, ErrorKind, Result};

use super::context::Context;
use super::stream::Stream;
use super::table::{Access, Address, AllocationProperties, Location, Raw};

/// `CU_MEM_LOCATION_TYPE_DEVICE`, and also `CU_MEM_ALLOCATION_TYPE_PINNED`.
const DEVICE: i32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: i32 = 3;
/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
const RECOMMENDED: i32 = 1;

/// One range of a device's memory, whose addresses never change.
pub struct Arena {
    context: Context,
    base: Address,
    /// Bytes from the base on that have memory.
    bytes: usize,
    backing: Backing,
}

enum Backing {
    /// One allocation.
    Whole,
    /// Reserved addresses, into which memory is mapped piece by piece: handle and bytes of each.
    Mapped { reserved: usize, unit: usize, pieces: Vec<(u64, usize)> },
}

impl Arena {
    /// An arena of a size that it keeps. Errors: Budget if the device has not as much memory left.
    pub fn whole(context: &Context, bytes: usize) -> Result<Arena> {
        let mut base = 0;
        if bytes > 0 {
            // SAFETY: the pointer is that of a variable of the right type.
            let allocated = context.call("cuMemAlloc", |t| unsafe { (t.allocate)(&mut base, bytes) });
            allocated.map_err(|e| e.context(format!("an arena of {bytes} bytes")))?;
        }
        Ok(Arena { context: context.clone(), base, bytes, backing: Backing::Whole })
    }

    /// An arena of no bytes that may grow to all of the device's memory. Errors (Device): the device cannot map memory.
    pub fn growing(context: &Context) -> Result<Arena> {
        if !context.has_virtual_memory() {
            let text = format!("{} cannot map memory: give the device a budget", context.name());
            return Err(Error::new(ErrorKind::Device, text));
        }
        let (mut base, mut unit) = (0, 0);
        let properties = properties(context);
        context.call("cuMemGetAllocationGranularity", |t| {
            // SAFETY: the pointers are those of variables of the right types.
            unsafe { (t.memory_granularity)(&mut unit, &properties, RECOMMENDED) }
        })?;
        let unit = unit.max(1);
        let reserved = context.memory()?.1.next_multiple_of(unit);
        context.call("cuMemAddressReserve", |t| {
            // SAFETY: the pointer is that of a variable of the right type.
            unsafe { (t.reserve_addresses)(&mut base, reserved, 0, 0, 0) }
        })?;
        let backing = Backing::Mapped { reserved, unit, pieces: Vec::new() };
        Ok(Arena { context: context.clone(), base, bytes: 0, backing })
    }

    /// The address of its first byte.
    pub fn base(&self) -> Address {
        self.base
    }

    /// Bytes that have memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps more memory until there are `bytes`. Errors: Budget if the device has not as much; Internal for an arena that does not
    /// grow.
    pub fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let Backing::Mapped { reserved, unit, pieces } = &mut self.backing else {
            return match bytes <= self.bytes {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::Internal, "an arena of a fixed size was to grow")),
            };
        };
        if bytes <= self.bytes {
            return Ok(());
        }
        let more = (bytes - self.bytes).next_multiple_of(*unit);
        if self.bytes + more > *reserved {
            let text = format!("{} bytes are more than the device's memory of {reserved}", self.bytes + more);
            return Err(Error::new(ErrorKind::Budget, text));
        }
        let mut handle = 0;
        let properties = properties(&self.context);
        self.context.call("cuMemCreate", |t| {
            // SAFETY: the pointers are those of variables of the right types.
            unsafe { (t.create_memory)(&mut handle, more, &properties, 0) }
        })?;
        let at = self.base + self.bytes as Address;
        let access = Access { location: properties.location, flags: READ_AND_WRITE };
        // SAFETY: the addresses are reserved and not mapped, and the memory is as large.
        let mapped = self.context.call("cuMemMap", |t| unsafe { (t.map_memory)(at, more, 0, handle, 0) });
        if let Err(e) = mapped {
            // SAFETY: the memory is not mapped, and nothing else has the handle.
            self.context.call("cuMemRelease", |t| unsafe { (t.release_memory)(handle) })?;
            return Err(e);
        }
        pieces.push((handle, more));
        self.bytes += more;
        // SAFETY: the range was mapped above, and the pointer is that of one descriptor.
        self.context.call("cuMemSetAccess", |t| unsafe { (t.set_access)(at, more, &access, 1) })
    }

    /// Unmaps the last pieces that lie wholly beyond `bytes`. Work on them must be done.
    pub fn shrink_to(&mut self, bytes: usize) -> Result<()> {
        let Backing::Mapped { pieces, .. } = &mut self.backing else { return Ok(()) };
        while let Some(&(handle, size)) = pieces.last().filter(|p| self.bytes - p.1 >= bytes) {
            let at = self.base + (self.bytes - size) as Address;
            // SAFETY: the piece was mapped there, with this size.
            self.context.call("cuMemUnmap", |t| unsafe { (t.unmap_memory)(at, size) })?;
            pieces.pop();
            self.bytes -= size;
            // SAFETY: the memory is not mapped any more, and nothing else has the handle.
            self.context.call("cuMemRelease", |t| unsafe { (t.release_memory)(handle) })?;
        }
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Errors are those of work that was told before, or of a driver that is gone.
        let _ = self.context.synchronize();
        let _ = self.shrink_to(0);
        let _ = match self.backing {
            // SAFETY: the address was allocated and nothing else frees it; work on it is done.
            Backing::Whole if self.bytes > 0 => self.context.call("cuMemFree", |t| unsafe { (t.free)(self.base) }),
            Backing::Whole => Ok(()),
            Backing::Mapped { reserved, .. } => self.context.call("cuMemAddressFree", |t| {
                // SAFETY: the range was reserved with this size, and nothing is mapped there any more.
                unsafe { (t.free_addresses)(self.base, reserved) }
            }),
        };
    }
}

fn properties(context: &Context) -> AllocationProperties {
    let location = Location { kind: DEVICE, id: context.ordinal() };
    AllocationProperties { kind: DEVICE, handle_kinds: 0, location, windows: std::ptr::null_mut(), flags: [0; 8] }
}

/// Host memory that a device copies from and to while the host goes on.
pub struct Pinned {
    context: Context,
    pointer: Raw,
    bytes: usize,
}

// SAFETY: the memory belongs to this value, and the driver frees it from any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    /// So many bytes, with zeros. Errors: Budget if the host has not as much.
    pub fn new(context: &Context, bytes: usize) -> Result<Pinned> {
        let mut pointer = std::ptr::null_mut();
        let size = bytes.max(1);
        // SAFETY: the pointer is that of a variable of the right type.
        let allocated = context.call("cuMemHostAlloc", |t| unsafe { (t.allocate_host)(&mut pointer, size, 0) });
        allocated.map_err(|e| e.context(format!("{bytes} bytes of pinned host memory")))?;
        // SAFETY: the driver gave that many bytes.
        unsafe { std::ptr::write_bytes(pointer.cast::<u8>(), 0, size) };
        Ok(Pinned { context: context.clone(), pointer, bytes })
    }

    /// Its bytes. Copies to or from them must be done.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has that many bytes, which were written, and lives as long as this value.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.bytes) }
    }

    /// Its bytes, to write. Copies to or from them must be done.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nothing else borrows them.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), self.bytes) }
    }

    /// Queues a copy of `bytes` bytes from `at` to the device.
    ///
    /// # Safety
    ///
    /// Until the copy is done, this value must live and its bytes stay as they are. The device's range must stay allocated, and
    /// other work on it must be ordered. Panics if the range is not within.
    pub unsafe fn copy_in(&self, at: usize, to: Address, bytes: usize, stream: &Stream) -> Result<()> {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a copy from outside of pinned memory");
        // SAFETY: the range is within, as asserted; the rest is the caller's.
        let from: *const c_void = unsafe { self.pointer.cast::<u8>().add(at) }.cast();
        // SAFETY: the caller's.
        self.context.call("cuMemcpyHtoDAsync", |t| unsafe { (t.copy_in)(to, from, bytes, stream.raw()) })
    }

    /// Queues a copy of `bytes` bytes from the device to `at`.
    ///
    /// # Safety
    ///
    /// As [`Pinned::copy_in`]; nothing may read the bytes until the copy is done.
    pub unsafe fn copy_out(&mut self, at: usize, from: Address, bytes: usize, stream: &Stream) -> Result<()> {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a copy to outside of pinned memory");
        // SAFETY: the range is within, as asserted; the rest is the caller's.
        let to: *mut c_void = unsafe { self.pointer.cast::<u8>().add(at) }.cast();
        // SAFETY: the caller's.
        self.context.call("cuMemcpyDtoHAsync", |t| unsafe { (t.copy_out)(to, from, bytes, stream.raw()) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the driver allocated it, and nothing else frees it. It waits for copies.
        let _ = self.context.call("cuMemFreeHost", |t| unsafe { (t.free_host)(self.pointer) });
    }
}
