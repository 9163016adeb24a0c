//! `remat bench`: one piece of work, timed, beside what the machine can do at most in the same run.
//!
//! A work is read by `work`, made ready by `cases` as something with the trait `Case`, timed by `figures`, and told
//! here. A further kind of work is a variant, a parser and a `Case`.

mod cases;
mod models;
mod networks;
mod ranks;
mod work;

use std::path::{Path, PathBuf};

use clap::Args;
use remat::runtime::Foresight;
use remat::types::{Error, ErrorKind, Result};
use remat_kernels::pool::Pool;
use serde::Serialize;

use crate::budget::MemoryBudget;
use crate::device::{CPU, computing_device};
use crate::model::{PassOptions, RunOptions, ShapeOptions, SpillOptions};
use crate::output::{self, print};
use crate::process;
use crate::sizes::show;
use crate::timing::figures::{self, Latency};
use crate::timing::operators::{self, Operator};
use crate::timing::seconds;
use cases::{Case, Elements, Metrics};
use models::{Peer, Versus};
use networks::RunMode;
use work::{Kind, Work};

const EXAMPLES: &str = "\
Examples:
  remat bench machine
  remat bench matmul:512x512x512 --threads 1
  remat bench matmul:1024x1024x1024 --dtype bf16
  remat bench conv:64x56x56-64k3p1 --batch 8
  remat bench conv:96x112x112-96k3s2p1g96:dw --batch 32 --json -
  remat bench model:resnet50 --compiled --batch 8
  remat bench train:gpt --compiled --operators 20
  remat bench train:resnet18 --compiled --memory-budget 50%
  remat bench train:resnet50 --batch 32 --compiled --memory-budget 40% --spill-to /var/tmp
  remat bench resnet50.onnx --memory-budget 60%
  remat bench bert.onnx --shape tokens=1x128 --threads 1 --vs onnxruntime
  mpirun -n 2 remat bench allreduce:16MiB
  mpirun -n 2 remat bench train:resnet18 --threads 1
  remat bench speech.onnx --shape sound=1x512 --fix rate='[16000]'";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[arg(value_name = "WORK", help = format!("What to time:\n{}", work::FORMS))]
    work: Work,
    /// Products, images, or examples [default: 1; for a training step 64 of mlp, 32 of resnet18, 8 of others]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: Option<u32>,
    /// Threads; `machine` measures all numbers up to this one [default: the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The device that runs networks and models: `cpu`, or `cuda:0` for the first GPU
    #[arg(long, default_value = CPU, value_name = "NAME", value_parser = computing_device)]
    device: String,
    /// The element type of a matrix product; shares are those of the machine's f32 multiply-adds
    #[arg(long, value_enum, value_name = "TYPE", default_value_t)]
    dtype: Elements,
    /// Run a network op by op [default]
    #[arg(long, conflicts_with = "compiled")]
    eager: bool,
    /// Compile a network, and run that
    #[arg(long)]
    compiled: bool,
    /// Compile a network and bind it to memory of its own: runs without handles and queue
    #[arg(long, conflicts_with_all = ["eager", "no_foresight", "memory_budget"])]
    session: bool,
    /// Most bytes of a network's or model's run; a percentage is relative to the peak without a budget
    #[arg(long, default_value = "unlimited", value_name = "BUDGET", allow_hyphen_values = true)]
    memory_budget: MemoryBudget,
    /// Do not plan eager steps that repeat: evict by the online policy alone
    #[arg(long, conflicts_with_all = ["compiled", "spill_to"])]
    no_foresight: bool,
    #[command(flatten)]
    spill: SpillOptions,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    passes: PassOptions,
    /// Time a model beside another runtime, in turns: `onnxruntime` is the package of Python of that name
    #[arg(long, value_enum, value_name = "PEER")]
    vs: Option<Peer>,
    /// Tell the time of a compiled network's or model's operators, of the ROWS that take longest [default: 12]
    #[arg(long, value_name = "ROWS", num_args = 0..=1, default_missing_value = "12")]
    operators: Option<u16>,
    /// Time to repeat the work
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: f64,
    /// Figures for programs go to this file, or to standard output for `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The results of `machine` for one number of threads.
#[derive(Serialize)]
struct Limits {
    threads: usize,
    fma_gflops: f64,
    triad_gb_s: f64,
    read_gb_s: f64,
    /// A word from one core to another and back; `None` for one thread.
    round_trip_ns: Option<f64>,
}

