//! Runs in the background, and threads that meet in one session.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use remat_lite::c::remat_status::*;
use remat_lite::c::*;

use super::*;

/// The arguments of a callback: the status, and the text of the last error there.
type Heard = (remat_status, String);

/// The data of a callback.
struct Told {
    statuses: Sender<Heard>,
    /// It waits for a word before it returns.
    hold: Option<Receiver<()>>,
    has_returned: AtomicBool,
}

impl Told {
    fn new(statuses: Sender<Heard>, hold: Option<Receiver<()>>) -> Box<Told> {
        Box::new(Told { statuses, hold, has_returned: AtomicBool::new(false) })
    }

    fn user(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }
}

unsafe extern "C" fn tell(user: *mut c_void, status: remat_status) {
    let told = unsafe { &*user.cast::<Told>() };
    told.statuses.send((status, last())).expect("somebody listens");
    told.hold.iter().for_each(|h| h.recv().expect("a word comes"));
    told.has_returned.store(true, Ordering::SeqCst);
}

#[test]
fn a_run_in_the_background_tells_when_it_has_ended() {
    for ((_net, session), name) in [(cnn(), c"probabilities"), (positive(), c"squares")] {
        session.run();
        let want = session.output(name);
        let (statuses, heard) = channel();
        let told = Told::new(statuses, None);
        for _ in 0..20 {
            ok(unsafe { remat_session_run_async(session.0, Some(tell), told.user()) });
            assert_eq!(heard.recv().expect("told").0, REMAT_OK);
            ok(unsafe { remat_session_wait(session.0) });
            assert_eq!(session.output(name), want);
        }
        ok(unsafe { remat_session_run_async(session.0, None, ptr::null_mut()) });
        ok(unsafe { remat_session_wait(session.0) });
        ok(unsafe { remat_session_wait(session.0) });
        assert_eq!(session.output(name), want);
    }
}

/// A session that runs until a word is sent: its callback waits.
fn held() -> ((Net, Ses), Box<Told>, Receiver<Heard>, Sender<()>) {
    let made = cnn();
    let (statuses, heard) = channel();
    let (word, hold) = channel();
    let told = Told::new(statuses, Some(hold));
    ok(unsafe { remat_session_run_async(made.1.0, Some(tell), told.user()) });
    (made, told, heard, word)
}

#[test]
fn waiting_and_freeing_wait_for_the_callback_too() {
    for is_freed in [false, true] {
        let ((_net, session), told, heard, word) = held();
        assert_eq!(heard.recv().expect("told").0, REMAT_OK);
        let sends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            word.send(()).expect("it is waited for");
        });
        if is_freed {
            drop(session);
        } else {
            ok(unsafe { remat_session_wait(session.0) });
        }
        assert!(told.has_returned.load(Ordering::SeqCst), "freed: {is_freed}");
        sends.join().expect("sent");
    }
}

#[test]
fn freeing_waits_for_a_run_that_has_just_begun() {
    for _ in 0..50 {
        let (_net, session) = cnn();
        let (statuses, heard) = channel();
        let told = Told::new(statuses, None);
        ok(unsafe { remat_session_run_async(session.0, Some(tell), told.user()) });
        drop(session);
        assert_eq!(heard.try_recv().expect("told by now").0, REMAT_OK);
        drop(told);
    }
}

/// A callback's runs of a session, one after the other.
struct Chain {
    session: AtomicPtr<remat_session>,
    left: AtomicUsize,
    end: Sender<&'static str>,
}

