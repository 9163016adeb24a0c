//! The functions for C, called as C calls them.
// what each call is given is in the line of the call
#![allow(clippy::undocumented_unsafe_blocks)]

mod background;
mod borrowed;
mod header;
mod hooks;
mod hostile;
mod kernels;
mod memory;
mod programs;
mod random;
mod versions;
mod whole;

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::size_of;
use std::ptr;

use remat_lite::c::*;

use crate::folder;

fn text(p: *const c_char) -> String {
    assert!(!p.is_null());
    unsafe { CStr::from_ptr(p) }.to_str().expect("UTF-8").to_owned()
}

fn last() -> String {
    text(remat_last_error())
}

#[track_caller]
fn ok(status: remat_status) {
    assert_eq!(status, remat_status::REMAT_OK, "{}", last());
}

/// The call failed so, and the text has these words.
#[track_caller]
fn fails(status: remat_status, want: remat_status, words: &str) {
    let text = last();
    assert!(status == want && text.contains(words), "{status:?}: {text}");
}

fn options() -> remat_options {
    let mut options = std::mem::MaybeUninit::uninit();
    unsafe {
        ok(remat_options_init(options.as_mut_ptr(), size_of::<remat_options>()));
        options.assume_init()
    }
}

fn port() -> remat_port {
    let mut port: remat_port = unsafe { std::mem::zeroed() };
    port.struct_size = size_of::<remat_port>();
    port
}

fn tensor() -> remat_tensor {
    let mut tensor: remat_tensor = unsafe { std::mem::zeroed() };
    tensor.struct_size = size_of::<remat_tensor>();
    tensor
}

/// Freed when it goes.
struct Net(*mut remat_network);

impl Net {
    fn open(name: &str, options: &remat_options) -> Net {
        let path = CString::new(folder(name).join("model.onnx").to_str().expect("UTF-8")).expect("no zero");
        let mut p = ptr::null_mut();
        ok(unsafe { remat_network_open(path.as_ptr(), options, &mut p) });
        Net(p)
    }

    fn session(&self, shapes: &Given) -> Ses {
        let mut p = ptr::null_mut();
        ok(unsafe { remat_session_new(self.0, shapes.0, &mut p) });
        Ses(p)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        unsafe { remat_network_free(self.0) }
    }
}

/// Extents by name.
struct Given(*mut remat_shapes);

impl Given {
    fn new(extents: &[(&CStr, i64)]) -> Given {
        let p = remat_shapes_new();
        extents.iter().for_each(|(name, n)| ok(unsafe { remat_shapes_extent(p, name.as_ptr(), *n) }));
        Given(p)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        unsafe { remat_shapes_free(self.0) }
    }
}

struct Ses(*mut remat_session);

impl Ses {
    fn input(&self, name: &CStr) -> *mut f32 {
        let (mut p, mut bytes) = (ptr::null_mut(), 0);
        let f32 = remat_dtype::REMAT_F32 as i32;
        ok(unsafe { remat_session_input_data(self.0, name.as_ptr(), f32, &mut p, &mut bytes) });
        p.cast()
    }

    fn write(&self, name: &CStr, values: &[f32]) {
        let p = self.input(name);
        unsafe { p.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    fn run(&self) {
        ok(unsafe { remat_session_run(self.0) });
    }

    fn output(&self, name: &CStr) -> Vec<f32> {
        let mut y = tensor();
        ok(unsafe { remat_session_output(self.0, name.as_ptr(), &mut y) });
        assert_eq!(y.dtype, remat_dtype::REMAT_F32);
        unsafe { std::slice::from_raw_parts(y.data.cast::<f32>(), y.bytes / 4) }.to_vec()
    }
}

impl Drop for Ses {
    fn drop(&mut self) {
        unsafe { remat_session_free(self.0) }
    }
}

/// The network whose outputs' sizes follow from values, with nine inputs: four above zero.
fn positive() -> (Net, Ses) {
    let net = Net::open("positive", &options());
    let session = net.session(&Given::new(&[(c"n", 9)]));
    session.write(c"x", &POSITIVE);
    (net, session)
}

const POSITIVE: [f32; 9] = [1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0, 0.0];

/// A network that is one graph, and a session of one image.
fn cnn() -> (Net, Ses) {
    let net = Net::open("cnn", &options());
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    (net, session)
}

unsafe extern "C" fn ignore(_: *mut c_void, _: remat_status) {}
