//! The driver's side: streams, events, graphs, pinned memory, and the errors that surface late.

use std::sync::{Arc, Mutex};

use crate::common::{HEAD, params, refusal, shape};
use remat_cuda_sim::{Device, DeviceOptions, ErrorCode, Event, FaultKind, Function, Stream};

/// `scale(x, y, n)`: y = 2 x; `add(x, y, z)`: z = x + y; `stuck()` loops; `outside(x)` writes behind 64 floats.
fn module_text() -> String {
    let index = "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.s32 %r1, %r1, %r2, %r3;\n\
                 mul.wide.u32 %rd9, %r1, 4;\n";
    let registers = ".reg .b32 %r<9>;\n.reg .b64 %rd<10>;\n.reg .f32 %f<4>;\n";
    format!(
        "{HEAD}.global .align 4 .u32 counter = 7;
.visible .entry scale(.param .u64 x, .param .u64 y) {{
{registers}ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\n{index}
add.u64 %rd1, %rd1, %rd9;\nadd.u64 %rd2, %rd2, %rd9;
ld.global.f32 %f1, [%rd1];\nadd.rn.f32 %f1, %f1, %f1;\nst.global.f32 [%rd2], %f1;\nret;\n}}
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 z) {{
{registers}ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\nld.param.u64 %rd3, [z];\n{index}
add.u64 %rd1, %rd1, %rd9;\nadd.u64 %rd2, %rd2, %rd9;\nadd.u64 %rd3, %rd3, %rd9;
ld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd2];\nadd.rn.f32 %f1, %f1, %f2;\nst.global.f32 [%rd3], %f1;\nret;\n}}
.visible .entry stuck() {{\nL:\nbra L;\n}}
.visible .entry outside(.param .u64 x) {{
{registers}ld.param.u64 %rd1, [x];\nmov.u32 %r1, 1;\nst.global.u32 [%rd1+256], %r1;\nret;\n}}
"
    )
}

struct Rig {
    device: Device,
    scale: Function,
    add: Function,
    outside: Function,
}

const N: u64 = 64;

fn rig(seed: u64) -> Rig {
    let mut options = DeviceOptions { seed, memory_bytes: 1 << 20, ..DeviceOptions::default() };
    options.exec.instruction_limit = 100_000;
    let mut device = Device::new(options);
    let module = device.module_load(&module_text()).unwrap();
    let [scale, add, outside] = ["scale", "add", "outside"].map(|n| device.module_get_function(module, n).unwrap());
    Rig { device, scale, add, outside }
}

impl Rig {
    fn floats(&mut self, value: f32) -> u64 {
        let at = self.device.mem_alloc(4 * N).unwrap();
        self.device.memcpy_htod(at, &value.to_le_bytes().repeat(N as usize)).unwrap();
        at
    }

    fn scale(&mut self, x: u64, y: u64, stream: Stream) {
        self.device.launch_kernel(self.scale, shape(2, 32), &params(&[x, y]), stream).unwrap();
    }

    fn streams<const K: usize>(&mut self) -> [Stream; K] {
        [0; K].map(|_| self.device.stream_create(false).unwrap())
    }

    fn event(&mut self) -> Event {
        self.device.event_create().unwrap()
    }

    fn value(&mut self, at: u64) -> f32 {
        let mut out = [0; 4 * N as usize];
        self.device.memcpy_dtoh(&mut out, at).unwrap();
        assert!(out.chunks(4).all(|c| c == &out[..4]));
        f32::from_le_bytes(out[..4].try_into().unwrap())
    }
}

#[test]
fn events_order_streams_in_all_seeds() {
    for seed in 0..20 {
        let mut r = rig(seed);
        let [s, t] = r.streams();
        let (x, y, z, done) = (r.floats(1.5), r.floats(0.0), r.floats(0.0), r.event());
        r.scale(x, y, s);
        r.device.event_record(done, s).unwrap();
        r.device.stream_wait_event(t, done).unwrap();
        r.scale(y, z, t);
        r.device.stream_synchronize(t).unwrap();
        assert_eq!(r.value(z), 6.0);
        assert!(r.device.event_query(done).unwrap());
    }
}

#[test]
fn a_missing_wait_is_found_in_all_seeds_and_is_sticky() {
    for seed in 0..20 {
        let mut r = rig(seed);
        let [s, t] = r.streams();
        let (x, y, z) = (r.floats(1.5), r.floats(0.0), r.floats(0.0));
        r.scale(x, y, s);
        r.scale(y, z, t);
        let error = r.device.synchronize().unwrap_err();
        assert_eq!(error.code, ErrorCode::LaunchFailed);
        assert!(error.message.contains("nothing orders kernel scale"), "{error}");
        assert_eq!(r.device.mem_alloc(4), Err(error.clone()), "the failure stays");
        assert_eq!(r.device.stream_create(true), Err(error));
    }
}

