mod device;
mod hooks;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use remat_graph::ir::{Builder, Graph};
use remat_ops::OpRef;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::shape::Reshape;
use remat_types::{DType, Shape};

use super::*;
use crate::executable::{ExecutableOptions, NanCheck, Observed, RangeCheck, ValueDump};

const N: usize = 5;

fn op(f: UnaryFn) -> OpRef {
    Unary { f }.into()
}

fn binary(f: BinaryFn) -> OpRef {
    Binary { f }.into()
}

fn row() -> Fact {
    Fact::new(DType::F32, [N])
}

fn f32s(v: [f32; N]) -> HostTensor {
    HostTensor::from_slice(&v, [N]).expect("fits")
}

/// y0 = tanh(x0) as [1, N], y1 = s + x1 * tanh(x0), y2 = old s; s becomes y1.
fn graph() -> Arc<Graph> {
    let b = Builder::new();
    let (x0, x1) = (b.input(row(), Some("x0")), b.input(row(), Some("x1")));
    let s = b.state(row(), Some("s"));
    let t = b.node(op(UnaryFn::Tanh), &[x0], None).expect("fits")[0];
    let p = b.node(binary(BinaryFn::Mul), &[x1, t], None).expect("fits")[0];
    let n = b.node(binary(BinaryFn::Add), &[s, p], None).expect("fits")[0];
    let shape = Shape::from([1, N]);
    let view = b.node(Reshape { shape }.into(), &[t], None).expect("fits")[0];
    [view, n, s].into_iter().enumerate().for_each(|(j, v)| b.output(v, &format!("y{j}")));
    b.set_state(s, n).expect("one update");
    Arc::new(b.finish().expect("valid"))
}

fn executable(options: ExecutableOptions) -> Arc<Executable> {
    Arc::new(Executable::with(graph(), 1, &options).expect("builds"))
}

const X0: [f32; N] = [0.5, -1.0, 2.0, 0.0, 3.0];
const X1: [f32; N] = [1.0, 2.0, -3.0, 4.0, 0.25];

fn session(options: &SessionOptions) -> Session {
    let mut s = Session::with(executable(ExecutableOptions::default()), options).expect("memory");
    s.set_input(0, &f32s(X0)).expect("fits");
    s.set_input(1, &f32s(X1)).expect("fits");
    s.set_state(0, &f32s([10.0; N])).expect("fits");
    s
}

fn read(s: &mut Session, j: usize) -> Vec<f32> {
    s.output(j).expect("there").as_slice::<f32>().expect("f32").to_vec()
}

/// State after `runs` runs.
fn expected(runs: usize) -> Vec<f32> {
    let one = |i: usize| (0..runs).fold(10.0f32, |s, _| s + X1[i] * tanh(X0[i]));
    (0..N).map(one).collect()
}

fn tanh(x: f32) -> f32 {
    let y = remat_ops::eval_inline(&*op(UnaryFn::Tanh), &[HostTensor::scalar(x)]).expect("computes");
    y[0].item::<f32>().expect("a number")
}

#[track_caller]
fn assert_value<T: fmt::Debug>(r: Result<T>, part: &str) {
    let e = r.expect_err("refused");
    assert!(e.kind() == ErrorKind::Value && e.to_string().contains(part), "{e}");
}

#[test]
fn runs_update_states_and_give_outputs() {
    for prefault in [false, true] {
        let mut s = session(&SessionOptions { prefault, ..Default::default() });
        for k in 1..=3 {
            s.run().expect("runs");
            assert_eq!(read(&mut s, 0), X0.map(tanh));
            assert_eq!(read(&mut s, 1), expected(k));
            assert_eq!(read(&mut s, 2), expected(k - 1), "the old version");
            assert_eq!(s.state(0).expect("there").to_vec::<f32>().expect("f32"), expected(k));
        }
        s.release_workspace().expect("at rest");
        assert_eq!(s.bytes().expect("at rest").1, 0);
        s.run().expect("the workspace is taken again");
        assert_eq!(read(&mut s, 1), expected(4));
    }
}

