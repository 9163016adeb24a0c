//! Functions of the table for the driver, its devices and their contexts.

use std::ffi::{c_char, c_int, c_uint};

use remat_cuda_sim::MAX_SHARED_BYTES;

use super::call::{call, give, run, set_current, write};
use super::errors::{self, Failure, INVALID_DEVICE, INVALID_VALUE, Outcome, PEER_ACCESS_UNSUPPORTED};
use super::registry::{Kind, ORDINAL_BITS, SLOTS, device_number, driver_in, handle, with, with_device};
use crate::driver::Status;
use crate::driver::table::Raw;

/// The version of CUDA that the devices stand for: 12.9.
const VERSION: c_int = 12_090;

/// `CUdevice_attribute` and its value: compute capability 9.0, with few multiprocessors.
const ATTRIBUTES: &[(c_int, c_int)] = &[
    // threads of a block
    (1, 1024),
    // shared memory of a block without a request
    (8, 48 << 10),
    // threads of a warp
    (10, 32),
    // multiprocessors
    (16, 16),
    // threads of a multiprocessor
    (39, 2048),
    // one space of addresses with the host
    (41, 1),
    // compute capability
    (75, 9),
    (76, 0),
    // shared memory and registers of a multiprocessor
    (81, 228 << 10),
    (82, 1 << 16),
    // shared memory of a block on request
    (97, MAX_SHARED_BYTES as c_int),
    // memory can be mapped
    (102, 1),
];

pub(super) extern "C" fn init(flags: c_uint) -> Status {
    call(|| match flags {
        0 => Ok(()),
        _ => Err(Failure::new(INVALID_VALUE, "the flags of cuInit must be 0")),
    })
}

pub(super) unsafe extern "C" fn driver_version(version: *mut c_int) -> Status {
    // SAFETY: the caller's.
    call(|| unsafe { write(version, || Ok(VERSION)) })
}

pub(super) unsafe extern "C" fn error_name(status: Status, name: *mut *const c_char) -> Status {
    let told = errors::name(status).map(std::ffi::CStr::as_ptr);
    // SAFETY: the caller's.
    unsafe { tell(status, told, name) }
}

pub(super) unsafe extern "C" fn error_text(status: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's.
    unsafe { tell(status, errors::text(status), text) }
}

/// Writes a text, and does not count as a call: the last failure stays the one that is asked about.
///
/// # Safety
///
/// `to` is null, or a place for a pointer.
unsafe fn tell(status: Status, told: Option<*const c_char>, to: *mut *const c_char) -> Status {
    match told {
        Some(told) if !to.is_null() => {
            // SAFETY: the caller's, since it is not null.
            unsafe { to.write(told) };
            crate::driver::SUCCESS
        }
        _ => call(|| Err(Failure::new(INVALID_VALUE, format!("{status} is no status of the driver")))),
    }
}

/// The number of devices of the driver in a slot.
unsafe extern "C" fn device_count<const SLOT: usize>(count: *mut c_int) -> Status {
    // SAFETY: the caller's.
    call(|| unsafe { write(count, || devices_in(SLOT).map(|(_, devices)| devices as c_int)) })
}

/// The device of an ordinal of the driver in a slot.
unsafe extern "C" fn device<const SLOT: usize>(device: *mut c_int, ordinal: c_int) -> Status {
    let find = || {
        let (driver, devices) = devices_in(SLOT)?;
        match usize::try_from(ordinal).ok().filter(|o| *o < devices) {
            Some(ordinal) => Ok(device_number(driver, ordinal)),
            None => Err(Failure::new(INVALID_DEVICE, format!("there is no device {ordinal}: there are {devices}"))),
        }
    };
    // SAFETY: the caller's.
    call(|| unsafe { write(device, find) })
}

fn devices_in(slot: usize) -> Outcome<(u32, usize)> {
    let Some(driver) = driver_in(slot) else { return Err(Failure::new(INVALID_DEVICE, "the driver is gone")) };
    Ok((driver, with(driver, |state| Ok(state.contexts.len()))?))
}

