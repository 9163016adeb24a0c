//! Virtual memory, registered memory of the host, shared memory on request, and several devices.

use std::sync::Arc;

use crate::common::{HEAD, params, shape};
use remat_cuda_sim::{CudaError, Device, DeviceOptions, ErrorCode, FaultKind, Function, LaunchShape, Stream};

const UNIT: u64 = 2 << 20;

/// `set(x)` writes 7 at an address.
fn module_text() -> String {
    format!(
        "{HEAD}
.visible .entry set(.param .u64 x) {{
.reg .b32 %r<2>;\n.reg .b64 %rd<2>;
ld.param.u64 %rd1, [x];\nmov.u32 %r1, 7;\nst.global.u32 [%rd1], %r1;\nret;\n}}
"
    )
}

struct Rig {
    device: Device,
    set: Function,
}

fn rig(devices: usize) -> Rig {
    let mut device = Device::new(DeviceOptions { devices, memory_bytes: 8 * UNIT, ..DeviceOptions::default() });
    let module = device.module_load(&module_text()).unwrap();
    let set = device.module_get_function(module, "set").unwrap();
    Rig { device, set }
}

impl Rig {
    /// Reserves addresses, and maps memory of `pieces` units each there.
    fn mapped(&mut self, reserved: u64, pieces: &[u64]) -> u64 {
        let base = self.device.mem_address_reserve(reserved * UNIT, 0).unwrap();
        let mut at = base;
        for units in pieces {
            self.map(at, units * UNIT);
            at += units * UNIT;
        }
        base
    }

    fn map(&mut self, at: u64, bytes: u64) {
        let memory = self.device.mem_create(bytes).unwrap();
        self.device.mem_map(at, bytes, memory).unwrap();
        self.device.mem_set_access(at, bytes, 0).unwrap();
        self.device.mem_release(memory).unwrap();
    }

    fn set(&mut self, at: u64) -> Result<(), CudaError> {
        self.device.launch_kernel(self.set, shape(1, 1), &params(&[at]), Stream::DEFAULT)?;
        self.device.synchronize()
    }
}

fn code<T: std::fmt::Debug>(outcome: Result<T, CudaError>) -> ErrorCode {
    outcome.unwrap_err().code
}

