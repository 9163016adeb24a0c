//! Programs on an asynchronous device: call by call, on several streams, with the bits of the CPU.

use remat_emulated::{EmulatedOptions, RaceLog};
use remat_graph::ir::Origin;
use remat_kernels::pool::Pool;
use remat_ops::testing::{bit_differences, each_sample};
use remat_ops::{LayoutReq, eval_on_host};

use super::*;
use crate::control_flow;

fn emulated(e: EmulatedOptions, budget_bytes: Option<usize>) -> (Channel, RaceLog) {
    let log = e.log.clone();
    let options = DeviceOptions { threads: 1, host_compute: false, budget_bytes, ..DeviceOptions::default() };
    (e.open().and_then(|b| Device::with_backend(b, options)).expect("opens").channel(), log)
}

fn streams(streams: u16, seed: u64) -> (Channel, RaceLog) {
    emulated(EmulatedOptions { streams, seed, max_delay_us: 60, ..EmulatedOptions::default() }, None)
}

fn put(c: &Channel, t: &HostTensor) -> Handle {
    c.put_as(t, Kind::Data).expect("open")
}

fn ready(b: Builder) -> Arc<Executable> {
    Arc::new(Executable::new(Arc::new(b.finish().expect("valid")), 1).expect("builds"))
}

fn no_races(log: &RaceLog) {
    assert_eq!(log.races(), Vec::<String>::new());
}

#[test]
fn random_programs_have_the_bits_of_the_cpu_on_any_number_of_streams() {
    for seed in 0..40 {
        let c = cpu();
        let (graph, _, wanted) = random(seed, 5 + seed as usize % 20, &c);
        let exe = Arc::new(Executable::new(graph, 1).expect("builds"));
        let (d, log) = streams(1 + seed as u16 % 4, seed);
        let x: Vec<Handle> = given().iter().map(|t| put(&d, t)).collect();
        for again in 0..2 {
            let y = run(&d, &OpRef::from_shared(exe.clone()), &x);
            for (k, (y, w)) in y.iter().zip(&wanted).enumerate() {
                assert_eq!(bytes(&d, y), bytes(&c, w), "seed {seed}, result {k}, run {again}");
            }
        }
        no_races(&log);
        assert!(exe.is_timed(), "steps were timed one by one");
        assert!(exe.fastest_times().iter().flatten().any(|ns| *ns > 0), "seed {seed}");
    }
}

#[test]
fn an_order_that_is_missing_between_steps_is_found() {
    let e = EmulatedOptions { streams: 3, ignore_waits: true, ..EmulatedOptions::default() };
    let (d, log) = emulated(e, None);
    let b = Builder::new();
    let x = b.input(Fact::new(DType::F32, [1 << 14]), None);
    let t = b.node(unary(UnaryFn::Tanh), &[x], None).expect("fits")[0];
    let y = b.node(unary(UnaryFn::Exp), &[t], None).expect("fits")[0];
    b.output(y, "y");
    let x = put(&d, &HostTensor::zeros(DType::F32, [1 << 14]).expect("fits"));
    // the result is wrong or refused; the test counts only the finding
    let y = run(&d, &OpRef::from_shared(ready(b)), &[x]).remove(0);
    let _ = d.value(&y);
    let found = |r: &String| r.contains("nothing orders exp") && r.contains("after tanh");
    assert!(log.races().iter().any(found), "{:?}", log.races());
}

/// A graph of one op on inputs of these types. Its results are negated, so that the op is one step among others.
fn around(op: &OpRef, x: &[HostTensor]) -> Builder {
    let b = Builder::new();
    let x: Vec<ValueId> = x.iter().map(|t| b.input(Fact::new(t.dtype(), t.shape().clone()), None)).collect();
    let y = b.node(op.clone(), &x, None).expect("fits");
    for (j, v) in y.iter().enumerate() {
        let out = match remat_ops::Apply::fact(&b, v).dtype.is_float() {
            true => b.node(unary(UnaryFn::Neg), &[*v], None).expect("fits")[0],
            false => *v,
        };
        b.output(out, &format!("y{j}"));
    }
    b
}