#[test]
fn outputs_go_into_the_callers_memory() {
    let mut s = session(&SessionOptions::default());
    let mut own = [0f32; N];
    let at = own.as_ptr();
    let shown = Arc::new(AtomicUsize::new(0));
    let seen = shown.clone();
    s.on_output(0, move |v| seen.store(v.bytes.as_ptr() as usize, Ordering::Relaxed)).expect("there");
    s.run_into(&mut [Some(bytemuck::cast_slice_mut(&mut own))]).expect("runs");
    assert_eq!(own, X0.map(tanh));
    assert_eq!(shown.load(Ordering::Relaxed), at as usize, "written there, not copied");
    assert_eq!(read(&mut s, 0), [0.0; N]);
    assert_value(s.run_into(&mut [Some(&mut [0; 4])]), "needs 20 bytes");
    let mut odd = [0u8; 4 * N + 4];
    let skew = 1 + odd.as_ptr().align_offset(4);
    assert_value(s.run_into(&mut [Some(&mut odd[skew..skew + 4 * N])]), "aligned to 4");
    assert_value(s.run_into(&mut [None, None, None, None]), "4 outputs of 3");
    assert_eq!(read(&mut s, 1), expected(1), "what was refused has not run");
}

#[test]
fn a_run_on_the_sessions_thread_is_waited_for() {
    let mut s = session(&SessionOptions::default());
    s.wait().expect("nothing was begun");
    for k in 1..=3 {
        s.start().expect("starts");
        assert!(s.is_running());
        assert_value(s.run(), "running");
        assert_value(s.start(), "running");
        s.wait().expect("runs");
        assert_eq!(read(&mut s, 1), expected(k));
    }
    s.set_input(0, &f32s([f32::NAN; N])).expect("fits");
    s.executable().expect("at rest").observe(Some(Arc::new(NanCheck::default())));
    s.start().expect("starts");
    assert_value(s.wait(), "is NaN at [0]");
    s.wait().expect("the error came once");
    assert_eq!(s.state(0).expect("there").to_vec::<f32>().expect("f32"), expected(3), "a failed run changes no state");
    s.executable().expect("at rest").observe(None);
    s.set_input(0, &f32s(X0)).expect("fits");
    s.run().expect("runs");
    assert_eq!(read(&mut s, 1), expected(4));
}

#[test]
fn a_panic_on_the_sessions_thread_is_an_error() {
    let mut s = session(&SessionOptions::default());
    s.on_output(0, |_| panic!("planted")).expect("there");
    s.start().expect("starts");
    assert_eq!(s.wait().expect_err("panicked").kind(), ErrorKind::Internal);
    assert!(!s.is_running());
}

#[test]
fn values_are_called_back_in_order_as_soon_as_they_are_there() {
    let mut s = session(&SessionOptions::default());
    let log = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let log = log.clone();
        move |v: ValueView<'_>| log.lock().expect("no panic").push((what, v.as_slice::<f32>().expect("f32")[0]))
    };
    let exe = s.executable().expect("at rest").clone();
    let product = exe.graph().node_ids().find(|n| exe.graph().node(*n).op.label() == "mul").expect("there");
    s.on_output(1, note("sum")).expect("there");
    s.on_value(exe.graph().node(product).y[0], note("product")).expect("there");
    s.run().expect("runs");
    let product = X1[0] * tanh(X0[0]);
    assert_eq!(*log.lock().expect("no panic"), [("product", product), ("sum", 10.0 + product)]);
    assert_value(s.on_value(exe.graph().inputs()[0], |_| ()), "an input");
    assert_value(s.on_output(3, |_| ()), "output 3 of a session that has 3");
}

#[test]
fn parts_run_in_order_over_one_memory() {
    let parts = vec![vec![0], vec![2, 1]];
    let mut s = Session::new(executable(ExecutableOptions { parts, ..Default::default() })).expect("memory");
    s.set_state(0, &f32s([10.0; N])).expect("fits");
    assert_value(s.run_part(1), "part 1 of 2 was run when part 0 was next");
    for k in 1..=2 {
        s.set_input(0, &f32s(X0)).expect("fits");
        s.run_part(0).expect("first");
        assert_eq!(read(&mut s, 0), X0.map(tanh));
        // the second part's input is set now; the first part's input is free for other use
        s.set_input(0, &f32s([f32::NAN; N])).expect("fits");
        s.set_input(1, &f32s(X1)).expect("fits");
        s.run_part(1).expect("second");
        assert_eq!((read(&mut s, 1), read(&mut s, 2)), (expected(k), expected(k - 1)));
    }
    s.run_part(0).expect("first");
    assert_value(s.run_part(0), "part 1 was next");
    assert_value(s.run_part(1), "part 0 was next");
    assert_value(s.run_part(2), "part 2 of 2");
    let wrong = |parts| Executable::with(graph(), 1, &ExecutableOptions { parts, ..Default::default() });
    assert_value(wrong(vec![vec![0], vec![0]]), "given by two parts");
    assert_value(wrong(vec![vec![7]]), "gives output 7");
    let parts = vec![vec![0], vec![1]];
    let shared = SessionOptions { workspace: Some(Workspace::new()), ..Default::default() };
    let refused = Session::with(executable(ExecutableOptions { parts, ..Default::default() }), &shared);
    assert_value(refused, "other sessions cannot share");
}

