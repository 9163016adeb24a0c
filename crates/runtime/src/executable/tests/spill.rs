//! Runs whose memory does not suffice, with a folder to spill to.

use remat_graph::plan::problem::SpillRates;

use super::*;
use crate::{Session, SessionOptions};
use remat_device::program::{Copies, CopyStep};
use remat_device::spill::SpillTo;

/// A disk so fast that copies always cost less than computing.
fn fast(folder: &tempfile::TempDir) -> SpillTo {
    let rates = SpillRates { write_bytes_per_s: 1 << 50, read_bytes_per_s: 1 << 50 };
    SpillTo::with_rates(folder.path(), rates).expect("positive")
}

fn limited(all: usize, tenths: usize, spill: Option<SpillTo>) -> ExecutableOptions {
    let workspace_limit = Some(all * tenths / 10);
    ExecutableOptions { workspace_limit, plan_seconds: Some(0.05), spill, ..Default::default() }
}

#[test]
fn what_is_spilled_changes_no_bit_and_the_limit_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut spilling, mut again) = (0, 0);
    for seed in 0..8 {
        let c = cpu();
        let (graph, x, wanted) = random(seed, 24, &c);
        let all = Executable::new(graph.clone(), 1).expect("builds").figures().arena_bytes;
        for tenths in [8, 6] {
            let options = limited(all, tenths, Some(fast(&folder)));
            let Ok(exe) = Executable::with(graph.clone(), 1, &options) else { continue };
            let f = exe.figures();
            assert!(Some(f.arena_bytes) <= options.workspace_limit, "seed {seed}, {tenths} of 10");
            assert!(f.lower_bound_bytes <= f.arena_bytes && f.fetched_bytes >= f.spilled_bytes, "{f:?}");
            assert_eq!(f.spilled_bytes > 0, exe.spills_to().is_some());
            spilling += usize::from(f.spilled_bytes > 0);
            again += f.recomputed_calls;
            let op = OpRef::from_shared(Arc::new(exe));
            for _ in 0..2 {
                let y = run(&c, &op, &x);
                for (k, (h, w)) in y.iter().zip(&wanted).enumerate() {
                    assert_eq!(bytes(&c, h), bytes(&c, w), "result {k}");
                }
            }
        }
    }
    assert!(spilling > 4, "{spilling} plans spill; {again} calls again");
}

const LAYERS: usize = 8;
const WIDE: usize = 48;

/// A training step: a chain of layers, products that read all of them backwards, and a state that is updated.
fn step() -> Arc<Graph> {
    let fact = || Fact::new(DType::F32, [WIDE, WIDE]);
    let b = Builder::new();
    let (x, w) = (b.input(fact(), None), b.state(fact(), Some("w")));
    let node = |op: OpRef, x: &[ValueId]| b.node(op, x, None).expect("fits")[0];
    let mut kept = vec![node(binary(BinaryFn::Mul), &[x, w])];
    for k in 0..LAYERS {
        let f = [UnaryFn::Tanh, UnaryFn::Sin][k % 2];
        kept.push(node(unary(f), &[kept[k]]));
    }
    let last = kept[LAYERS];
    let g = kept.iter().rev().fold(last, |g, y| node(binary(BinaryFn::Mul), &[g, *y]));
    b.output(node(unary(UnaryFn::Neg), &[last]), "loss");
    b.set_state(w, node(binary(BinaryFn::Add), &[w, g])).expect("same type");
    Arc::new(b.finish().expect("valid"))
}

fn session(exe: &Arc<Executable>) -> Session {
    let data = |a: f32| {
        let v: Vec<f32> = (0..WIDE * WIDE).map(|i| (i % 23) as f32 * a - 0.7).collect();
        HostTensor::from_slice(&v, [WIDE, WIDE]).expect("fits")
    };
    let mut s = Session::with(exe.clone(), &SessionOptions::default()).expect("memory");
    s.set_input(0, &data(0.07)).expect("fits");
    s.set_state(0, &data(0.05)).expect("fits");
    s
}

/// Truncates the spill file when it is shown the call of this number.
#[derive(Debug)]
struct Cut {
    file: std::fs::File,
    at: usize,
    shown: std::sync::atomic::AtomicUsize,
}

impl Observer for Cut {
    fn value(&self, _: &Observed<'_>) -> Result<()> {
        if self.shown.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == self.at {
            self.file.set_len(0).expect("a file can be cut");
        }
        Ok(())
    }
}

