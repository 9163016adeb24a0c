use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use remat_emulated::EmulatedOptions;
use remat_graph::ir::{Builder, Graph, ValueId};
use remat_graph::passes::PassOptions;
use remat_kernels::pool::Pool;
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_types::{DType, ErrorKind, Fact, HostTensor};

use super::*;
use crate::eager::Device;
use crate::options::DeviceOptions;
use crate::{Kind, Session, control_flow};

const ROWS: usize = 48;
const SIDE: usize = 32;
const LAYERS: usize = 10;

/// A graph as in a file. `x` goes through layers that share a weight. The sum of the squares of all layers follows, in
/// turn, so that each layer waits for the end. A state `n` takes the last layer.
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

/// `y`, and the next version of `n`, computed from the graph as it is.
fn plain() -> (HostTensor, HostTensor) {
    let (g, [x, w, n]) = (graph(), given());
    let values = g.evaluate(&[x], &[w, n], &Pool::new(1)).expect("computes");
    let value = |v: ValueId| values.get(v).expect("computed").clone();
    (value(g.outputs()[0].value), value(g.states()[1].next.expect("it is updated")))
}

fn options(memory_budget: Option<usize>) -> CompileOptions {
    CompileOptions { memory_budget, freeze: true, ..Default::default() }
}

/// The graph with its weight as a constant.
fn frozen_graph() -> Graph {
    let (g, left) = freeze(&graph(), |i| Ok((i == 0).then(|| given()[1].clone()))).expect("a constant");
    assert_eq!((left, g.states().len()), (vec![1], 1), "what is updated stays a state");
    g
}

/// That graph, compiled.
fn compiled(memory_budget: Option<usize>) -> remat_types::Result<CompiledGraph> {
    let options = options(memory_budget);
    let g = frozen_graph();
    let cx = CompileCx { plan_seconds: Some(0.2), ..CompileCx::alone(1, &options) };
    CompiledGraph::new(g, &cx, &options)
}

/// Bytes of a run.
fn bytes(c: &CompiledGraph) -> usize {
    let f = c.executable().figures();
    f.arena_bytes + f.state_bytes + f.input_bytes + f.output_bytes + f.constant_bytes
}

