//! `remat check-budget`: the table of the page on budgets.
//!
//! Each budget runs in processes of their own, so that the resident set is that of the run, and in turns with runs without
//! a budget, so that both see the same machine. What else uses it disturbs single runs; the median of the ratios counts.

mod below;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use remat::types::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::input;
use crate::output::{self, note, say};
use crate::process::EXIT_BUDGET;
use crate::sizes::show;

/// The process may have this much resident beyond the budget and the pages of its program: data set, threads, tables.
const RESIDENT_CONSTANT_BYTES: u64 = 32 << 20;

/// At [`TIMED_PERCENT`] a step may take this many times as long as without a budget.
const MOST_TIME: f64 = 1.35;
const TIMED_PERCENT: u32 = 50;

/// Options of the measurement.
#[derive(Args)]
pub(crate) struct Options {
    /// Budgets in percent of the peak without one
    #[arg(long, value_delimiter = ',', default_values_t = [100, 75, 50, 35, 25])]
    budgets: Vec<u32>,
    /// Training steps of each run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    steps: u64,
    /// Runs under each budget, each right after one without a budget
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Put the table between the promise-table markers of this Markdown file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Do not fail when steps take long: for a machine that does other work beside
    #[arg(long)]
    ignore_time: bool,
    /// Instead of the table, train digits and chars under so many budgets from 100 to 5 percent of the peak, eagerly, without
    /// foresight and compiled: every run must have the bits of one without a budget, or be refused
    #[arg(long, value_name = "BUDGETS", num_args = 0..=1, default_missing_value = "23",
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    below: Option<u32>,
}

const BEGIN: &str = "<!-- promise-table -->";
const END: &str = "<!-- /promise-table -->";

/// Runs the command. Errors if any part of the promise does not hold.
pub(crate) fn run(o: &Options) -> Result<()> {
    if let Some(points) = o.below {
        return below::run(points);
    }
    let mut table = String::from(
        "| budget | bytes | peak | resident beyond budget | equal bits | recomputed ops | step time, ratio |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let mut broken = Vec::new();
    for &percent in &o.budgets {
        let mut row: Option<Row> = None;
        for round in 1..=o.rounds {
            let base = train(&["digits"], &[], "unlimited", o.steps)?;
            let run = train(&["digits"], &[], &format!("{percent}%"), o.steps)?;
            let (Some(base), Some(run)) = (base, run) else { break };
            let next = Row::compare(percent, &base, &run)?;
            row = Some(match row {
                Some(row) => row.with(next),
                None => next,
            });
            note!("{percent} %: round {round} of {}", o.rounds);
        }
        match row {
            Some(row) => {
                table.push_str(&row.to_string());
                broken.extend(row.broken(o.ignore_time));
            }
            None => table.push_str(&format!("| {percent} % | | | | infeasible | | |\n")),
        }
    }
    say!("{table}");
    if let Some(path) = &o.write {
        put(path, &table)?;
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Internal, format!("the promise does not hold: {}", broken.join("; "))))
}

/// Runs under a budget, compared with the runs without one.
#[derive(Clone)]
struct Row {
    percent: u32,
    budget: u64,
    peak: u64,
    beyond: u64,
    /// The part of the bytes beyond the budget that are pages of the program's own file, which the system can drop at any time.
    program: u64,
    equal: bool,
    recomputed: u64,
    /// Of the rounds' step times, in order of size.
    ratios: Vec<f64>,
}

impl Row {
    /// Both together: the worst of each figure, and all ratios.
    fn with(mut self, other: Row) -> Row {
        self.ratios.extend(&other.ratios);
        self.ratios.sort_by(f64::total_cmp);
        Row {
            peak: self.peak.max(other.peak),
            beyond: self.beyond.max(other.beyond),
            program: self.program.min(other.program),
            equal: self.equal && other.equal,
            recomputed: self.recomputed.max(other.recomputed),
            ..self
        }
    }

    /// The median of the ratios.
    fn ratio(&self) -> f64 {
        self.ratios[self.ratios.len() / 2]
    }

    /// Errors (Format) if a run's results lack a field.
    fn compare(percent: u32, base: &Value, run: &Value) -> Result<Row> {
        let missing = |k: &str| Error::new(ErrorKind::Format, format!("the run's results have no usable `{k}`"));
        let bytes = |k: &str| run[k].as_u64().ok_or_else(|| missing(k));
        let ms = |v: &Value| v["step_ms_median"].as_f64().ok_or_else(|| missing("step_ms_median"));
        let same = |k: &str| if base[k].is_null() { Err(missing(k)) } else { Ok(run[k] == base[k]) };
        let budget = bytes("budget_bytes")?;
        Ok(Row {
            percent,
            budget,
            peak: bytes("peak_bytes")?,
            beyond: bytes("resident_peak_bytes")?.saturating_sub(budget),
            program: bytes("resident_file_bytes")?,
            equal: same("losses")? && same("weights_sha256")?,
            recomputed: bytes("recomputed_ops")?,
            ratios: vec![ms(run)? / ms(base)?],
        })
    }

