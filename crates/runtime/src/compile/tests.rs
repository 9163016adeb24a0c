use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use remat_graph::ir::{Builder, Graph, ValueId};
use remat_graph::passes::PassOptions;
use remat_kernels::pool::Pool;
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_types::{DType, ErrorKind, Fact, HostTensor};

use super::*;
use crate::eager::Device;
use crate::options::DeviceOptions;
use crate::{EmulatedOptions, Kind, Session, control_flow};

const ROWS: usize = 48;
const SIDE: usize = 32;
const LAYERS: usize = 10;

/// A graph as a file has it: `x` through layers that share a weight; the sum of squares of all of them in turn, so that each
/// waits for the end; and a state `n` that takes the last layer.
fn file() -> String {
    let b = Builder::new();
    let (x, w) = (b.input(rows(), Some("x")), b.state(Fact::new(DType::F32, [SIDE, SIDE]), Some("w")));
    let n = b.state(rows(), Some("n"));
    let node = |op: remat_ops::OpRef, x: &[ValueId]| b.node(op, x, None).expect("fits")[0];
    let mut layers = vec![x];
    for k in 0..LAYERS {
        let product = node(MatMul {}.into(), &[layers[k], w]);
        layers.push(node(Unary { f: UnaryFn::Tanh }.into(), &[product]));
    }
    let mut y = node(MatMul {}.into(), &[layers[LAYERS], w]);
    for layer in layers.iter().skip(1).rev() {
        let scaled = node(Binary { f: BinaryFn::Mul }.into(), &[y, *layer]);
        y = node(MatMul {}.into(), &[scaled, w]);
    }
    b.output(y, "y");
    b.set_state(n, node(Binary { f: BinaryFn::Add }.into(), &[n, layers[LAYERS]])).expect("same type");
    b.finish().expect("valid").to_text().expect("ops of files")
}

fn rows() -> Fact {
    Fact::new(DType::F32, [ROWS, SIDE])
}

fn graph() -> Graph {
    Graph::parse(&file(), &control_flow::registry()).expect("what was written")
}

fn ramp(rows: usize, by: usize) -> HostTensor {
    let all: Vec<f32> = (0..rows * SIDE).map(|i| ((i * by) % 23) as f32 * 0.02 - 0.2).collect();
    HostTensor::from_slice(&all, [rows, SIDE]).expect("fits")
}

/// The given values: `x`, `w`, `n`.
fn given() -> [HostTensor; 3] {
    [ramp(ROWS, 7), ramp(SIDE, 5), ramp(ROWS, 3)]
}

/// `y`, and the next version of `n`, of the graph as it stands.
fn plain() -> (HostTensor, HostTensor) {
    let (g, [x, w, n]) = (graph(), given());
    let values = g.evaluate(&[x], &[w, n], &Pool::new(1)).expect("computes");
    let value = |v: ValueId| values.get(v).expect("computed").clone();
    (value(g.outputs()[0].value), value(g.states()[1].next.expect("it is updated")))
}

fn options(memory_budget: Option<usize>) -> CompileOptions {
    CompileOptions { memory_budget, freeze: true, ..Default::default() }
}

/// The graph with its weight as a constant, compiled.
fn compiled(memory_budget: Option<usize>) -> remat_types::Result<CompiledGraph> {
    let options = options(memory_budget);
    let (g, left) = freeze(&graph(), |i| Ok((i == 0).then(|| given()[1].clone())))?;
    assert_eq!((left, g.states().len()), (vec![1], 1), "what is updated stays a state");
    let cx = CompileCx { plan_seconds: Some(0.2), ..CompileCx::alone(1, &options) };
    CompiledGraph::new(g, &cx, &options)
}

/// Bytes of a run.
fn bytes(c: &CompiledGraph) -> usize {
    let f = c.executable().figures();
    f.arena_bytes + f.state_bytes + f.input_bytes + f.output_bytes + f.constant_bytes
}

/// A budget that makes calls run again.
fn tight() -> usize {
    let free = compiled(None).expect("compiles");
    assert!(free.is_settled() && free.plan_times().is_none(), "nothing binds");
    bytes(&free) * 6 / 10
}

