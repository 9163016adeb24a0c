use remat_graph::plan::problem::{OutputKind, SpillRates};
use remat_ops::OpRef;
use remat_ops::pointwise::{Unary, UnaryFn};
use remat_types::{DType, SmallVec};

use super::cache::StepCache;
use super::plan::{Action, StepPlan};
use super::problem::to_problem;
use super::step_trace::{CommandKind, Event, Local, LocalBytes, Name, Outcome, StepTrace};
use crate::options::Foresight;

const UNIT: usize = 4096;
const NO_DISK: SpillRates = SpillRates { write_bytes_per_s: 0, read_bytes_per_s: 0 };

fn op(f: UnaryFn) -> OpRef {
    Unary { f }.into()
}

/// A trace of applications, each of one storage: (input storage, takes its bytes).
fn trace(applies: &[(Local, bool)]) -> StepTrace {
    let mut t = StepTrace::default();
    let event = |what, x: &[Name], done| Event {
        what,
        x: SmallVec::from_slice(x),
        types: SmallVec::from_iter([(DType::F32, [UNIT / 4].into())]),
        done,
    };
    t.locals.push(LocalBytes { bytes: UNIT, is_carried: true, ..LocalBytes::default() });
    for (i, &(x, in_place)) in applies.iter().enumerate() {
        let done = Outcome {
            x: SmallVec::from_iter([x]),
            y: SmallVec::from_iter([i as Local + 1]),
            donated_from: SmallVec::from_iter([in_place.then_some(0)]),
            cost_ns: 1000,
            scratch_bytes: 0,
            has_recipe: true,
            may_take: SmallVec::new(),
        };
        t.events.push(event(CommandKind::Apply(op(UnaryFn::Tanh)), &[x], done));
        t.locals.push(LocalBytes { bytes: UNIT, ..LocalBytes::default() });
    }
    t
}

/// Forward and back: every result is read once more, in the opposite order.
fn there_and_back(n: u32) -> StepTrace {
    trace(&(0..n).chain((1..=n).rev()).map(|x| (x, false)).collect::<Vec<_>>())
}

#[test]
fn events_are_equal_by_what_they_ask_of_whom_and_not_by_what_they_came_to() {
    let t = trace(&[(0, false), (1, false)]);
    let mut same = t.clone();
    same.events[1].done.cost_ns = 5;
    assert!(same.events == t.events && same.hash() == t.hash());
    for change in [
        |e: &mut Event| e.x[0] = 0,
        |e: &mut Event| e.types[0].0 = DType::F64,
        |e: &mut Event| e.types[0].1 = [7].into(),
        |e: &mut Event| e.what = CommandKind::Apply(op(UnaryFn::Exp)),
        |e: &mut Event| e.what = CommandKind::Commit,
    ] {
        let mut other = t.clone();
        change(&mut other.events[1]);
        assert!(other.events != t.events && other.hash() != t.hash());
    }
}

