//! Kernels of a device: every op's samples on every device, devices that lack kernels, and times from events.

use std::collections::BTreeSet;
use std::sync::Arc;

use remat_device::{HostKernel, KernelRegistry};
use remat_emulated::{EmulatedOptions, RaceLog};
use remat_graph::ir::{Builder, Graph};
use remat_kernels::pool::Pool;
use remat_ops::testing::{bit_differences, each_sample};
use remat_ops::{EvalCx, Expect, Op, OpRef, Registry, Sample, eval_on_host};
use remat_types::{DType, ErrorKind, Fact, HostTensor, Result, SmallVec};

use super::{apply1, chain, cpu, put, ramp, try1, value};
use crate::DeviceOptions;
use crate::control_flow::{Body, Call};
use crate::eager::{Channel, Device, Handle};
use crate::executable::Executable;
use crate::report::Kind;
use remat_ops::pointwise::{Unary, UnaryFn};

fn options() -> DeviceOptions {
    // values that the host computes say nothing about a device
    DeviceOptions { threads: 1, host_compute: false, ..DeviceOptions::default() }
}

/// An emulated device without some kernels.
fn lacking(without_kernels: Vec<&'static str>, options: DeviceOptions) -> (Channel, RaceLog) {
    let log = RaceLog::default();
    let e = EmulatedOptions { without_kernels, max_delay_us: 5, log: log.clone(), ..EmulatedOptions::default() };
    (e.open().and_then(|b| Device::with_backend(b, options)).expect("opens").channel(), log)
}

/// Every second op, so that a network has neighbours of both kinds.
fn half() -> Vec<&'static str> {
    Registry::builtin().entries().iter().map(|e| e.name).step_by(2).collect()
}

fn run(c: &Channel, s: &Sample<OpRef>) -> Result<Vec<HostTensor>> {
    let x: SmallVec<[Handle; 4]> = s.x.iter().map(|t| c.put_as(t, Kind::Data)).collect::<Result<_>>()?;
    c.apply(s.op.clone(), x)?.iter().map(|y| c.value(y)).collect()
}

