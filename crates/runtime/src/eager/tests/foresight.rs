//! Steps that repeat run as planned, with the same bits. Any difference in a step ends the plan for that step.

use remat_ops::reduce::{Reduce, ReduceFn};
use remat_ops::shape::Permute;
use remat_types::{ErrorKind, HostTensor, Result, SmallVec, smallvec};

use super::ops::{Mode, Probe, fail_from_now_on};
use super::{apply1, cpu, host, matmul, put, tanh, value};
use crate::eager::{Channel, Handle};
use crate::options::Foresight;
use crate::report::{Kind, Stats};
use crate::{DeviceOptions, PolicyKind};
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};

const LAYERS: usize = 10;
const WIDTH: usize = 32;
/// Rows of a batch: activations take most of the memory.
const ROWS: usize = 256;
/// The number of the op that is made to fail.
const FRAGILE: u8 = 3;

/// The difference of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Plain,
    /// Fewer rows.
    Small,
    /// `sigmoid` for `tanh` in a layer.
    Branch,
    /// With an op in the middle that may be made to fail.
    Fragile,
    /// Without a backward pass: the beginning of `Plain`.
    Forward,
}

fn data(rows: usize, columns: usize, scale: f32, seed: usize) -> HostTensor {
    let v: Vec<f32> = (0..rows * columns).map(|i| (((i + seed) * 37 % 101) as f32 / 50.0 - 1.0) * scale).collect();
    HostTensor::from_slice(&v, [rows, columns]).expect("fits")
}

/// A plain network with its gradient written out.
pub(super) struct Net {
    pub(super) c: Channel,
    weights: Vec<Handle>,
    /// The loss of the previous step: it is alive when the next begins.
    loss: Option<Handle>,
    steps: usize,
}

impl Net {
    pub(super) fn new(options: DeviceOptions) -> Net {
        Net::on(cpu(options))
    }

    pub(super) fn on(c: Channel) -> Net {
        let weight = |i| c.put_as(&data(WIDTH, WIDTH, 0.2, i), Kind::Parameter).expect("open");
        let weights = (0..LAYERS).map(weight).collect();
        Net { c, weights, loss: None, steps: 0 }
    }

    fn step(&mut self, kind: Step) -> Result<()> {
        let c = self.c.clone();
        self.steps += 1;
        let rows = if kind == Step::Small { ROWS / 2 } else { ROWS };
        let mut x = put(&c, &data(rows, WIDTH, 1.0, self.steps));
        let mut saved = Vec::new();
        for (i, w) in self.weights.iter().enumerate() {
            let z = matmul(&c, &x, w);
            let is_fragile = kind == Step::Fragile && i == LAYERS / 2;
            let z = if is_fragile { apply1(&c, Probe(Mode::Until(FRAGILE)), [z]) } else { z };
            // bounded, so that no loss becomes NaN, which equals nothing
            let f = if kind == Step::Branch && i == LAYERS / 2 { UnaryFn::Sigmoid } else { UnaryFn::Tanh };
            let y = apply1(&c, Unary { f }, [z.clone()]);
            drop(z);
            saved.push((x, y.clone()));
            x = y;
        }
        let sum = Reduce { f: ReduceFn::Sum, axes: smallvec![0, 1], keepdims: false };
        let loss = apply1(&c, sum, [x.clone()]);
        if kind == Step::Forward {
            self.loss = Some(loss);
            drop((saved, x));
            return c.step_mark();
        }
        let mut dy = apply1(&c, Probe(Mode::Increment), [x]);
        for (w, (x, y)) in self.weights.iter_mut().zip(saved).rev() {
            let d = apply1(&c, Binary { f: BinaryFn::Mul }, [dy, y]);
            let transposed = |h: Handle| apply1(&c, Permute { order: smallvec![1, 0] }, [h]);
            let dw = tanh(&c, &matmul(&c, &transposed(x), &d));
            dy = tanh(&c, &apply1(&c, remat_ops::linalg::MatMul {}, [d, transposed(w.clone())]));
            c.commit(&dw, Kind::Gradient)?;
            // The last handle ends with the call: the update is in place.
            let old = std::mem::replace(w, dw.clone());
            let x: SmallVec<[Handle; 4]> = smallvec![old, dw];
            *w = c.update(Binary { f: BinaryFn::Sub }, x, &[Some(0)])?.remove(0);
            c.commit(w, Kind::Parameter)?;
        }
        self.loss = Some(loss);
        c.step_mark()
    }

