//! Scenarios of MegEngine's tests of graphs, under their names there; docs/src/megengine.md has the others.

use remat_graph::ir::{Builder, ValueId};
use remat_ops::OpRef;
use remat_ops::pointwise::{Binary, BinaryFn, Cast, Unary, UnaryFn};
use remat_ops::shape::{Reshape, Slice};
use remat_types::{DType, HostTensor, SmallVec};

use super::*;
use crate::eager::{Channel, Device, Handle};
use crate::options::DeviceOptions;
use crate::report::Kind;
use remat_device::Alignment;

const N: usize = 16;

fn cpu() -> Channel {
    Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("the CPU opens").channel()
}

fn row() -> Fact {
    Fact::new(DType::F32, [N])
}

fn apply(b: &Builder, op: impl Into<OpRef>, x: &[ValueId]) -> ValueId {
    b.node(op.into(), x, None).expect("fits")[0]
}

fn bin(b: &Builder, f: BinaryFn, x: ValueId, y: ValueId) -> ValueId {
    apply(b, Binary { f }, &[x, y])
}

fn ready(b: Builder) -> Arc<Executable> {
    Arc::new(Executable::new(Arc::new(b.finish().expect("valid")), 1).expect("builds"))
}

fn put(c: &Channel, v: f32) -> Handle {
    c.put_as(&HostTensor::from_slice(&[v; N], [N]).expect("fits"), Kind::Data).expect("open")
}

/// Runs on these inputs and states. Gives one number for each output and next state, whose elements are all equal.
fn run(c: &Channel, exe: &Arc<Executable>, x: &[&Handle]) -> Vec<f32> {
    let op = OpRef::from_shared(exe.clone());
    let y = c.apply(op, x.iter().map(|h| (*h).clone()).collect::<SmallVec<[Handle; 4]>>()).expect("fits");
    let first = |h: &Handle| {
        let v = c.value(h).expect("a value").to_f64_vec();
        assert!(v.iter().all(|e| *e == v[0]), "{v:?}");
        v[0] as f32
    };
    y.iter().map(first).collect()
}

/// mem_reuse.cpp, PureMLP0: a chain of calls that do not work in place lives in two buffers, whatever its length.
#[test]
fn pure_mlp0() {
    for calls in [3, 7, 20] {
        let b = Builder::raw();
        let mut v = b.input(row(), None);
        for _ in 0..calls {
            v = apply(&b, Cast { dtype: DType::F32 }, &[v]);
        }
        b.output(v, "y");
        let f = ready(b).figures();
        // the first call reads the input, and the last writes the output
        assert_eq!(
            (f.arena_bytes, f.lower_bound_bytes),
            (2 * Alignment::HOST.pad(row().bytes()), 2 * Alignment::HOST.pad(row().bytes()))
        );
    }
}

/// graph/mem_fwd.cpp, MemFwd0: views take no call and no bytes; their storage lives until the last of them is read.
#[test]
fn mem_fwd0() {
    let b = Builder::raw();
    let x = b.input(row(), None);
    let y = apply(&b, Unary { f: UnaryFn::Neg }, &[x]);
    let square = apply(&b, Reshape { shape: [4, 4].into() }, &[y]);
    let half = apply(&b, Slice { axis: 0, start: 0, len: 2, step: 1 }, &[square]);
    let other = apply(&b, Slice { axis: 0, start: 2, len: 2, step: 1 }, &[square]);
    b.output(bin(&b, BinaryFn::Sub, half, other), "y");
    let exe = ready(b);
    assert_eq!((exe.calls(), exe.figures().arena_bytes), (2, Alignment::HOST.pad(row().bytes())));
    let c = cpu();
    assert_eq!(run(&c, &exe, &[&put(&c, 3.0)]), [0.0]);
}

/// graph/mem_fwd.cpp, InplaceWithDynStorage: an output takes over an input's storage only if nothing reads it again.
#[test]
fn inplace_readers() {
    let b = Builder::raw();
    let x = b.input(row(), None);
    let y = apply(&b, Unary { f: UnaryFn::Neg }, &[x]);
    let z = apply(&b, Unary { f: UnaryFn::Abs }, &[y]);
    b.output(bin(&b, BinaryFn::Sub, z, y), "y");
    let c = cpu();
    assert_eq!(run(&c, &ready(b), &[&put(&c, 3.0)]), [6.0], "|-3| - -3");
}

/// graph/add_update.cpp: readers of a state see its old value, wherever they stand.
#[test]
fn add_update_readers() {
    for reader_first in [true, false] {
        let b = Builder::raw();
        let (x, s) = (b.input(row(), None), b.state(row(), Some("s")));
        let read = || apply(&b, Unary { f: UnaryFn::Neg }, &[s]);
        let early = reader_first.then(read);
        let next = bin(&b, BinaryFn::Add, s, x);
        let y = early.unwrap_or_else(read);
        b.set_state(s, next).expect("same type");
        b.output(y, "y");
        let (c, exe) = (cpu(), ready(b));
        assert_eq!(run(&c, &exe, &[&put(&c, 5.0), &put(&c, 2.0)]), [-2.0, 7.0], "reader first: {reader_first}");
    }
}

