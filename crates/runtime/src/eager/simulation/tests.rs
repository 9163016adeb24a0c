use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::eager::device::GiveWay;
use crate::report::Kind;

/// A chain of `n` layers forward and back: layer `i` of the way back reads activation `n - i`.
fn training(n: u64, bytes: usize) -> CommandStream {
    let apply = |op: &str, x: Vec<(u64, bool)>, y: u64, cost_ns: u64| StreamCommand::Apply {
        op: op.to_owned(),
        x,
        y: vec![(y, bytes)],
        overwrite: vec![],
        scratch_bytes: 0,
        repeatable: true,
        cost_ns,
    };
    let mut commands = vec![StreamCommand::Put { id: 0, bytes, kind: Kind::Data }];
    commands.extend((1..=n).map(|i| apply("layer", vec![(i - 1, false)], i, 1_000_000)));
    for i in 0..n {
        let (a, g) = (n - i, n + 1 + i);
        let before = if i == 0 { a } else { g - 1 };
        let x = if i == 0 { vec![(a, true)] } else { vec![(a, true), (before, true)] };
        commands.push(apply("gradient", x, g, 2_000_000));
    }
    commands.push(StreamCommand::Delete { id: 2 * n });
    commands.push(StreamCommand::Delete { id: 0 });
    CommandStream { commands }
}

#[test]
fn a_replay_without_a_budget_takes_the_recorded_time() {
    let s = training(50, 1 << 20);
    let r = simulate(&s, PolicyKind::Window, None).expect("feasible");
    assert_eq!((r.time_ns, r.recomputed_ns, r.evictions), (s.compute_ns(), 0, 0));
    assert_eq!(r.peak_bytes, 52 << 20);
    let json = s.to_json().expect("serialises");
    assert_eq!(CommandStream::from_json(&json).expect("reads"), s);
    assert_eq!(CommandStream::from_json("{").expect_err("no JSON").kind(), ErrorKind::Format);
}

#[test]
fn every_policy_meets_every_budget_and_more_memory_costs_less_time() {
    let s = training(64, 1 << 20);
    let free = simulate(&s, PolicyKind::Window, None).expect("feasible");
    for policy in [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream] {
        let mut last = u64::MAX;
        for mib in [8, 12, 16, 24, 32, 48, 66] {
            let r = simulate(&s, policy, Some(mib << 20)).expect("feasible");
            assert!(r.peak_bytes <= mib << 20 && r.time_ns >= free.time_ns, "{policy:?} {mib} {r:?}");
            assert!(r.time_ns <= last.saturating_add(last / 10), "{policy:?} {mib}: {} after {last}", r.time_ns);
            last = r.time_ns;
        }
        assert_eq!(last, free.time_ns, "the peak itself costs nothing");
    }
    let e = simulate(&s, PolicyKind::Window, Some(1 << 20)).expect_err("infeasible");
    assert_eq!(e.kind(), ErrorKind::Budget);
}

#[test]
fn the_default_policy_keeps_a_chain_near_its_optimum() {
    // Sixteen MiB for a chain of 64: the best schedule recomputes each layer about once (checkpoints every four).
    let r = simulate(&training(64, 1 << 20), PolicyKind::Window, Some(16 << 20)).expect("feasible");
    assert!(r.recomputed_ops <= 3 * 64, "{r:?}");
}