/// The functions of a slot: `cuDeviceGetCount` and `cuDeviceGet`.
pub(super) type OfSlot =
    (unsafe extern "C" fn(*mut c_int) -> Status, unsafe extern "C" fn(*mut c_int, c_int) -> Status);

macro_rules! slots {
    ($($slot:literal)*) => { [$((device_count::<$slot>, device::<$slot>)),*] };
}

/// The functions of each slot.
pub(super) const OF_SLOTS: [OfSlot; SLOTS] = slots! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
};

pub(super) unsafe extern "C" fn device_name(name: *mut c_char, length: c_int, device: c_int) -> Status {
    call(|| {
        let ordinal = with_device(device, |_, ordinal| Ok(ordinal))?;
        let text = format!("Software device {ordinal}\0");
        let room = usize::try_from(length).unwrap_or(0);
        if name.is_null() || room < text.len() {
            return Err(Failure::new(INVALID_VALUE, format!("a name takes {} bytes", text.len())));
        }
        // SAFETY: the caller gives a place for `length` bytes, which are enough.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len()) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn device_bytes(bytes: *mut usize, device: c_int) -> Status {
    let find = || {
        with_device(device, |state, ordinal| {
            state.device.set_current(ordinal)?;
            Ok(state.device.mem_get_info()?.1 as usize)
        })
    };
    // SAFETY: the caller's.
    call(|| unsafe { write(bytes, find) })
}

pub(super) unsafe extern "C" fn device_attribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status {
    let find = || {
        with_device(device, |_, _| match ATTRIBUTES.iter().find(|a| a.0 == attribute) {
            Some((_, value)) => Ok(*value),
            None => Err(Failure::new(INVALID_VALUE, format!("software devices have no attribute {attribute}"))),
        })
    };
    // SAFETY: the caller's.
    call(|| unsafe { write(value, find) })
}

pub(super) unsafe extern "C" fn retain_context(context: *mut Raw, device: c_int) -> Status {
    let retain = || {
        with_device(device, |state, ordinal| {
            state.contexts[ordinal] += 1;
            Ok(handle(Kind::Context, device as u32 >> ORDINAL_BITS, ordinal as u32))
        })
    };
    // SAFETY: the caller's.
    call(|| unsafe { write(context, retain) })
}

pub(super) extern "C" fn release_context(device: c_int) -> Status {
    call(|| {
        with_device(device, |state, ordinal| match &mut state.contexts[ordinal] {
            0 => Err(Failure::new(errors::INVALID_CONTEXT, "the context is not retained")),
            count => {
                *count -= 1;
                Ok(())
            }
        })
    })
}

pub(super) extern "C" fn set_context(context: Raw) -> Status {
    call(|| set_current(context))
}

pub(super) extern "C" fn synchronize() -> Status {
    run(|here| Ok(here.state.device.synchronize()?))
}

pub(super) unsafe extern "C" fn memory_info(free: *mut usize, total: *mut usize) -> Status {
    let mut info = (0, 0);
    // SAFETY: the caller's.
    let status = unsafe {
        give(free, |here| {
            info = here.state.device.mem_get_info()?;
            Ok(info.0 as usize)
        })
    };
    match status {
        // SAFETY: the caller's.
        crate::driver::SUCCESS => call(|| unsafe { write(total, || Ok(info.1 as usize)) }),
        status => status,
    }
}

pub(super) unsafe extern "C" fn can_access_peer(can: *mut c_int, device: c_int, peer: c_int) -> Status {
    let find = || {
        with_device(device, |_, _| Ok(()))?;
        with_device(peer, |_, _| Ok(0))
    };
    // SAFETY: the caller's.
    call(|| unsafe { write(can, find) })
}

pub(super) extern "C" fn enable_peer_access(peer: Raw, _flags: c_uint) -> Status {
    run(|here| {
        here.context(peer)?;
        Err(Failure::new(PEER_ACCESS_UNSUPPORTED, "kernels of software devices reach no memory of another device"))
    })
}