#[test]
fn loops_calls_and_choices_run_step_by_step_alone_and_within_a_program() {
    let pool = Pool::new(1);
    let registry = control_flow::registry();
    let (mut ran, mut failed, mut with_constants) = (0, 0, 0);
    each_sample(&registry, |entry, i, s| {
        let facts: Vec<Fact> = s.x.iter().map(Fact::of).collect();
        let fits = s.op.infer(&facts.iter().collect::<Vec<_>>()).is_ok();
        if control_flow::FAMILY.ops.iter().all(|e| e.name != entry.name) || !fits {
            return;
        }
        let what = format!("{} sample {i}", entry.name);
        let (d, log) = streams(1 + i as u16 % 3, i as u64);
        let x: Vec<Handle> = s.x.iter().map(|t| put(&d, t)).collect();
        let exe = ready(around(&s.op, &s.x));
        let host = cpu();
        let on_host: Vec<Handle> = s.x.iter().map(|t| put(&host, t)).collect();
        let whole = OpRef::from_shared(exe.clone());
        let values = |c: &Channel, op: &OpRef, x: &[Handle]| -> Result<Vec<HostTensor>> {
            run(c, op, x).iter().map(|y| c.value(y)).collect()
        };
        match eval_on_host(&*s.op, &s.x, &pool) {
            Ok(want) => {
                let got = values(&d, &s.op, &x).expect("runs alone");
                assert_eq!(bit_differences(&got, &want), None, "{what}");
                let want = values(&host, &whole, &on_host).expect("runs on the CPU");
                let got = values(&d, &whole, &x).expect("runs within a program");
                assert_eq!(bit_differences(&got, &want), None, "{what} within a program");
                ran += 1;
            }
            Err(_) => {
                let want = values(&host, &whole, &on_host).expect_err("fails on the CPU");
                let got = values(&d, &whole, &x).expect_err("fails within a program");
                assert_eq!((got.kind(), got.op()), (want.kind(), want.op()), "{what}: {got}");
                failed += 1;
            }
        }
        with_constants += usize::from(exe.program.constant_bytes() > 0);
        no_races(&log);
    });
    assert!(
        ran > 10 && failed > 0 && with_constants > 1,
        "{ran} ran, {failed} failed, {with_constants} with constants"
    );
}

/// `s <- tanh(s) * x + 0.5`, and `y` takes a row of `neg(s)` of the old `s`. A wrong index fails before the update.
fn stateful() -> Arc<Executable> {
    let b = Builder::raw();
    let (x, index) = (b.input(square(), None), b.input(Fact::new(DType::I64, [1]), None));
    let s = b.state(square(), Some("s"));
    let node = |op: OpRef, x: &[ValueId]| b.node(op, x, None).expect("fits")[0];
    let half = b.constant(&HostTensor::from_slice(&[0.5f32; SIDE * SIDE], [SIDE, SIDE]).expect("fits"));
    let t = node(binary(BinaryFn::Mul), &[node(unary(UnaryFn::Tanh), &[s]), x]);
    b.set_state(s, node(binary(BinaryFn::Add), &[t, half])).expect("same type");
    b.output(node(Take { axis: 0 }.into(), &[node(unary(UnaryFn::Neg), &[s]), index]), "y");
    ready(b)
}

/// Runs ten steps, one with a wrong index. Gives the values that were read, and the failures.
fn train(c: &Channel, exe: &Arc<Executable>) -> (Vec<Vec<u8>>, Vec<ErrorKind>) {
    let [x, s, _] = given().try_into().expect("three");
    let (x, mut s) = (put(c, &x), put(c, &s));
    let (mut seen, mut failed) = (Vec::new(), Vec::new());
    for step in 0..10i64 {
        let index = HostTensor::from_slice(&[if step == 6 { 99 } else { step % 3 }], [1]).expect("fits");
        let x: SmallVec<[Handle; 4]> = [x.clone(), put(c, &index), s].into_iter().collect();
        let y = c.update(OpRef::from_shared(exe.clone()), x, &[None, Some(2)]).expect("queued");
        s = y[1].clone();
        match c.value(&y[0]) {
            Ok(y) => seen.push(y.bytes().to_vec()),
            Err(e) => failed.push(e.kind()),
        }
        drop(y);
        // the read reports the failure, and the step after it is taken
        c.sync().expect("nothing else failed");
        seen.push(bytes(c, &s));
    }
    (seen, failed)
}

#[test]
fn states_are_updated_in_place_and_a_run_that_fails_changes_none() {
    let exe = stateful();
    let want = train(&cpu(), &exe);
    assert_eq!(want.1, [ErrorKind::Index]);
    assert_eq!(want.0[12], want.0[11], "the step that failed left the state");
    for (n, seed) in [(1, 1), (2, 2), (3, 3), (4, 4), (3, 5)] {
        let (d, log) = streams(n, seed);
        assert_eq!(train(&d, &exe), want, "{n} streams, seed {seed}");
        no_races(&log);
        d.verify().expect("consistent");
    }
}

/// The host's kernels, but for rows only, with more workspace and with times of their own.
#[derive(Debug)]
struct Roomy(HostKernels);

