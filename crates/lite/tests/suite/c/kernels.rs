//! Kernels of the caller's, and networks on a device.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

/// The counter of a network's kernel, and the code that it returns.
#[derive(Default)]
struct Kernel {
    calls: AtomicUsize,
    code: AtomicI32,
}

/// Of one operand: as many ones.
unsafe extern "C" fn ones(
    user: *mut c_void,
    op: *const c_char,
    inputs: *const remat_operand,
    input_count: usize,
    outputs: *const remat_operand,
    output_count: usize,
) -> i32 {
    let kernel = unsafe { &*user.cast::<Kernel>() };
    kernel.calls.fetch_add(1, Ordering::SeqCst);
    let op = unsafe { CStr::from_ptr(op) }.to_str().expect("UTF-8");
    assert!(op.contains("\"op\":\"unary\""), "{op}");
    assert_eq!((input_count, output_count), (1, 1));
    let (x, y) = unsafe { (&*inputs, &*outputs) };
    let dims = |t: &remat_operand| unsafe { std::slice::from_raw_parts(t.dims, t.rank) }.to_vec();
    assert_eq!((dims(x), x.bytes, x.dtype), (dims(y), y.bytes, y.dtype));
    assert_eq!(dims(y).iter().product::<i64>() as usize * 4, y.bytes);
    unsafe { std::slice::from_raw_parts_mut(y.data.cast::<f32>(), y.bytes / 4) }.fill(1.0);
    kernel.code.load(Ordering::SeqCst)
}

fn opened(options: &remat_options) -> remat_status {
    let path = CString::new(crate::folder("cnn").join("model.onnx").to_str().expect("UTF-8")).expect("no zero");
    let mut p = ptr::null_mut();
    let status = unsafe { remat_network_open(path.as_ptr(), options, &mut p) };
    unsafe { remat_network_free(p) };
    status
}

/// The first output of a network on images of this colour, of its second run.
fn result(options: &remat_options, image: f32) -> Vec<f32> {
    let net = Net::open("cnn", options);
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    let (mut p, mut bytes) = (ptr::null_mut(), 0);
    let f32 = remat_dtype::REMAT_F32 as i32;
    ok(unsafe { remat_session_input_data(session.0, c"image".as_ptr(), f32, &mut p, &mut bytes) });
    session.write(c"image", &vec![image; bytes / 4]);
    session.run();
    session.run();
    let mut port = port();
    ok(unsafe { remat_network_output(net.0, 0, &mut port) });
    session.output(unsafe { CStr::from_ptr(port.name) })
}

#[test]
fn a_kernel_of_the_callers_computes_its_operator() {
    let kernel = Kernel::default();
    let own = [remat_kernel { op: c"unary".as_ptr(), run: Some(ones), user: (&raw const kernel).cast_mut().cast() }];
    let as_written = remat_options { level: 0, ..options() };
    let with = remat_options { kernels: own.as_ptr(), kernel_count: 1, ..as_written };
    assert_ne!(result(&as_written, 0.25), result(&as_written, -0.5), "it looks at the image");
    assert_eq!(result(&with, 0.25), result(&with, -0.5), "it is ones behind the first activation");
    assert!(kernel.calls.load(Ordering::SeqCst) >= 2);
    kernel.code.store(7, Ordering::SeqCst);
    let net = Net::open("cnn", &with);
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    fails(unsafe { remat_session_run(session.0) }, REMAT_VALUE, "the caller's kernel gave 7");
}

#[test]
fn wrong_kernels_and_devices_are_refused() {
    let with = |op: *const c_char, run: remat_kernel_run, n: usize| {
        let own = [remat_kernel { op, run, user: ptr::null_mut() }; 2];
        opened(&remat_options { kernels: own.as_ptr(), kernel_count: n, ..options() })
    };
    fails(with(c"unary".as_ptr(), None, 1), REMAT_VALUE, "the kernel of `unary` has no function");
    fails(with(c"unaryy".as_ptr(), Some(ones), 1), REMAT_VALUE, "there is no operator `unaryy`");
    fails(with(c"unary".as_ptr(), Some(ones), 2), REMAT_VALUE, "has a kernel of its own for cpu already");
    fails(with(ptr::null(), Some(ones), 1), REMAT_VALUE, "op of a kernel");
    let of_none = remat_options { kernel_count: 3, ..options() };
    fails(opened(&of_none), REMAT_VALUE, "`kernels` is NULL, and `kernel_count` is 3");
    fails(opened(&remat_options { device: c"tpu".as_ptr(), ..options() }), REMAT_VALUE, "no device `tpu`");
}

#[test]
fn a_network_on_a_device_gives_what_one_without_gives() {
    let one = remat_options { threads: 1, ..options() };
    assert_eq!(result(&remat_options { device: c"cpu".as_ptr(), ..one }, 0.25), result(&one, 0.25));
}
