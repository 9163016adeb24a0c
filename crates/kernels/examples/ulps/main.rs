//! Errors of the vectorised functions over every f32, in units in the last place.
//!
//! `cargo run --release -p remat-kernels --example ulps -- [STEP] [--write FILE]` tries every STEP-th bit pattern (1: all
//! of them, in hours), prints a table, and puts it between the markers of FILE. Its exit status is 1 if a
//! function is off by more than 2.

mod measure;

use std::process::ExitCode;

use measure::{ALL, Function, Worst, worst};

#[path = "../support/table.rs"]
mod table;

const MARKS: [&str; 2] = ["<!-- ulps-table -->", "<!-- /ulps-table -->"];
const MOST_ULPS: f64 = 2.0;

fn join(a: Worst, b: Worst) -> Worst {
    let worse = if b.ulps > a.ulps { b } else { a };
    Worst { others: a.others + b.others, tried: a.tried + b.tried, ..worse }
}

/// All arguments, in parts over the processor's threads.
fn over_all(f: &Function, step: u64) -> Worst {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let part = (1u64 << 32).div_ceil(threads).next_multiple_of(step);
    std::thread::scope(|s| {
        let part = |t: u64| s.spawn(move || worst(f, t * part, ((t + 1) * part).min(1 << 32), step));
        let all: Vec<_> = (0..threads).map(part).collect();
        all.into_iter().map(|t| t.join().expect("no panic")).fold(Worst::default(), join)
    })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let step = args.first().and_then(|a| a.parse().ok()).unwrap_or(1).max(1);
    let mut table = String::from("| function | worst ulp | at | not correctly rounded |\n|---|--:|--:|--:|\n");
    let mut good = true;
    let mut tried = 0;
    for f in &ALL {
        let w = over_all(f, step);
        let share = 1e6 * w.others as f64 / w.tried as f64;
        let line = format!("| `{}` | {:.3} | {:e} | {share:.1} in a million |\n", f.name, w.ulps, w.x);
        print!("{line}");
        table += &line;
        good &= w.ulps <= MOST_ULPS;
        tried = w.tried;
    }
    table += &format!("\n{tried} arguments of each.\n");
    table::write(MARKS, &table);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
