//! Budgets, and memory of the caller's.

use remat_lite::{ErrorKind, Network, Options, Session, Shapes};

use crate::{bits, folder, open, session};

fn under(budget: Option<usize>) -> Network {
    open("cnn", Options { memory_budget: budget, threads: 1, ..Options::default() })
}

/// Without a budget, and what a run of the recorded input gives.
fn after_a_run() -> (Session, Vec<u32>) {
    let mut s = session(&under(None), "cnn");
    s.run().expect("it runs");
    let y = bits(&mut s, "probabilities");
    (s, y)
}

#[test]
fn a_session_keeps_to_its_budget_with_the_same_bits_or_is_refused_with_figures() {
    let run = |budget: Option<usize>| {
        let network = open("skip", Options { memory_budget: budget, threads: 1, ..Options::default() });
        let mut s = network.session(&Shapes::new().extent("batch", 4))?;
        let x = s.input_as_mut::<f32>("x")?;
        x.iter_mut().enumerate().for_each(|(i, v)| *v = (i % 17) as f32 * 0.1 - 0.8);
        s.run()?;
        let memory = s.memory()?;
        assert!(budget.is_none_or(|b| memory.total_bytes() <= b), "{memory:?} of {budget:?}");
        remat_lite::Result::Ok((bits(&mut s, "y"), memory))
    };
    let (want, whole) = run(None).expect("without a budget");
    assert_eq!(whole.recomputed_calls, 0);
    let (mut met, mut refused, mut recomputed) = (0, 0, 0);
    for percent in (10..=100).step_by(5) {
        match run(Some(whole.total_bytes() * percent / 100)) {
            Ok((got, memory)) => {
                assert_eq!(got, want, "{percent} %");
                met += 1;
                recomputed += memory.recomputed_calls;
            }
            Err(e) => {
                let figures = e.shortfall().expect("of the budget");
                assert!(figures.smallest_feasible_bytes > whole.total_bytes() * percent / 100, "{e}");
                refused += 1;
            }
        }
    }
    assert!(met >= 2 && refused >= 1 && recomputed >= 1, "{met} met, {refused} refused, {recomputed} made again");
}

/// The model's integer decides its sizes, and each value of it has a plan.
#[test]
fn a_budget_is_for_the_plans_of_all_values_together() {
    let run = |s: &mut Session, rate: i64| {
        s.input_as_mut::<i64>("rate").expect("an input")[0] = rate;
        s.run().expect("it runs");
        assert!(s.is_planned());
        (bits(s, "y"), s.memory().expect("idle").total_bytes())
    };
    let free = open("rate", Options { threads: 1, ..Options::default() });
    let mut s = session(&free, "rate");
    let (_, one) = run(&mut s, 16000);
    let tight = open("rate", Options { threads: 1, memory_budget: Some(one), ..Options::default() });
    let mut t = session(&tight, "rate");
    let mut most = 0;
    for rate in [16000, 1, 2, 3, 16000, 4, 5, 1] {
        let (want, all) = run(&mut s, rate);
        let (got, held) = run(&mut t, rate);
        assert_eq!(got, want, "{rate}");
        assert!(held <= one, "{held} of {one} at {rate}");
        most = most.max(all);
    }
    assert!(most > one, "without a budget there are several plans");
}

#[test]
fn sessions_with_a_budget_change_plans_on_threads_of_their_own() {
    let budget = Some(1 << 16);
    let network = open("rate", Options { threads: 1, memory_budget: budget, ..Options::default() });
    let sessions = [session(&network, "rate"), session(&network, "rate")];
    std::thread::scope(|scope| {
        for (k, mut s) in sessions.into_iter().enumerate() {
            scope.spawn(move || {
                for i in 0..40 {
                    s.input_as_mut::<i64>("rate").expect("an input")[0] = [16000, 8000, 7][(i + k) % 3];
                    s.run().expect("it runs");
                    let wide = if (i + k) % 3 == 0 { 8 } else { 4 };
                    assert_eq!(s.output("y").expect("an output").shape.dims(), [2, wide]);
                }
            });
        }
    });
}

#[test]
fn a_network_lives_on_after_a_budget_that_was_too_small() {
    let small =
        under(None).session(&Shapes::new().extent("batch", 1)).expect("any").memory().expect("idle").total_bytes();
    let network = under(Some(small));
    let e = network.session(&Shapes::new().extent("batch", 64)).expect_err("too large");
    assert_eq!(e.kind(), ErrorKind::Budget);
    let mut s = network.session(&Shapes::new().extent("batch", 1)).expect("one image fits");
    s.run().expect("it runs");
    let bytes = std::fs::read(folder("cnn").join("model.onnx")).expect("readable");
    let options = Options { memory_budget: Some(small), threads: 1, ..Options::default() };
    let network = Network::from_bytes(bytes, options).expect("the same model");
    assert!(network.session(&Shapes::new().extent("batch", 64)).is_err());
    assert!(network.session(&Shapes::new().extent("batch", 1)).is_ok());
}

#[test]
fn outputs_may_be_in_the_callers_memory() {
    let (mut s, want) = after_a_run();
    let mut own = vec![0u32; want.len()];
    s.run_into(&mut [Some(bytemuck::cast_slice_mut(&mut own))]).expect("of the right size");
    assert_eq!(own, want);
    let e = s.run_into(&mut [Some(bytemuck::cast_slice_mut(&mut own[1..]))]).expect_err("too small");
    assert_eq!(e.kind(), ErrorKind::Value);
}

#[test]
fn the_workspace_can_be_given_back() {
    let (mut s, want) = after_a_run();
    s.release_workspace().expect("not running");
    s.run().expect("it takes it again");
    assert_eq!(bits(&mut s, "probabilities"), want);
}
