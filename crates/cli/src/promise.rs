//! `remat promise`: the table of the README.
//!
//! Each budget runs in a process of its own, so that the resident set is that of the run, and right after a run without
//! a budget, so that both see the same machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use remat::types::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::sizes::show;

/// The process may have this much resident beyond the budget: program, data set, threads, tables.
const RESIDENT_CONSTANT_BYTES: u64 = 48 << 20;

/// Options of the measurement.
#[derive(Args)]
pub(crate) struct Options {
    /// Budgets in percent of the peak without one
    #[arg(long, value_delimiter = ',', default_values_t = [100, 75, 50, 35, 25])]
    budgets: Vec<u32>,
    /// Training steps of each run
    #[arg(long, default_value_t = 40)]
    steps: u64,
    /// Put the table between the promise-table markers of this Markdown file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

const BEGIN: &str = "<!-- promise-table -->";
const END: &str = "<!-- /promise-table -->";

/// Runs the command. Errors if any part of the promise does not hold.
pub(crate) fn run(o: &Options) -> Result<()> {
    let mut table = String::from(
        "| budget | bytes | peak | resident beyond budget | equal bits | recomputed ops | step time, ratio |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let mut broken = Vec::new();
    for &percent in &o.budgets {
        let base = train("unlimited", o.steps)?;
        let run = train(&format!("{percent}%"), o.steps)?;
        let (Some(base), Some(run)) = (base, run) else {
            table.push_str(&format!("| {percent} % | | | | infeasible | | |\n"));
            continue;
        };
        let bytes = |v: &Value, k: &str| v[k].as_u64().unwrap_or(0);
        let (budget, peak) = (bytes(&run, "budget_bytes"), bytes(&run, "peak_bytes"));
        let beyond = bytes(&run, "resident_peak_bytes").saturating_sub(budget);
        let equal = run["losses"] == base["losses"] && run["weights_sha256"] == base["weights_sha256"];
        let ratio = run["step_ms_median"].as_f64().unwrap_or(f64::NAN) / base["step_ms_median"].as_f64().unwrap_or(0.0);
        table.push_str(&format!(
            "| {percent} % | {} | {} | {} | {} | {} | {ratio:.2} |\n",
            show(budget as usize),
            show(peak as usize),
            show(beyond as usize),
            if equal { "yes" } else { "**no**" },
            run["recomputed_ops"],
        ));
        if !equal || peak > budget || beyond > RESIDENT_CONSTANT_BYTES {
            broken.push(format!("{percent} %"));
        }
        eprintln!("{percent} %: done");
    }
    println!("{table}");
    if let Some(path) = &o.write {
        put(path, &table)?;
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Internal, format!("the promise does not hold at {}", broken.join(", "))))
}

/// Results of one run in a process of its own; `None` if its budget is infeasible.
fn train(budget: &str, steps: u64) -> Result<Option<Value>> {
    let io = |e: std::io::Error, what: &str| Error::from(e).context(what);
    let out = std::env::temp_dir().join(format!("remat-promise-{}.json", std::process::id()));
    let program = std::env::current_exe().map_err(|e| io(e, "this program's path"))?;
    let output = Command::new(program)
        .args(["train", "digits", "--memory-budget", budget, "--steps", &steps.to_string(), "--json"])
        .arg(&out)
        .output()
        .map_err(|e| io(e, "cannot start a run"))?;
    if output.status.code() == Some(i32::from(crate::EXIT_BUDGET)) {
        return Ok(None);
    }
    if !output.status.success() {
        let text = format!("the run under {budget} failed: {}", String::from_utf8_lossy(&output.stderr));
        return Err(Error::new(ErrorKind::Internal, text));
    }
    let text = std::fs::read_to_string(&out).map_err(|e| io(e, "the run's results"))?;
    // Left behind it would only be overwritten by the next run.
    let _ = std::fs::remove_file(&out);
    serde_json::from_str(&text).map(Some).map_err(|e| Error::new(ErrorKind::Format, format!("the run's results: {e}")))
}

/// Replaces what is between the markers.
fn put(path: &Path, table: &str) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::from(e).context(path.display()))?;
    let new = replaced(&text, table)
        .ok_or_else(|| Error::new(ErrorKind::Format, format!("{} has no `{BEGIN}` .. `{END}`", path.display())))?;
    std::fs::write(path, new).map_err(|e| Error::from(e).context(path.display()))
}

fn replaced(text: &str, table: &str) -> Option<String> {
    let begin = text.find(BEGIN)? + BEGIN.len();
    let end = begin + text[begin..].find(END)?;
    Some(format!("{}\n{table}{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_goes_between_its_markers() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&text, "| new |\n").expect("markers are there");
        assert_eq!(new, format!("a\n{BEGIN}\n| new |\n{END}\nb\n"));
        assert_eq!(replaced("nothing", ""), None);
    }
}
