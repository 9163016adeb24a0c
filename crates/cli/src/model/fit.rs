//! `remat fit`: the options with which a model runs fastest, within a budget and a tolerance.

use std::path::PathBuf;

use clap::Args;
use remat::runtime::DeviceOptions;
use remat::types::{ErrorKind, HostTensor, Result};
use remat_lite::Session;
use serde::Serialize;

use super::difference::Tolerance;
use super::inputs::{InputOptions, made_up};
use super::{Half, KeyOption, PassOptions, RunOptions, SpillOptions, load, open, refuse_unsupported};
use crate::budget::MemoryBudget;
use crate::device::{CPU, computing_device};
use crate::output::{self, note, say};
use crate::process::EXIT_BUDGET;
use crate::sizes::show;
use crate::timing::figures::{self, Latency};

const EXAMPLES: &str = "\
Examples:
  remat fit resnet18.onnx
  remat fit bert.onnx --shape tokens=1x128 --memory-budget 64MiB
  remat fit model.onnx --rtol 0.02 --atol 0.01           how much 16-bit values may change the outputs
  remat fit model.onnx --json - | jq .command

Each number of threads is tried with passes that keep every bit and with all, and with values of 16 bits. What differs from the
model as it is written by more than the tolerance, or does not keep to the budget, is told and not chosen.

Exit codes: 0 done, 1 an error, 2 nothing keeps to the budget, 3 nodes that cannot run.";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A model, ONNX or .remat
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    given: InputOptions,
    /// Most threads that are tried [default: the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The device on which it runs: `cpu`, or `cuda:0` for the first GPU
    #[arg(long, default_value = CPU, value_name = "NAME", value_parser = computing_device)]
    device: String,
    /// Most bytes of a run, weights included; a percentage is relative to a run without a budget
    #[arg(long, default_value = "unlimited", value_name = "BUDGET", allow_hyphen_values = true)]
    memory_budget: MemoryBudget,
    #[command(flatten)]
    tolerance: Tolerance,
    #[command(flatten)]
    key: KeyOption,
    /// Time for each choice
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::timing::seconds)]
    seconds: f64,
    /// Write all choices as JSON; `-` is standard output, which then has nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A choice and its result.
#[derive(Serialize)]
struct Choice {
    options: String,
    /// `None` where the budget is not kept.
    latency_ms: Option<Latency>,
    total_bytes: Option<usize>,
    /// The largest difference from the model as it is written, of all outputs.
    largest_difference: Option<f64>,
    is_within: bool,
}

#[derive(Serialize)]
struct Report<'c> {
    model: String,
    choices: &'c [Choice],
    /// The fastest choice as a command; `None` if there is none.
    command: Option<String>,
}

/// Runs the command; the exit code.
pub(crate) fn run(o: &Options) -> Result<u8> {
    let as_written = PassOptions { level: 0, half: None };
    let plain = RunOptions { threads: Some(1), passes: as_written, ..base(o) };
    let network = open(&o.model, &plain, o.given.shapes(), None)?;
    if let Some(code) = refuse_unsupported(&network) {
        return Ok(code);
    }
    let ports = network.inputs().to_vec();
    let inputs = o.given.tensors(&network)?;
    let shapes = o.given.shapes_for(&ports, &inputs)?;
    let mut session = load(&o.model, network, &plain, &shapes)?.session;
    let inputs = made_up(&session, inputs)?;
    let want = outputs(&mut session, &inputs)?;
    drop(session);
    let mut choices = Vec::new();
    for threads in counts(o) {
        for passes in [2, 3]
            .into_iter()
            .flat_map(|level| [None, Some(Half::F16), Some(Half::Bf16)].map(|half| PassOptions { level, half }))
        {
            // with values of 16 bits no bits are kept anyway
            if passes.level == 2 && passes.half.is_some() {
                continue;
            }
            let run = RunOptions { threads: Some(threads), passes, memory_budget: o.memory_budget, ..base(o) };
            let choice = tried(o, &run, &inputs, &shapes, &want)?;
            note!("{}", told(&choice));
            choices.push(choice);
        }
    }
    let fastest = |c: &&Choice| c.latency_ms.map_or(f64::INFINITY, |l| l.p50);
    let good = choices.iter().filter(|c| c.is_within && c.latency_ms.is_some());
    let best = good.min_by(|a, b| fastest(a).total_cmp(&fastest(b)));
    let command = best.map(|c| format!("remat run {} {}", o.model.display(), c.options));
    if let Some(path) = &o.json {
        let report = Report { model: o.model.display().to_string(), choices: &choices, command: command.clone() };
        output::write(path, format!("{}\n", serde_json::json!(report)))?;
    }
    let is_silent = o.json.as_deref().is_some_and(output::is_standard);
    match command {
        Some(command) if !is_silent => say!("{command}"),
        Some(_) => {}
        None if choices.iter().all(|c| c.latency_ms.is_none()) => {
            note!("error: nothing keeps to the budget");
            return Ok(EXIT_BUDGET);
        }
        None => note!("nothing that keeps to the budget is within the tolerance; --rtol and --atol allow more"),
    }
    Ok(0)
}

