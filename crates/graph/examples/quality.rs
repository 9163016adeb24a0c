//! The table of docs/src/planning.md: the planner beside every published heuristic on the benchmark set.
//!
//! ```text
//! cargo run --release -p remat-graph --example quality -- [--seconds S] [--write FILE] [--reference FILE] [NAME ..]
//! cargo run --release -p remat-graph --example quality -- --seconds 60 --improve FILE [NAME ..]
//! ```
//!
//! The first form prints the table, or puts it between the markers of FILE; `--seconds` is the time for each plan, the
//! default that of `remat plan`. The second form plans with another seed and much time, and writes what is faster than
//! the best known into the reference FILE; scripts/plan_reference.py writes there as well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use remat_graph::plan::baseline::Policy;
use remat_graph::plan::check::check;
use remat_graph::plan::generate::generate;
use remat_graph::plan::problem::{Problem, Spec};
use remat_graph::plan::remat::{Effort, peak_bytes, plan};
use remat_graph::plan::schedule::{Plan, Schedule};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

const SET: &[&str] = &[
    "chain-24",
    "chain-50",
    "chain-200",
    "resnet50",
    "unet",
    "densenet121",
    "gpt-12",
    "mobilenetv2",
    "lstm-16",
    "lstm-64",
    "highway-40",
    "shared-30",
    "random-50",
    "random-50-2",
    "random-100",
    "random-200",
    "random-500",
    "random-1000",
    "measured-resnet50",
    "measured-gpt",
];
/// Graphs of the set that are not generated: `remat plan train:NAME --dag-out` wrote them.
const MEASURED: &str = "crates/graph/data";
const PERCENTS: [u64; 6] = [90, 80, 70, 60, 50, 40];
const REFERENCE: &str = "crates/graph/data/reference.json";
const BEGIN: &str = "<!-- quality-table -->";
const END: &str = "<!-- /quality-table -->";

#[derive(Default)]
struct Options {
    seconds: Option<f64>,
    write: Option<PathBuf>,
    reference: PathBuf,
    improve: bool,
    names: Vec<String>,
}

fn options() -> Result<Options, Failure> {
    let mut o = Options { reference: REFERENCE.into(), ..Options::default() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--seconds" => o.seconds = Some(value()?.parse()?),
            "--write" => o.write = Some(value()?.into()),
            "--reference" => o.reference = value()?.into(),
            "--improve" => (o.improve, o.reference) = (true, value()?.into()),
            _ => o.names.push(arg),
        }
    }
    if o.names.is_empty() {
        o.names = SET.iter().map(|&n| n.to_owned()).collect();
    }
    Ok(o)
}

fn main() -> Result<(), Failure> {
    let o = options()?;
    let mut known = References::read(&o.reference)?;
    let mut table = head();
    for name in &o.names {
        let p = problem(name)?;
        let peak = peak_bytes(&p);
        for percent in PERCENTS {
            let budget = peak * percent / 100;
            let default = Effort::for_ops(p.ops().len());
            let time_limit = o.seconds.map_or(default.time_limit, Duration::from_secs_f64);
            let seed = if o.improve { 7 } else { 1 };
            let found = plan(&p, budget, Effort { time_limit, seed, ..default });
            if let Plan::Feasible(s) = &found {
                check(&p, s)?;
            }
            if o.improve {
                known.improve(name, percent, &found, time_limit, &o.reference)?;
            } else {
                let line = row(name, &p, percent, budget, &found, &known);
                eprint!("{line}");
                table.push_str(&line);
            }
        }
    }
    match &o.write {
        Some(path) => put(path, &table),
        None if o.improve => Ok(()),
        None => {
            println!("{table}");
            Ok(())
        }
    }
}

fn problem(name: &str) -> Result<Problem, Failure> {
    let spec = match name.starts_with("measured-") {
        true => Spec::from_json(&std::fs::read_to_string(Path::new(MEASURED).join(format!("{name}.json")))?)?,
        false => generate(name)?,
    };
    Ok(Problem::new(spec)?)
}