    /// The losses of these steps; `None` for one that failed.
    pub(super) fn losses(&mut self, steps: &[Step]) -> Vec<Option<Vec<f32>>> {
        let mut losses = Vec::new();
        for &s in steps {
            let done = self.step(s);
            losses.push(match (done, &self.loss) {
                (Ok(()), Some(loss)) => self.c.value(loss).ok().map(|v| v.to_vec().expect("f32")),
                _ => None,
            });
        }
        self.c.verify().expect("consistent");
        losses
    }

    pub(super) fn weights(&self) -> Vec<Vec<f32>> {
        self.weights.iter().map(|w| value(&self.c, w)).collect()
    }

    pub(super) fn stats(&self) -> Stats {
        self.c.stats().expect("open")
    }
}

pub(super) fn free() -> DeviceOptions {
    DeviceOptions { threads: 1, ..DeviceOptions::default() }
}

pub(super) fn planned(bytes: usize) -> DeviceOptions {
    DeviceOptions { budget_bytes: Some(bytes), foresight: Foresight::AtOnce, ..free() }
}

/// Runs the steps without a budget and under one as planned, compares all values, and returns the figures.
fn compare(steps: &[Step], percent: usize) -> Stats {
    let mut net = Net::new(free());
    let want = (net.losses(steps), net.weights());
    let budget = net.stats().peak_bytes * percent / 100;
    let mut net = Net::new(planned(budget));
    let losses = net.losses(steps);
    let s = net.stats();
    assert_eq!(losses, want.0, "{percent} %: losses of {steps:?}");
    assert!(net.weights() == want.1, "{percent} %: weights after {steps:?}");
    assert!(net.stats().peak_bytes <= budget, "{:?}", net.stats());
    s
}

#[test]
fn a_step_that_repeats_is_planned_once_and_then_followed_with_the_same_bits() {
    for percent in [80, 70, 60] {
        let s = compare(&[Step::Plain; 8], percent);
        // The first step makes its caches. The next two are alike.
        assert_eq!((s.steps_planned, s.steps_abandoned), (1, 0), "{percent} %: {s:?}");
        assert!(s.steps_followed >= 4, "{percent} %: {s:?}");
        assert_eq!(s.misplaced, 0, "{percent} %: every block lies where it was planned: {s:?}");
        assert!(s.planned_step_ns > 0 && s.followed_step_ns > 0, "{s:?}");
    }
}

#[test]
fn a_followed_step_asks_no_policy() {
    let steps = [Step::Plain; 8];
    let mut net = Net::new(free());
    net.losses(&steps);
    let budget = net.stats().peak_bytes * 6 / 10;
    let again = |options: DeviceOptions| {
        let mut net = Net::new(options);
        net.losses(&steps);
        net.c.reset_peak().expect("open");
        net.losses(&[Step::Plain; 2]);
        net.stats()
    };
    let (with, without) =
        (again(planned(budget)), again(DeviceOptions { foresight: Foresight::Off, ..planned(budget) }));
    assert_eq!((with.steps_followed, without.steps_followed), (2, 0));
    assert!(with.policy_ns == 0 && without.policy_ns > 0, "{with:?}");
    // `simulation/tests.rs` compares how much less it recomputes, with given times: here both measure their own
    assert!(with.recomputed_ops > 0 && without.recomputed_ops > 0, "{with:?} {without:?}");
}