#[test]
fn a_short_read_fails_the_run_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = Arc::new(Executable::new(step(), 1).expect("builds"));
    let options = limited(whole.figures().arena_bytes, 6, Some(fast(&folder)));
    let exe = Arc::new(Executable::with(step(), 1, &options).expect("feasible"));
    assert!(exe.figures().spilled_bytes > 0, "{:?}", exe.figures());
    let (mut plain, mut spilling) = (session(&whole), session(&exe));
    let mut failures = 0;
    // Copies on their way out would undo a cut: they would fill it with zeros.
    let copies = exe.program.copies.as_ref().expect("it spills");
    let last = copies.list.iter().rposition(|m| matches!(m.1, CopyStep::Out { .. })).expect("something goes out");
    let ended = |k: usize| {
        let CopyStep::Out { slot, .. } = copies.list[k].1 else { return 0 };
        copies.list[k..].iter().find(|m| m.1 == CopyStep::Wait { slot }).map_or(0, |m| m.0)
    };
    let first = (0..=last).map(ended).max().expect("one at least");
    for at in first..exe.calls() {
        let before = spilling.state(0).expect("there");
        let file = exe.spill.as_ref().expect("it spills").files()[0].file().expect("a descriptor");
        exe.observe(Some(Arc::new(Cut { file, at, shown: Default::default() })));
        match spilling.run() {
            Err(e) => {
                failures += 1;
                assert_eq!(e.kind(), ErrorKind::Io, "{e}");
                assert!(e.to_string().contains("spill file"), "{e}");
                assert!(spilling.state(0).expect("there").bytes() == before.bytes(), "cut after call {at}");
            }
            Ok(()) => plain.run().expect("runs"),
        }
        assert!(spilling.state(0).expect("there").bytes() == plain.state(0).expect("there").bytes());
    }
    assert!(failures > 0, "some cuts come before the last copy in");
    exe.observe(None);
    for _ in 0..2 {
        spilling.run().expect("the next run is whole again");
        plain.run().expect("runs");
    }
    assert!(spilling.state(0).expect("there").bytes() == plain.state(0).expect("there").bytes());
    assert!(spilling.output(0).expect("there").bytes == plain.output(0).expect("there").bytes);
}

#[test]
fn spilling_makes_smaller_limits_feasible_and_is_left_where_it_does_not_pay() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = Executable::new(step(), 1).expect("builds").figures().arena_bytes;
    let slow = SpillRates { write_bytes_per_s: 1, read_bytes_per_s: 1 };
    let slow = SpillTo::with_rates(folder.path(), slow).expect("positive");
    let exe = Executable::with(step(), 1, &limited(all, 7, Some(slow.clone()))).expect("feasible");
    assert_eq!(exe.figures().spilled_bytes, 0, "computing again costs less");
    assert!(exe.figures().recomputed_calls > 0);
    let times = |tenths, spill| Executable::with(step(), 1, &limited(all, tenths, spill)).ok()?.plan_times();
    let is_bound = |p: &PlanTimes| p.bound_ns > p.base_ns;
    let tenths = (3..7).find(|t| times(*t, None).as_ref().is_some_and(is_bound)).expect("a bound above the base");
    let p = times(tenths, Some(slow)).expect("feasible");
    assert!(!is_bound(&p), "what bounds schedules that copy nothing does not bound those that might: {p:?}");
    let exe = Executable::with(step(), 1, &limited(all, 7, Some(fast(&folder)))).expect("feasible");
    assert_eq!(exe.figures().recomputed_calls, 0, "copies cost less");
    let small = fast(&folder).at_most(exe.figures().spilled_bytes as u64 / 2);
    let within = Executable::with(step(), 1, &limited(all, 7, Some(small))).expect("feasible");
    assert_eq!(within.figures().spilled_bytes, 0, "the file would be larger than it may be");
    assert!(within.figures().recomputed_calls > 0);
    let nowhere = SpillTo::with_rates("/nowhere/at/all", fast(&folder).rates()).expect("positive");
    let e = Executable::with(step(), 1, &limited(all, 7, Some(nowhere))).expect_err("no folder");
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("`/nowhere/at/all`"), "{e}");
}

#[test]
fn copies_that_run_into_calls_are_not_built() {
    let exe = Executable::new(step(), 1).expect("builds");
    let arena = exe.figures().arena_bytes;
    let place = |i: usize| exe.program.steps[i].y[0].place;
    let again = |i: usize| Some((i, (i + 1..exe.calls()).find(|j| place(*j) == place(i))?));
    let (from, writer) = (0..exe.calls()).find_map(again).expect("memory is used again");
    let (Place::Arena(made), bytes) = (place(from), exe.program.steps[from].y[0].bytes) else {
        unreachable!("only the workspace is used again")
    };
    let next = from + 1;
    let check_for = |list: &[(usize, CopyStep)], states: &[usize]| {
        let mut copies = Copies { list: list.to_vec(), ..Default::default() };
        copies.slot(bytes);
        copies.check(&exe.program.steps, arena, states)
    };
    let check = |list: &[(usize, CopyStep)]| check_for(list, &[]);
    let (out, back) = (CopyStep::Out { slot: 0, at: made }, CopyStep::In { slot: 0, at: made });
    let wait = CopyStep::Wait { slot: 0 };
    assert!(check(&[(next, out), (writer, wait)]).is_ok());
    assert!(check(&[(next, out), (writer + 1, wait)]).is_err(), "written while it is copied out");
    assert!(
        check(&[(next, out), (next, wait), (next, back), (writer + 1, wait)]).is_err(),
        "read while it is copied in"
    );
    assert!(check(&[(next, back), (next, wait)]).is_err(), "nothing was copied out");
    assert!(check(&[(next, out), (next, back)]).is_err(), "copied in before it was out");
    assert!(check(&[(next, CopyStep::Out { slot: 0, at: arena }), (next, wait)]).is_err(), "outside the workspace");
    let end = exe.program.steps.len();
    assert!(check(&[(next, out), (next, wait), (end, wait)]).is_err(), "after the last step");
    let loss = (0..end).find(|i| place(*i) == Place::Output(0)).expect("there");
    let late = [(next, out), (next, wait), (loss + 1, wait)];
    assert!(check_for(&late, &[1]).is_ok());
    assert!(check_for(&late, &[0]).is_err(), "a copy could fail after a state was updated");
}
