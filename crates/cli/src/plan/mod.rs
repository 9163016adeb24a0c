//! `remat plan`: a training step, or any graph in the JSON format, planned under a budget; any schedule, checked.
//!
//! A schedule goes where `--out` or `--json` says; standard output has a summary unless it has that. Every schedule is
//! replayed by the checker before it is written.

mod curve;
mod eager;
mod figures;
mod input;
mod page;
mod picture;
mod timeline;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use remat::types::{Error, ErrorKind, Result};
use remat_graph::plan::check::check;
use remat_graph::plan::problem::Problem;
use remat_graph::plan::remat::{Effort, peak_bytes, plan};
use remat_graph::plan::schedule::{Plan, Schedule, Shortfall};

use crate::budget::MemoryBudget;
use crate::device::{CPU, On, computing_device};
use crate::model::ShapeOptions;
use crate::output::{self, note, say};
use crate::sizes::show;
use crate::workload::Source;

/// How to use it, with examples that can be pasted.
const EXAMPLES: &str = "\
Examples:
  remat plan train:resnet50 --batch 8 --budget 50%        a training step with its operators' times on this machine
  remat plan train:gpt --estimated --curve --html gpt.html
  remat plan train:resnet50 --batch 32 --estimated --eager   what budgets cost the step as an eager program
  remat plan train:chars --dag-out chars.json             the step as a graph in the JSON format
  remat plan bert.onnx --shape tokens=1x128 --curve       a model from a file
  remat plan --generate resnet50 --out resnet50.json      write a benchmark graph
  remat plan --dag resnet50.json --budget 70% --out s.json
  remat plan --dag resnet50.json --budget 70% --json      the schedule instead of the summary
  remat plan --check s.json                               replay it: offsets, versions, budget, time
  remat plan --check s.json --dag resnet50.json           against the graph as you have it
  remat plan --dag resnet50.json --curve --svg curve.svg --html curve.html

A graph lists `values` that exist before (name, bytes), `ops` in the order of a run without a budget (name, time_ns,
inputs, outputs with bytes, or `alias_of`, or `writes`; workspace; repeatable) and `outputs`. Benchmark graphs:
chain-N, gpt-N (layers), resnet50, unet, densenet121, mobilenetv2, random-N and random-N-SEED (operators).

Exit codes: 0 done or valid, 1 an error or an invalid schedule, 2 the budget cannot be met, 64 a wrong command line.";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A training step, `train:NAME` with digits, chars, mlp, resnet18, resnet50 or gpt; a forward pass, `model:NAME`
    /// with mlp, resnet18, resnet50, mobilenetv2, gpt or bert; or a model in a file, ONNX or .remat
    #[arg(value_name = "WORK", conflicts_with_all = ["dag", "generate", "check"])]
    work: Option<Source>,
    /// Examples of the step's batch [default: the recipe's or the benchmark's]
    #[arg(long, value_name = "N", requires = "work", conflicts_with_all = ["dag", "generate", "check"], value_parser = clap::value_parser!(u16).range(1..=4096))]
    batch: Option<u16>,
    #[command(flatten)]
    shapes: ShapeOptions,
    /// Compute threads of the step [default: the processors]
    #[arg(long, value_name = "N", requires = "work", conflicts_with_all = ["dag", "generate", "check"], value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The device that runs the step: `cpu`, or `cuda:0` for the first GPU
    #[arg(long, default_value = CPU, value_name = "NAME", conflicts_with_all = ["dag", "generate", "check"], value_parser = computing_device)]
    device: String,
    /// Take estimates for the times of the step's operators instead of running it
    #[arg(long, requires = "work", conflicts_with_all = ["dag", "generate", "check"])]
    estimated: bool,
    /// Write the step as a graph in the JSON format
    #[arg(long, value_name = "FILE", requires = "work", conflicts_with_all = ["dag", "generate", "check"])]
    dag_out: Option<PathBuf>,
    /// The graph as JSON; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "generate")]
    dag: Option<PathBuf>,
    /// A benchmark graph instead; written as JSON if neither a budget nor a curve is asked for
    #[arg(long, value_name = "NAME")]
    generate: Option<String>,
    /// Most bytes of the arena: `64MiB`, `70%` of the peak without a budget, or `unlimited`; with `--curve`, the budget
    /// that the page shows first
    #[arg(long, value_name = "BUDGET", allow_hyphen_values = true)]
    budget: Option<MemoryBudget>,
    /// Time to plan, for each budget of a curve, counted in what the search looks at: a plan does not depend on the machine, which
    /// takes about so long [default: 1.6 up to 1,000 operators, 12 from 5,000 on]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time_limit: Option<f64>,
    /// Seed of the search
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the schedule here; a generated graph here instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the schedule instead of a summary
    #[arg(long, requires = "budget", conflicts_with_all = ["curve", "check"])]
    json: bool,
    /// Replay this schedule; without `--dag`, on the graph that it carries
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["budget", "curve", "out", "generate", "time_limit"])]
    check: Option<PathBuf>,
    /// Plan a range of budgets and print time over memory as a table
    #[arg(long)]
    curve: bool,
    /// Simulate the step as an eager program, op by op, and print what each budget costs online and with foresight; with
    /// `--out`, write the recorded commands
    #[arg(long, requires = "work", conflicts_with_all = ["curve", "budget", "dag_out", "dag", "generate", "check"])]
    eager: bool,
    /// Budgets in percent of the peak
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,..",
          default_values_t = curve::PERCENTS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    percents: Vec<u32>,
    /// Draw the curve
    #[arg(long, value_name = "FILE", requires = "curve")]
    svg: Option<PathBuf>,
    /// One page with the table, the curve and the contents of the arena at any time
    #[arg(long, value_name = "FILE", requires = "curve")]
    html: Option<PathBuf>,
}