/// graph/add_update.cpp, with memory forwarding: an output that is a view of the old value keeps it.
#[test]
fn add_update_forwarded() {
    let b = Builder::raw();
    let (x, s) = (b.input(row(), None), b.state(row(), Some("s")));
    let view = apply(&b, Reshape { shape: [4, 4].into() }, &[s]);
    b.set_state(s, bin(&b, BinaryFn::Add, s, x)).expect("same type");
    b.output(view, "old");
    let (c, exe) = (cpu(), ready(b));
    assert_eq!(run(&c, &exe, &[&put(&c, 5.0), &put(&c, 2.0)]), [2.0, 7.0]);
}

/// graph/misc.cpp, CompileTwice and SingleGraphMultipleCompile: upstream's older function refuses to run; here both
/// run.
#[test]
fn single_graph_multiple_compile() {
    let b = Builder::raw();
    let (x, s) = (b.input(row(), None), b.state(row(), Some("s")));
    let next = bin(&b, BinaryFn::Mul, s, x);
    b.set_state(s, next).expect("same type");
    b.output(apply(&b, Unary { f: UnaryFn::Neg }, &[next]), "y");
    let graph = Arc::new(b.finish().expect("valid"));
    let make = || Arc::new(Executable::new(graph.clone(), 1).expect("builds"));
    let (first, second, c) = (make(), make(), cpu());
    for exe in [&first, &second, &first] {
        assert_eq!(run(&c, exe, &[&put(&c, 3.0), &put(&c, 2.0)]), [-6.0, 6.0]);
    }
}

/// graph/misc.cpp, ExtraVarDeps: a value is computed before another value that must wait for it.
#[test]
fn extra_var_deps() {
    let b = Builder::raw();
    let x = b.input(row(), None);
    let y = apply(&b, Unary { f: UnaryFn::Neg }, &[x]);
    let z = apply(&b, Unary { f: UnaryFn::Exp }, &[x]);
    b.run_after(z, y).expect("no circle");
    b.output(z, "z");
    b.output(y, "y");
    let labels: Vec<&str> = ready(b).program.steps.iter().map(|s| s.op.label()).collect();
    assert_eq!(labels, ["neg", "exp"]);
}

/// graph/misc.cpp, DynamicOutput and EmptyShapeCheck: a graph of values without elements runs.
#[test]
fn empty_shape_check() {
    let b = Builder::raw();
    let x = b.input(Fact::new(DType::F32, [0]), None);
    b.output(apply(&b, Unary { f: UnaryFn::Exp }, &[x]), "y");
    let (c, exe) = (cpu(), ready(b));
    assert_eq!(exe.figures().arena_bytes, 0);
    let x = c.put_as(&HostTensor::from_slice::<f32>(&[], [0]).expect("fits"), Kind::Data).expect("open");
    let y = c.apply(OpRef::from_shared(exe), std::iter::once(x).collect::<SmallVec<[Handle; 4]>>()).expect("fits");
    assert_eq!(c.value(&y[0]).expect("a value").elems(), 0);
}

/// graph/misc.cpp, RecoverFromAsyncError: a run whose values are wrong fails, and the next one works.
#[test]
fn recover_from_async_error() {
    let b = Builder::raw();
    let x = b.input(Fact::new(DType::I64, [1]), None);
    let y = b.input(Fact::new(DType::I64, [1]), None);
    b.output(bin(&b, BinaryFn::Div, x, y), "y");
    let (c, exe) = (cpu(), ready(b));
    let put = |v: i64| c.put_as(&HostTensor::from_slice(&[v], [1]).expect("fits"), Kind::Data).expect("open");
    let div = |x: i64, y: i64| {
        let op = OpRef::from_shared(exe.clone());
        let y = c.apply(op, [put(x), put(y)].into_iter().collect::<SmallVec<[Handle; 4]>>())?;
        c.value(&y[0])
    };
    let e = div(6, 0).expect_err("division by zero");
    assert_eq!((e.kind(), e.op()), (ErrorKind::Value, Some("div")));
    assert_eq!(div(6, 2).expect("runs").to_f64_vec(), [3.0]);
}

/// gopt/test/no_memory_copy.cpp: the last op computes into the output's memory; a view of its result is copied once.
#[test]
fn no_memory_copy() {
    let b = Builder::raw();
    let x = b.input(row(), None);
    let y = apply(&b, Unary { f: UnaryFn::Exp }, &[x]);
    b.output(y, "y");
    let exe = ready(b);
    assert_eq!((exe.calls(), exe.figures().arena_bytes), (1, 0));
    let b = Builder::raw();
    let x = b.input(row(), None);
    let y = apply(&b, Unary { f: UnaryFn::Exp }, &[x]);
    b.output(apply(&b, Reshape { shape: [4, 4].into() }, &[y]), "view");
    assert_eq!(ready(b).calls(), 2);
}