const MORE: usize = 4096;

impl KernelSet for Roomy {
    fn device(&self) -> &str {
        "roomy"
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn supports(&self, _op: &dyn Op, _x: &[&Fact]) -> bool {
        true
    }

    fn workspace(&self, op: &dyn Op, x: &[&Fact]) -> usize {
        self.0.workspace(op, x) + MORE
    }

    fn layout(&self, _op: &dyn Op, _input: usize) -> LayoutReq {
        LayoutReq::Contiguous
    }

    fn overwrite<'o>(&self, op: &'o dyn Op) -> &'o [(usize, usize)] {
        self.0.overwrite(op)
    }

    fn cost_ns(&self, _op: &dyn Op, _x: &[&Fact], _y: &[Fact]) -> u64 {
        77
    }
}

#[test]
fn an_executable_is_made_for_the_kernels_that_it_will_run_on() {
    let b = Builder::new();
    let x = b.input(square(), None);
    let t = b.node(Permute { order: SmallVec::from_slice(&[1, 0]) }.into(), &[x], None).expect("fits")[0];
    b.output(b.node(binary(BinaryFn::Sub), &[t, x], None).expect("fits")[0], "y");
    let graph = Arc::new(b.finish().expect("valid"));
    let (c, x) = (cpu(), given().swap_remove(0));
    let host = Executable::new(graph.clone(), 1).expect("builds");
    assert_eq!((host.calls(), host.figures().arena_bytes), (1, 0), "it reads the view");
    let kernels: Arc<dyn KernelSet> = Arc::new(Roomy(HostKernels::new("roomy", 1)));
    let exe = Executable::for_kernels(graph, &kernels, &ExecutableOptions::default()).expect("builds");
    let copy = remat_device::Alignment::HOST.pad(square().bytes());
    assert_eq!((exe.calls(), exe.figures().arena_bytes), (2, copy + MORE), "a copy without gaps, and more workspace");
    assert!(exe.problem(&[]).expect("states").ops.iter().any(|o| o.time_ns == 77));
    let x = [c.put_as(&x, Kind::Data).expect("open")];
    let wanted = run(&c, &OpRef::from_shared(Arc::new(host)), &x);
    assert_gives(&c, exe, &x, &wanted);
}

#[test]
fn a_function_is_compiled_for_its_device_whose_constants_count() {
    use crate::compile::{CompileCx, CompileOptions, CompiledGraph};
    let constant = HostTensor::from_slice(&[0.25f32; 1024], [1024]).expect("fits");
    let graph = || {
        let b = Builder::new();
        let x = b.input(Fact::new(DType::F32, [1024]), None);
        let y = b.node(binary(BinaryFn::Add), &[x, b.constant(&constant)], None).expect("fits")[0];
        let z = b.node(unary(UnaryFn::Tanh), &[y], None).expect("fits")[0];
        b.output(b.node(binary(BinaryFn::Mul), &[y, z], None).expect("fits")[0], "y");
        b.finish().expect("valid")
    };
    let options = |bytes: usize| {
        let mut o = CompileOptions { memory_budget: Some(bytes), ..Default::default() };
        o.passes.level = 0;
        o
    };
    let one = remat_device::Alignment::HOST.pad(4096);
    let d = EmulatedOptions::default()
        .open()
        .and_then(|b| Device::with_backend(b, DeviceOptions::default()))
        .expect("opens");
    let compile = |bytes: usize, is_device: bool| {
        let o = options(bytes);
        let cx = if is_device { CompileCx::on(&d, &o, &[], &[])? } else { CompileCx::alone(1, &o) };
        CompiledGraph::new(graph(), &cx, &o)
    };
    let needs = (0..8).find(|k| compile(k * one, false).is_ok()).expect("it fits somewhere");
    assert_eq!(compile(needs * one, true).expect_err("its constant counts").kind(), ErrorKind::Budget);
    let on_device = compile((needs + 1) * one, true).expect("with room for it");
    assert_eq!((on_device.executable().kernels().device(), on_device.executable().threads()), ("emulated", 1));
}

