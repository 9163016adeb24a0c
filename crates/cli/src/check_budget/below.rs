//! Runs with too small a budget: each gives the bits of the run without a budget, or a refusal.

use remat::types::{Error, ErrorKind, Result};
use serde_json::Value;

use super::train;
use crate::output::{note, say};

/// Tasks, with arguments that make a step small.
const TASKS: [&[&str]; 2] = [&["digits", "--batch-size", "32"], &["chars", "--batch-size", "2"]];

/// Ways to run the steps.
const WAYS: [(&str, &[&str]); 3] =
    [("eager", &[]), ("eager, without foresight", &["--no-foresight"]), ("compiled", &["--compiled"])];

/// Training steps of each run: plans are followed from the third on.
const STEPS: u64 = 4;

/// Budgets from [`MOST`] down to [`LEAST`] percent of the peak.
const MOST: f64 = 100.0;
const LEAST: f64 = 5.0;

/// The table of so many budgets for each task and way. Errors (Internal): a run ended well with other bits, or failed
/// otherwise than by being refused.
pub(super) fn run(points: u32) -> Result<()> {
    let mut broken = Vec::new();
    let mut table = String::from(
        "| work | steps | budgets | equal bits | refused | least that sufficed |\n|---|---|---|---|---|---|\n",
    );
    for task in TASKS {
        let base = trained(task, &[], "unlimited")?.ok_or_else(|| internal("a run without a budget was refused"))?;
        for (name, way) in WAYS {
            let (mut equal, mut refused, mut least) = (0, 0, None);
            for i in 0..points {
                let part = f64::from(i) / f64::from(points.max(2) - 1);
                let percent = MOST - (MOST - LEAST) * part;
                let budget = format!("{percent:.1}%");
                match trained(task, way, &budget) {
                    Ok(None) => refused += 1,
                    Ok(Some(run)) if same(&base, &run) => {
                        equal += 1;
                        least = Some(percent);
                    }
                    Ok(Some(_)) => broken.push(format!("{} {name} at {budget}: other bits", task[0])),
                    Err(e) => broken.push(format!("{} {name} at {budget}: {e}", task[0])),
                }
            }
            let least = least.map_or("none".to_owned(), |p| format!("{p:.1} %"));
            let row = format!("| {} | {name} | {points} | {equal} | {refused} | {least} |", task[0]);
            note!("{row}");
            table.push_str(&format!("{row}\n"));
        }
    }
    say!("{table}");
    match broken.is_empty() {
        true => Ok(()),
        false => Err(internal(&format!("the promise does not hold: {}", broken.join("; ")))),
    }
}

fn trained(task: &[&str], way: &[&str], budget: &str) -> Result<Option<Value>> {
    train(task, way, budget, STEPS)
}

fn same(base: &Value, run: &Value) -> bool {
    ["losses", "weights_sha256"].iter().all(|k| !base[k].is_null() && base[k] == run[k])
}

fn internal(text: &str) -> Error {
    Error::new(ErrorKind::Internal, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_the_same_only_if_all_of_them_are_there_and_equal() {
        let run = serde_json::json!({ "losses": [1.0], "weights_sha256": "a" });
        assert!(same(&run, &run));
        for (key, value) in [("losses", serde_json::json!([1.5])), ("weights_sha256", serde_json::json!("b"))] {
            let mut other = run.clone();
            other[key] = value;
            assert!(!same(&run, &other), "{key}");
            other[key] = Value::Null;
            assert!(!same(&other, &other), "{key}");
        }
    }
}
