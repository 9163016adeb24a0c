//! `remat endure`: bits under a budget in a loop that is hard to foresee.

use crate::{BUDGET, OK, assert_code, err, out, remat};

#[test]
fn a_loop_that_alternates_branches_and_fails_gives_the_same_bits() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["endure", "--seconds", "4"]);
    assert_code(&o, OK);
    let told = out(&o);
    assert!(told.contains("the same bits"), "{told}");
    let again = told.split(" ops ran again").next().and_then(|t| t.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(again.is_some_and(|n| n > 0), "the budget binds: {told}");
}

#[test]
fn a_budget_below_the_weights_is_refused_with_figures() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["endure", "--seconds", "1", "--memory-budget", "100kB"]);
    assert_code(&o, BUDGET);
    assert!(err(&o).contains("budget"), "{}", err(&o));
}