#[test]
fn sessions_share_a_workspace_and_take_it_from_the_user() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let allocate: Allocate = Arc::new(move |bytes| {
        count.fetch_add(bytes, Ordering::Relaxed);
        Ok(Box::new(vec![0xA5u8; bytes]))
    });
    let workspace = Workspace::new();
    let options =
        SessionOptions { allocate: Some(allocate), workspace: Some(workspace.clone()), ..SessionOptions::default() };
    let mut all: Vec<Session> = (0..3).map(|_| session(&options)).collect();
    for s in &mut all {
        s.run().expect("runs");
        assert_eq!(read(s, 1), expected(1));
    }
    let (given, scratch) = all[0].bytes().expect("at rest");
    assert!(scratch > 0 && workspace.bytes() == scratch);
    assert_eq!(asked.load(Ordering::Relaxed), 3 * (given + 64) + scratch + 64, "one workspace for all");
    std::thread::scope(|t| {
        for s in &mut all {
            t.spawn(|| (0..50).for_each(|_| s.run().expect("runs")));
        }
    });
    all.iter_mut().for_each(|s| assert_eq!(read(s, 1), expected(51)));
}

#[test]
fn an_allocator_that_fails_or_gives_too_little_is_an_error() {
    let none: Allocate = Arc::new(|_| Err(Error::new(ErrorKind::Io, "full")));
    let options = SessionOptions { allocate: Some(none), ..Default::default() };
    let refused = Session::with(executable(ExecutableOptions::default()), &options);
    assert_eq!(refused.expect_err("refused").kind(), ErrorKind::Io);
    let little: Allocate = Arc::new(|bytes| Ok(Box::new(vec![0u8; bytes / 2])));
    let options = SessionOptions { allocate: Some(little), ..Default::default() };
    assert_value(Session::with(executable(ExecutableOptions::default()), &options), "were asked for");
}

#[test]
fn wrong_operands_are_errors() {
    let mut s = session(&SessionOptions::default());
    assert_value(s.set_input(2, &f32s(X0)), "input 2 of a session that has 2");
    assert_value(s.set_input(0, &HostTensor::scalar(1f32)), "input 0 is f32");
    assert_value(s.set_state(0, &HostTensor::from_slice(&[0i32; N], [N]).expect("fits")), "state 0 is f32");
    assert_value(s.state(1), "state 1");
    assert_value(s.input_as_mut::<f64>(0).map(|x| x.len()), "f32");
    assert_value(s.output(3), "output 3");
    assert_value(s.output(0).expect("there").as_slice::<i32>(), "read as another type");
}

#[test]
fn observers_see_every_value_and_name_what_is_wrong() {
    let mut s = session(&SessionOptions::default());
    let exe = s.executable().expect("at rest").clone();
    let names = Arc::new(Mutex::new(Vec::new()));
    let log = names.clone();
    let note = move |v: &Observed<'_>| {
        log.lock().expect("no panic").push(v.graph.node(v.node).op.label());
        Ok(())
    };
    exe.observe(Some(Arc::new(note)));
    s.run().expect("runs");
    assert_eq!(*names.lock().expect("no panic"), ["tanh", "mul", "add"]);
    exe.observe(Some(Arc::new(RangeCheck { bound: 5.0 })));
    let e = s.run().expect_err("9.8 is beyond 5");
    assert!(e.to_string().contains("beyond 5") && e.op() == Some("add"), "{e}");
    s.set_input(1, &f32s([0.0, 0.0, f32::INFINITY, 0.0, 0.0])).expect("fits");
    exe.observe(Some(Arc::new(NanCheck::default())));
    s.run().expect("an infinity is a number");
    exe.observe(Some(Arc::new(NanCheck { infinities: true })));
    assert_value(s.run(), "is inf at [2]");
    let folder = tempfile::tempdir().expect("a folder");
    exe.observe(Some(Arc::new(ValueDump::new(folder.path()).expect("made"))));
    s.run().expect("runs");
    let mut files: Vec<_> =
        std::fs::read_dir(folder.path()).expect("there").map(|f| f.expect("readable").path()).collect();
    files.sort();
    assert_eq!(files.len(), 3);
    let first = remat_types::read_npy(&std::fs::read(&files[0]).expect("readable")).expect("an array");
    assert_eq!(first.to_vec::<f32>().expect("f32"), X0.map(tanh));
}