#[test]
fn an_op_in_place_is_one_operator_with_the_one_before_unless_something_else_reads_its_input() {
    let parts = |t: &StepTrace| {
        let step_problem = to_problem(t, 1 << 20, NO_DISK).expect("valid");
        step_problem.parts.iter().map(|p| p.events.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(parts(&trace(&[(0, false), (1, true), (2, true)])), [vec![0, 1, 2]]);
    assert_eq!(parts(&trace(&[(0, false), (1, false), (1, true)])), [vec![0], vec![1], vec![2]]);
    // Between the two runs comes another op. Its output is planned, so it has its place in the order.
    assert_eq!(parts(&trace(&[(0, false), (0, false), (1, true)])), [vec![0], vec![1], vec![2]]);
}

#[test]
fn what_cannot_be_made_again_is_made_once_and_stays_until_it_was_gone() {
    let mut t = there_and_back(3);
    t.locals[1].lost_recipe = true;
    t.locals[1].gone_at = Some(4);
    let step_problem = to_problem(&t, 1 << 20, NO_DISK).expect("valid");
    let ops = step_problem.problem.ops();
    assert!(!ops[0].repeatable && ops[1].repeatable);
    let keeps = step_problem.parts.iter().position(|p| p.events.is_empty()).expect("something reads it at its end");
    assert!(ops[keeps].inputs == ops[1].inputs, "{:?}", ops[keeps]);
    t.locals[1].gone_at = None;
    let step_problem = to_problem(&t, 1 << 20, NO_DISK).expect("valid");
    assert_eq!(step_problem.problem.outputs().len(), 1, "it is there at the end");
}

#[test]
fn a_state_that_the_step_overwrites_cannot_be_read_in_its_old_version_again() {
    // The carried storage is read by the first op and overwritten by the last.
    let mut t = trace(&[(0, false), (1, false), (0, true)]);
    t.locals[3].outlives = true;
    let step_problem = to_problem(&t, 1 << 20, NO_DISK).expect("valid");
    let ops = step_problem.problem.ops();
    let last = ops.last().expect("there are three");
    assert!(!last.repeatable && last.inputs.iter().all(|v| ops[0].inputs.contains(v)), "{last:?}");
    assert!(last.outputs.iter().any(|o| o.1 == OutputKind::Writes), "{last:?}");
    assert_eq!(step_problem.fixed_bytes, 0, "it takes the bytes of the version before");
}

#[test]
fn a_small_state_that_no_operator_overwrites_can_be_read_by_one() {
    // A counter is incremented in place, and then read by a large op: AdamW's step.
    let mut t = trace(&[(0, true), (1, false), (2, false)]);
    (t.locals[0].bytes, t.locals[1].bytes) = (64, 64);
    let step_problem = to_problem(&t, 1 << 20, NO_DISK).expect("valid");
    assert_eq!(step_problem.problem.ops().len(), 2);
    assert_eq!(step_problem.problem.ops()[0].inputs.len(), 1, "it reads the counter");
}

/// Acts out a plan: every storage that is read is resident, and no more is resident than the arena holds.
fn replay_by_hand(t: &StepTrace, plan: &StepPlan) {
    let mut resident = vec![false; t.locals.len()];
    resident[0] = true;
    let run = |resident: &mut Vec<bool>, e: usize, takes: Option<usize>| {
        let d = &t.events[e].done;
        assert!(d.x.iter().all(|&x| resident[x as usize]), "event {e} reads what is not there");
        takes.into_iter().for_each(|i| resident[d.x[i] as usize] = false);
        resident[d.y[0] as usize] = true;
        let bytes = resident[1..].iter().filter(|r| **r).count() * UNIT;
        assert!(bytes <= plan.arena_bytes, "{bytes} bytes at event {e}");
    };
    for (e, before) in plan.before.iter().enumerate() {
        for a in before {
            match a {
                Action::Free(chain) => chain.iter().for_each(|&l| resident[l as usize] = false),
                Action::Spill(_) | Action::Fetch(..) => unreachable!("there is no disk"),
                Action::Recompute(r) => run(&mut resident, r.events[0], r.takes),
            }
        }
        if e < t.events.len() {
            run(&mut resident, e, plan.places[e].takes);
        }
    }
}

#[test]
fn a_step_seen_twice_is_planned_within_the_budget_and_every_action_has_its_place() {
    let (t, budget) = (there_and_back(12), 6 * UNIT);
    let mut cache = StepCache::default();
    assert!(!cache.learn(t.clone(), 1000));
    assert_eq!(cache.plan(Foresight::AtOnce, budget, NO_DISK).plans, 0);
    assert!(cache.candidates().is_empty());
    assert!(cache.learn(t.clone(), 1000));
    assert_eq!(cache.plan(Foresight::AtOnce, budget, NO_DISK).plans, 1);
    let plan = cache.known[cache.candidates()[0]].plan.clone().expect("planned");
    assert!(plan.arena_bytes <= budget && plan.time_ns > plan.base_ns);
    let made: Vec<usize> = (plan.before.iter().flatten())
        .filter_map(|a| if let Action::Recompute(r) = a { Some(r.events[0]) } else { None })
        .collect();
    assert!(!made.is_empty() && plan.time_ns == plan.base_ns + 1000 * made.len() as u64);
    replay_by_hand(&t, &plan);
}

#[test]
fn a_result_takes_the_bytes_of_what_is_made_again_later() {
    // Every result could work in place, though all results are read once more.
    let mut t = there_and_back(12);
    t.events.iter_mut().for_each(|e| e.done.may_take = SmallVec::from_slice(&[0]));
    // A plan may not give a carried storage away.
    assert!(to_problem(&t, 1 << 20, NO_DISK).expect("valid").problem.ops()[0].takes.is_empty());
    let plain = there_and_back(12);
    let plan = |t: &StepTrace, budget: usize| {
        let mut cache = StepCache::default();
        for _ in 0..2 {
            cache.learn(t.clone(), 1000);
        }
        cache.plan(Foresight::AtOnce, budget, NO_DISK);
        let at = cache.candidates().first().copied()?;
        cache.known[at].plan.clone()
    };
    // Input and result at once take two units. One suffices if the result lies in the input.
    let (plan, without) = (plan(&t, 4 * UNIT).expect("planned"), plan(&plain, 4 * UNIT).expect("planned"));
    assert!(plan.time_ns < without.time_ns, "{} ns, {} ns without", plan.time_ns, without.time_ns);
    let first = plan.places.iter().filter(|p| p.takes == Some(0)).count();
    let again =
        plan.before.iter().flatten().filter(|a| matches!(a, Action::Recompute(r) if r.takes == Some(0))).count();
    assert!(first > 0 && again > 0, "{first} {again}");
    replay_by_hand(&t, &plan);
}

#[test]
fn a_step_is_taken_for_the_one_that_came_next_most_often_and_then_for_the_one_used_last() {
    let steps: Vec<StepTrace> = (2..6).map(there_and_back).collect();
    let mut cache = StepCache::default();
    for t in &steps {
        for _ in 0..2 {
            cache.learn(t.clone(), 1000);
        }
    }
    cache.plan(Foresight::AtOnce, 1 << 20, NO_DISK);
    for i in [0, 1, 0, 1, 0, 2, 0, 1, 0, 2, 3, 0] {
        cache.learn(steps[i].clone(), 1000);
    }
    let at = |t: &StepTrace| cache.known.iter().position(|k| k.trace.events == t.events).expect("known");
    // The second step came after the first three times, and the third twice, most recently. The first came after itself
    // once, long ago.
    assert_eq!(cache.candidates(), [1, 2, 0, 3].map(|i| at(&steps[i])));
}

#[test]
fn the_book_keeps_eight_steps_and_expects_the_one_that_came_next_before() {
    let steps: Vec<StepTrace> = (2..11).map(there_and_back).collect();
    let mut cache = StepCache::default();
    for t in &steps[..2] {
        for _ in 0..2 {
            cache.learn(t.clone(), 1000);
        }
    }
    cache.plan(Foresight::AtOnce, 1 << 20, NO_DISK);
    let at = |cache: &StepCache, t: &StepTrace| cache.known.iter().position(|k| k.trace.events == t.events);
    for t in [&steps[0], &steps[1], &steps[0]] {
        cache.learn(t.clone(), 1000);
    }
    assert_eq!(cache.candidates().first().copied(), at(&cache, &steps[1]), "they alternate");
    for t in &steps[2..] {
        cache.learn(t.clone(), 1000);
    }
    assert_eq!(cache.known.len(), 8);
    assert_eq!(at(&cache, &steps[1]), None, "the one used longest ago");
}
