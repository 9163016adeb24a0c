//! Random programs give the same bits under any budget, on any number of streams, from any number of threads.
//!
//! A seed makes a program. It runs on the CPU without a budget, which gives the values and the peak. Then it runs under
//! budgets from the peak down to the least that any of its ops needs, with every policy, and on the emulated device.
//! The error of an infeasible budget must name a sufficient one. Following such errors must lead to a budget that
//! suffices.

use std::path::Path;

use remat_cuda::device::{Cache, Cuda};
use remat_cuda::driver::{Compiler, Search, SoftwareOptions, software};
use remat_emulated::EmulatedOptions;
use remat_ops::OpRef;
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::random::Uniform;
use remat_ops::reduce::{Reduce, ReduceFn};
use remat_ops::shape::{BroadcastTo, Permute, Reshape};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result, Scalar, Shape, SmallVec, smallvec};

use super::ops::{Mode, Probe};
use super::spill::{FAST, FailingDisk};
use crate::eager::{Channel, Device, Handle};
use crate::report::Kind;
use crate::testing::Rng;
use crate::{Alignment, AsyncLevel, DeviceOptions, Foresight, PolicyKind};
use remat_device::spill::SpillTo;

/// Programs in a run of the test; `REMAT_PROGRAM_CASES` multiplies it.
const CASES: u64 = 40;

/// Instructions of one thread of a program.
const LENGTH: usize = 70;

/// Seeds that failed once, run before all others.
const FAILED_ONCE: &str = include_str!("failed_seeds.txt");