/// The results of any other work.
#[derive(Serialize)]
struct Report {
    work: String,
    batch: usize,
    threads: usize,
    runs: usize,
    latency_ms: Latency,
    /// At the median.
    gflops: f64,
    gb_s: f64,
    /// Of the machine, in the same run; the bandwidth is that of a triad over as many bytes as the work moves.
    peak_gflops: f64,
    peak_gb_s: f64,
    /// Which of the two takes longer at full speed: `compute` or `memory`.
    bound: &'static str,
    share_of_peak: f64,
    share_of_bandwidth: f64,
    /// A word from one core to another and back, before and after the work, whichever took longer; `None` for one thread.
    round_trip_ns: Option<f64>,
    peak_bytes: usize,
    workspace_bytes: usize,
    /// The most that the process had resident until the work was done; `None` where the system does not say.
    resident_bytes: Option<u64>,
    #[serde(flatten)]
    metrics: Metrics,
    /// The same model in another runtime, in turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    versus: Option<Versus>,
    /// All operators, if they were asked for, the one that takes longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operators: Vec<Operator>,
}

/// Runs the command.
pub(crate) fn run(o: &Options) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = o.threads.map_or(cores, usize::from);
    let batch = match (&o.work.kind, o.batch) {
        (_, Some(batch)) => batch as usize,
        (Kind::Network(network), None) => network.batch(),
        _ => 1,
    };
    let of_a_network = o.eager || o.compiled || o.session || o.no_foresight;
    if of_a_network && !matches!(o.work.kind, Kind::Network(_)) {
        let text = format!(
            "--eager, --compiled, --session and --no-foresight are for model:NAME and train:NAME, not {}",
            o.work.text
        );
        return Err(Error::new(ErrorKind::Value, text));
    }
    let is_model = matches!(o.work.kind, Kind::Model(_));
    if o.memory_budget != MemoryBudget::Unlimited && !is_model && !matches!(o.work.kind, Kind::Network(_)) {
        let text = format!("--memory-budget is for model:NAME, train:NAME and models in files, not {}", o.work.text);
        return Err(Error::new(ErrorKind::Value, text));
    }
    if o.device != CPU && !is_model && !matches!(o.work.kind, Kind::Network(_)) {
        let text = format!("--device is for model:NAME, train:NAME and models in files, not {}", o.work.text);
        return Err(Error::new(ErrorKind::Value, text));
    }
    if (o.vs.is_some() || !o.shapes.is_empty()) && !is_model {
        let text = format!("--vs, --shape, --extent and --fix are for models in files, not {}", o.work.text);
        return Err(Error::new(ErrorKind::Value, text));
    }
    if o.operators.is_some() && !o.compiled && !is_model {
        return Err(Error::new(ErrorKind::Value, "--operators is for --compiled and for models in files"));
    }
    if o.batch.is_some() && is_model {
        return Err(Error::new(
            ErrorKind::Value,
            "--batch is for other works: --shape and --extent give a model's sizes",
        ));
    }
    if o.dtype != Elements::F32 && !matches!(o.work.kind, Kind::MatMul(_)) {
        let text = format!("--dtype is for matmul:MxKxN, not {}", o.work.text);
        return Err(Error::new(ErrorKind::Value, text));
    }
    let case = match &o.work.kind {
        Kind::Machine => return machine(o, threads),
        Kind::AllReduce(bytes) => return ranks::run(&ranks::Task::AllReduce(*bytes), o.seconds, o.json.as_deref()),
        Kind::MatMul(work) => cases::matmul(*work, o.dtype, batch, threads)?,
        Kind::Conv(work) => cases::conv(work, batch, threads)?,
        Kind::Network(network) => {
            let foresight = if o.no_foresight { Foresight::Off } else { Foresight::default() };
            let compiled = o.compiled || o.session;
            let mode = RunMode { batch, threads, device: &o.device, compiled, budget: o.memory_budget, foresight };
            if ranks::are_launched()? {
                return ranks::run(&ranks::Task::Step(*network, mode), o.seconds, o.json.as_deref());
            }
            networks::network(*network, mode, o.session, o.spill.spill_to.as_deref())?
        }
        Kind::Model(path) => {
            let run = RunOptions::new(threads, o.memory_budget, o.passes, o.spill.clone()).on(&o.device);
            models::model(path, &run, &o.shapes)?
        }
    };
    let mut report = measure(o, batch, threads, case)?;
    if let (Some(Peer::Onnxruntime), Kind::Model(path)) = (o.vs, &o.work.kind) {
        let run = RunOptions::new(threads, o.memory_budget, o.passes, o.spill.clone()).on(&o.device);
        report.versus = Some(models::versus(path, &run, &o.shapes, o.seconds)?);
    }
    match o.json.as_deref() {
        Some(file) => write_json(file, &report),
        None => {
            let operators = o.operators.map(|rows| operators::table(&report.operators, rows.into()));
            print(&(table(&report) + &operators.unwrap_or_default()));
            Ok(())
        }
    }
}