#[test]
fn another_shape_or_branch_ends_the_plan_and_is_learnt() {
    for other in [Step::Small, Step::Branch, Step::Forward] {
        let mut steps = vec![Step::Plain; 6];
        steps.extend([other, Step::Plain, Step::Plain]);
        let s = compare(&steps, 60);
        // The difference of the data shows before the plan has acted.
        assert_eq!(s.steps_abandoned, u64::from(other != Step::Small), "{other:?}: {s:?}");
        assert!(s.steps_followed >= 4, "{other:?}: {s:?}");
    }
}

#[test]
fn steps_that_alternate_keep_a_plan_each() {
    for other in [Step::Small, Step::Branch, Step::Forward] {
        let steps: Vec<Step> = (0..16).map(|i| if i % 2 == 0 { Step::Plain } else { other }).collect();
        let s = compare(&steps, 60);
        assert_eq!(s.steps_planned, 2, "{other:?}: {s:?}");
        // Once both are planned, the successor is expected.
        assert!(s.steps_followed >= 7 && s.steps_abandoned + s.steps_switched <= 3, "{other:?}: {s:?}");
    }
}

#[test]
fn a_branch_that_is_known_takes_over_in_the_middle_and_the_step_goes_on_as_planned() {
    for other in [Step::Branch, Step::Forward] {
        let mut steps: Vec<Step> = vec![other; 4];
        steps.extend([Step::Plain; 8]);
        steps.push(other);
        steps.push(Step::Plain);
        let mut net = Net::new(free());
        let want = net.losses(&steps);
        let mut net = Net::new(planned(net.stats().peak_bytes * 6 / 10));
        let known = steps.len() - 2;
        let first = net.losses(&steps[..known]);
        let before = net.stats();
        let last = net.losses(&steps[known..]);
        let s = net.stats();
        assert!(first == want[..known] && last == want[known..], "{other:?}");
        // A step that ends early is recognized when it ends. It began like both.
        let followed = if other == Step::Branch { 2 } else { 1 };
        let figures = (s.steps_switched - before.steps_switched, s.steps_followed - before.steps_followed);
        // Before, `other` came after itself. So it is expected where `Plain` comes, too.
        assert_eq!(figures, (2, followed), "{other:?}: {before:?} {s:?}");
        assert_eq!(s.steps_abandoned, before.steps_abandoned, "{other:?}");
    }
}

#[test]
fn results_take_the_bytes_of_what_is_read_again_later_with_the_same_bits() {
    let run = |options: DeviceOptions| {
        let c = cpu(options);
        let x = put(&c, &host(&[0.25; 4096]));
        let mut read = Vec::new();
        for _ in 0..6 {
            let all = super::chain(&c, &x, |_| ());
            let mut sum = apply1(&c, Probe(Mode::Increment), [x.clone()]);
            for h in all.into_iter().rev() {
                sum = apply1(&c, Binary { f: BinaryFn::Add }, [sum, h]);
            }
            c.step_mark().expect("open");
            read.push(value(&c, &sum));
        }
        c.verify().expect("consistent");
        (read, c.stats().expect("open"))
    };
    let (want, _) = run(free());
    // A third of the twelve results, which are read again in the opposite order, fits.
    let (got, s) = run(planned(6 * 4 * 4096));
    assert!(got == want && s.steps_followed >= 2, "{s:?}");
    assert_eq!((s.steps_abandoned, s.misplaced), (0, 0), "{s:?}");
}

#[test]
fn an_op_that_fails_in_a_followed_step_ends_the_plan_and_loses_nothing() {
    let steps = [Step::Fragile; 6];
    let mut net = Net::new(free());
    net.losses(&steps);
    let want = net.weights();
    let mut net = Net::new(planned(net.stats().peak_bytes * 6 / 10));
    net.losses(&steps);
    let before = net.stats();
    fail_from_now_on(FRAGILE);
    assert_eq!(net.losses(&[Step::Fragile]), [None]);
    let s = net.stats();
    // The failure abandons the plan, and so does the read of a failed loss in place of a good one.
    assert_eq!((before.steps_abandoned, s.steps_abandoned, s.steps_followed), (0, 2, before.steps_followed), "{s:?}");
    assert!(net.weights() == want, "the step did not happen");
    net.losses(&[Step::Plain; 6]);
    assert!(net.stats().steps_followed > s.steps_followed, "what comes after it is learnt: {:?}", net.stats());
}