fn times() -> u64 {
    std::env::var("REMAT_PROGRAM_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(1)
}

#[derive(Clone, Debug)]
enum Step {
    Put(HostTensor, Kind),
    /// Inputs by slot; true if the handle ends with the call.
    Apply(OpRef, SmallVec<[(usize, bool); 4]>),
    /// Replaces the slot.
    Update(OpRef, usize, bool),
    Drop(usize),
    DropValue(usize),
    Commit(usize),
    Fetch(usize),
    Mark,
}

/// One thread's instructions. Slots are numbered in the order in which `Put` and `Apply` make them.
#[derive(Clone, Debug, Default)]
struct Program {
    steps: Vec<Step>,
    shapes: Vec<Option<Shape>>,
}

impl Program {
    fn new(rng: &mut Rng) -> Program {
        let mut p = Program::default();
        for _ in 0..3 {
            p.put(rng);
        }
        for _ in 0..LENGTH {
            p.instruction(rng);
        }
        for s in 0..p.shapes.len() {
            if p.shapes[s].is_some() && rng.below(2) == 0 {
                p.steps.push(Step::Fetch(s));
            }
        }
        p
    }

    fn put(&mut self, rng: &mut Rng) {
        let shape: Shape = rng.pick(&[[16, 16], [32, 16], [16, 32], [1, 16]]).into();
        let v: Vec<f32> = (0..shape.elems()).map(|_| (rng.below(2001) as f32 - 1000.0) / 1000.0).collect();
        let t = HostTensor::from_slice(&v, shape.clone()).expect("fits");
        self.steps.push(Step::Put(t, rng.pick(&[Kind::Data, Kind::Parameter])));
        self.shapes.push(Some(shape));
    }

    fn live(&self, rng: &mut Rng, want: impl Fn(&Shape) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.shapes.len()).filter(|s| self.shapes[*s].as_ref().is_some_and(&want)).collect();
        (!all.is_empty()).then(|| all[rng.below(all.len())])
    }

    fn apply(&mut self, rng: &mut Rng, op: impl Into<OpRef>, x: &[usize], y: &[Shape]) {
        let x: SmallVec<[(usize, bool); 4]> = (x.iter().enumerate())
            .map(|(i, &s)| (s, rng.below(3) == 0 && !x[i + 1..].contains(&s) && !x[..i].contains(&s)))
            .collect();
        for &(s, dies) in &x {
            if dies {
                self.shapes[s] = None;
            }
        }
        self.steps.push(Step::Apply(op.into(), x));
        self.shapes.extend(y.iter().cloned().map(Some));
    }

    fn instruction(&mut self, rng: &mut Rng) {
        let Some(a) = self.live(rng, |_| true) else { return self.put(rng) };
        let Some(sa) = self.shapes[a].clone() else { return };
        match rng.below(24) {
            0 => self.put(rng),
            1..=3 => {
                let f = rng.pick(&[UnaryFn::Tanh, UnaryFn::Exp, UnaryFn::Neg, UnaryFn::Sqrt]);
                self.apply(rng, Unary { f }, &[a], &[sa]);
            }
            4..=7 => {
                if let Some(b) = self.live(rng, |b| sa.broadcast(b).is_ok()) {
                    let y = sa.broadcast(self.shapes[b].as_ref().unwrap_or(&sa)).expect("just checked");
                    let f = rng.pick(&[BinaryFn::Add, BinaryFn::Mul, BinaryFn::Sub]);
                    self.apply(rng, Binary { f }, &[a, b], &[y]);
                }
            }
            8..=10 => {
                if let Some(b) = self.live(rng, |b| sa.rank() == 2 && b.rank() == 2 && b[0] == sa[1]) {
                    let n = self.shapes[b].as_ref().map_or(0, |b| b[1]);
                    self.apply(rng, MatMul {}, &[a, b], &[[sa[0], n].into()]);
                }
            }
            11 => {
                let axis = rng.below(sa.rank());
                let f = rng.pick(&[ReduceFn::Sum, ReduceFn::Max, ReduceFn::Mean]);
                let mut y = sa;
                y.dims_mut()[axis] = 1;
                self.apply(rng, Reduce { f, axes: smallvec![axis], keepdims: true }, &[a], &[y]);
            }
            12 if sa.rank() == 2 => {
                let y = [sa[1], sa[0]].into();
                self.apply(rng, Permute { order: smallvec![1, 0] }, &[a], &[y]);
            }
            13 => {
                let y: Shape = [sa.elems() / 16, 16].into();
                if y.elems() == sa.elems() {
                    self.apply(rng, Reshape { shape: y.clone() }, &[a], &[y]);
                }
            }
            14 if sa.rank() == 2 && sa[0] == 1 => {
                let y: Shape = [16, sa[1]].into();
                self.apply(rng, BroadcastTo { shape: y.clone() }, &[a], &[y]);
            }
            15 => {
                let mode = rng.pick_mode();
                self.apply(rng, Probe(mode), &[a], &[sa]);
            }
            16 => self.apply(rng, Probe(Mode::Two), &[a], &[sa.clone(), sa]),
            17 => {
                let key = HostTensor::from_slice(&[rng.next(), rng.next()], [2]).expect("fits");
                self.steps.push(Step::Put(key, Kind::Data));
                let slot = self.shapes.len();
                self.shapes.push(None);
                let (lo, hi) = (Scalar::Float(-1.0), Scalar::Float(1.0));
                let op = Uniform { dtype: DType::F32, shape: [16, 16].into(), lo, hi };
                self.steps.push(Step::Apply(op.into(), smallvec![(slot, true)]));
                self.shapes.push(Some([16, 16].into()));
            }
            18 | 19 => self.steps.push(Step::Update(Probe(rng.pick_mode()).into(), a, rng.below(2) == 0)),
            20 => {
                self.steps.push(Step::Drop(a));
                self.shapes[a] = None;
            }
            21 => self.steps.push(Step::DropValue(a)),
            22 => self.steps.push(if rng.below(4) == 0 { Step::Commit(a) } else { Step::Mark }),
            _ => self.steps.push(Step::Fetch(a)),
        }
    }

    /// Runs on `channels`, with steps on one or another.
    fn run(&self, channels: &[Channel], seed: u64) -> Result<Vec<HostTensor>> {
        let mut rng = Rng(seed);
        let mut slots: Vec<Option<Handle>> = Vec::new();
        let mut fetched = Vec::new();
        let named = |slots: &[Option<Handle>], s: usize| slots[s].clone().expect("the program names living slots");
        for step in &self.steps {
            let c = &channels[rng.below(channels.len())];
            match step {
                Step::Put(t, kind) => slots.push(Some(c.put_as(t, *kind)?)),
                Step::Apply(op, x) => {
                    let x = x.iter().map(|&(s, dies)| {
                        let h = if dies { slots[s].take() } else { slots[s].clone() };
                        h.expect("the program names living slots")
                    });
                    let x: SmallVec<[Handle; 4]> = x.collect();
                    slots.extend(c.apply(op.clone(), x)?.into_iter().map(Some));
                }
                Step::Update(op, s, donate) => {
                    let x = if *donate { slots[*s].take() } else { slots[*s].clone() };
                    let x = x.expect("the program names living slots");
                    slots[*s] = c.update(op.clone(), smallvec![x], &[Some(0)])?.pop();
                }
                Step::Drop(s) => slots[*s] = None,
                Step::DropValue(s) => c.drop_value(&named(&slots, *s))?,
                Step::Commit(s) => c.commit(&named(&slots, *s), Kind::Parameter)?,
                Step::Fetch(s) => fetched.push(c.value(&named(&slots, *s))?),
                Step::Mark => c.step_mark()?,
            }
        }
        // A failed update leaves the old version and no error at a fetch.
        channels[0].sync()?;
        Ok(fetched)
    }
}