/// A network of `n` layers forward and back. The gradients of its weights stay to the end. The cotangent of a layer
/// gives first the cotangent before it, and then, at its last use, the gradient.
fn network(n: u64, bytes: usize) -> CommandStream {
    let (x, w, dy, dw) = (|i: u64| i, |i: u64| 1000 + i, |i: u64| 2000 + i, |i: u64| 3000 + i);
    let apply = |x: Vec<(u64, bool)>, y: u64, bytes: usize, cost_ns: u64| StreamCommand::Apply {
        op: "conv".to_owned(),
        x,
        y: vec![(y, bytes)],
        overwrite: vec![],
        scratch_bytes: 0,
        repeatable: true,
        cost_ns,
    };
    let mut commands = vec![StreamCommand::Put { id: x(0), bytes, kind: Kind::Data }];
    commands.extend((1..=n).map(|i| StreamCommand::Put { id: w(i), bytes: bytes / 32, kind: Kind::Parameter }));
    commands.extend((1..=n).map(|i| apply(vec![(x(i - 1), false), (w(i), false)], x(i), bytes, 1_000_000)));
    commands.push(apply(vec![(x(n), true)], dy(n), bytes, 1_000_000));
    for i in (1..=n).rev() {
        if i > 1 {
            commands.push(apply(vec![(dy(i), false), (w(i), false)], dy(i - 1), bytes, 1_000_000));
        }
        commands.push(apply(vec![(x(i - 1), true), (dy(i), true)], dw(i), bytes / 32, 1_000_000));
    }
    commands.extend((1..=n).map(|i| StreamCommand::Fetch { id: dw(i) }));
    CommandStream { commands }
}

#[test]
fn cotangents_and_gradients_stay_where_making_them_again_is_another_backward_pass() {
    let s = network(40, 1 << 20);
    let free = simulate(&s, PolicyKind::Window, None).expect("feasible");
    // At the last percentage only the data, a cotangent and the needs of its two products fit.
    for (percent, most) in [(50, 1.20), (25, 1.44), (15, 6.0)] {
        let r = simulate(&s, PolicyKind::Window, Some(free.peak_bytes * percent / 100)).expect("feasible");
        let ratio = r.time_ns as f64 / free.time_ns as f64;
        assert!(ratio <= most, "{percent} %: {ratio} {r:?}");
    }
}

#[test]
fn what_is_made_again_takes_the_bytes_of_what_was_made_for_it() {
    const MIB: usize = 1 << 20;
    let apply = |x: (u64, bool), y: u64, bytes: usize, overwrite: Vec<(usize, usize)>| StreamCommand::Apply {
        op: "f".to_owned(),
        x: vec![x],
        y: vec![(y, bytes)],
        overwrite,
        scratch_bytes: 0,
        repeatable: true,
        cost_ns: 1000,
    };
    let put = |id| StreamCommand::Put { id, bytes: MIB, kind: Kind::Data };
    let commands = vec![
        put(0),
        apply((0, false), 1, MIB, vec![]),
        apply((1, true), 2, MIB, vec![(0, 0)]),
        apply((0, false), 3, 2 * MIB, vec![]), // 2 has to go
        StreamCommand::Delete { id: 3 },
        put(4), // and has one unit to come back to, by way of 1
        StreamCommand::Fetch { id: 2 },
    ];
    let r = simulate(&CommandStream { commands }, PolicyKind::Window, Some(3 * MIB)).expect("feasible");
    assert_eq!((r.evictions, r.recomputed_ops), (1, 2), "{r:?}");
}

/// The schedule's log has an op with two outputs take the bytes of two inputs. The worker does so even if one output is
/// deleted by then: the budget has no room for a third result.
#[test]
fn what_is_caught_up_with_takes_an_inputs_bytes_for_an_output_that_is_gone() {
    const MIB: usize = 1 << 20;
    let apply = |x: Vec<(u64, bool)>, y: &[u64], overwrite: Vec<(usize, usize)>| StreamCommand::Apply {
        op: "f".to_owned(),
        x,
        y: y.iter().map(|y| (*y, MIB)).collect(),
        overwrite,
        scratch_bytes: 0,
        repeatable: true,
        cost_ns: 1000,
    };
    let mut w = scheduled(3);
    let commands = [
        StreamCommand::Put { id: 0, bytes: MIB, kind: Kind::Data },
        apply(vec![(0, false)], &[1], vec![]),
        apply(vec![(0, false)], &[2], vec![]),
        apply(vec![(1, true), (0, false), (2, true)], &[3, 4], vec![(0, 0), (2, 1)]),
        StreamCommand::Delete { id: 3 },
    ];
    commands.iter().for_each(|c| step(&mut w, c).expect("it fits"));
    assert_eq!(w.figures().0.recomputed_ops, 0);
    assert!(w.0.catch_up().is_ok(), "what the schedule has done has room");
    assert_eq!(w.figures().0.recomputed_ops, 3, "each once");
}

