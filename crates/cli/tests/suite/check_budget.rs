//! The promise of the README, on the task of the README.

use crate::{OK, assert_code, out, remat};

/// The cells of a table's rows.
fn rows_of(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().skip(2).map(|l| l.split('|').map(str::trim).collect());
    rows.filter(|r: &Vec<&str>| r.len() > 6).collect()
}

/// Bits, peak and resident set at three budgets of the table. Step times belong to `remat check-budget` itself: a test
/// machine may be busy.
#[test]
fn the_promise_holds_on_digits() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o =
        remat(dir.path(), &["check-budget", "--budgets", "75,50,25", "--steps", "3", "--rounds", "1", "--ignore-time"]);
    assert_code(&o, OK);
    let table = out(&o);
    let rows = rows_of(&table);
    let budgets: Vec<&str> = rows.iter().map(|r| r[1]).collect();
    assert_eq!(budgets, ["75 %", "50 %", "25 %"], "{table}");
    assert!(rows.iter().all(|r| r[5] == "yes"), "every budget is feasible and exact\n{table}");
    // A table in which nothing had to be recomputed would show nothing.
    let half: u64 = rows[1][6].parse().expect("a number of ops");
    assert!(half > 10, "half of the peak needs real recomputation\n{table}");
}

/// Where a budget is too small there is no third thing: the bits of a run without one, or a refusal.
#[test]
fn below_what_is_feasible_a_run_has_the_bits_or_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["check-budget", "--below", "2"]);
    assert_code(&o, OK);
    let table = out(&o);
    let rows = rows_of(&table);
    assert_eq!(rows.len(), 6, "two tasks in three ways\n{table}");
    for r in rows {
        let (equal, refused): (u32, u32) = (r[4].parse().expect("a number"), r[5].parse().expect("a number"));
        assert!(equal >= 1 && refused >= 1 && equal + refused == 2, "{table}");
    }
}