impl Rng {
    fn pick_mode(&mut self) -> Mode {
        self.pick(&[Mode::Increment, Mode::Workspace, Mode::Once])
    }
}

/// The outcome of a run, with the values or the first error, and the device's figures.
fn run(d: &Device, streams: u16, programs: &[Program], seed: u64) -> (Result<Vec<Vec<HostTensor>>>, crate::Stats) {
    let channels: Vec<Channel> = (0..streams).map(|s| d.stream(s).expect("exists")).collect();
    let results: Vec<Result<Vec<HostTensor>>> = std::thread::scope(|s| {
        let threads: Vec<_> = (programs.iter().enumerate())
            .map(|(i, p)| {
                let channels = &channels;
                s.spawn(move || p.run(channels, seed + i as u64))
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    channels[0].verify().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let stats = channels[0].stats().expect("open");
    assert_eq!((stats.tensors, stats.storages, stats.in_use_bytes), (0, 0, 0), "seed {seed}: left behind {stats:?}");
    // The most specific error comes first. Others may only be poisoned by it.
    let (bad, good): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_err);
    let first = bad.into_iter().filter_map(Result::err).min_by_key(|e| e.shortfall().is_none());
    (first.map_or_else(|| Ok(good.into_iter().flatten().collect()), Err), stats)
}

/// Runs under ever larger budgets, as the errors advise, until one suffices.
fn run_to_success(seed: u64, budget: usize, peak: usize, mut attempt: impl FnMut(usize) -> Option<Error>) {
    let mut bytes = budget;
    for attempt_no in 0..40 {
        let Some(e) = attempt(bytes) else { return };
        let Some(s) = e.shortfall() else { panic!("seed {seed}, budget {bytes}: {e:?}") };
        assert!(s.smallest_feasible_bytes > bytes, "seed {seed}, budget {bytes}: {e:?}");
        // The figure is that of one command, and threads interleave differently each time. So the search gives up after
        // some steps.
        let step = if attempt_no < 8 { 0 } else { peak / 16 };
        bytes = s.smallest_feasible_bytes.max((bytes + step).next_multiple_of(64));
    }
    panic!("seed {seed}: from {budget} on no budget up to {bytes} was enough, peak {peak}");
}

fn check(seed: u64) {
    let mut rng = Rng(seed);
    let threads = rng.pick(&[1, 1, 3]);
    let programs: Vec<Program> = (0..threads).map(|_| Program::new(&mut rng)).collect();
    let free = DeviceOptions { always_record: true, threads: 1, ..DeviceOptions::default() };
    let cpu = Device::cpu(free.clone()).expect("opens");
    let (want, stats) = run(&cpu, 1, &programs, seed);
    let want = want.unwrap_or_else(|e| panic!("seed {seed} without a budget: {e:?}"));
    let (peak, least) = (stats.peak_bytes, stats.least_budget_bytes);
    let alignments = [Alignment::HOST, Alignment::new(256).expect("a power of two")];
    let alignment = alignments[seed as usize % 2];
    let compare = |what: &str, bytes: usize, got: (Result<Vec<Vec<HostTensor>>>, crate::Stats)| {
        assert!(got.1.peak_bytes <= bytes, "seed {seed}, {what}, budget {bytes}: peak {}", got.1.peak_bytes);
        match got.0 {
            Ok(values) => assert!(values == want, "seed {seed}, {what}, budget {bytes}: values differ"),
            Err(e) => {
                let typed = matches!(e.kind(), ErrorKind::Budget | ErrorKind::Poisoned);
                // a small tensor takes a whole unit
                let most = peak * threads * if what == "emulated" { alignment.bytes() / 64 } else { 1 };
                assert!(typed && bytes < most, "seed {seed}, {what}, budget {bytes} of {peak}: {e:?}");
                return Some(e);
            }
        }
        None
    };
    let plain = Device::cpu(DeviceOptions { always_record: false, ..free.clone() }).expect("opens");
    assert!(compare("unrecorded", usize::MAX, run(&plain, 1, &programs, seed)).is_none());
    for (i, percent) in [100, 75, 50, 25, 0].into_iter().enumerate() {
        let budget = (least + peak.saturating_sub(least) * percent / 100).next_multiple_of(64);
        let policy = [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream][(seed as usize + i) % 3];
        run_to_success(seed, budget, peak, |bytes| {
            let options = DeviceOptions { budget_bytes: Some(bytes), policy, always_record: false, ..free.clone() };
            let d = Device::cpu(options).expect("opens");
            compare("cpu", bytes, run(&d, 1, &programs, seed))
        });
        // Below a sufficient budget the run gives the same values or an error, and never a third outcome.
        let below = least * [97, 80, 55, 25, 3][i] / 100;
        let async_level = [AsyncLevel::Full, AsyncLevel::Launched, AsyncLevel::Sync][(seed as usize + i) % 3];
        let options =
            DeviceOptions { budget_bytes: Some(below), policy, async_level, always_record: false, ..free.clone() };
        let d = Device::cpu(options).expect("opens");
        compare("below", below, run(&d, 1, &programs, seed));
        drop(d.channel().close());
        let streams = rng.pick(&[1, 2, 4]);
        let delay = rng.pick(&[0, 0, 20, 60]);
        run_to_success(seed, budget, peak, |bytes| {
            let options = DeviceOptions { budget_bytes: Some(bytes), policy, always_record: false, ..free.clone() };
            let emulated = EmulatedOptions { streams, seed, max_delay_us: delay, alignment, ..Default::default() };
            let log = emulated.log.clone();
            let d = emulated.open().and_then(|b| Device::with_backend(b, options)).expect("opens");
            let failed = compare("emulated", bytes, run(&d, streams, &programs, seed));
            assert_eq!(log.races(), Vec::<String>::new(), "seed {seed}");
            failed
        });
    }
}

/// A GPU in software whose streams run in an order of this seed. `None` where no folder of the compiler is named.
fn gpu(seed: u64, kernels: &Path, options: DeviceOptions) -> Option<Device> {
    let Some(folder) = std::env::var_os(remat_cuda::device::FOLDERS) else {
        println!("{} names no folder: no GPU is tested", remat_cuda::device::FOLDERS);
        return None;
    };
    let compiler = Compiler::open(&Search::default().first(folder)).expect("the folder has the compiler");
    let driver = software(SoftwareOptions { seed, ..SoftwareOptions::default() }).expect("a driver");
    let gpu = Cuda::open(&driver, compiler, 0).expect("opens").with_cache(Some(Cache::at(kernels)));
    let options = DeviceOptions { host_fallback: true, threads: 1, ..options };
    Some(Device::with_backend(Box::new(gpu), options).expect("opens"))
}

/// Programs on the GPU.
const GPU_CASES: u64 = 12;

#[test]
fn random_programs_on_a_gpu_have_the_bits_of_its_run_without_a_budget() {
    let kernels = tempfile::tempdir().expect("a folder");
    for seed in 5000..5000 + GPU_CASES * times() {
        let p = [Program::new(&mut Rng(seed))];
        let free = DeviceOptions { always_record: true, ..DeviceOptions::default() };
        let Some(device) = gpu(0, kernels.path(), free) else { return };
        let (want, stats) = run(&device, 1, &p, seed);
        let want = want.unwrap_or_else(|e| panic!("seed {seed} without a budget: {e:?}"));
        assert!(stats.host_fallback_ops < stats.executed_ops / 2, "seed {seed}: {stats:?}");
        let (peak, least) = (stats.peak_bytes, stats.least_budget_bytes);
        for (order, percent) in [(1, 100), (2, 75), (3, 50), (0, 25)] {
            let budget = (least + peak.saturating_sub(least) * percent / 100).next_multiple_of(256);
            run_to_success(seed, budget, peak, |bytes| {
                let options = DeviceOptions { budget_bytes: Some(bytes), ..DeviceOptions::default() };
                let device = gpu(order, kernels.path(), options).expect("as above");
                let (got, stats) = run(&device, 1, &p, seed);
                assert!(stats.peak_bytes <= bytes, "seed {seed}, budget {bytes}: peak {}", stats.peak_bytes);
                match got {
                    Ok(values) => assert!(values == want, "seed {seed}, {percent} %, order {order}: values differ"),
                    Err(e) => return Some(e),
                }
                None
            });
        }
    }
}

/// Runs a program several times, each run as a step. Gives the values of each run, and the device's figures.
fn repeat(d: &Device, streams: u16, p: &Program, seed: u64) -> Result<(Vec<Vec<HostTensor>>, crate::Stats)> {
    let channels: Vec<Channel> = (0..streams).map(|s| d.stream(s).expect("exists")).collect();
    let c = &channels[0];
    let mut values = Vec::new();
    for _ in 0..REPEATS {
        values.push(p.run(&channels, seed)?);
        c.step_mark()?;
    }
    c.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    Ok((values, c.stats()?))
}

/// Enough runs to see a program twice, plan it, and follow the plan twice.
const REPEATS: usize = 6;

#[test]
fn random_programs_that_repeat_as_steps_give_the_same_bits_as_planned() {
    let folder = tempfile::tempdir().expect("a folder");
    let spill = Some(SpillTo::with_rates(folder.path(), FAST).expect("positive"));
    let (mut followed, mut bound, mut copied) = (0, 0, 0);
    for seed in 1000..1000 + CASES {
        let mut p = Program::new(&mut Rng(seed));
        p.steps.retain(|s| !matches!(s, Step::Mark));
        let free = DeviceOptions { always_record: true, threads: 1, ..DeviceOptions::default() };
        let cpu = |options: DeviceOptions| Device::cpu(options).expect("opens");
        let (want, stats) = repeat(&cpu(free.clone()), 1, &p, seed).unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
        let (peak, least) = (stats.peak_bytes, stats.least_budget_bytes);
        for percent in [75, 40, 10] {
            let budget = (least + peak.saturating_sub(least) * percent / 100).next_multiple_of(64);
            let options = DeviceOptions {
                budget_bytes: Some(budget),
                always_record: false,
                foresight: Foresight::AtOnce,
                ..free.clone()
            };
            let emulated = EmulatedOptions { streams: 2, seed, max_delay_us: 20, ..Default::default() };
            let log = emulated.log.clone();
            let d = emulated.open().and_then(|b| Device::with_backend(b, options.clone())).expect("opens");
            if let Ok((values, _)) = repeat(&d, 2, &p, seed) {
                assert!(values == want, "seed {seed}, {percent} %, emulated: values differ");
            }
            assert_eq!(log.races(), Vec::<String>::new(), "seed {seed}, {percent} %");
            for good in [usize::MAX, seed as usize % 7] {
                let options = DeviceOptions { spill: spill.clone(), ..options.clone() };
                let d = Device::with_backend(Box::new(FailingDisk::new(good)), options).expect("opens");
                if let Ok((values, s)) = repeat(&d, 1, &p, seed) {
                    assert!(values == want, "seed {seed}, {percent} %, {good} copies: values differ");
                    assert!(s.peak_bytes <= budget, "seed {seed}, {percent} %, {good} copies: {s:?}");
                    copied += usize::from(s.fetched_bytes > 0);
                }
            }
            match repeat(&cpu(options.clone()), 1, &p, seed) {
                Ok((values, s)) => {
                    assert!(values == want, "seed {seed}, {percent} %: values differ");
                    assert!(s.peak_bytes <= budget, "seed {seed}, {percent} %: {s:?}");
                    assert_eq!(s.steps_abandoned, 0, "seed {seed}, {percent} %: {s:?}");
                    followed += usize::from(s.steps_followed > 0);
                    bound += usize::from(s.evictions > 0);
                }
                Err(e) => {
                    assert!(e.shortfall().is_some() || e.kind() == ErrorKind::Poisoned, "seed {seed}: {e:?}");
                    let without = DeviceOptions { foresight: Foresight::Off, ..options.clone() };
                    let is_feasible = repeat(&cpu(without), 1, &p, seed).is_ok();
                    assert!(!is_feasible, "seed {seed}, {percent} %: feasible without a plan, but {e:?}");
                }
            }
        }
    }
    // Steps that the canonical schedule must finish copy nothing.
    assert!(copied * 3 > bound, "{copied} of {bound} programs under pressure copied");
    assert!(followed > 0 && followed * 2 > bound, "{followed} of {bound} programs under pressure were followed");
}

#[test]
fn random_programs_give_the_same_bits_on_every_device_under_every_budget() {
    let known = FAILED_ONCE.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.trim().parse().ok());
    known.chain(0..CASES * times()).for_each(check);
}

#[test]
fn whether_a_budget_suffices_is_the_same_at_every_level_of_asynchrony_and_by_every_policy() {
    let policies = [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream];
    let levels = [AsyncLevel::Full, AsyncLevel::Launched, AsyncLevel::Sync];
    let (mut ran, mut refused) = (0, 0);
    // The first seed once differed by policy: leaves grew after the check that counted them.
    for seed in [2416].into_iter().chain(2000..2000 + CASES * times()) {
        let programs = [Program::new(&mut Rng(seed))];
        let free = DeviceOptions { threads: 1, foresight: Foresight::Off, ..DeviceOptions::default() };
        let peak = run(&Device::cpu(free.clone()).expect("opens"), 1, &programs, seed).1.peak_bytes;
        for percent in (20..100).step_by(4) {
            let budget_bytes = Some(peak * percent / 100);
            let ways = policies.into_iter().flat_map(|policy| levels.map(|async_level| (policy, async_level)));
            let does_suffice: Vec<bool> = ways
                .map(|(policy, async_level)| {
                    let options = DeviceOptions { budget_bytes, policy, async_level, ..free.clone() };
                    let d = Device::cpu(options).expect("opens");
                    let outcome = run(&d, 1, &programs, seed).0;
                    drop(d.channel().close());
                    outcome.is_ok()
                })
                .collect();
            let is_alike = does_suffice.iter().all(|ok| *ok == does_suffice[0]);
            assert!(is_alike, "seed {seed}, {percent} % of {peak} bytes: {does_suffice:?}");
            *if does_suffice[0] { &mut ran } else { &mut refused } += 1;
        }
    }
    assert!(ran > 100 && refused > 100, "{ran} budgets suffice, {refused} do not");
}
