//! `remat soak`: bits under a budget in a loop that is hard to foresee.

use crate::{BUDGET, OK, assert_code, err, out, remat};

#[test]
fn a_loop_that_alternates_branches_and_fails_gives_the_same_bits() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["soak", "--seconds", "4"]);
    assert_code(&o, OK);
    let told = out(&o);
    assert!(told.contains("the same bits"), "{told}");
    let again = told.split(" ops ran again").next().and_then(|t| t.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(again.is_some_and(|n| n > 0), "the budget binds: {told}");
}

#[test]
fn a_folder_to_spill_to_changes_no_bit_and_must_be_there() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().to_str().expect("a name");
    let o = remat(dir.path(), &["soak", "--seconds", "3", "--spill-to", folder]);
    assert_code(&o, OK);
    let told = out(&o);
    assert!(told.contains("the same bits") && told.contains("came back from a file"), "{told}");
    let o = remat(dir.path(), &["soak", "--seconds", "1", "--spill-to", "nowhere"]);
    assert_code(&o, 1);
    assert!(err(&o).contains("spill file in `nowhere`"), "{}", err(&o));
}

#[test]
fn a_budget_below_the_weights_is_refused_with_figures() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["soak", "--seconds", "1", "--memory-budget", "100kB"]);
    assert_code(&o, BUDGET);
    assert!(err(&o).contains("budget"), "{}", err(&o));
}
