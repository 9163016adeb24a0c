//! Memory of sessions from the caller, and workspace that they share.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

/// The bytes that an allocator gave, and their limit.
#[derive(Default)]
struct Heap {
    lent: Mutex<Vec<(usize, Vec<u8>)>>,
    most_bytes: usize,
}

unsafe extern "C" fn give(user: *mut c_void, bytes: usize) -> *mut c_void {
    let heap = unsafe { &*user.cast::<Heap>() };
    if bytes > heap.most_bytes {
        return ptr::null_mut();
    }
    // filled with what no run may read
    let mut memory = vec![0xffu8; bytes];
    let at = memory.as_mut_ptr();
    heap.lent.lock().expect("no panic").push((bytes, memory));
    at.cast()
}

unsafe extern "C" fn take(user: *mut c_void, memory: *mut c_void, bytes: usize) {
    let heap = unsafe { &*user.cast::<Heap>() };
    let mut lent = heap.lent.lock().expect("no panic");
    let i = lent.iter().position(|(n, m)| *n == bytes && m.as_ptr() == memory.cast_const().cast());
    lent.remove(i.expect("it was given so"));
}

fn with(heap: &Heap) -> remat_options {
    let user = (&raw const *heap).cast_mut().cast();
    remat_options { allocate: Some(give), deallocate: Some(take), allocator_user: user, ..options() }
}

#[test]
fn an_allocator_of_the_callers_gives_and_takes_back() {
    let (_net, session) = cnn();
    session.run();
    let want = session.output(c"probabilities");
    let heap = Heap { most_bytes: usize::MAX, ..Heap::default() };
    let net = Net::open("cnn", &with(&heap));
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    session.run();
    assert_eq!(session.output(c"probabilities"), want);
    let lent = |heap: &Heap| heap.lent.lock().expect("no panic").len();
    assert_eq!(lent(&heap), 2, "inputs with outputs, and workspace");
    drop(net);
    session.run();
    drop(session);
    assert_eq!(lent(&heap), 0);
}

#[test]
fn an_allocator_without_memory_is_an_error() {
    let heap = Heap { most_bytes: 100, ..Heap::default() };
    let net = Net::open("cnn", &with(&heap));
    let mut p = ptr::null_mut();
    let status = unsafe { remat_session_new(net.0, Given::new(&[(c"batch", 1)]).0, &mut p) };
    fails(status, REMAT_IO, "the allocator has no");
    let half = remat_options { allocate: Some(give), ..options() };
    let status = unsafe { remat_network_from_bytes(ptr::null(), 0, &half, &mut ptr::null_mut()) };
    fails(status, REMAT_VALUE, "go together");
}

#[test]
fn sessions_of_two_networks_share_a_workspace() {
    let workspace = remat_workspace_new();
    let shared = remat_options { workspace, ..options() };
    let nets = [Net::open("cnn", &shared), Net::open("skip", &shared)];
    unsafe {
        remat_workspace_free(workspace);
        remat_workspace_free(ptr::null_mut());
    }
    let [cnn, skip] = nets.each_ref().map(|n| n.session(&Given::new(&[(c"batch", 1)])));
    cnn.run();
    let want = cnn.output(c"probabilities");
    for _ in 0..3 {
        skip.run();
        cnn.run();
        assert_eq!(cnn.output(c"probabilities"), want);
    }
}
