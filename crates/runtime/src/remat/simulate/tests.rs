use super::*;
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

#[test]
fn a_stream_that_names_no_tensor_is_refused() {
    for c in
        [StreamCommand::Delete { id: 3 }, StreamCommand::Fetch { id: 3 }, StreamCommand::View { x: (3, true), y: 4 }]
    {
        let s = CommandStream { commands: vec![c] };
        assert_eq!(simulate(&s, PolicyKind::Dtr, None).expect_err("unknown").kind(), ErrorKind::Format);
    }
}
