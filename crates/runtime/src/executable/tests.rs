mod device;
mod spill;

use remat_graph::ir::{Builder, ValueId};
use remat_ops::OpRef;
use remat_ops::index::{NonZero, Take};
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::shape::{Concat, Permute, Slice};
use remat_types::{DType, HostTensor, SmallVec};

use super::*;
use crate::eager::{Channel, Device, Handle};
use crate::options::DeviceOptions;
use crate::report::Kind;
use crate::testing::Rng;
use remat_device::program::Place;

const SIDE: usize = 6;

fn cpu() -> Channel {
    Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("the CPU opens").channel()
}

fn unary(f: UnaryFn) -> OpRef {
    Unary { f }.into()
}

fn binary(f: BinaryFn) -> OpRef {
    Binary { f }.into()
}

fn square() -> Fact {
    Fact::new(DType::F32, [SIDE, SIDE])
}

/// Calls over values that are all squares: each op, and the indices of the values that it reads. Values 0 to 2 are
/// given.
fn program(seed: u64, calls: usize) -> Vec<(OpRef, SmallVec<[usize; 4]>)> {
    let mut d = Rng(seed);
    let slice = Slice { axis: 0, start: SIDE - 1, len: SIDE, step: -1 };
    let table: [(OpRef, usize); 8] = [
        (unary(UnaryFn::Tanh), 1),
        (unary(UnaryFn::Relu), 1),
        (unary(UnaryFn::Neg), 1),
        (Permute { order: SmallVec::from_slice(&[1, 0]) }.into(), 1),
        (slice.into(), 1),
        (binary(BinaryFn::Add), 2),
        (binary(BinaryFn::Mul), 2),
        (MatMul {}.into(), 2),
    ];
    (0..calls)
        .map(|i| {
            let (op, arity) = table[d.below(table.len())].clone();
            // recent values more often, so that chains form and others live long
            let x = (0..arity).map(|_| if d.below(3) > 0 { i + 2 - d.below(2) } else { d.below(i + 3) });
            (op, x.collect())
        })
        .collect()
}

fn given() -> Vec<HostTensor> {
    let of = |k: usize| (0..SIDE * SIDE).map(|i| ((i * 7 + k * 5) % 11) as f32 * 0.21 - 1.0).collect::<Vec<_>>();
    (0..3).map(|k| HostTensor::from_slice(&of(k), [SIDE, SIDE]).expect("fits")).collect()
}

fn run(c: &Channel, op: &OpRef, x: &[Handle]) -> Vec<Handle> {
    c.apply(op.clone(), x.iter().cloned().collect::<SmallVec<[Handle; 4]>>()).expect("the call is right").into_vec()
}

fn bytes(c: &Channel, h: &Handle) -> Vec<u8> {
    c.value(h).expect("a value").bytes().to_vec()
}

/// A random program's graph, and its eager inputs and results on `c`.
fn random(seed: u64, calls: usize, c: &Channel) -> (Arc<Graph>, Vec<Handle>, Vec<Handle>) {
    let mut eager: Vec<Handle> =
        given().iter().map(|t| c.put_as(t, Kind::Data).expect("the channel is open")).collect();
    let b = Builder::new();
    let mut built: Vec<ValueId> = (0..3).map(|_| b.input(square(), None)).collect();
    for (op, x) in program(seed, calls) {
        let read: Vec<Handle> = x.iter().map(|i| eager[*i].clone()).collect();
        eager.push(run(c, &op, &read).remove(0));
        let read: Vec<ValueId> = x.iter().map(|i| built[*i]).collect();
        built.push(b.node(op, &read, None).expect("fits")[0]);
    }
    // results from the middle too, and one of them twice
    let results = [built.len() - 1, built.len() / 2, built.len() - 2, built.len() - 1];
    results.iter().enumerate().for_each(|(k, i)| b.output(built[*i], &format!("y{k}")));
    let wanted = results.iter().map(|i| eager[*i].clone()).collect();
    eager.truncate(3);
    (Arc::new(b.finish().expect("valid")), eager, wanted)
}

#[track_caller]
fn assert_gives(c: &Channel, exe: Executable, x: &[Handle], wanted: &[Handle]) {
    let y = run(c, &OpRef::from_shared(Arc::new(exe)), x);
    for (k, (h, w)) in y.iter().zip(wanted).enumerate() {
        assert_eq!(bytes(c, h), bytes(c, w), "result {k}");
    }
}

#[test]
fn random_programs_give_the_bits_of_the_interpreter() {
    let mut shared = 0;
    for seed in 0..200 {
        let c = cpu();
        let (graph, x, wanted) = random(seed, 5 + seed as usize % 20, &c);
        let exe = Executable::new(graph, 1).expect("builds");
        shared += exe.program.steps.iter().filter(|s| s.y.iter().any(|y| y.donated_from.is_some())).count();
        let figures = exe.figures();
        assert!(figures.arena_bytes >= figures.lower_bound_bytes, "{figures:?}");
        assert_eq!(figures.recomputed_calls, 0);
        assert_gives(&c, exe, &x, &wanted);
    }
    assert!(shared > 100, "dying temporaries are taken over: {shared}");
}