#[test]
fn ranges_go_on_from_one_piece_into_the_next() {
    let mut r = rig(1);
    let base = r.mapped(4, &[1, 2]);
    let seam = base + UNIT - 4;
    r.device.memcpy_htod(seam, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut out = [0; 4];
    r.device.memcpy_dtoh(&mut out, seam + 2).unwrap();
    assert_eq!(out, [3, 4, 5, 6]);
    // copies onto themselves, too
    r.device.memcpy_dtod(seam + 1, seam, 7).unwrap();
    r.device.memset_d8_async(seam, 9, 2, Stream::DEFAULT).unwrap();
    r.device.memcpy_dtoh(&mut out, seam).unwrap();
    assert_eq!(out, [9, 9, 2, 3]);
    r.set(base + UNIT).unwrap();
    assert_eq!(r.device.mem_get_info().unwrap(), (5 * UNIT, 8 * UNIT));
}

#[test]
fn reserved_addresses_without_memory_are_a_fault_that_names_them() {
    let mut r = rig(1);
    let base = r.mapped(4, &[1]);
    assert_eq!(code(r.device.memcpy_htod(base + UNIT - 4, &[0; 8])), ErrorCode::InvalidValue);
    let error = r.set(base + UNIT).unwrap_err();
    let fault = error.fault.clone().unwrap();
    assert_eq!(
        (error.code, fault.kind, fault.address),
        (ErrorCode::IllegalAddress, FaultKind::Unmapped, Some(base + UNIT))
    );
    assert!(error.message.contains("kernel set") && error.message.contains("reserved, and no memory"), "{error}");
}

#[test]
fn memory_is_out_of_reach_until_access_is_given() {
    let mut r = rig(1);
    let base = r.device.mem_address_reserve(UNIT, 0).unwrap();
    let memory = r.device.mem_create(UNIT).unwrap();
    r.device.mem_map(base, UNIT, memory).unwrap();
    let error = r.set(base).unwrap_err();
    assert!(error.message.contains("access to it was not given"), "{error}");
}

#[test]
fn memory_keeps_its_bytes_when_it_is_mapped_elsewhere() {
    let mut r = rig(1);
    let base = r.device.mem_address_reserve(2 * UNIT, 0).unwrap();
    let memory = r.device.mem_create(UNIT).unwrap();
    for (at, other) in [(base, base + UNIT), (base + UNIT, base)] {
        r.device.mem_map(at, UNIT, memory).unwrap();
        assert_eq!(code(r.device.mem_map(other, UNIT, memory)), ErrorCode::InvalidValue, "mapped twice");
        r.device.mem_set_access(at, UNIT, 0).unwrap();
        if at == base {
            r.set(at + 8).unwrap();
        }
        let mut out = [0; 4];
        r.device.memcpy_dtoh(&mut out, at + 8).unwrap();
        assert_eq!(out, [7, 0, 0, 0]);
        r.device.mem_unmap(at, UNIT).unwrap();
    }
    r.device.mem_release(memory).unwrap();
    assert_eq!(code(r.device.mem_release(memory)), ErrorCode::InvalidHandle);
    r.device.mem_address_free(base, 2 * UNIT).unwrap();
    assert_eq!(r.device.mem_get_info().unwrap(), (8 * UNIT, 8 * UNIT));
}

#[test]
fn an_unmapping_beside_work_is_found() {
    let mut r = rig(1);
    let base = r.mapped(2, &[1, 1]);
    let stream = r.device.stream_create(false).unwrap();
    r.device.launch_kernel(r.set, shape(1, 1), &params(&[base]), stream).unwrap();
    while !r.device.stream_query(Stream::DEFAULT).unwrap() {}
    // whether the kernel has run or not: nobody has waited for it
    let unmapped = r.device.mem_unmap(base, UNIT).and_then(|()| r.device.stream_synchronize(stream));
    let error = unmapped.unwrap_err();
    assert!(error.message.contains("nothing orders") || error.message.contains("no memory is mapped"), "{error}");
}

#[test]
fn mappings_that_are_wrong_are_refused() {
    let mut r = rig(1);
    assert_eq!(code(r.device.mem_address_reserve(UNIT + 1, 0)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.mem_create(1000)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.mem_create(9 * UNIT)), ErrorCode::OutOfMemory);
    let base = r.mapped(4, &[2]);
    let memory = r.device.mem_create(UNIT).unwrap();
    for at in [base - UNIT, base, base + UNIT, base + 4 * UNIT] {
        assert_eq!(code(r.device.mem_map(at, UNIT, memory)), ErrorCode::InvalidValue);
    }
    assert_eq!(code(r.device.mem_map(base + 2 * UNIT, 2 * UNIT, memory)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.mem_unmap(base, UNIT)), ErrorCode::InvalidValue, "a part of a piece");
    assert_eq!(code(r.device.mem_unmap(base, 3 * UNIT)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.mem_address_free(base, 4 * UNIT)), ErrorCode::InvalidValue, "memory is mapped there");
    assert_eq!(code(r.device.mem_address_free(base, UNIT)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.mem_free(base)), ErrorCode::InvalidValue);
    r.device.mem_unmap(base, 2 * UNIT).unwrap();
    r.device.mem_address_free(base, 4 * UNIT).unwrap();
}

#[test]
fn registered_memory_is_checked_like_any_other() {
    let mut r = rig(1);
    let [s, t] = [0; 2].map(|_| r.device.stream_create(false).unwrap());
    let x = r.device.mem_alloc(64).unwrap();
    r.device.host_register(4096, 64).unwrap();
    assert_eq!(code(r.device.host_register(4096 + 60, 64)), ErrorCode::InvalidValue);
    let source = Arc::new(|out: &mut [u8]| out.fill(1));
    assert_eq!(code(r.device.memcpy_htod_registered(x, 4100, 64, source.clone(), s)), ErrorCode::InvalidValue);
    r.device.memcpy_htod_registered(x, 4096, 32, source.clone(), s).unwrap();
    r.device.host_unregister(4096).unwrap();
    assert_eq!(code(r.device.host_unregister(4096)), ErrorCode::InvalidValue);
    r.device.host_register(4096, 64).unwrap();
    r.device.memcpy_htod_registered(x, 4096, 32, source, s).unwrap();
    r.device.memcpy_dtoh_registered(4096 + 16, x + 32, 4, Arc::new(|_: &[u8]| ()), t).unwrap();
    r.device.memset_d8_async(x + 32, 0, 4, t).unwrap();
    let error = r.device.synchronize().unwrap_err();
    assert!(error.message.contains("nobody wrote") || error.message.contains("nothing orders"), "{error}");
}

#[test]
fn copies_from_and_to_the_same_host_memory_race() {
    for seed in 0..4 {
        let mut device = Device::new(DeviceOptions { seed, ..DeviceOptions::default() });
        let [s, t] = [0; 2].map(|_| device.stream_create(false).unwrap());
        let x = device.mem_alloc(64).unwrap();
        device.memcpy_htod(x, &[0; 64]).unwrap();
        device.host_register(4096, 64).unwrap();
        device.memcpy_htod_registered(x, 4096, 4, Arc::new(|out: &mut [u8]| out.fill(1)), s).unwrap();
        device.memcpy_dtoh_registered(4096, x + 32, 4, Arc::new(|_: &[u8]| ()), t).unwrap();
        assert!(device.synchronize().unwrap_err().message.contains("nothing orders"));
    }
}

#[test]
fn much_shared_memory_is_for_kernels_that_ask() {
    let mut r = rig(1);
    let x = r.device.mem_alloc(4).unwrap();
    let wide = LaunchShape { dynamic_shared_bytes: 64 << 10, ..shape(1, 1) };
    let refused = r.device.launch_kernel(r.set, wide, &params(&[x]), Stream::DEFAULT);
    assert_eq!(code(refused), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.function_allow_shared(r.set, 228 << 10)), ErrorCode::InvalidValue);
    r.device.function_allow_shared(r.set, 64 << 10).unwrap();
    r.device.launch_kernel(r.set, wide, &params(&[x]), Stream::DEFAULT).unwrap();
    r.device.synchronize().unwrap();
    let attributes = r.device.function_attributes(r.set).unwrap();
    assert_eq!((attributes.allowed_shared_bytes, attributes.most_threads, attributes.local_bytes), (64 << 10, 1024, 0));
    assert!(attributes.registers > 0);
}

