//! Functions that are called around runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use remat_lite::{ErrorKind, Options, Session};
use remat_runtime::NanCheck;

use crate::{bits, open, session};

type Noted = (&'static str, Option<ErrorKind>, ThreadId);

fn noted(s: &mut Session) -> Receiver<Noted> {
    let (tell, notes): (Sender<Noted>, _) = channel();
    let start = tell.clone();
    s.on_start(move || start.send(("start", None, thread::current().id())).expect("heard")).expect("at rest");
    s.on_finish(move |r| tell.send(("end", r.err().map(|e| e.kind()), thread::current().id())).expect("heard"))
        .expect("at rest");
    notes
}

#[track_caller]
fn assert_pair(notes: &Receiver<Noted>, error: Option<ErrorKind>) -> ThreadId {
    let all: Vec<Noted> = notes.try_iter().collect();
    let thread = all.first().expect("a start").2;
    assert_eq!(all, [("start", None, thread), ("end", error, thread)]);
    thread
}

#[test]
fn each_run_has_a_start_and_an_end_on_the_thread_that_runs() {
    for name in ["cnn", "positive", "rate"] {
        let network = open(name, Options::default());
        let output = network.outputs()[0].name.clone();
        let mut s = session(&network, name);
        s.run().expect("it runs");
        let want = bits(&mut s, &output);
        let notes = noted(&mut s);
        for _ in 0..3 {
            s.run().expect("it runs");
            assert_eq!(assert_pair(&notes, None), thread::current().id(), "{name}");
            let run = s.run_async().expect("it starts");
            run.wait().expect("it runs");
            let thread = assert_pair(&notes, None);
            assert_eq!(thread == thread::current().id(), name != "cnn", "only a plan runs on the session's thread");
            drop(s.run_async().expect("it starts"));
            assert_pair(&notes, None);
        }
        assert_eq!(bits(&mut s, &output), want);
        assert!(s.run_into(&mut [Some(&mut [])]).is_err());
        assert_eq!(notes.try_iter().count(), 0, "refused before it starts");
    }
}

#[test]
fn an_end_has_the_error_of_the_run() {
    let network = open("cnn", Options::default());
    let mut s = session(&network, "cnn");
    let notes = noted(&mut s);
    s.input_as_mut::<f32>(&network.inputs()[0].name).expect("floats").fill(f32::NAN);
    s.runtime().expect("planned").executable().expect("at rest").observe(Some(Arc::new(NanCheck::default())));
    assert!(s.run().is_err());
    assert_pair(&notes, Some(ErrorKind::Value));
    assert!(s.run_async().expect("it starts").wait().is_err());
    assert_pair(&notes, Some(ErrorKind::Value));
    s.runtime().expect("planned").executable().expect("at rest").observe(None);
    // an index that is not there
    let network = open("rate", Options::default());
    let mut s = session(&network, "rate");
    let notes = noted(&mut s);
    s.input_as_mut::<i64>("rate").expect("an input")[0] = i64::MIN;
    let failed = s.run().err().map(|e| e.kind());
    assert_pair(&notes, failed);
}

#[test]
fn a_panic_is_the_callers_and_leaves_the_session_usable() {
    for (name, is_start) in [("cnn", true), ("cnn", false), ("positive", true), ("positive", false)] {
        let network = open(name, Options::default());
        let output = network.outputs()[0].name.clone();
        let mut s = session(&network, name);
        s.run().expect("it runs");
        let want = bits(&mut s, &output);
        let planted = Arc::new(Mutex::new(true));
        let here = planted.clone();
        let hook = move || assert!(!*here.lock().unwrap_or_else(|e| e.into_inner()), "planted");
        if is_start {
            s.on_start(hook).expect("at rest");
        } else {
            s.on_finish(move |_| hook()).expect("at rest");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| s.run())).is_err());
        if name == "cnn" {
            let e = s.run_async().expect("it starts").wait().expect_err("panicked");
            assert_eq!(e.kind(), ErrorKind::Internal);
        }
        *planted.lock().unwrap_or_else(|e| e.into_inner()) = false;
        s.run().expect("it is usable");
        assert_eq!(bits(&mut s, &output), want);
    }
}
