//! Networks of bytes that are lent.

use std::sync::atomic::{AtomicUsize, Ordering};

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

unsafe extern "C" fn count(user: *mut c_void, data: *const c_void, bytes: usize) {
    let released = unsafe { &*user.cast::<AtomicUsize>() };
    assert!(bytes == 0 || !data.is_null());
    released.fetch_add(1, Ordering::SeqCst);
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(folder(name).join("model.onnx")).expect("readable")
}

/// A network of these bytes, and how often they were released by then.
fn lend(bytes: &[u8], released: &AtomicUsize) -> (remat_status, Net) {
    let mut p = ptr::null_mut();
    let user = (&raw const *released).cast_mut().cast();
    let (at, n) = (bytes.as_ptr().cast(), bytes.len());
    let status = unsafe { remat_network_from_borrowed(at, n, Some(count), user, ptr::null(), &mut p) };
    (status, Net(p))
}

#[test]
fn bytes_are_released_once_when_nothing_can_need_them() {
    for (name, extent) in [("cnn", c"batch"), ("positive", c"n")] {
        let (lent, released) = (bytes(name), AtomicUsize::new(0));
        let (status, net) = lend(&lent, &released);
        ok(status);
        let session = net.session(&Given::new(&[(extent, 1)]));
        session.run();
        drop(net);
        session.run();
        // operators that run one by one may come back to the model
        assert_eq!(released.load(Ordering::SeqCst), usize::from(name == "cnn"), "{name}");
        drop(session);
        assert_eq!(released.load(Ordering::SeqCst), 1, "{name}");
    }
    // shapes are fixed, so that there is one plan
    let (lent, released) = (bytes("external"), AtomicUsize::new(0));
    let (status, _net) = lend(&lent, &released);
    fails(status, REMAT_FORMAT, "not read from a file");
    assert_eq!(released.load(Ordering::SeqCst), 1, "before the call returns");
}

#[test]
fn what_goes_wrong_releases_them_too() {
    let released = AtomicUsize::new(0);
    let user = (&raw const released).cast_mut().cast();
    let lent = bytes("cnn");
    let (at, n): (*const c_void, usize) = (lent.as_ptr().cast(), lent.len());
    let mut p = ptr::null_mut();
    let options = remat_options { level: 9, ..options() };
    unsafe {
        let f = remat_network_from_borrowed;
        fails(f(at, n, Some(count), user, ptr::null(), ptr::null_mut()), REMAT_VALUE, "`network` is NULL");
        assert_eq!(released.load(Ordering::SeqCst), 1);
        fails(f(at, n, Some(count), user, &options, &mut p), REMAT_VALUE, "there are 0 to 3");
        assert_eq!(released.load(Ordering::SeqCst), 2);
        fails(f(at, n / 2, Some(count), user, ptr::null(), &mut p), REMAT_FORMAT, "no ONNX model");
        assert_eq!(released.load(Ordering::SeqCst), 3);
        fails(f(ptr::null(), 0, Some(count), user, ptr::null(), &mut p), REMAT_FORMAT, "no ONNX model");
        assert_eq!(released.load(Ordering::SeqCst), 4);
        fails(f(ptr::null(), 1, None, ptr::null_mut(), ptr::null(), &mut p), REMAT_VALUE, "`data` is NULL");
        fails(f(at, usize::MAX, None, ptr::null_mut(), ptr::null(), &mut p), REMAT_VALUE, "`data` cannot have");
        ok(f(at, n, None, ptr::null_mut(), ptr::null(), &mut p));
    }
    let net = Net(p);
    net.session(&Given::new(&[(c"batch", 1)])).run();
}