unsafe extern "C" fn again(user: *mut c_void, status: remat_status) {
    let chain = unsafe { &*user.cast::<Chain>() };
    ok(status);
    let session = chain.session.load(Ordering::SeqCst);
    let mut y = tensor();
    unsafe {
        ok(remat_session_output(session, c"probabilities".as_ptr(), &mut y));
        ok(remat_session_wait(session));
        let left = chain.left.fetch_sub(1, Ordering::SeqCst);
        if left == 0 {
            remat_session_free(session);
            chain.end.send("freed").expect("somebody listens");
            return;
        }
        ok(remat_session_run_async(session, Some(again), user));
        fails(remat_session_run(session), REMAT_BUSY, "runs in the background");
        fails(remat_session_wait(session), REMAT_BUSY, "cannot wait");
        if left == 100 {
            // the run that was just begun goes with it
            remat_session_free(session);
            chain.end.send("freed early").expect("somebody listens");
        }
    }
}

#[test]
fn a_callback_may_read_begin_the_next_run_and_free() {
    for (left, want) in [(0, "freed"), (5, "freed"), (100, "freed early")] {
        let (_net, session) = cnn();
        let (end, ends) = channel();
        let chain = Chain { session: AtomicPtr::new(session.0), left: AtomicUsize::new(left), end };
        let p = session.0;
        std::mem::forget(session);
        ok(unsafe { remat_session_run_async(p, Some(again), (&raw const chain).cast_mut().cast()) });
        assert_eq!(ends.recv().expect("it ends"), want);
        // time for what must not come
        thread::sleep(Duration::from_millis(20));
        assert!(ends.try_recv().is_err());
    }
}

/// A session that is handed to another thread.
#[derive(Clone, Copy)]
struct Shared(*mut remat_session);
unsafe impl Send for Shared {}

/// An allocator that tells when it is called, and waits for a word.
struct Slow {
    called: Sender<()>,
    word: Mutex<Receiver<()>>,
}

unsafe extern "C" fn slowly(user: *mut c_void, bytes: usize) -> *mut c_void {
    let slow = unsafe { &*user.cast::<Slow>() };
    slow.called.send(()).expect("somebody listens");
    slow.word.lock().expect("no panic").recv().expect("a word comes");
    Box::into_raw(vec![0u8; bytes].into_boxed_slice()).cast()
}

unsafe extern "C" fn back(_: *mut c_void, memory: *mut c_void, bytes: usize) {
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(memory.cast::<u8>(), bytes)) });
}

#[test]
fn a_call_while_another_thread_is_in_one_is_refused_and_does_not_wait() {
    let (called, calls) = channel();
    let (word, words) = channel();
    let slow = Slow { called, word: Mutex::new(words) };
    let user = (&raw const slow).cast_mut().cast();
    let own = remat_options { allocate: Some(slowly), deallocate: Some(back), allocator_user: user, ..options() };
    let net = Net::open("cnn", &own);
    word.send(()).expect("for inputs and outputs");
    let session = net.session(&Given::new(&[(c"batch", 1)]));
    calls.recv().expect("it took memory");
    let shared = Shared(session.0);
    let runs = thread::spawn(move || ok(unsafe { remat_session_run({ shared }.0) }));
    calls.recv().expect("the run takes its workspace");
    let (told, tells) = channel();
    let second = thread::spawn(move || {
        let status = unsafe { remat_session_run({ shared }.0) };
        told.send((status, last())).expect("somebody listens");
    });
    let heard = tells.recv_timeout(Duration::from_secs(5));
    word.send(()).expect("it waits");
    runs.join().expect("it runs");
    second.join().expect("no panic");
    let (status, text) = heard.expect("it did not wait");
    assert!(status == REMAT_BUSY && text.contains("one at a time"), "{status:?}: {text}");
}

/// An allocator that frees the session that it gives memory to, once.
struct Frees {
    session: AtomicPtr<remat_session>,
    lent: AtomicUsize,
}

unsafe extern "C" fn give_and_free(user: *mut c_void, bytes: usize) -> *mut c_void {
    let frees = unsafe { &*user.cast::<Frees>() };
    let session = frees.session.swap(ptr::null_mut(), Ordering::SeqCst);
    frees.lent.fetch_add(1, Ordering::SeqCst);
    if !session.is_null() {
        unsafe {
            fails(remat_session_run(session), REMAT_BUSY, "the session");
            remat_session_free(session);
        }
    }
    Box::into_raw(vec![0u8; bytes].into_boxed_slice()).cast()
}