/// Compares the samples of all ops on a device with the ops' own kernels. Returns the ops that computed something.
fn check_samples(c: &Channel) -> BTreeSet<&'static str> {
    let pool = Pool::new(1);
    let (mut failures, mut computed) = (Vec::new(), BTreeSet::new());
    each_sample(&Registry::builtin(), |entry, i, s| {
        let failure = match (eval_on_host(&*s.op, &s.x, &pool), run(c, s)) {
            (Ok(want), Ok(got)) => {
                computed.insert(entry.name);
                bit_differences(&got, &want)
            }
            (Err(_), Err(e)) => match s.expect {
                Expect::Error(kind) if kind != e.kind() => Some(format!("error {kind:?} expected, got {e}")),
                _ => None,
            },
            (Ok(_), Err(e)) => Some(format!("the device fails: {e}")),
            (Err(e), Ok(_)) => Some(format!("the device computes what fails on the host: {e}")),
        };
        failures.extend(failure.map(|f| format!("{} sample {i}, {:?}: {f}", entry.name, s.op)));
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    // every failure was read, so nothing is left to report
    c.sync().expect("every failure was told");
    computed
}

#[test]
fn samples_have_the_ops_bits_on_every_device() {
    let ops = check_samples(&cpu(options()));
    assert!(ops.len() > 60, "{} ops computed something", ops.len());
    let (c, log) = lacking(Vec::new(), options());
    assert_eq!(check_samples(&c), ops);
    assert_eq!(c.stats().expect("open").host_fallback_ops, 0);
    assert_eq!(log.races(), Vec::<String>::new());
}

#[test]
fn what_lacks_a_kernel_runs_on_the_host_and_the_report_says_so() {
    let (c, log) = lacking(half(), DeviceOptions { host_fallback: true, ..options() });
    check_samples(&c);
    let report = c.report().expect("open");
    let on_host: BTreeSet<&str> = report.on_host.iter().map(|o| o.op.as_str()).collect();
    assert!(on_host.len() > 30, "{on_host:?}");
    let launches: u64 = report.on_host.iter().map(|o| o.count).sum();
    assert!(launches < report.stats.executed_ops, "the others ran on the device: {launches}");
    assert_eq!(launches, report.stats.host_fallback_ops);
    assert!(report.stats.host_fallback_ns > 0 && report.stats.host_fallback_bytes > 0);
    assert!(report.to_string().contains("without a kernel ran on the host"), "{report}");
    assert_eq!(log.races(), Vec::<String>::new());
}

#[test]
fn without_leave_an_op_without_a_kernel_is_an_error_that_names_both() {
    let (c, _) = lacking(vec!["unary"], options());
    let x = put(&c, &ramp(8));
    let e = try1(&c, Unary { f: UnaryFn::Tanh }, [x.clone()]).expect_err("no kernel");
    assert_eq!(e.kind(), ErrorKind::Device);
    let text = e.to_string();
    assert!(text.contains("tanh") && text.contains("emulated") && text.contains("host_fallback"), "{text}");
    assert_eq!(value(&c, &super::add(&c, &x, &x)).len(), 8, "the others run");
}

#[test]
fn under_a_budget_what_ran_on_the_host_is_made_again_there() {
    let want = {
        let c = cpu(options());
        let x = put(&c, &ramp(1024));
        let all = chain(&c, &x, |_| {});
        value(&c, &super::back(&c, x, all))
    };
    let under = DeviceOptions { budget_bytes: Some(6 * 4096), host_fallback: true, ..options() };
    let (c, log) = lacking(vec!["unary"], under);
    let x = put(&c, &ramp(1024));
    let all = chain(&c, &x, |_| {});
    assert_eq!(value(&c, &super::back(&c, x, all)), want);
    let stats = c.stats().expect("open");
    assert!(stats.recomputed_ops > 0, "six places do not hold twelve results");
    assert!(stats.host_fallback_ops > 12, "{} on the host", stats.host_fallback_ops);
    assert!(stats.peak_bytes <= 6 * 4096);
    assert_eq!(log.races(), Vec::<String>::new());
}

#[test]
fn an_asynchronous_device_learns_times_from_its_events() {
    let (c, _) = lacking(Vec::new(), DeviceOptions { always_record: true, ..options() });
    let a = put(&c, &HostTensor::zeros(remat_types::DType::F32, [192, 192]).expect("fits"));
    for _ in 0..8 {
        let y = super::matmul(&c, &a, &a);
        c.value(&y).expect("computed");
    }
    let stats = c.stats().expect("open");
    assert_eq!(stats.executed_ops, 8);
    // a guess would give eight times the same
    let prior = 8 * (200 + 2 * 192u64.pow(3) / 20 + 3 * 4 * 192 * 192 / 8);
    assert!(stats.executed_ns > 0 && stats.executed_ns != prior, "{} ns are a guess", stats.executed_ns);
    let y = apply1(&c, Unary { f: UnaryFn::Tanh }, [a.clone()]);
    c.drop_value(&y).expect("open");
    assert_eq!(c.value(&y).expect("made again").shape(), &a.fact().shape);
    let report = c.report().expect("open");
    assert_eq!(report.recomputed.iter().map(|o| (o.op.as_str(), o.count)).collect::<Vec<_>>(), [("tanh", 1)]);
    assert!(report.recomputed[0].time_ns > 0);
}

#[test]
fn a_program_that_uses_an_op_without_a_kernel_has_none_either() {
    let build = || {
        let b = remat_graph::ir::Builder::new();
        let x = b.input(remat_types::Fact::new(remat_types::DType::F32, [8]), None);
        let y = b.node(Unary { f: UnaryFn::Tanh }.into(), &[x], None).expect("inferred");
        b.output(y[0], "y");
        std::sync::Arc::new(b.finish().expect("valid"))
    };
    let run = |options: DeviceOptions| {
        let (c, _) = lacking(vec!["unary"], options);
        let e = crate::Executable::new(build(), 1)?;
        let y = try1(&c, OpRef::from_shared(std::sync::Arc::new(e)), [put(&c, &ramp(8))])?;
        Ok::<_, remat_types::Error>((value(&c, &y), c.stats()?.host_fallback_ops))
    };
    assert_eq!(run(options()).expect_err("no kernel").kind(), ErrorKind::Device);
    let (got, on_host) = run(DeviceOptions { host_fallback: true, ..options() }).expect("on the host");
    let c = cpu(options());
    let want = value(&c, &super::tanh(&c, &put(&c, &ramp(8))));
    assert_eq!((got, on_host), (want, 1));
}

/// A kernel that replaces all functions of one operand: it doubles the operand.
#[derive(Debug)]
struct Doubling;

impl HostKernel for Doubling {
    fn run(&self, _op: &dyn Op, cx: &mut EvalCx<'_>) -> Result<()> {
        let x = cx.x[0].slice::<f32>()?;
        cx.y[0].slice_mut::<f32>()?.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        Ok(())
    }
}

/// `tanh(tanh(x))` as a graph.
fn tanh_twice() -> Graph {
    let b = Builder::raw();
    let x = b.input(Fact::new(DType::F32, [256]), None);
    let tanh = |v| b.node(Unary { f: UnaryFn::Tanh }.into(), &[v], None).expect("fits")[0];
    b.output(tanh(tanh(x)), "y");
    b.finish().expect("valid")
}

#[test]
fn a_kernel_that_a_program_brings_runs_wherever_the_op_does() {
    let own = || KernelRegistry::default().with("unary", Arc::new(Doubling) as Arc<dyn HostKernel>).expect("the first");
    let again = own().with("unary", Arc::new(Doubling) as Arc<dyn HostKernel>);
    assert_eq!(again.expect_err("there is one").kind(), ErrorKind::Value);
    let call = Call { body: Body::new(tanh_twice()).expect("no states") };
    let four: Vec<f32> = ramp(256).to_vec::<f32>().expect("f32").iter().map(|v| 4.0 * v).collect();
    for budget_bytes in [None, Some(4 * 1024)] {
        let c = cpu(DeviceOptions { budget_bytes, kernels: own(), ..options() });
        let x = put(&c, &ramp(256));
        let tanh = |x: &Handle| apply1(&c, Unary { f: UnaryFn::Tanh }, [x.clone()]);
        assert_eq!(value(&c, &tanh(&tanh(&x))), four, "eagerly, {budget_bytes:?}");
        assert_eq!(value(&c, &apply1(&c, call.clone(), [x.clone()])), four, "within an op, {budget_bytes:?}");
        let kernels = c.device().kernels().clone();
        let exe = Executable::for_kernels(Arc::new(tanh_twice()), &kernels, &Default::default()).expect("builds");
        let y = c.apply(OpRef::from_shared(Arc::new(exe)), SmallVec::from_iter([x])).expect("fits");
        assert_eq!(value(&c, &y[0]), four, "compiled, {budget_bytes:?}");
    }
    let c = cpu(options());
    let y = apply1(&c, Unary { f: UnaryFn::Tanh }, [put(&c, &ramp(256))]);
    assert_ne!(value(&c, &y), four, "another device has the op's own");
}