#[test]
fn events_order_copies_between_devices() {
    for is_ordered in [true, false] {
        let mut r = rig(2);
        let (s, x) = (r.device.stream_create(false).unwrap(), r.device.mem_alloc(4).unwrap());
        r.device.set_current(1).unwrap();
        let (t, y) = (r.device.stream_create(false).unwrap(), r.device.mem_alloc(4).unwrap());
        r.device.set_current(0).unwrap();
        let done = r.device.event_create().unwrap();
        r.device.launch_kernel(r.set, shape(1, 1), &params(&[x]), s).unwrap();
        r.device.event_record(done, s).unwrap();
        assert_eq!(code(r.device.event_record(done, t)), ErrorCode::InvalidHandle);
        if is_ordered {
            r.device.stream_wait_event(t, done).unwrap();
        }
        assert_eq!(code(r.device.memcpy_peer_async((y, 0), (x, 1), 4, t)), ErrorCode::InvalidValue);
        r.device.memcpy_peer_async((y, 1), (x, 0), 4, t).unwrap();
        r.device.set_current(1).unwrap();
        let mut out = [0; 4];
        let copied = r.device.synchronize().and_then(|()| r.device.memcpy_dtoh(&mut out, y));
        match is_ordered {
            true => assert_eq!((copied, out), (Ok(()), [7, 0, 0, 0])),
            // in one order the copy finds bytes that nobody wrote, and takes them along
            false => assert!(copied.is_err() || r.device.set_current(0).and_then(|()| r.device.synchronize()).is_err()),
        }
    }
}

#[test]
fn a_device_has_its_own_memory_and_kernels() {
    let mut r = rig(2);
    r.device.set_current(1).unwrap();
    let y = r.device.mem_alloc(4).unwrap();
    assert_eq!(r.device.mem_get_info().unwrap(), (8 * UNIT - 4, 8 * UNIT));
    let refused = r.device.launch_kernel(r.set, shape(1, 1), &params(&[y]), Stream::DEFAULT);
    assert_eq!(code(refused), ErrorCode::InvalidHandle);
    r.device.set_current(0).unwrap();
    assert_eq!(r.device.mem_get_info().unwrap(), (8 * UNIT, 8 * UNIT));
    assert_eq!(code(r.device.memset_d8_async(y, 0, 4, Stream::DEFAULT)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.set_current(2)), ErrorCode::InvalidDevice);
    let error = r.set(y).unwrap_err();
    assert!(
        error.message.contains("kernel set of device 0") && error.message.contains("memory of device 1"),
        "{error}"
    );
}