fn base(o: &Options) -> RunOptions {
    let unlimited = MemoryBudget::Unlimited;
    let run = RunOptions::new(1, unlimited, PassOptions::default(), SpillOptions::default()).on(&o.device);
    RunOptions { key: o.key.clone(), ..run }
}

/// Powers of two, and the most.
fn counts(o: &Options) -> Vec<u16> {
    let cores = u16::try_from(DeviceOptions::default().threads).unwrap_or(u16::MAX);
    let most = o.threads.unwrap_or(cores).max(1);
    let mut all: Vec<u16> = (0..16).map(|k| 1 << k).take_while(|n| *n < most).collect();
    all.push(most);
    all
}

/// A choice, run and compared. Errors: those of runs, but for a budget that is not kept.
fn tried(
    o: &Options,
    run: &RunOptions,
    inputs: &[HostTensor],
    shapes: &remat_lite::Shapes,
    want: &[(String, HostTensor)],
) -> Result<Choice> {
    let half = run.passes.half.map_or_else(String::new, |h| format!(" --half {h}"));
    let budget = match run.memory_budget {
        MemoryBudget::Unlimited => String::new(),
        budget => format!(" --memory-budget {budget}"),
    };
    let options = format!("--threads {} --level {}{half}{budget}", run.threads(), run.passes.level);
    let session = open(&o.model, run, o.given.shapes(), None).and_then(|network| load(&o.model, network, run, shapes));
    let mut session = match session {
        Ok(loaded) => loaded.session,
        Err(e) if e.kind() == ErrorKind::Budget => {
            let (latency_ms, total_bytes, largest_difference) = (None, None, None);
            return Ok(Choice { options, latency_ms, total_bytes, largest_difference, is_within: false });
        }
        Err(e) => return Err(e),
    };
    let got = outputs(&mut session, inputs)?;
    let pairs = got.iter().zip(want);
    let all: Vec<_> = pairs.map(|((name, got), (_, want))| o.tolerance.compare(name, got, want, false)).collect();
    while !session.is_settled() {
        session.run()?;
    }
    let (latency, _) = figures::repeat(o.seconds, || session.run())?;
    Ok(Choice {
        options,
        latency_ms: Some(latency),
        total_bytes: Some(session.memory()?.total_bytes()),
        largest_difference: Some(all.iter().map(|d| d.largest).fold(0.0, f64::max)),
        is_within: all.iter().all(|d| d.is_within),
    })
}

/// Runs once; the outputs by name. Errors: those of the run.
fn outputs(session: &mut Session, inputs: &[HostTensor]) -> Result<Vec<(String, HostTensor)>> {
    let names: Vec<String> = session.inputs().iter().map(|p| p.name.clone()).collect();
    for (name, x) in names.iter().zip(inputs) {
        session.set_input(name, x)?;
    }
    session.run()?;
    let mut all = Vec::new();
    for name in session.outputs().to_vec() {
        let view = session.output(&name)?;
        all.push((name, HostTensor::from_bytes(view.dtype, view.shape.clone(), view.bytes)?));
    }
    Ok(all)
}

fn told(c: &Choice) -> String {
    let (Some(latency), Some(bytes), Some(off)) = (c.latency_ms, c.total_bytes, c.largest_difference) else {
        return format!("{:>12}  {:>10}  {:>9}  {}: does not keep to the budget", "", "", "", c.options);
    };
    let wrong = if c.is_within { "" } else { ": beyond the tolerance" };
    format!("{:>9.4} ms  {:>10}  {off:>9.1e}  {}{wrong}", latency.p50, show(bytes), c.options)
}