const NO_GRAPH: &str =
    "name a step such as `train:gpt` or a model in a file, or give a graph with `--dag FILE` or `--generate NAME`";

impl Options {
    /// The title of the graph.
    fn title(&self) -> String {
        let dag = || self.dag.as_ref().map(|f| f.display().to_string());
        self.work.as_ref().map(Source::to_string).or_else(dag).or(self.generate.clone()).unwrap_or_default()
    }

    /// A fault of the options together that the parser does not see.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let has_graph = self.work.is_some() || self.dag.is_some() || self.generate.is_some() || self.check.is_some();
        let is_written = self.generate.is_some() || self.dag_out.is_some();
        let has_aim = self.budget.is_some() || self.curve || self.check.is_some() || is_written || self.eager;
        let file = match &self.work {
            Some(Source::File(path)) => Some(path),
            Some(Source::Workload(_)) | None => None,
        };
        match (has_graph, has_aim) {
            (false, _) => Some(NO_GRAPH),
            _ if file.is_some_and(|f| f.extension().is_some_and(|e| e == "json")) => {
                Some("a graph as JSON is given with `--dag FILE`")
            }
            _ if file.is_some() && self.batch.is_some() => {
                Some("`--shape` and `--extent` give a model's sizes, not --batch")
            }
            _ if file.is_some() && self.eager => {
                Some("--eager is for `train:NAME` and `model:NAME`: a model in a file is no eager program")
            }
            _ if file.is_none() && !self.shapes.is_empty() => {
                Some("--shape, --extent and --fix are for models in files")
            }
            (true, false) => Some("give a budget, such as `--budget 70%`, or ask for `--curve`"),
            (true, true) => None,
        }
    }
}

/// A day; beyond that a clock may overflow.
const LONGEST_SECONDS: f64 = 86_400.0;

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let v: Option<f64> = text.parse().ok().filter(|v: &f64| *v > 0.0 && *v <= LONGEST_SECONDS);
    v.ok_or_else(|| "give seconds above 0 and at most 86400, such as 2.5".to_owned())
}

/// Runs the command.
pub(crate) fn run(o: &Options) -> Result<()> {
    if let Some(schedule) = &o.check {
        return verify(schedule, o.dag.as_deref());
    }
    if let (Some(Source::Workload(work)), true) = (&o.work, o.eager) {
        return eager::run(o, *work);
    }
    let p = match (&o.dag, &o.generate) {
        _ if o.work.is_some() => stepped(o)?,
        (Some(dag), _) => input::problem(dag)?,
        (None, Some(name)) => input::generated(name)?,
        (None, None) => return Err(Error::new(ErrorKind::Internal, NO_GRAPH)),
    };
    if o.curve {
        return curve::run(o, &p);
    }
    let Some(budget) = o.budget else {
        let to = o.out.as_deref().unwrap_or(Path::new("-"));
        return if o.dag_out.is_some() { Ok(()) } else { output::write(to, p.spec().to_json()) };
    };
    let peak = peak_bytes(&p);
    let plan = planned(&p, bytes_of(budget, peak), effort(o, &p))?;
    let to = o.out.as_deref().or_else(|| o.json.then_some(Path::new("-")));
    if let Some(to) = to {
        output::write(to, plan.to_json_with_problem(&p))?;
    }
    match &plan {
        Plan::Feasible(s) if to.is_some_and(output::is_standard) => {
            note!("{}", summary(&p, s, peak));
            Ok(())
        }
        Plan::Feasible(s) => {
            output::print(&figures::text(&o.title(), &p, s));
            Ok(())
        }
        Plan::Infeasible(s) => Err(shortfall_error(&p, s, peak)),
    }
}