/// The heuristics in the table; the planner's own is left out.
fn policies() -> impl Iterator<Item = Policy> {
    Policy::ALL.into_iter().filter(|p| *p != Policy::Farsighted)
}

fn head() -> String {
    let names: Vec<&str> = policies().map(Policy::name).collect();
    format!(
        "| problem | budget | {} | planner | best known | above it | proven gap | seconds |\n|---|---:|{}---:|---:|---:|---:|---:|\n",
        names.join(" | "),
        "---:|".repeat(names.len())
    )
}

/// Added time in percent.
fn row(name: &str, p: &Problem, percent: u64, budget: u64, found: &Plan, known: &References) -> String {
    let base = p.base_time_ns() as f64;
    let added = |ns: u64| format!("{:.2}", 100.0 * (ns as f64 / base - 1.0));
    let heuristics: Vec<String> = policies()
        .map(|policy| {
            let time = policy.sequence(p, budget).map(|s| s.iter().map(|&o| p.ops()[o].time_ns).sum());
            time.map_or("-".to_owned(), added)
        })
        .collect();
    let heuristics = heuristics.join(" | ");
    match found {
        Plan::Feasible(s) => {
            let best = known.best(name, percent).map_or(s.time_ns, |b| b.min(s.time_ns));
            format!(
                "| {name} | {percent} % | {heuristics} | {} | {} | {:.2} % | {:.2} % | {:.1} |\n",
                added(s.time_ns),
                added(best),
                100.0 * (s.time_ns as f64 / best as f64 - 1.0),
                100.0 * s.gap(),
                s.plan_seconds
            )
        }
        Plan::Infeasible(s) => {
            let peak = budget as f64 / percent as f64;
            let least = s.smallest_feasible_bytes as f64 / peak;
            format!("| {name} | {percent} % | {heuristics} | from {least:.1} % | | | | |\n")
        }
    }
}

/// Best known schedules, by problem and percent of the peak.
struct References(Vec<Value>);

impl References {
    fn read(path: &Path) -> Result<References, Failure> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(References(serde_json::from_str(&text)?)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(References(Vec::new())),
            Err(e) => Err(e.into()),
        }
    }

    /// The time of the fastest schedule that has an arena.
    fn best(&self, name: &str, percent: u64) -> Option<u64> {
        let of = self.0.iter().filter(|r| r["problem"] == name && r["percent"] == percent && r["has_arena"] == true);
        of.filter_map(|r| r["time_ns"].as_u64()).min()
    }

    fn improve(&mut self, name: &str, percent: u64, found: &Plan, time: Duration, path: &Path) -> Result<(), Failure> {
        let Plan::Feasible(s) = found else { return Ok(()) };
        eprintln!("{name} {percent} %: {} ns, best known {:?}", s.time_ns, self.best(name, percent));
        if self.best(name, percent).is_some_and(|b| b <= s.time_ns) {
            return Ok(());
        }
        self.0.retain(|r| !(r["problem"] == name && r["percent"] == percent && r["solver"] == "long run"));
        self.0.push(reference(name, percent, s, time));
        let lines: Vec<String> = self.0.iter().map(|r| format!("  {r}")).collect();
        Ok(std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n")))?)
    }
}

fn reference(name: &str, percent: u64, s: &Schedule, time: Duration) -> Value {
    json!({
        "problem": name,
        "percent": percent,
        "budget_bytes": s.budget_bytes,
        "time_ns": s.time_ns,
        "bound_ns": s.lower_bound_ns,
        "has_arena": true,
        "solver": "long run",
        "seconds": time.as_secs_f64(),
    })
}

/// Replaces what is between the markers.
fn put(path: &Path, table: &str) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)?;
    let missing = || format!("{} has no {BEGIN} .. {END}", path.display());
    let begin = text.find(BEGIN).ok_or_else(missing)? + BEGIN.len();
    let end = begin + text[begin..].find(END).ok_or_else(missing)?;
    Ok(std::fs::write(path, format!("{}\n{table}{}", &text[..begin], &text[end..]))?)
}