#[test]
fn an_event_stands_for_its_last_recording() {
    for seed in 0..10 {
        let mut r = rig(seed);
        let [s, t] = r.streams();
        let (x, y, z, e) = (r.floats(1.0), r.floats(0.0), r.floats(0.0), r.event());
        r.device.event_record(e, s).unwrap();
        r.scale(x, y, s);
        r.device.stream_wait_event(t, e).unwrap();
        r.scale(y, z, t);
        assert!(r.device.synchronize().is_err(), "the wait is for the recording before the kernel");
    }
}

#[test]
fn waiting_on_the_host_orders_what_is_queued_later() {
    for seed in 0..10 {
        let mut r = rig(seed);
        let [s, t] = r.streams();
        let (x, y, z) = (r.floats(1.0), r.floats(0.0), r.floats(0.0));
        r.scale(x, y, s);
        r.device.stream_synchronize(s).unwrap();
        r.scale(y, z, t);
        assert_eq!(
            {
                r.device.stream_synchronize(t).unwrap();
                r.value(z)
            },
            4.0
        );
    }
}

#[test]
fn the_default_stream_is_in_order_with_blocking_streams_alone() {
    for seed in 0..10 {
        let mut r = rig(seed);
        let blocking = r.device.stream_create(true).unwrap();
        let (x, y, z) = (r.floats(1.0), r.floats(0.0), r.floats(0.0));
        r.scale(x, y, blocking);
        r.scale(y, z, Stream::DEFAULT);
        r.scale(z, x, blocking);
        r.device.synchronize().unwrap();
        assert_eq!(r.value(x), 8.0);
        let [free] = r.streams();
        r.scale(x, y, free);
        r.scale(y, z, Stream::DEFAULT);
        assert!(r.device.synchronize().is_err());
    }
}

#[test]
fn faults_surface_at_the_next_wait_with_their_place() {
    let mut r = rig(1);
    let x = r.floats(1.0);
    r.device.launch_kernel(r.outside, shape(1, 1), &params(&[x]), Stream::DEFAULT).unwrap();
    let error = r.device.stream_synchronize(Stream::DEFAULT).unwrap_err();
    assert_eq!(error.code, ErrorCode::IllegalAddress);
    let fault = error.fault.unwrap();
    assert_eq!((fault.kind, fault.address), (FaultKind::OutOfBounds, Some(x + 256)));
    assert!(fault.text.starts_with("st.global.u32"));
    assert_eq!(r.device.failure().unwrap().code, ErrorCode::IllegalAddress);
}

#[test]
fn a_kernel_that_hangs_ends_at_the_limit() {
    let mut r = rig(1);
    let module = r.device.module_load(&module_text()).unwrap();
    let stuck = r.device.module_get_function(module, "stuck").unwrap();
    r.device.launch_kernel(stuck, shape(1, 32), &[], Stream::DEFAULT).unwrap();
    assert_eq!(r.device.synchronize().unwrap_err().code, ErrorCode::LaunchTimeout);
}

#[test]
fn calls_with_wrong_arguments_fail_at_once_and_leave_the_device_alive() {
    let mut r = rig(1);
    let x = r.floats(1.0);
    let code = |e: Result<(), remat_cuda_sim::CudaError>| e.unwrap_err().code;
    let bad_shape = r.device.launch_kernel(r.scale, shape(1, 2000), &params(&[x, x]), Stream::DEFAULT);
    assert_eq!(code(bad_shape), ErrorCode::InvalidValue);
    assert_eq!(
        code(r.device.launch_kernel(r.scale, shape(1, 1), &params(&[x]), Stream::DEFAULT)),
        ErrorCode::InvalidValue
    );
    assert_eq!(code(r.device.launch_kernel(Function(99), shape(1, 1), &[], Stream::DEFAULT)), ErrorCode::InvalidHandle);
    assert_eq!(code(r.device.memcpy_async(x, x + 4 * N - 3, 4, Stream::DEFAULT)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.memset_d32_async(x + 2, 0, 1, Stream::DEFAULT)), ErrorCode::InvalidValue);
    assert_eq!(code(r.device.stream_synchronize(Stream(42))), ErrorCode::InvalidHandle);
    assert_eq!(code(r.device.mem_free(x + 4)), ErrorCode::InvalidValue);
    assert_eq!(r.device.mem_alloc(1 << 21).unwrap_err().code, ErrorCode::OutOfMemory);
    assert_eq!(r.device.mem_alloc(0).unwrap_err().code, ErrorCode::InvalidValue);
    assert!(r.device.synchronize().is_ok() && r.value(x) == 1.0);
}