/// The schedule keeps about this much of a few MiB free if it can.
const LITTLE: usize = 64 << 10;

/// A worker under a budget of so many MiB and a little more. Its schedule decides from the first command on.
fn scheduled(mib: usize) -> Worker {
    let options = DeviceOptions {
        budget_bytes: Some((mib << 20) + LITTLE),
        threads: 1,
        host_compute: false,
        ..DeviceOptions::default()
    };
    let mut w = Worker::new(Box::new(Dry::with_kernels(1, Arc::new(RecordedKernels))), options).expect("a worker");
    w.0.evict_all();
    w
}

/// The schedule counts on all residents but staging.
#[test]
fn staging_gives_way_to_what_the_schedule_runs_and_pushes_nothing_out() {
    let ended = Arc::new(AtomicUsize::new(0));
    let give_way = || -> GiveWay {
        let ended = ended.clone();
        Arc::new(move || {
            ended.fetch_add(1, Ordering::SeqCst);
        })
    };
    let mut w = scheduled(4);
    let put = StreamCommand::Put { id: 0, bytes: 1 << 20, kind: Kind::Data };
    [put, one_of_one(0, 1), one_of_one(1, 2)].iter().for_each(|c| step(&mut w, c).expect("it fits"));
    assert!(w.0.catch_up().is_ok(), "what the schedule has done has room");
    let before = w.figures().0;
    w.0.charge(1 << 20, "loader", Some(give_way())).expect("it fits");
    step(&mut w, &one_of_one(2, 3)).expect("it fits beside what is there but staging");
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    let e = w.0.charge(1 << 20, "loader", Some(give_way())).expect_err("all that is there stays");
    assert_eq!(e.kind(), ErrorKind::Budget);
    [1, 2, 3].iter().for_each(|id| step(&mut w, &StreamCommand::Fetch { id: *id }).expect("it is there"));
    let after = w.figures().0;
    assert_eq!((after.evictions, after.recomputed_ops), (before.evictions, before.recomputed_ops), "{after:?}");
}

/// `y = f(x)` of 1 MiB.
fn one_of_one(x: u64, y: u64) -> StreamCommand {
    StreamCommand::Apply {
        op: "f".to_owned(),
        x: vec![(x, false)],
        y: vec![(y, 1 << 20)],
        overwrite: vec![],
        scratch_bytes: 0,
        repeatable: true,
        cost_ns: 1000,
    }
}

/// Two chains of four from one leaf, with room for three of their results beside it. Then the first result of each
/// again.
fn two_chains() -> Vec<StreamCommand> {
    let mut commands = vec![StreamCommand::Put { id: 0, bytes: 1 << 20, kind: Kind::Data }];
    for first in [1, 5] {
        commands.push(one_of_one(0, first));
        commands.extend((first..first + 3).map(|x| one_of_one(x, x + 1)));
    }
    commands.extend([1, 5].map(|id| StreamCommand::Fetch { id }));
    commands
}

/// The log has ten runs and leads to the first of each chain and the last of all. The rest of the first
/// chain is useless.
#[test]
fn what_is_caught_up_with_runs_nothing_of_which_nothing_is_left() {
    let mut w = scheduled(4);
    two_chains().iter().for_each(|c| step(&mut w, c).expect("it fits"));
    let before = w.figures().0.recomputed_ops;
    assert!(w.0.catch_up().is_ok(), "what the schedule has done has room");
    assert_eq!(w.figures().0.recomputed_ops - before, 5, "1, 5, 6, 7 and 8 once each");
}

#[test]
fn a_schedule_that_leaves_outgrow_goes_on_with_what_it_has() {
    let mut w = scheduled(4);
    two_chains().iter().for_each(|c| step(&mut w, c).expect("it fits"));
    let before = w.0.schedule.launches();
    step(&mut w, &StreamCommand::Put { id: 100, bytes: 1 << 20, kind: Kind::Data }).expect("it fits");
    step(&mut w, &StreamCommand::Fetch { id: 8 }).expect("it fits");
    assert_eq!(w.0.schedule.launches() - before, 1, "8 from 7, and not from nothing");
}