/// An empty value of each type as input, state and output: the session makes slices of elements wider than bytes of all
/// of them.
#[test]
fn empty_values_run_whatever_their_type_and_memory() {
    for dtype in [DType::F16, DType::F32, DType::F64, DType::I32, DType::I64, DType::U8] {
        let b = Builder::new();
        let fact = Fact::new(dtype, [0, 3]);
        let (x, s) = (b.input(fact.clone(), Some("x")), b.state(fact, Some("s")));
        let sum = b.node(binary(BinaryFn::Add), &[x, s], None).expect("fits")[0];
        let twice = b.node(binary(BinaryFn::Mul), &[sum, sum], None).expect("fits")[0];
        b.output(twice, "y");
        b.set_state(s, sum).expect("one update");
        let exe = Arc::new(
            Executable::with(Arc::new(b.finish().expect("valid")), 1, &ExecutableOptions::default()).expect("builds"),
        );
        let allocate: Allocate = Arc::new(|bytes| Ok(Box::new(vec![0u8; bytes])));
        for allocate in [None, Some(allocate)] {
            let mut s = Session::with(exe.clone(), &SessionOptions { allocate, ..Default::default() }).expect("memory");
            s.set_input(0, &HostTensor::zeros(dtype, [0, 3]).expect("nothing")).expect("fits");
            s.executable().expect("at rest").observe(Some(Arc::new(NanCheck::default())));
            s.run().expect("runs");
            s.run_into(&mut [Some(&mut [])]).expect("runs");
            let y = s.output(0).expect("there");
            assert_eq!((y.dtype, y.shape, y.bytes.len()), (dtype, &Shape::from([0, 3]), 0));
            assert_eq!(y.bytes.as_ptr().align_offset(8), 0, "elements of {dtype} may lie there");
            assert_eq!(s.state(0).expect("there").shape(), &Shape::from([0, 3]));
            assert!(s.input_mut(0).expect("there").is_empty());
        }
    }
    let b = Builder::new();
    let x = b.input(Fact::new(DType::F32, [0, 2, 5, 5]), None);
    let w = b.input(Fact::new(DType::F32, [4, 2, 3, 3]), None);
    let conv = remat_ops::conv::Conv2d { taps: remat_ops::conv::ConvParams::PLAIN };
    let y = b.node(conv.into(), &[x, w], None).expect("fits")[0];
    b.output(y, "y");
    let exe = Executable::with(Arc::new(b.finish().expect("valid")), 2, &ExecutableOptions::default()).expect("builds");
    let mut s = Session::new(Arc::new(exe)).expect("memory");
    s.run().expect("runs");
    assert_eq!(s.output(0).expect("there").shape, &Shape::from([0, 4, 3, 3]));
}

#[test]
fn a_bool_is_zero_or_one() {
    let b = Builder::new();
    let x = b.input(Fact::new(DType::Bool, [3]), None);
    let y = b.node(op(UnaryFn::LogicalNot), &[x], None).expect("fits")[0];
    b.output(y, "y");
    let exe = Executable::with(Arc::new(b.finish().expect("valid")), 1, &ExecutableOptions::default()).expect("builds");
    let mut s = Session::new(Arc::new(exe)).expect("memory");
    s.input_mut(0).expect("there").copy_from_slice(&[1, 0, 255]);
    assert_value(s.run(), "input 0 is of bools, and its byte 2 is 255");
    s.input_mut(0).expect("there")[2] = 1;
    s.run().expect("runs");
    assert_eq!(s.output(0).expect("there").bytes, [0, 1, 0]);
}