impl Options {
    fn on(&self) -> On<'_> {
        On { device: &self.device, threads: self.threads.map(usize::from) }
    }
}

/// The step that was named, written where the user wants it.
fn stepped(o: &Options) -> Result<Problem> {
    let work = o.work.as_ref().ok_or_else(|| Error::new(ErrorKind::Internal, NO_GRAPH))?;
    let p = match work {
        Source::Workload(work) => input::traced(*work, o.batch.map(usize::from), o.on(), o.estimated)?,
        Source::File(path) => input::model(path, &o.shapes, o.on(), o.estimated)?,
    };
    if let Some(path) = &o.dag_out {
        output::write(path, p.spec().to_json())?;
    }
    let how = if o.estimated { "estimated" } else { "measured" };
    note!("{work}: {:.3} s without a budget, {how}", p.base_time_ns() as f64 * 1e-9);
    Ok(p)
}

fn effort(o: &Options, p: &Problem) -> Effort {
    let default = Effort::for_ops(p.ops().len());
    let time_limit = o.time_limit.map_or(default.time_limit, Duration::from_secs_f64);
    Effort { time_limit, seed: o.seed, ..default }
}

/// `None` is no limit.
fn bytes_of(budget: MemoryBudget, peak: u64) -> Option<u64> {
    let bytes = budget.bytes(|| Ok::<_, std::convert::Infallible>(peak as usize));
    let Ok(bytes) = bytes;
    bytes.map(|b| b as u64)
}

/// Plans and replays the result.
fn planned(p: &Problem, budget: Option<u64>, effort: Effort) -> Result<Plan> {
    // No arena is larger: problems whose sizes together exceed it are refused.
    const UNLIMITED: u64 = 1 << 60;
    let mut found = plan(p, budget.unwrap_or(UNLIMITED), effort);
    if let Plan::Feasible(s) = &mut found {
        if budget.is_none() {
            s.budget_bytes = s.arena_bytes;
        }
        let wrong = |e: Error| Error::new(ErrorKind::Internal, format!("the planner made an invalid schedule: {e}"));
        check(p, s).map_err(wrong)?;
    }
    Ok(found)
}

fn summary(p: &Problem, s: &Schedule, peak: u64) -> String {
    format!(
        "budget {} ({:.1} %): arena {}, time {:+.2} % with {} executions more, within {:.2} % of the proven bound, \
         planned in {:.2} s",
        show(s.budget_bytes as usize),
        percent(s.budget_bytes, peak),
        show(s.arena_bytes as usize),
        100.0 * s.overhead(),
        s.repeats(p),
        100.0 * s.gap(),
        s.plan_seconds,
    )
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

fn shortfall_error(p: &Problem, s: &Shortfall, peak: u64) -> Error {
    let is_proven = s.least_bytes > s.budget_bytes;
    let how = if is_proven { "no schedule fits" } else { "no schedule was found for" };
    let op = s.limiting_op.map_or(String::new(), |o| {
        let why = if is_proven { "needs the most at once" } else { "runs where memory is shortest" };
        format!("; `{}` {why}", p.ops()[o].name)
    });
    let message = format!(
        "{how} {} bytes; the smallest budget with a known schedule is {} bytes ({:.1} % of the peak), and none does with \
         fewer than {}{op}",
        s.budget_bytes,
        s.smallest_feasible_bytes,
        percent(s.smallest_feasible_bytes, peak),
        s.least_bytes,
    );
    Error::new(ErrorKind::Budget, message)
}

const NO_PROBLEM: &str = "the schedule carries no graph in `problem`: give the graph with `--dag FILE`";

fn verify(schedule: &Path, dag: Option<&Path>) -> Result<()> {
    let text = crate::input::file_or_standard(schedule)?;
    let place = |e: Error| e.context(schedule.display());
    let p = match dag {
        Some(dag) => input::problem(dag)?,
        None => Problem::in_schedule(&text).map_err(place)?.ok_or_else(|| Error::new(ErrorKind::Format, NO_PROBLEM))?,
    };
    match Plan::from_json(&text, &p).map_err(place)? {
        Plan::Feasible(s) => {
            let found = check(&p, &s).map_err(place)?;
            say!(
                "valid: {} steps, {} computes of {} operators, arena {} of {}, time {} ns ({:+.2} %), spilled {}",
                s.steps.len(),
                found.computes,
                p.ops().len(),
                show(found.arena_bytes as usize),
                show(s.budget_bytes as usize),
                found.time_ns,
                100.0 * s.overhead(),
                show(found.spilled_bytes as usize),
            );
            Ok(())
        }
        Plan::Infeasible(s) => Err(shortfall_error(&p, &s, peak_bytes(&p)).context("the file says that there is none")),
    }
}