#[test]
fn constants_count_against_the_budget_where_the_device_holds_them() {
    const ELEMS: usize = 1024;
    let b = Builder::new();
    let x = b.input(Fact::new(DType::F32, [ELEMS]), None);
    let ramp: Vec<f32> = (0..ELEMS).map(|i| i as f32 * 0.125).collect();
    let constant = b.constant(&HostTensor::from_slice(&ramp, [ELEMS]).expect("fits"));
    let y = b.node(binary(BinaryFn::Add), &[x, constant], None).expect("fits")[0];
    b.output(y, "y");
    let exe = ready(b);
    assert!(exe.graph().value_ids().any(|v| matches!(exe.graph().value(v).origin, Origin::Constant(_))));
    let one = remat_device::Alignment::HOST.pad(ELEMS * 4);
    let given = HostTensor::zeros(DType::F32, [ELEMS]).expect("fits");
    let on = |budget: usize| {
        let (d, log) = emulated(EmulatedOptions { max_delay_us: 5, ..EmulatedOptions::default() }, Some(budget));
        let x = put(&d, &given);
        let y = d.apply(OpRef::from_shared(exe.clone()), std::iter::once(x).collect::<SmallVec<[Handle; 4]>>())?;
        let value = d.value(&y[0])?;
        no_races(&log);
        Ok::<_, Error>((value.to_vec::<f32>().expect("f32"), d.stats().expect("open").peak_bytes))
    };
    assert_eq!(on(3 * one).expect("input, output and constant"), (ramp, 3 * one));
    assert_eq!(on(2 * one).expect_err("no room for the constant").kind(), ErrorKind::Budget);
}

#[test]
fn constants_stay_on_the_device_from_run_to_run() {
    use crate::compile::{CompileCx, CompileOptions, CompiledGraph};
    const ELEMS: usize = 1024;
    let b = Builder::new();
    let x = b.input(Fact::new(DType::F32, [ELEMS]), None);
    let ramp: Vec<f32> = (0..ELEMS).map(|i| i as f32 * 0.125).collect();
    let constant = b.constant(&HostTensor::from_slice(&ramp, [ELEMS]).expect("fits"));
    b.output(b.node(binary(BinaryFn::Add), &[x, constant], None).expect("fits")[0], "y");
    let one = remat_device::Alignment::HOST.pad(ELEMS * 4);
    let (d, log) = emulated(EmulatedOptions { max_delay_us: 5, ..EmulatedOptions::default() }, Some(3 * one));
    let options = CompileOptions::default();
    let device = d.device();
    let cx = CompileCx::on(&device, &options, &[], &[]).expect("no budget of its own");
    let compiled = CompiledGraph::new(b.finish().expect("valid"), &cx, &options).expect("fits");
    let in_use = || d.stats().expect("open").in_use_bytes;
    for run in 0..3 {
        let x = put(&d, &HostTensor::zeros(DType::F32, [ELEMS]).expect("fits"));
        let mut inputs: SmallVec<[Handle; 4]> = std::iter::once(x).collect();
        inputs.extend(compiled.resident_constants(&d).expect("open"));
        assert_eq!(inputs.len(), 2, "the constants are an input");
        let y = d.apply(compiled.op().clone(), inputs).expect("fits");
        assert_eq!(d.value(&y[0]).expect("computes").to_vec::<f32>().expect("f32"), ramp, "run {run}");
        drop(y);
        assert_eq!(in_use(), one, "run {run}: the constants alone");
    }
    drop(compiled);
    assert_eq!(in_use(), 0, "they end with the compiled graph");
    no_races(&log);
}

#[test]
fn an_observer_sees_the_values_of_a_device_s_run_and_may_end_it() {
    use std::sync::Mutex;
    let exe = stateful();
    let labels = |c: &Channel, refuse: &'static str| {
        let seen = Arc::new(Mutex::new(Vec::<(String, Vec<u8>)>::new()));
        let to = seen.clone();
        exe.observe(Some(Arc::new(move |v: &Observed<'_>| {
            let label = v.graph.node(v.node).op.label();
            to.lock().expect("not poisoned").push((label.to_owned(), v.view.bytes.to_vec()));
            if label == refuse { Err(Error::new(ErrorKind::Value, "refused")) } else { Ok(()) }
        })));
        let [x, s, _] = given().try_into().expect("three");
        let index = HostTensor::from_slice(&[1i64], [1]).expect("fits");
        let x: Vec<Handle> = [&x, &index, &s].iter().map(|t| put(c, t)).collect();
        let kind = c
            .value(&run(c, &OpRef::from_shared(exe.clone()), &x)[0])
            .map_err(|e| (e.kind(), e.op().map(str::to_owned)));
        exe.observe(None);
        let seen = seen.lock().expect("not poisoned").clone();
        (seen, kind.map(|v| v.bytes().to_vec()))
    };
    for refuse in ["", "mul"] {
        let want = labels(&cpu(), refuse);
        assert!(want.0.len() >= 2, "{:?}", want.0);
        let (d, log) = streams(3, 7);
        assert_eq!(labels(&d, refuse), want, "refused: {refuse}");
        no_races(&log);
    }
}
