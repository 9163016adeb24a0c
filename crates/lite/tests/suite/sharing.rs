//! Sessions of one network on several threads, and runs that nobody waits for.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use remat_lite::{Network, Options, Session};

use crate::{bits, open, session};

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn networks_are_shared_and_sessions_move() {
    is_send::<Network>();
    is_sync::<Network>();
    is_send::<Session>();
}

#[test]
fn sessions_share_plan_and_weights_and_run_on_threads_of_their_own() {
    let network = open("cnn", Options { threads: 1, ..Options::default() });
    let mut first = session(&network, "cnn");
    first.run().expect("it runs");
    let want = bits(&mut first, "probabilities");
    let plan = first.runtime().expect("planned").executable().expect("not running").clone();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut s = session(&network, "cnn");
                assert!(Arc::ptr_eq(s.runtime().expect("planned").executable().expect("idle"), &plan));
                for _ in 0..20 {
                    s.run().expect("it runs");
                    assert_eq!(bits(&mut s, "probabilities"), want);
                }
            });
        }
    });
    drop(network);
    first.run().expect("a session needs no network");
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(f: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut cx, mut f) = (Context::from_waker(&waker), pin!(f));
    loop {
        match f.as_mut().poll(&mut cx) {
            Poll::Ready(v) => return v,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_run_is_a_future() {
    for name in ["cnn", "positive"] {
        let network = open(name, Options::default());
        let output = network.outputs()[0].name.clone();
        let mut s = session(&network, name);
        s.run().expect("it runs");
        let want = bits(&mut s, &output);
        for _ in 0..50 {
            block_on(s.run_async().expect("it starts")).expect("it runs");
            assert_eq!(bits(&mut s, &output), want);
        }
        s.run_async().expect("it starts").wait().expect("it runs");
        // dropped: waited for
        drop(s.run_async().expect("it starts"));
        assert_eq!(bits(&mut s, &output), want);
        // forgotten: the session says that it runs, and nothing dangles
        std::mem::forget(s.run_async().expect("it starts"));
        let after = s.run();
        assert_eq!(after.is_ok(), name == "positive");
    }
}