#[test]
fn a_new_budget_ends_all_plans() {
    let mut net = Net::new(free());
    net.losses(&[Step::Plain; 2]);
    let peak = net.stats().peak_bytes;
    let mut net = Net::new(planned(peak * 6 / 10));
    net.losses(&[Step::Plain; 5]);
    net.c.set_budget(Some(peak * 7 / 10)).expect("more");
    let followed = net.stats().steps_followed;
    assert!(followed > 0);
    net.losses(&[Step::Plain; 3]);
    assert_eq!(net.stats().steps_followed, followed, "nothing is known under this budget");
    net.losses(&[Step::Plain; 3]);
    assert!(net.stats().steps_followed > followed, "it was learnt");
}

#[test]
fn without_pressure_nothing_is_recorded() {
    let mut net = Net::new(planned(1 << 30));
    net.losses(&[Step::Plain; 6]);
    let s = net.stats();
    assert_eq!((s.steps_planned, s.steps_followed, s.evictions), (0, 0, 0));
}

#[test]
fn plans_made_beside_the_steps_are_followed_too() {
    let mut free_net = Net::new(free());
    let want = free_net.losses(&[Step::Plain; 40]);
    let budget = free_net.stats().peak_bytes * 6 / 10;
    let mut net = Net::new(DeviceOptions { foresight: Foresight::Beside, ..planned(budget) });
    let got = net.losses(&[Step::Plain; 40]);
    assert_eq!(got, want, "{:?} {:?}", net.c.sync(), net.stats());
    // The time when a plan is ready depends on the machine. That it comes does not.
    for _ in 0..200 {
        if net.stats().steps_followed > 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        net.step(Step::Plain).expect("runs");
    }
    panic!("no plan was followed: {:?}", net.stats());
}

#[test]
fn a_tensor_that_the_caller_keeps_over_the_step_can_be_read_after_it() {
    for policy in [PolicyKind::Window, PolicyKind::Dtr] {
        let run = |options: DeviceOptions| {
            let c = cpu(DeviceOptions { policy, ..options });
            let x = put(&c, &host(&[0.5; 4096]));
            let mut kept: Option<Handle> = None;
            let mut read = Vec::new();
            for _ in 0..8 {
                let mut all = super::chain(&c, &x, |_| ());
                let mut sum = all[11].clone();
                for h in all.iter().rev() {
                    sum = super::add(&c, &sum, h);
                }
                read.extend(kept.take().map(|h| value(&c, &h)));
                kept = Some(all.swap_remove(3));
                drop(all);
                c.step_mark().expect("open");
                read.push(value(&c, &sum));
            }
            c.verify().expect("consistent");
            (read, c.stats().expect("open"))
        };
        let (want, s) = run(free());
        let (got, s) = run(planned(s.peak_bytes / 2));
        assert!(got == want && s.steps_followed > 0, "{policy:?} {s:?}");
        assert_eq!(s.steps_abandoned, 0, "{s:?}");
    }
}

#[test]
fn an_error_of_the_budget_in_a_followed_step_is_the_one_it_would_be_without_a_plan() {
    let mut net = Net::new(free());
    net.losses(&[Step::Plain; 2]);
    let mut net = Net::new(planned(net.stats().peak_bytes * 6 / 10));
    net.losses(&[Step::Plain; 6]);
    let huge = HostTensor::zeros(remat_types::DType::F32, [1 << 20]).expect("a size");
    let e = net.c.value(&put(&net.c, &huge)).expect_err("larger than the budget");
    assert_eq!(e.kind(), ErrorKind::Budget);
    let s = net.stats();
    net.losses(&[Step::Plain; 3]);
    assert!(net.stats().steps_followed > s.steps_followed, "the next steps are as before");
}
