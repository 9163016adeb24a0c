//! The table.

use super::devices::*;
use super::memory::*;
use super::registry::Registration;
use super::work::*;
use crate::driver::table::DriverTable;

/// The table of the driver in a slot. It keeps the driver's place.
pub(super) fn table(slot: usize, registration: Registration) -> DriverTable {
    let (device_count, device) = OF_SLOTS[slot];
    // a line for each group of functions
    #[rustfmt::skip]
    let table = DriverTable {
        init, driver_version, error_name, error_text,
        device_count, device, device_name, device_bytes, device_attribute,
        retain_context, release_context, set_context, synchronize,
        memory_info, allocate, free, reserve_addresses, free_addresses,
        create_memory, release_memory, map_memory, unmap_memory, set_access, memory_granularity,
        allocate_host, free_host,
        copy_in, copy_out, copy, copy_peer, fill,
        can_access_peer, enable_peer_access,
        load_module, unload_module, function, function_attribute, set_function_attribute, launch,
        create_stream, destroy_stream, synchronize_stream, wait_event,
        create_event, destroy_event, record_event, query_event, synchronize_event, elapsed,
        begin_capture, end_capture, instantiate, launch_graph, destroy_run, destroy_graph,
        owner: Box::new(registration),
    };
    table
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::ptr::{null_mut, without_provenance_mut};

    use super::super::errors::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NO_BINARY};
    use crate::driver::table::Raw;
    use crate::driver::{Driver, DriverTable, SUCCESS, SoftwareOptions, software};

    fn driver(devices: usize) -> Driver {
        software(SoftwareOptions { devices, memory_bytes: 1 << 20, ..SoftwareOptions::default() }).expect("a driver")
    }

    /// Makes the context of a device that of the thread.
    fn enter(t: &DriverTable, ordinal: i32) -> Raw {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the pointers are those of variables of the right types.
        unsafe {
            assert_eq!((t.device)(&mut device, ordinal), SUCCESS);
            assert_eq!((t.retain_context)(&mut context, device), SUCCESS);
            assert_eq!((t.set_context)(context), SUCCESS);
        }
        context
    }

    #[test]
    fn handles_that_nothing_has_are_refused() {
        let driver = driver(1);
        let t = &*driver.0;
        let context = enter(t, 0);
        let mut stream = null_mut();
        let mut to = null_mut();
        // SAFETY: pointers to results are those of variables; handles may be anything.
        unsafe {
            assert_eq!((t.create_stream)(&mut stream, 1), SUCCESS);
            let nothing: [Raw; 4] = [without_provenance_mut(1), without_provenance_mut(usize::MAX), context, to];
            for raw in nothing {
                assert_eq!((t.record_event)(raw, stream), INVALID_HANDLE);
                assert_eq!((t.unload_module)(raw), INVALID_HANDLE);
                assert_eq!((t.launch_graph)(raw, stream), INVALID_HANDLE);
                assert_eq!((t.launch)(raw, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()), INVALID_HANDLE);
                assert_eq!((t.release_memory)(raw.addr() as u64), INVALID_HANDLE);
                assert_eq!((t.free_host)(raw), INVALID_VALUE);
            }
            assert_eq!((t.set_context)(stream), INVALID_HANDLE);
            assert_eq!((t.destroy_stream)(stream), SUCCESS);
            assert_eq!((t.destroy_stream)(stream), INVALID_HANDLE);
            assert_eq!((t.create_stream)(null_mut(), 1), INVALID_VALUE);
            let elf = b"\x7fELF\0";
            assert_eq!((t.load_module)(&mut to, elf.as_ptr().cast(), 0, null_mut(), null_mut()), NO_BINARY);
            assert_eq!((t.load_module)(&mut to, std::ptr::null(), 0, null_mut(), null_mut()), INVALID_VALUE);
            let outside = [0u8; 4];
            assert_eq!((t.copy_in)(0, outside.as_ptr().cast(), 4, null_mut()), INVALID_VALUE, "not pinned");
        }
    }

    #[test]
    fn handles_of_another_driver_are_refused() {
        let (first, second) = (driver(1), driver(1));
        let mut event = null_mut();
        enter(&first.0, 0);
        // SAFETY: the pointer is that of a variable; the handle is of another driver, as is tested.
        unsafe {
            assert_eq!((first.0.create_event)(&mut event, 0), SUCCESS);
            let old = enter(&second.0, 0);
            assert_eq!((second.0.query_event)(event), INVALID_HANDLE);
            assert_eq!((first.0.query_event)(event), INVALID_HANDLE, "the context is that of the thread");
            drop(second);
            assert_eq!((first.0.synchronize)(), INVALID_CONTEXT, "the thread's context is gone");
            assert_eq!((first.0.set_context)(old), INVALID_CONTEXT);
        }
    }

    #[test]
    fn a_released_context_is_not_used() {
        let driver = driver(1);
        let t = &*driver.0;
        let context = enter(t, 0);
        let mut device = 0;
        // SAFETY: the pointer is that of a variable.
        unsafe {
            assert_eq!((t.device)(&mut device, 0), SUCCESS);
            assert_eq!((t.release_context)(device), SUCCESS);
            assert_eq!((t.synchronize)(), INVALID_CONTEXT);
            assert_eq!((t.set_context)(context), INVALID_CONTEXT);
            assert_eq!((t.release_context)(device), INVALID_CONTEXT);
            assert_eq!((t.set_context)(null_mut()), SUCCESS);
            assert_eq!((t.synchronize)(), INVALID_CONTEXT);
        }
    }

    #[test]
    fn bytes_are_copied_between_devices() {
        let driver = driver(2);
        let t = &*driver.0;
        let (one, other) = (enter(t, 0), enter(t, 1));
        let [mut x, mut y] = [0; 2];
        let mut pinned: Raw = null_mut();
        // SAFETY: the pointers are those of variables, copies are waited for, and the pinned memory has four bytes.
        unsafe {
            assert_eq!((t.allocate)(&mut y, 4), SUCCESS);
            assert_eq!((t.set_context)(one), SUCCESS);
            assert_eq!((t.allocate)(&mut x, 4), SUCCESS);
            assert_eq!((t.fill)(x, 7, 4, null_mut()), SUCCESS);
            assert_eq!((t.copy)(y, x, 4, null_mut()), INVALID_VALUE, "not a copy within the device");
            assert_eq!((t.copy_peer)(y, one, x, other, 4, null_mut()), INVALID_VALUE, "contexts in the wrong order");
            assert_eq!((t.copy_peer)(y, other, x, one, 4, null_mut()), SUCCESS);
            assert_eq!((t.synchronize)(), SUCCESS);
            assert_eq!((t.set_context)(other), SUCCESS);
            assert_eq!((t.allocate_host)(&mut pinned, 4, 0), SUCCESS);
            assert_eq!((t.copy_out)(pinned, y, 4, null_mut()), SUCCESS);
            assert_eq!((t.synchronize)(), SUCCESS);
            assert_eq!(pinned.cast::<[u8; 4]>().read(), [7; 4]);
            let inside: *mut c_void = pinned.cast::<u8>().add(1).cast();
            assert_eq!((t.copy_out)(inside, y, 4, null_mut()), INVALID_VALUE, "a byte too many");
            assert_eq!((t.free_host)(inside), INVALID_VALUE);
            assert_eq!((t.free_host)(pinned), SUCCESS);
        }
    }
}