#[test]
fn memory_is_counted_and_freed_memory_is_out_of_bounds() {
    let mut r = rig(1);
    let (free, _) = r.device.mem_get_info().unwrap();
    let (x, y) = (r.floats(1.0), r.floats(1.0));
    assert_eq!(r.device.mem_get_info().unwrap().0, free - 8 * N);
    r.device.mem_free(x).unwrap();
    r.scale(x, y, Stream::DEFAULT);
    assert_eq!(r.device.synchronize().unwrap_err().code, ErrorCode::IllegalAddress);
}

#[test]
fn fresh_and_forgotten_memory_cannot_be_read() {
    for is_forgotten in [false, true] {
        let mut r = rig(1);
        let y = r.floats(0.0);
        let x = if is_forgotten { r.floats(1.0) } else { r.device.mem_alloc(4 * N).unwrap() };
        if is_forgotten {
            r.device.mem_forget_async(x, 4 * N, Stream::DEFAULT).unwrap();
        }
        r.scale(x, y, Stream::DEFAULT);
        let fault = r.device.synchronize().unwrap_err().fault.unwrap();
        assert_eq!(fault.kind, FaultKind::Uninitialised);
    }
}

#[test]
fn pinned_memory_races_with_copies() {
    let mut r = rig(3);
    let [s] = r.streams();
    let (x, pinned) = (r.floats(3.0), r.device.host_alloc(4 * N).unwrap());
    r.device.host_write(pinned, &7f32.to_le_bytes().repeat(N as usize)).unwrap();
    r.device.memcpy_async(x, pinned, 4 * N, s).unwrap();
    r.device.stream_synchronize(s).unwrap();
    assert_eq!(r.value(x), 7.0);
    // the buffer is written again before the host has waited for the copy
    r.device.memcpy_async(x, pinned, 4 * N, s).unwrap();
    r.device.host_write(pinned, &[0; 4]).unwrap();
    let error = r.device.synchronize().unwrap_err();
    assert!(error.message.contains("a write by the host"), "{error}");
}