/// A budget that forces recomputation.
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
fn a_run_follows_a_plan_for_the_room_that_the_budget_of_the_device_leaves() {
    let (y, next) = plain();
    let c = compiled(None).expect("compiles");
    let most = c.executable().figures();
    for device in [
        Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("the CPU opens"),
        EmulatedOptions::default()
            .open()
            .and_then(|b| Device::with_backend(b, DeviceOptions::default()))
            .expect("opens"),
    ] {
        let cx =
            CompileCx { plan_seconds: Some(0.2), ..CompileCx::on(&device, &options(None), &[], &[]).expect("open") };
        let c = CompiledGraph::new(frozen_graph(), &cx, &options(None)).expect("compiles");
        let channel = device.channel();
        let run = || {
            let [x, _, n] = given().map(|t| channel.put_as(&t, Kind::Data).expect("open"));
            let all = [x, n].into_iter().chain(c.resident_constants(&channel)?);
            let y = channel.apply(c.op().clone(), all.collect::<remat_types::SmallVec<[_; 4]>>())?;
            y.iter().map(|h| channel.value(h)).collect::<remat_types::Result<Vec<HostTensor>>>()
        };
        // what stays on the device, such as the inputs of the run, is not the plan's to save
        let free = {
            assert_eq!(run().expect("no limit"), [y.clone(), next.clone()]);
            channel.stats().expect("open").peak_bytes
        };
        let budget = free - most.arena_bytes * 3 / 10;
        channel.set_budget(Some(budget)).expect("room");
        channel.reset_peak().expect("open");
        assert_eq!(run().expect("there is a plan"), [y.clone(), next.clone()]);
        let (f, peak) = (c.figures(), channel.stats().expect("open").peak_bytes);
        assert!(f.recomputed_calls > 0 && f.arena_bytes < most.arena_bytes, "{f:?} against {most:?}");
        assert!(peak <= budget, "{peak} of {budget}");
        channel.set_budget(Some(free - most.arena_bytes)).expect("room");
        let e = run().expect_err("outputs without a workspace");
        let least = e.shortfall().unwrap_or_else(|| panic!("{e}")).smallest_feasible_bytes;
        assert!(least < budget, "{least} of {budget}");
        channel.set_budget(Some(least)).expect("room");
        assert_eq!(run().expect("the smallest feasible is feasible"), [y.clone(), next.clone()]);
        channel.set_budget(None).expect("no limit");
        assert_eq!(run().expect("no limit"), [y.clone(), next.clone()]);
        assert_eq!(c.figures(), c.executable().figures(), "with room again the first plan runs");
    }
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
        let d = e
            .open()
            .and_then(|b| Device::with_backend(b, DeviceOptions { threads: 1, ..DeviceOptions::default() }))
            .expect("opens");
        let options = CompileOptions::default();
        let cx = CompileCx::on(&d, &options, &[], &[]).expect("no budget");
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

#[test]
fn a_run_without_workspace_is_refused_where_its_inputs_and_outputs_do_not_fit() {
    let under = |budget: usize| {
        let b = Builder::new();
        let x = b.input(Fact::new(DType::F32, [1000]), Some("x"));
        b.output(b.node(Unary { f: UnaryFn::Tanh }.into(), &[x], None).expect("fits")[0], "y");
        let options = CompileOptions { memory_budget: Some(budget), freeze: true, ..CompileOptions::default() };
        CompiledGraph::new(b.finish().expect("valid"), &CompileCx::alone(1, &options), &options)
    };
    let both = 2 * remat_device::Alignment::HOST.pad(4000);
    assert_eq!(under(both).expect("they fit").executable().figures().arena_bytes, 0);
    let e = under(both - 1).expect_err("one byte is missing");
    let s = e.shortfall().expect("figures");
    assert_eq!((s.budget_bytes, s.least_bytes, s.smallest_feasible_bytes), (both - 1, both, both));
}

/// Layers with a weight each. With few rows a run holds little more than the weights.
fn weighty(layers: usize, side: usize) -> Graph {
    let b = Builder::new();
    let mut y = b.input(Fact::new(DType::F32, [2, side]), Some("x"));
    for k in 0..layers {
        let w: Vec<f32> = (0..side * side).map(|i| ((i * (k + 3)) % 29) as f32 * 0.004 - 0.05).collect();
        let w = b.constant(&HostTensor::from_slice(&w, [side, side]).expect("fits"));
        let product = b.node(MatMul {}.into(), &[y, w], None).expect("fits")[0];
        y = b.node(Unary { f: UnaryFn::Tanh }.into(), &[product], None).expect("fits")[0];
    }
    b.output(y, "y");
    b.finish().expect("valid")
}

#[test]
fn weights_that_do_not_fit_are_read_from_a_file_in_every_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let (layers, side) = (8, 192);
    let run = |budget: Option<usize>, spills: bool| {
        let options = CompileOptions { memory_budget: budget, freeze: true, ..CompileOptions::default() };
        let spill = spills.then(|| crate::SpillTo::measure(folder.path())).transpose()?;
        let cx = CompileCx { spill, ..CompileCx::alone(1, &options) };
        let compiled = CompiledGraph::new(weighty(layers, side), &cx, &options)?;
        let e = compiled.executable().clone();
        let given = RunBudget { bytes: 0, held: None }.beside_workspace(
            e.graph(),
            Beside::default(),
            true,
            remat_device::Alignment::HOST,
        );
        let reads = e.graph().nodes().iter().filter(|n| n.op.label() == "read_constant").count();
        let mut s = Session::new(e.clone())?;
        let x = s.input_as_mut::<f32>(0)?;
        x.iter_mut().enumerate().for_each(|(i, v)| *v = (i % 13) as f32 * 0.1);
        let mut bits = Vec::new();
        for _ in 0..2 {
            s.run()?;
            bits.push(s.output(0)?.as_slice::<f32>()?.iter().map(|v| v.to_bits()).collect::<Vec<u32>>());
        }
        assert_eq!(bits[0], bits[1]);
        remat_types::Result::Ok((bits.remove(0), given + e.figures().arena_bytes, reads))
    };
    let (want, whole, reads) = run(None, true).expect("no budget");
    assert_eq!(reads, 0);
    let mut before = 0;
    for percent in [100, 80, 60, 40, 25] {
        let budget = whole * percent / 100;
        let (got, bytes, reads) = run(Some(budget), true).expect("the largest weight fits");
        assert_eq!(got, want, "{percent} %");
        assert!(bytes <= budget, "{bytes} of {budget}");
        assert!(reads >= before && reads <= layers, "{reads} at {percent} %, {before} before");
        assert!((reads == 0) == (percent == 100), "{reads} at {percent} %");
        before = reads;
        let refused = run(Some(budget), false).map_err(|e| e.kind());
        assert_eq!(refused.err(), (percent < 100).then_some(ErrorKind::Budget), "without a folder, {percent} %");
    }
    let e = run(Some(whole / 20), true).expect_err("not even one weight");
    assert!(e.shortfall().is_some_and(|s| s.smallest_feasible_bytes > whole / 20), "{e}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "the file has no name");
}