#[test]
fn a_graph_of_a_file_runs_under_a_budget_as_it_stands_there_until_its_second_plan_and_after() {
    let (y, n) = plain();
    let budget = tight();
    let mut c = compiled(Some(budget)).expect("there is a plan");
    assert!(bytes(&c) <= budget && c.executable().figures().recomputed_calls > 0, "{:?}", c.executable().figures());
    let estimated = c.plan_times().expect("the budget binds");
    let mut s = Session::new(c.executable().clone()).expect("memory");
    let shown = Arc::new(Mutex::new(0));
    let count = shown.clone();
    s.on_output(0, move |_| *count.lock().expect("not poisoned") += 1).expect("there");
    s.set_input(0, &given()[0]).expect("fits");
    let end = Instant::now() + Duration::from_secs(60);
    let mut runs = 0;
    let mut run = |c: &mut CompiledGraph, s: &mut Session| {
        if c.before_run() {
            s.replan(c.executable().clone()).expect("the same graph");
        }
        s.set_state(0, &given()[2]).expect("fits");
        s.run().expect("runs");
        runs += 1;
        assert_eq!(s.output(0).expect("there").bytes, y.bytes(), "run {runs}");
        assert_eq!(s.state(0).expect("there").bytes(), n.bytes(), "run {runs}");
    };
    while !c.is_settled() {
        assert!(Instant::now() < end, "no second plan within a minute");
        run(&mut c, &mut s);
    }
    run(&mut c, &mut s);
    assert!(bytes(&c) <= budget && Arc::ptr_eq(c.executable(), s.executable().expect("not running")));
    assert_eq!(*shown.lock().expect("not poisoned"), runs, "callbacks follow the plan");
    assert!(runs > 4, "the first plan is timed");
    let measured = c.plan_times().expect("the budget binds");
    assert_ne!(measured.base_ns, estimated.base_ns, "{measured:?} after {estimated:?}");
}

#[test]
fn it_runs_on_a_device_with_the_same_bits() {
    let (y, next) = plain();
    let c = compiled(Some(tight())).expect("there is a plan");
    let device = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("the CPU opens");
    let channel = device.channel();
    let [x, _, n] = given().map(|t| channel.put_as(&t, Kind::Data).expect("open"));
    let got = channel.apply(c.op().clone(), [x, n].into_iter().collect::<remat_types::SmallVec<[_; 4]>>());
    let got = got.expect("the types are right");
    let values: Vec<HostTensor> = got.iter().map(|h| channel.value(h).expect("runs")).collect();
    assert_eq!(values, [y, next]);
}

#[test]
fn a_refusal_has_the_figures_of_the_whole_run() {
    let e = compiled(Some(3 * rows().bytes())).expect_err("inputs, state and outputs leave nothing");
    let s = e.shortfall().expect("an error of kind Budget has figures");
    assert_eq!(s.budget_bytes, 3 * rows().bytes());
    assert!(s.least_bytes > s.budget_bytes && s.smallest_feasible_bytes >= s.least_bytes, "{s:?}");
    let least = compiled(Some(s.smallest_feasible_bytes)).expect("the smallest feasible is feasible");
    assert!(bytes(&least) <= s.smallest_feasible_bytes);
}

#[test]
fn levels_of_passes_are_the_options() {
    let at = |level: u8| {
        let options = CompileOptions { passes: PassOptions { level, ..Default::default() }, ..Default::default() };
        CompiledGraph::new(graph(), &CompileCx::alone(1, &options), &options).expect("compiles").executable().calls()
    };
    assert!(at(2) < at(0), "{} calls of {}", at(2), at(0));
}

#[test]
fn a_session_takes_no_plan_of_another_graph() {
    let (a, b) = (compiled(None).expect("compiles"), compiled(None).expect("compiles"));
    let mut s = Session::new(a.executable().clone()).expect("memory");
    assert_eq!(s.replan(b.executable().clone()).expect_err("another graph").kind(), ErrorKind::Value);
    assert!(Arc::ptr_eq(s.executable().expect("not running"), a.executable()));
}

#[test]
fn a_graph_is_compiled_for_the_kernels_that_its_device_has() {
    let on_device_without = |without_kernels: Vec<&'static str>| {
        let e = EmulatedOptions { without_kernels, ..EmulatedOptions::default() };
        let d = Device::emulated(e, DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("opens");
        let options = CompileOptions::default();
        let cx = CompileCx::on(&d, &options).expect("no budget");
        let compiled = CompiledGraph::new(graph(), &cx, &options).expect("compiles");
        let nodes = compiled.executable().graph().nodes();
        let fused = nodes.iter().filter(|n| n.op.label().starts_with("fused")).count();
        let c = d.channel();
        let x = given().iter().map(|t| c.put_as(t, Kind::Data).expect("open")).collect();
        let y = c.apply(compiled.op().clone(), x).expect("has the kernels");
        (fused, c.value(&y[0]).expect("computes"))
    };
    let (all, none) = (on_device_without(vec![]), on_device_without(vec!["fused", "fused_matmul", "fused_reduce"]));
    assert!(all.0 > 0 && none.0 == 0, "{} and {} fused ops", all.0, none.0);
    assert_eq!(all.1.bytes(), none.1.bytes());
}