#[test]
fn copies_run_when_the_stream_does() {
    let mut r = rig(4);
    let [s] = r.streams();
    let (x, y) = (r.floats(1.0), r.floats(0.0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&seen);
    r.device.memcpy_htod_with(x, 4 * N, Arc::new(|out: &mut [u8]| out.fill(0)), s).unwrap();
    r.scale(x, y, s);
    let sink = Arc::new(move |data: &[u8]| taken.lock().unwrap().extend_from_slice(data));
    r.device.memcpy_dtoh_with(y, 4, sink, s).unwrap();
    assert!(seen.lock().unwrap().is_empty());
    while !r.device.stream_query(s).unwrap() {}
    assert_eq!(*seen.lock().unwrap(), [0; 4]);
}

#[test]
fn the_virtual_clock_runs_with_the_work() {
    let mut r = rig(4);
    let [s] = r.streams();
    let (x, y, begin, end) = (r.floats(1.0), r.floats(0.0), r.event(), r.event());
    r.device.event_record(begin, s).unwrap();
    r.scale(x, y, s);
    r.device.event_record(end, s).unwrap();
    assert_eq!(r.device.event_elapsed_ms(begin, end).unwrap_err().code, ErrorCode::NotReady);
    r.device.event_synchronize(end).unwrap();
    assert!(r.device.event_elapsed_ms(begin, end).unwrap() > 0.0);
}

#[test]
fn a_captured_graph_replays_across_streams() {
    for seed in 0..20 {
        let mut r = rig(seed);
        let [s, t] = r.streams();
        let (x, y, z, fork, join) = (r.floats(1.0), r.floats(0.0), r.floats(0.0), r.event(), r.event());
        r.device.stream_begin_capture(s).unwrap();
        r.device.event_record(fork, s).unwrap();
        r.device.stream_wait_event(t, fork).unwrap();
        r.scale(x, y, s);
        r.scale(x, z, t);
        r.device.event_record(join, t).unwrap();
        r.device.stream_wait_event(s, join).unwrap();
        r.device.launch_kernel(r.add, shape(2, 32), &params(&[y, z, x]), s).unwrap();
        assert!(r.device.stream_is_capturing(t).unwrap());
        let graph = r.device.stream_end_capture(s).unwrap();
        let exec = r.device.graph_instantiate(graph).unwrap();
        r.device.graph_destroy(graph).unwrap();
        assert_eq!(r.value(x), 1.0, "nothing ran in the capture");
        for _ in 0..3 {
            r.device.graph_launch(exec, s).unwrap();
        }
        r.device.stream_synchronize(s).unwrap();
        assert_eq!(r.value(x), 64.0);
    }
}

#[test]
fn branches_of_a_graph_that_conflict_are_found() {
    for seed in 0..10 {
        let mut r = rig(seed);
        let [s, t] = r.streams();
        let (x, y, fork, join) = (r.floats(1.0), r.floats(0.0), r.event(), r.event());
        r.device.stream_begin_capture(s).unwrap();
        r.device.event_record(fork, s).unwrap();
        r.device.stream_wait_event(t, fork).unwrap();
        r.scale(x, y, s);
        r.scale(y, x, t);
        r.device.event_record(join, t).unwrap();
        r.device.stream_wait_event(s, join).unwrap();
        let graph = r.device.stream_end_capture(s).unwrap();
        let exec = r.device.graph_instantiate(graph).unwrap();
        r.device.graph_launch(exec, s).unwrap();
        assert!(r.device.synchronize().unwrap_err().message.contains("nothing orders"));
    }
}

#[test]
fn captures_that_are_wrong_are_refused() {
    let mut r = rig(0);
    let [s, t] = r.streams();
    let (x, y, fork) = (r.floats(1.0), r.floats(0.0), r.event());
    assert_eq!(r.device.stream_end_capture(s).unwrap_err().code, ErrorCode::CaptureUnmatched);
    r.device.stream_begin_capture(s).unwrap();
    assert_eq!(r.device.stream_synchronize(s).unwrap_err().code, ErrorCode::CaptureUnsupported);
    assert_eq!(r.device.stream_end_capture(s).unwrap_err().code, ErrorCode::CaptureInvalidated);
    r.device.stream_begin_capture(s).unwrap();
    r.device.event_record(fork, s).unwrap();
    r.device.stream_wait_event(t, fork).unwrap();
    r.scale(x, y, t);
    assert_eq!(r.device.stream_end_capture(s).unwrap_err().code, ErrorCode::CaptureUnjoined);
    assert_eq!(r.device.event_synchronize(fork).unwrap_err().code, ErrorCode::CapturedEvent);
    assert!(r.device.synchronize().is_ok() && r.value(y) == 0.0);
}

#[test]
fn a_wait_of_another_thread_leaves_a_capture_alone() {
    let mut r = rig(0);
    let [s] = r.streams();
    let (x, y) = (r.floats(1.0), r.floats(0.0));
    r.device.stream_begin_capture(s).unwrap();
    r.scale(x, y, s);
    let device = &mut r.device;
    std::thread::scope(|scope| scope.spawn(|| device.synchronize().unwrap()).join().unwrap());
    let graph = r.device.stream_end_capture(s).unwrap();
    let exec = r.device.graph_instantiate(graph).unwrap();
    r.device.graph_launch(exec, s).unwrap();
    r.device.stream_synchronize(s).unwrap();
    assert_eq!(r.value(y), 2.0);
    r.device.stream_begin_capture(s).unwrap();
    assert_eq!(r.device.synchronize().unwrap_err().code, ErrorCode::CaptureUnsupported);
}

#[test]
fn variables_of_modules_have_memory_and_values() {
    let mut r = rig(0);
    let module = r.device.module_load(&module_text()).unwrap();
    let (at, bytes) = r.device.module_get_global(module, "counter").unwrap();
    let mut out = [0; 4];
    r.device.memcpy_dtoh(&mut out, at).unwrap();
    assert_eq!((bytes, u32::from_le_bytes(out)), (4, 7));
    let scale = r.device.module_get_function(module, "scale").unwrap();
    assert_eq!(r.device.function_params(scale).unwrap().iter().map(|p| p.offset).collect::<Vec<_>>(), [0, 8]);
    assert_eq!(r.device.module_get_function(module, "none").unwrap_err().code, ErrorCode::NotFound);
    r.device.module_unload(module).unwrap();
    let gone = r.device.launch_kernel(scale, shape(1, 1), &params(&[at, at]), Stream::DEFAULT);
    assert_eq!(gone.unwrap_err().code, ErrorCode::InvalidHandle);
    assert_eq!(r.device.module_load("text").unwrap_err().code, ErrorCode::InvalidPtx);
    assert!(refusal("text").contains("line 1"));
}
