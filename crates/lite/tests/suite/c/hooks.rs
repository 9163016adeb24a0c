//! Functions that are called around runs, and the processors of a network.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

/// The calls that the hooks of a network record.
#[derive(Default)]
struct Seen {
    events: Mutex<Vec<(usize, Option<remat_status>, String)>>,
    /// Written to the first input when a run starts.
    input: AtomicPtr<f32>,
    next: AtomicUsize,
    frees: AtomicBool,
    has_memory: AtomicBool,
}

impl Seen {
    fn options(&self) -> remat_options {
        let hook_user = (&raw const *self).cast_mut().cast();
        remat_options { start: Some(start), finish: Some(finish), hook_user, ..options() }
    }

    fn take(&self) -> Vec<(usize, Option<remat_status>, String)> {
        std::mem::take(&mut *self.events.lock().expect("no panic"))
    }
}

unsafe extern "C" fn start(user: *mut c_void, session: *const remat_session) {
    let seen = unsafe { &*user.cast::<Seen>() };
    seen.events.lock().expect("no panic").push((session.addr(), None, String::new()));
    let input = seen.input.load(Ordering::SeqCst);
    if !input.is_null() {
        let n = seen.next.fetch_add(1, Ordering::SeqCst) + 1;
        unsafe { input.write(n as f32) };
    }
    let session = session.cast_mut();
    // the session is in a call, whichever way it runs
    unsafe {
        let words = "the call that this function was called in";
        fails(remat_session_run(session), REMAT_BUSY, words);
        fails(remat_session_output(session, c"squares".as_ptr(), &mut tensor()), REMAT_BUSY, words);
        fails(remat_session_run_async(session, None, ptr::null_mut()), REMAT_BUSY, words);
        if seen.frees.load(Ordering::SeqCst) {
            remat_session_free(session);
        }
    }
}

unsafe extern "C" fn finish(user: *mut c_void, session: *const remat_session, status: remat_status) {
    let seen = unsafe { &*user.cast::<Seen>() };
    let text = if status == REMAT_OK { String::new() } else { last() };
    seen.events.lock().expect("no panic").push((session.addr(), Some(status), text));
}

#[track_caller]
fn assert_pair(seen: &Seen, session: &Ses, status: remat_status, words: &str) {
    let at = session.0.addr();
    let events = seen.take();
    let [(a, None, _), (b, Some(ended), text)] = &events[..] else { panic!("{events:?}") };
    assert!((*a, *b, *ended) == (at, at, status) && text.contains(words), "{events:?}");
}

#[test]
fn hooks_are_called_around_every_run_of_every_session() {
    for (name, extent, input) in [("cnn", c"batch", c"image"), ("positive", c"n", c"x")] {
        let seen = Seen::default();
        let net = Net::open(name, &seen.options());
        let sessions = [net.session(&Given::new(&[(extent, 1)])), net.session(&Given::new(&[(extent, 1)]))];
        drop(net);
        for s in &sessions {
            ok(unsafe { remat_session_run(s.0) });
            assert_pair(&seen, s, REMAT_OK, "");
            ok(unsafe { remat_session_run_into(s.0, ptr::null(), ptr::null(), 0) });
            assert_pair(&seen, s, REMAT_OK, "");
            ok(unsafe { remat_session_run_async(s.0, None, ptr::null_mut()) });
            ok(unsafe { remat_session_wait(s.0) });
            assert_pair(&seen, s, REMAT_OK, "");
            let (mut own, bytes) = ([ptr::null_mut(); 9], [0; 9]);
            own[8] = (&raw const seen).cast_mut().cast();
            fails(unsafe { remat_session_run_into(s.0, own.as_ptr(), bytes.as_ptr(), 9) }, REMAT_VALUE, "9 outputs");
            assert!(seen.take().is_empty(), "refused before it starts");
            let _ = s.input(input);
        }
    }
}