fn machine(o: &Options, threads: usize) -> Result<()> {
    let limits = (1..=threads).map(|threads| {
        let pool = Pool::new(threads);
        let fma_gflops = figures::fma_gflops(&pool);
        let [triad_gb_s, read_gb_s] = figures::streams(&pool, figures::STREAM_ELEMS);
        let round_trip_ns = (threads > 1).then(figures::round_trip_ns);
        Limits { threads, fma_gflops, triad_gb_s, read_gb_s, round_trip_ns }
    });
    let limits: Vec<Limits> = limits.collect();
    if let Some(file) = o.json.as_deref() {
        return write_json(file, &limits);
    }
    let heads = ["FMA GFLOP/s", "triad GB/s", "read GB/s", "round trip ns"];
    let mut text = format!("{:>7} {:>12} {:>12} {:>12} {:>14}\n", "threads", heads[0], heads[1], heads[2], heads[3]);
    for l in limits {
        let Limits { threads, fma_gflops, triad_gb_s, read_gb_s, round_trip_ns } = l;
        let trip = round_trip_ns.map_or_else(String::new, |ns| format!("{ns:.0}"));
        text += &format!("{threads:>7} {fma_gflops:>12.1} {triad_gb_s:>12.1} {read_gb_s:>12.1} {trip:>14}\n");
    }
    print(&text);
    Ok(())
}

/// Times the case between two measurements of the machine. The better measurement counts.
fn measure(o: &Options, batch: usize, threads: usize, mut case: Box<dyn Case>) -> Result<Report> {
    let pool = Pool::new(threads);
    let before = figures::fma_gflops(&pool);
    let round_trip = || (threads > 1).then(figures::round_trip_ns);
    let trip_before = round_trip();
    let (latency_ms, runs) = figures::repeat(o.seconds, || case.run())?;
    let round_trip_ns = trip_before.zip(round_trip()).map(|(before, after)| before.max(after));
    let resident_bytes = process::resident_peak_bytes();
    let peak_gflops = before.max(figures::fma_gflops(&pool));
    let (flops, bytes) = (case.flops() as f64, case.moved_bytes() as f64);
    let [peak_gb_s, _] = figures::streams(&pool, (case.moved_bytes() / 12).min(figures::STREAM_ELEMS as u64) as usize);
    let mut operators = if o.operators.is_some() { case.operators()? } else { Vec::new() };
    operators::settle(&mut operators, peak_gflops, peak_gb_s);
    let per_second = 1e-6 / latency_ms.p50;
    let (gflops, gb_s) = (flops * per_second, bytes * per_second);
    Ok(Report {
        work: o.work.text.clone(),
        batch,
        threads,
        runs,
        latency_ms,
        gflops,
        gb_s,
        peak_gflops,
        peak_gb_s,
        bound: if flops / peak_gflops >= bytes / peak_gb_s { "compute" } else { "memory" },
        share_of_peak: gflops / peak_gflops,
        share_of_bandwidth: gb_s / peak_gb_s,
        round_trip_ns,
        peak_bytes: case.peak_bytes(),
        workspace_bytes: case.workspace_bytes(),
        resident_bytes,
        metrics: case.metrics(),
        versus: None,
        operators,
    })
}

fn table(r: &Report) -> String {
    let Latency { min, p50, p90 } = r.latency_ms;
    let share = |of: f64| 100.0 * of;
    format!(
        "{}, batch {}, {} threads, {} runs\n\
         latency    {p50:.4} ms median, {min:.4} least, {p90:.4} 90 %\n\
         compute    {:.1} GFLOP/s, {:.0} % of the machine's {:.1}\n\
         memory     {:.1} GB/s, {:.0} % of the triad's {:.1} over as many bytes\n\
         bound by   {}\n\
         held       {}, of which workspace {}\n{}{}",
        r.work,
        r.batch,
        r.threads,
        r.runs,
        r.gflops,
        share(r.share_of_peak),
        r.peak_gflops,
        r.gb_s,
        share(r.share_of_bandwidth),
        r.peak_gb_s,
        r.bound,
        show(r.peak_bytes),
        show(r.workspace_bytes),
        planned(&r.metrics),
        r.versus.as_ref().map_or_else(String::new, Versus::text),
    )
}

/// The planned and the measured time, if there was a plan.
fn planned(metrics: &Metrics) -> String {
    let Some(p) = metrics.plan.filter(|p| p.base_ns > 0) else { return String::new() };
    let of_base = |ns: u64| ns as f64 / p.base_ns as f64;
    format!(
        "planned    {:.3} of the operators' time without a budget, at least {:.3}; the last run took {:.3}\n",
        of_base(p.planned_ns),
        of_base(p.bound_ns),
        of_base(metrics.ops_ns),
    )
}

fn write_json(file: &Path, figures: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(figures).map_err(|e| Error::new(ErrorKind::Format, e.to_string()))?;
    output::write(file, text + "\n")
}
