//! Functions that are called around runs.

use super::*;

type Log = Arc<Mutex<Vec<String>>>;

/// Notes starts, ends and the first output.
fn noted(s: &mut Session) -> Log {
    let log = Log::default();
    let note = |log: &Log, text: String| log.lock().expect("no panic").push(text);
    let of = log.clone();
    s.on_start(move || note(&of, "start".into())).expect("at rest");
    let of = log.clone();
    s.on_output(0, move |_| note(&of, "output".into())).expect("at rest");
    let of = log.clone();
    let kind = |r: RunResult<'_>| r.map_or_else(|e| format!("{:?}", e.kind()), |()| "end".into());
    s.on_finish(move |r| note(&of, kind(r))).expect("at rest");
    log
}

#[track_caller]
fn assert_noted(log: &Log, want: &[&str]) {
    let noted = std::mem::take(&mut *log.lock().expect("no panic"));
    assert_eq!(noted, want);
}

#[test]
fn they_are_called_around_every_run_that_starts() {
    let mut s = session(&SessionOptions::default());
    let log = noted(&mut s);
    s.run().expect("runs");
    assert_noted(&log, &["start", "output", "end"]);
    s.run_into(&mut [None]).expect("runs");
    assert_noted(&log, &["start", "output", "end"]);
    s.start().expect("starts");
    assert_value(s.on_start(|| ()), "running");
    assert_value(s.on_finish(|_| ()), "running");
    s.wait().expect("runs");
    assert_noted(&log, &["start", "output", "end"]);
    assert_value(s.run_into(&mut [Some(&mut [0; 4])]), "needs 20 bytes");
    assert_noted(&log, &[]);
    s.set_input(0, &f32s([f32::NAN; N])).expect("fits");
    s.executable().expect("at rest").observe(Some(Arc::new(NanCheck::default())));
    assert_value(s.run(), "is NaN");
    assert_noted(&log, &["start", "Value"]);
    s.start().expect("starts");
    assert_value(s.wait(), "is NaN");
    assert_noted(&log, &["start", "Value"]);
}

#[test]
fn a_start_comes_before_inputs_are_read_and_an_end_after_outputs_are_there() {
    let b = Builder::new();
    let x = b.input(Fact::new(DType::Bool, [1]), None);
    let y = b.node(op(UnaryFn::LogicalNot), &[x], None).expect("fits")[0];
    b.output(y, "y");
    let exe = Executable::with(Arc::new(b.finish().expect("valid")), 1, &ExecutableOptions::default()).expect("builds");
    let mut s = Session::new(Arc::new(exe)).expect("memory");
    // the memory of an input does not move
    let at = s.input_mut(0).expect("there").as_mut_ptr() as usize;
    s.input_mut(0).expect("there")[0] = 7;
    assert_value(s.run(), "its byte 0 is 7");
    // SAFETY: one byte of the session, which lives. Nothing else uses it when a run starts.
    s.on_start(move || unsafe { (at as *mut u8).write(1) }).expect("at rest");
    let from = s.output(0).expect("there").bytes.as_ptr() as usize;
    let seen = Arc::new(AtomicUsize::new(9));
    let note = seen.clone();
    // SAFETY: as before, after a run has ended.
    s.on_finish(move |_| note.store(unsafe { *(from as *const u8) }.into(), Ordering::Relaxed)).expect("at rest");
    s.run().expect("it is a bool by then");
    assert_eq!(seen.load(Ordering::Relaxed), 0, "not 1");
}

#[test]
fn a_panic_of_one_ends_the_run_and_no_more() {
    let mut s = session(&SessionOptions::default());
    let (planted, log) = (Arc::new(Mutex::new("")), noted(&mut s));
    let panics = |at: &'static str| {
        let planted = planted.clone();
        move || assert_ne!(*planted.lock().unwrap_or_else(|e| e.into_inner()), at, "planted")
    };
    let (start, output, end) = (panics("start"), panics("output"), panics("end"));
    s.on_start(start).expect("at rest");
    s.on_output(1, move |_| output()).expect("at rest");
    s.on_finish(move |_| end()).expect("at rest");
    let cases = [("start", &["start"] as &[_], 0), ("output", &["start", "output", "Internal"], 0)];
    let mut runs = 0;
    for (at, want, counts) in cases.into_iter().chain([("end", &["start", "output", "end"] as &[_], 1)]) {
        *planted.lock().unwrap_or_else(|e| e.into_inner()) = at;
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| s.run()));
        assert!(run.is_err(), "the caller's panic, at {at}");
        assert_noted(&log, want);
        s.start().expect("starts");
        assert_eq!(s.wait().expect_err("panicked").kind(), ErrorKind::Internal);
        assert_noted(&log, want);
        *planted.lock().unwrap_or_else(|e| e.into_inner()) = "";
        s.run().expect("it is usable");
        assert_noted(&log, &["start", "output", "end"]);
        runs += 2 * counts + 1;
        assert_eq!(read(&mut s, 1), expected(runs), "after a panic at {at}");
    }
}

#[test]
fn a_run_in_parts_has_one_start_and_one_end() {
    let parts = vec![vec![0], vec![2, 1]];
    let mut s = Session::new(executable(ExecutableOptions { parts, ..Default::default() })).expect("memory");
    let log = noted(&mut s);
    assert_value(s.run_part(1), "part 0 was next");
    assert_noted(&log, &[]);
    s.run_part(0).expect("first");
    assert_noted(&log, &["start", "output"]);
    s.run_part(1).expect("second");
    assert_noted(&log, &["end"]);
    s.run_part(0).expect("first");
    assert_value(s.run_part(0), "part 1 was next");
    assert_noted(&log, &["start", "output", "Value"]);
    s.run_part(0).expect("first");
    s.release_workspace().expect("at rest");
    assert_noted(&log, &["start", "output", "Value"]);
    s.set_input(0, &f32s([f32::NAN; N])).expect("fits");
    s.executable().expect("at rest").observe(Some(Arc::new(NanCheck::default())));
    assert_value(s.run_part(0), "is NaN");
    assert_noted(&log, &["start", "Value"]);
}