unsafe extern "C" fn count_back(user: *mut c_void, memory: *mut c_void, bytes: usize) {
    unsafe { back(user, memory, bytes) };
    unsafe { &*user.cast::<Frees>() }.lent.fetch_sub(1, Ordering::SeqCst);
}

unsafe extern "C" fn never(_: *mut c_void, _: remat_status) {
    std::process::abort();
}

#[test]
fn a_session_that_is_freed_within_its_run_lasts_until_the_run_ends() {
    for is_async in [false, true] {
        let frees = Frees { session: AtomicPtr::default(), lent: AtomicUsize::new(0) };
        let user = (&raw const frees).cast_mut().cast();
        let (allocate, deallocate) = (Some(give_and_free as _), Some(count_back as _));
        let net = Net::open("cnn", &remat_options { allocate, deallocate, allocator_user: user, ..options() });
        let session = net.session(&Given::new(&[(c"batch", 1)]));
        let p = session.0;
        std::mem::forget(session);
        frees.session.store(p, Ordering::SeqCst);
        unsafe {
            if is_async {
                ok(remat_session_run_async(p, Some(never), ptr::null_mut()));
            } else {
                ok(remat_session_run(p));
            }
        }
        let start = Instant::now();
        while frees.lent.load(Ordering::SeqCst) > 0 || !frees.session.load(Ordering::SeqCst).is_null() {
            assert!(start.elapsed() < Duration::from_secs(10), "its memory does not come back");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_second_thread_in_a_session_is_told_that_it_is_busy() {
    let (_net, session) = cnn();
    let together = Arc::new(Barrier::new(4));
    let shared = Shared(session.0);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (together, s) = (together.clone(), shared);
            thread::spawn(move || {
                let s = { s }.0;
                together.wait();
                let mut seen = [0, 0];
                for _ in 0..200 {
                    match unsafe { remat_session_run(s) } {
                        REMAT_OK => seen[0] += 1,
                        status => {
                            fails(status, REMAT_BUSY, "one at a time");
                            seen[1] += 1;
                        }
                    }
                }
                seen
            })
        })
        .collect();
    let seen = threads.into_iter().map(|t| t.join().expect("no panic"));
    let [done, busy] = seen.fold([0, 0], |all, s| [all[0] + s[0], all[1] + s[1]]);
    assert!(done >= 1 && done + busy == 800, "{done} done, {busy} refused");
    session.run();
}

#[test]
fn while_it_runs_a_session_takes_no_other_call() {
    let ((net, session), told, heard, word) = held();
    assert_eq!(heard.recv().expect("told").0, REMAT_OK);
    // its run has ended, and the callback has not: calls are taken again
    session.run();
    ok(unsafe { remat_session_run_async(session.0, None, ptr::null_mut()) });
    let busy = |status| fails(status, REMAT_BUSY, "runs in the background");
    let (mut p, y) = (ptr::null_mut(), c"probabilities".as_ptr());
    let f32 = remat_dtype::REMAT_F32 as i32;
    unsafe {
        busy(remat_session_run(session.0));
        busy(remat_session_run_into(session.0, ptr::null(), ptr::null(), 0));
        busy(remat_session_run_async(session.0, Some(ignore), ptr::null_mut()));
        busy(remat_session_output(session.0, y, &mut tensor()));
        busy(remat_session_input_data(session.0, c"image".as_ptr(), f32, &mut p, ptr::null_mut()));
        busy(remat_session_release_workspace(session.0));
    }
    // the network is free for others
    net.session(&Given::new(&[(c"batch", 2)])).run();
    word.send(()).expect("it waits");
    ok(unsafe { remat_session_wait(session.0) });
    session.run();
    drop(told);
}