#[test]
fn a_limited_workspace_is_kept_and_changes_no_bit() {
    let (mut again, mut refused, mut shared) = (0, 0, 0);
    for seed in 0..60 {
        let c = cpu();
        let (graph, x, wanted) = random(seed, 24, &c);
        let all = Executable::new(graph.clone(), 1).expect("builds").figures().arena_bytes;
        for share in [9, 7, 5] {
            let limit = all * share / 10;
            let options =
                ExecutableOptions { workspace_limit: Some(limit), plan_seconds: Some(0.05), ..Default::default() };
            match Executable::with(graph.clone(), 1, &options) {
                Ok(exe) => {
                    assert!(exe.figures().arena_bytes <= limit, "seed {seed}, {share} of 10");
                    again += exe.figures().recomputed_calls;
                    let p = exe.plan_times();
                    assert!(p.is_none_or(|p| p.bound_ns <= p.planned_ns && p.base_ns <= p.planned_ns), "{p:?}");
                    let takes = |s: &&Step| s.y.iter().any(|y| y.donated_from.is_some());
                    shared += if p.is_some() { exe.program.steps.iter().filter(takes).count() } else { 0 };
                    assert_gives(&c, exe, &x, &wanted);
                }
                Err(e) => {
                    refused += 1;
                    let s = e.shortfall().expect("an error of kind Budget has figures");
                    assert!(s.budget_bytes == limit && s.smallest_feasible_bytes > limit, "{s:?}");
                    let options = ExecutableOptions { workspace_limit: Some(s.smallest_feasible_bytes), ..options };
                    let exe = Executable::with(graph.clone(), 1, &options).expect("the smallest feasible is feasible");
                    assert_gives(&c, exe, &x, &wanted);
                }
            }
        }
    }
    assert!(again > 20 && refused > 5, "both happen: {again} calls again, {refused} refused");
    assert!(shared > 20, "planned calls take over what dies: {shared}");
}

#[test]
fn no_plan_updates_a_state_before_what_may_still_fail() {
    // a wrong index; another number of elements than a size predicts
    updates_wait_for("take");
    updates_wait_for("nonzero");
}

fn updates_wait_for(last: &str) {
    let fact = || Fact::new(DType::F32, [64, 64]);
    let b = Builder::raw();
    let (x, index) = (b.input(fact(), None), b.input(Fact::new(DType::I64, [1]), None));
    let w = b.state(fact(), Some("w"));
    let node = |op: OpRef, x: &[ValueId]| b.node(op, x, None).expect("fits")[0];
    // only the update reads it, and it would be in the way of a larger value
    let g = node(unary(UnaryFn::Tanh), &[x]);
    let larger = node(Concat { axis: 0 }.into(), &[x, x]);
    let larger = node(unary(UnaryFn::Exp), &[larger]);
    b.output(
        match last {
            "take" => node(Take { axis: 0 }.into(), &[larger, index]),
            _ => node(NonZero { size: 8 }.into(), &[larger]),
        },
        "y",
    );
    b.set_state(w, node(binary(BinaryFn::Add), &[w, g])).expect("same type");
    let workspace_limit = Some(fact().bytes() * 5 / 2);
    let options = ExecutableOptions { workspace_limit, ..Default::default() };
    let graph = Arc::new(b.finish().expect("valid"));
    let exe = Executable::with(graph, 1, &options).expect("it fits if tanh runs later");
    assert!(exe.plan_times().is_some(), "its own order does not fit");
    let takes = exe.program.steps.iter().position(|s| s.op.label() == last).expect("there");
    let updates = exe.program.steps.iter().position(|s| s.y[0].place == Place::Output(1)).expect("there");
    assert!(takes < updates, "a failure of {last} would leave the state overwritten");
}

#[test]
fn a_chain_lives_in_one_buffer() {
    let b = Builder::new();
    let mut v = b.input(square(), None);
    for _ in 0..10 {
        v = b.node(unary(UnaryFn::Tanh), &[v], None).expect("fits")[0];
        v = b.node(unary(UnaryFn::Relu), &[v], None).expect("fits")[0];
    }
    b.output(v, "y");
    let exe = Executable::new(Arc::new(b.finish().expect("valid")), 1).expect("builds");
    assert_eq!((exe.calls(), exe.figures().arena_bytes), (20, remat_device::Alignment::HOST.pad(square().bytes())));
}

#[test]
fn what_is_read_again_is_not_taken_over() {
    let b = Builder::new();
    let x = b.input(square(), None);
    let t = b.node(unary(UnaryFn::Tanh), &[x], None).expect("fits")[0];
    let r = b.node(unary(UnaryFn::Relu), &[t], None).expect("fits")[0];
    let view = b.node(Permute { order: SmallVec::from_slice(&[1, 0]) }.into(), &[t], None).expect("fits")[0];
    let both = b.node(Concat { axis: 0 }.into(), &[r, view], None).expect("fits")[0];
    b.output(both, "y");
    let exe = Executable::new(Arc::new(b.finish().expect("valid")), 1).expect("builds");
    let relu = exe.program.steps.iter().find(|s| s.op.label() == "relu").expect("there");
    assert_eq!(relu.y[0].donated_from, None, "its input is read by a later node, through a view");
}

#[test]
fn wrong_inputs_are_refused_with_their_place() {
    let b = Builder::new();
    let x = b.input(square(), None);
    let y = b.node(unary(UnaryFn::Tanh), &[x], None).expect("fits")[0];
    b.output(y, "y");
    let exe = Executable::new(Arc::new(b.finish().expect("valid")), 1).expect("builds");
    let flat = Fact::new(DType::F32, [SIDE * SIDE]);
    let e = exe.infer(&[&flat]).expect_err("another shape");
    assert_eq!(e.kind(), ErrorKind::Shape);
    assert!(e.message().contains("input 0") && e.message().contains("[36]"), "{e}");
    assert_eq!(exe.infer(&[]).expect_err("none").kind(), ErrorKind::Arity);
}