#[test]
fn a_start_may_write_inputs() {
    let seen = Seen::default();
    let net = Net::open("positive", &seen.options());
    let session = net.session(&Given::new(&[(c"n", 1)]));
    seen.input.store(session.input(c"x"), Ordering::SeqCst);
    for n in 1..4u8 {
        session.run();
        assert_eq!(session.output(c"squares"), [f32::from(n) * f32::from(n)]);
    }
    let (seen, first) = (Seen::default(), Seen::default());
    let net = Net::open("cnn", &seen.options());
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    let input = session.input(c"image");
    seen.input.store(input, Ordering::SeqCst);
    session.run();
    let plain = Net::open("cnn", &first.options());
    let other = plain.session(&Given::new(&[(c"batch", 1)]));
    unsafe { other.input(c"image").write(1.0) };
    other.run();
    assert_eq!(session.output(c"probabilities"), other.output(c"probabilities"));
}

unsafe extern "C" fn give(user: *mut c_void, bytes: usize) -> *mut c_void {
    let seen = unsafe { &*user.cast::<Seen>() };
    if !seen.has_memory.load(Ordering::SeqCst) {
        return ptr::null_mut();
    }
    let words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
    Box::into_raw(words).cast()
}

unsafe extern "C" fn take(_: *mut c_void, memory: *mut c_void, bytes: usize) {
    let words = ptr::slice_from_raw_parts_mut(memory.cast::<u64>(), bytes.div_ceil(8));
    drop(unsafe { Box::from_raw(words) });
}

#[test]
fn a_run_that_fails_has_an_end_with_its_error() {
    let seen = Seen::default();
    let options = remat_options {
        allocate: Some(give),
        deallocate: Some(take),
        allocator_user: (&raw const seen).cast_mut().cast(),
        ..seen.options()
    };
    seen.has_memory.store(true, Ordering::SeqCst);
    let net = Net::open("cnn", &options);
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    seen.has_memory.store(false, Ordering::SeqCst);
    fails(unsafe { remat_session_run(session.0) }, REMAT_IO, "the allocator has no");
    assert_pair(&seen, &session, REMAT_IO, "the allocator has no");
    ok(unsafe { remat_session_run_async(session.0, None, ptr::null_mut()) });
    fails(unsafe { remat_session_wait(session.0) }, REMAT_IO, "the allocator has no");
    assert_pair(&seen, &session, REMAT_IO, "the allocator has no");
    seen.has_memory.store(true, Ordering::SeqCst);
    session.run();
    assert_pair(&seen, &session, REMAT_OK, "");
}

#[test]
fn a_hook_may_free_its_session() {
    for name in [(c"batch", "cnn"), (c"n", "positive")] {
        let seen = Seen::default();
        let net = Net::open(name.1, &seen.options());
        for is_async in [false, true] {
            let session = std::mem::ManuallyDrop::new(net.session(&Given::new(&[(name.0, 1)])));
            seen.frees.store(true, Ordering::SeqCst);
            if is_async {
                ok(unsafe { remat_session_run_async(session.0, None, ptr::null_mut()) });
                while seen.events.lock().expect("no panic").len() < 2 {
                    std::thread::yield_now();
                }
            } else {
                ok(unsafe { remat_session_run(session.0) });
            }
            assert_pair(&seen, &session, REMAT_OK, "");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn processors_are_numbers_of_the_callers() {
    let with = |processors: &[usize], n: usize| remat_options {
        processors: processors.as_ptr(),
        processor_count: n,
        ..options()
    };
    let path = CString::new(crate::folder("cnn").join("model.onnx").to_str().expect("UTF-8")).expect("no zero");
    let opened = |options: &remat_options| {
        let mut p = ptr::null_mut();
        let status = unsafe { remat_network_open(path.as_ptr(), options, &mut p) };
        unsafe { remat_network_free(p) };
        status
    };
    let of_none = remat_options { processors: ptr::null(), ..with(&[], 2) };
    fails(opened(&of_none), REMAT_VALUE, "`processors` is NULL, and `processor_count` is 2");
    fails(opened(&with(&[0], 0)), REMAT_VALUE, "has no processor");
    fails(opened(&with(&[1 << 40], 1)), REMAT_VALUE, "has processor 1099511627776");
    fails(opened(&with(&[0], usize::MAX)), REMAT_VALUE, "cannot have");
    let first = (0..1024).find(|p| opened(&with(&[*p], 1)) == REMAT_OK).expect("one at least");
    let net = Net::open("cnn", &with(&[first], 1));
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    session.run();
}