#[test]
fn times_of_equal_steps_are_the_least_of_each_op() {
    let step = |k: u64, costs: [u64; 2]| {
        let op = |y: u64, cost_ns| StreamCommand::Apply {
            op: "f".to_owned(),
            x: vec![],
            y: vec![(10 * k + y, 64)],
            overwrite: vec![],
            scratch_bytes: 0,
            repeatable: true,
            cost_ns,
        };
        [op(1, costs[0]), op(2, costs[1]), StreamCommand::StepMark]
    };
    let commands = [step(0, [5, 9]), step(1, [7, 3])].concat();
    let mut s = CommandStream { commands };
    s.settle_times();
    assert_eq!(s.commands, [step(0, [5, 3]), step(1, [5, 3])].concat());
    assert_eq!(simulate(&s, PolicyKind::Window, None).expect("feasible").step_ns, [8, 8]);
}

/// The same step several times, with tensors of its own each time.
fn repeated(step: &CommandStream, times: u64) -> CommandStream {
    const APART: u64 = 10_000;
    let mut commands = Vec::new();
    for k in 0..times {
        let id = |id: &u64| id + k * APART;
        for c in &step.commands {
            let mut c = c.clone();
            match &mut c {
                StreamCommand::Put { id: x, .. } | StreamCommand::Delete { id: x } => *x = id(x),
                StreamCommand::Apply { x, y, .. } => {
                    x.iter_mut().for_each(|x| x.0 = id(&x.0));
                    y.iter_mut().for_each(|y| y.0 = id(&y.0));
                }
                _ => {}
            }
            commands.push(c);
        }
        commands.push(StreamCommand::StepMark);
    }
    CommandStream { commands }
}

#[test]
fn a_simulated_plan_is_followed_and_always_the_same_and_no_slower_than_the_policy() {
    let s = repeated(&training(48, 1 << 20), 10);
    for mib in [10, 16, 30] {
        let online = simulate(&s, PolicyKind::Window, Some(mib << 20)).expect("feasible");
        let planned = simulate_planned(&s, PolicyKind::Window, Some(mib << 20)).expect("feasible");
        assert_eq!(planned, simulate_planned(&s, PolicyKind::Window, Some(mib << 20)).expect("feasible"));
        assert_eq!((online.steps_followed, planned.steps_followed), (0, 7), "{planned:?}");
        assert!(planned.time_ns <= online.time_ns, "{mib} MiB: {planned:?} {online:?}");
        assert!(planned.peak_bytes <= mib << 20);
    }
}

#[test]
fn a_stream_that_names_no_tensor_is_refused() {
    for c in
        [StreamCommand::Delete { id: 3 }, StreamCommand::Fetch { id: 3 }, StreamCommand::View { x: (3, true), y: 4 }]
    {
        let s = CommandStream { commands: vec![c] };
        assert_eq!(simulate(&s, PolicyKind::Dtr, None).expect_err("unknown").kind(), ErrorKind::Format);
    }
}

/// The schedule counts the runs of its log. Only the worker counts those of a nested sweep for a missing input.
#[test]
fn sweeps_within_the_log_that_is_acted_out_count_as_work() {
    let mut w = scheduled(4);
    two_chains().iter().for_each(|c| step(&mut w, c).expect("it fits"));
    w.0.schedule.begin_acting();
    let limit = w.0.work_limit(w.0.options.recompute_limit);
    assert!((0..2 * limit).all(|_| w.0.begin_replay().is_ok()), "the log's own runs");
    w.0.work.nested = 1;
    let runs = (0..2 * limit).take_while(|_| w.0.begin_replay().is_ok()).count() as u64;
    assert!(runs <= limit, "{runs} of {limit}");
}

#[test]
fn the_policy_may_run_little_more_again_than_the_schedule() {
    let mut w = scheduled(4);
    let commands = two_chains();
    commands.iter().for_each(|c| step(&mut w, c).expect("it fits"));
    let most = w.0.schedule.launches() + commands.len() as u64;
    let runs = (0..=most).take_while(|_| w.0.begin_replay().is_ok()).count() as u64;
    assert!(runs < most, "{runs} of {most}");
}