    /// The parts of the promise that this row breaks.
    fn broken(&self, ignore_time: bool) -> Vec<String> {
        let mut out = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                out.push(format!("at {} % {what}", self.percent));
            }
        };
        check(self.equal, "losses or weights differ");
        check(self.peak <= self.budget, "the peak is above the budget");
        let own = self.beyond.saturating_sub(self.program);
        check(own <= RESIDENT_CONSTANT_BYTES, "the resident set is more than 32 MiB above the budget and the program");
        let quick = self.percent != TIMED_PERCENT || ignore_time || self.ratio() <= MOST_TIME;
        check(quick, "a step takes more than 1.35 times as long");
        out
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| show(bytes as usize);
        let equal = if self.equal { "yes" } else { "**no**" };
        writeln!(
            f,
            "| {} % | {} | {} | {} | {equal} | {} | {:.2} ({:.2} to {:.2}) |",
            self.percent,
            size(self.budget),
            size(self.peak),
            size(self.beyond),
            self.recomputed,
            self.ratio(),
            self.ratios[0],
            self.ratios[self.ratios.len() - 1],
        )
    }
}

/// Results of one run in a process of its own; `None` if its budget is infeasible.
fn train(task: &[&str], way: &[&str], budget: &str, steps: u64) -> Result<Option<Value>> {
    let io = |e: std::io::Error, what: &str| Error::from(e).context(what);
    let out = tempfile::NamedTempFile::new().map_err(|e| io(e, "cannot make a file for a run's results"))?;
    let program = std::env::current_exe().map_err(|e| io(e, "this program's path"))?;
    let output = Command::new(program)
        .arg("train")
        .args(task)
        .args(way)
        .args(["--memory-budget", budget, "--steps", &steps.to_string(), "--json"])
        .arg(out.path())
        .output()
        .map_err(|e| io(e, "cannot start a run"))?;
    if output.status.code() == Some(i32::from(EXIT_BUDGET)) {
        return Ok(None);
    }
    if !output.status.success() {
        let text = format!("the run under {budget} failed: {}", String::from_utf8_lossy(&output.stderr));
        return Err(Error::new(ErrorKind::Internal, text));
    }
    let text = input::file(out.path())?;
    // the steps come before the results
    serde_json::from_str(text.lines().next_back().unwrap_or_default())
        .map(Some)
        .map_err(|e| Error::new(ErrorKind::Format, format!("the run's results: {e}")))
}

/// Replaces the text between the markers.
fn put(path: &Path, table: &str) -> Result<()> {
    let text = input::file(path)?;
    let new = replaced(&text, table)
        .ok_or_else(|| Error::new(ErrorKind::Format, format!("{} has no `{BEGIN}` .. `{END}`", path.display())))?;
    output::write(path, new)
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

    #[test]
    fn each_broken_part_is_named() {
        let kept = Row {
            percent: 50,
            budget: 100,
            peak: 100,
            beyond: 7,
            program: 7,
            equal: true,
            recomputed: 3,
            ratios: vec![1.35],
        };
        assert_eq!(kept.broken(false), Vec::<String>::new());
        let names = |row: Row| row.broken(false).concat();
        assert!(names(Row { equal: false, ..kept.clone() }).contains("weights differ"));
        assert!(names(Row { peak: 101, ..kept.clone() }).contains("peak"));
        assert!(names(Row { beyond: RESIDENT_CONSTANT_BYTES + 8, ..kept.clone() }).contains("resident"));
        let slow = Row { ratios: vec![1.36], ..kept.clone() };
        assert!(names(slow.clone()).contains("1.35"));
        assert_eq!(slow.broken(true), Vec::<String>::new());
        let rounds = slow.with(Row { peak: 99, ..kept.clone() }).with(Row { equal: false, ratios: vec![0.9], ..kept });
        assert_eq!((rounds.ratio(), rounds.peak, rounds.equal), (1.35, 100, false));
        assert_eq!(rounds.ratios, [0.9, 1.35, 1.36]);
    }

    #[test]
    fn results_without_a_field_are_no_success() {
        let run = serde_json::json!({
            "budget_bytes": 9, "peak_bytes": 8, "resident_peak_bytes": 10, "resident_file_bytes": 1, "losses": [1.0], "weights_sha256": "a",
            "recomputed_ops": 0, "step_ms_median": 1.0,
        });
        assert!(Row::compare(50, &run, &run).expect("complete").equal);
        let keys =
            ["budget_bytes", "peak_bytes", "resident_peak_bytes", "resident_file_bytes", "losses", "weights_sha256"];
        for key in keys.into_iter().chain(["step_ms_median"]) {
            let mut short = run.clone();
            short[key] = Value::Null;
            assert!(Row::compare(50, &short, &short).is_err(), "{key}");
        }
    }
}
