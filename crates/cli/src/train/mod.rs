//! `remat train`: the common part of its tasks, from the options to the results.

mod dry;
mod log;
mod outcome;
mod parts;
mod plot;
mod progress;
mod ranks;
mod saving;
mod session;
mod task;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use remat::nn::Checkpoint;
use remat::runtime::{CommandStream, Device, DeviceOptions, Executable, Foresight, SmallestBudget, SpillTo};
use remat::types::{Error, ErrorKind, Result};
use serde_json::json;

use crate::budget::MemoryBudget;
use crate::device::{CPU, On, computing_device};
use crate::output::{note, say};
use crate::process::{resident_file_bytes, resident_peak_bytes};
use crate::{interrupt, output, report, sizes};
use dry::Dry;
use log::Log;
use outcome::{End, Outcome};
pub(crate) use parts::{parts, usual_batch};
use progress::Progress;
use ranks::Divided;
pub(crate) use ranks::Ranks;
use session::Session;
pub(crate) use task::{EPOCHS, Settings, Task};

/// Options of every task.
#[derive(Args)]
pub(crate) struct RunOptions {
    /// Most memory the device may use: `64MiB`, `0.5GB`, `50%` of the peak without a budget, or `unlimited`; numbers below a
    /// million need a unit (`B` for bytes)
    #[arg(long, default_value = "unlimited", value_name = "BUDGET", allow_hyphen_values = true)]
    memory_budget: MemoryBudget,
    /// The device that trains: `cpu`, or `cuda:0` for the first GPU; `emulated` runs as an accelerator does, on threads of the
    /// processor, for tests
    #[arg(long, default_value = CPU, value_name = "NAME", value_parser = computing_device)]
    device: String,
    /// Compute threads [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Write a checkpoint into DIR after every epoch and at the end; DIR has none, or is that of `--resume`
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Let `--save` replace the checkpoint of another run
    #[arg(long, requires = "save")]
    overwrite: bool,
    /// Go on from the checkpoint in DIR, bit for bit as if the run had not stopped
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Write JSON as the run goes: a line for each step and each epoch, and the results as the last line; `-` is standard
    /// output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the loss of each step as SVG, after every epoch and at the end
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write a trace for Perfetto or chrome://tracing: dispatch, execution, recomputation, memory
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Compile the training step into one graph with a static memory plan instead of running it op by op
    #[arg(long)]
    compiled: bool,
    /// Train nothing: find the smallest budget that this run gets through with, by dry runs that take no memory
    #[arg(long, conflicts_with_all = ["save", "resume", "plot", "profile", "spill_to", "memory_budget"])]
    find_budget: bool,
    /// Run no more than N times the operators of a step again: a budget that takes more is refused
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..))]
    recompute_limit: u32,
    /// Do not plan steps that repeat: evict by the online policy alone
    #[arg(long)]
    no_foresight: bool,
    /// Plans may copy what does not fit to a file in DIR where that is cheaper than computing it again
    #[arg(long, value_name = "DIR", conflicts_with = "no_foresight")]
    spill_to: Option<PathBuf>,
    /// End after this many steps
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Under `mpirun`: seconds that a rank waits for the others before all end
    #[arg(long, default_value = "300", value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    rank_limit: u64,
    /// Under `mpirun`: each rank keeps the optimiser's state of its part of every parameter
    #[arg(long)]
    shard_state: bool,
    /// Under `mpirun`: each rank keeps the gradients of these parts alone
    #[arg(long, requires = "shard_state")]
    shard_gradients: bool,
}

/// For the options of tasks.
pub(crate) fn learning_rate(text: &str) -> std::result::Result<f64, String> {
    let v: Option<f64> = text.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0 && *v <= 100.0);
    v.ok_or_else(|| "give a number above 0 and at most 100, such as 0.1".to_owned())
}

/// The options of a task.
pub(crate) trait TaskOptions: Args {
    /// The task to train.
    type Task: Task;
    /// Those that every task has.
    fn run(&self) -> &RunOptions;
    /// The settings that the other options decide.
    fn settings(&self) -> Settings<<Self::Task as Task>::Model>;
}

/// Runs a task with its options' settings, or with those of the checkpoint that it resumes.
pub(crate) fn run<O: TaskOptions>(o: &O) -> Result<()> {
    let limit = Duration::from_secs(o.run().rank_limit);
    let divided = Divided { state: o.run().shard_state, gradients: o.run().shard_gradients };
    ranks::with_ranks(limit, divided, |ranks| run_task::<O::Task>(o.run(), o.settings(), ranks))
}

/// The training step of a task, for another batch size or the usual one, traced without memory, and how many numbers it
/// trains.
pub(crate) fn traced<O: TaskOptions>(batch_size: Option<usize>) -> Result<(Arc<Executable>, usize)> {
    let mut settings = defaults::<O>()?.settings();
    settings.batch_size = batch_size.unwrap_or(settings.batch_size);
    let device = Device::dry(DeviceOptions::default())?;
    let task = Rc::new(<O::Task as Task>::new(&settings.model)?);
    let mut session = Session::<O::Task>::new(&device, &task, &settings, true, &Ranks::alone())?;
    Ok((session.executable()?, session.parameter_count()))
}

/// The compiled training step of a task, run so many times without a budget; of 0 runs nothing is computed.
pub(crate) fn timed<O: TaskOptions>(batch: Option<usize>, on: On<'_>, runs: usize) -> Result<Arc<Executable>> {
    let mut settings = defaults::<O>()?.settings();
    settings.batch_size = batch.unwrap_or(settings.batch_size);
    let device = on.open(DeviceOptions::default(), runs == 0)?;
    let task = Rc::new(<O::Task as Task>::new(&settings.model)?);
    let mut session = Session::<O::Task>::new(&device, &task, &settings, true, &Ranks::alone())?;
    if runs > 0 {
        session.rehearse(runs)?;
    }
    session.executable()
}

/// Records so many eager steps of a task without a budget. If times are estimated, nothing is computed.
pub(crate) fn recorded<O: TaskOptions>(
    batch: Option<usize>,
    on: On<'_>,
    steps: usize,
    is_estimated: bool,
) -> Result<CommandStream> {
    let mut settings = defaults::<O>()?.settings();
    settings.batch_size = batch.unwrap_or(settings.batch_size);
    let device = on.open(DeviceOptions { always_record: true, ..DeviceOptions::default() }, is_estimated)?;
    let task = Rc::new(<O::Task as Task>::new(&settings.model)?);
    let mut session = Session::<O::Task>::new(&device, &task, &settings, false, &Ranks::alone())?;
    session.rehearse(1)?;
    let channel = device.channel();
    channel.start_recording()?;
    session.rehearse(steps)?;
    let mut stream = channel.stop_recording()?;
    stream.settle_times();
    Ok(stream)
}

fn run_task<T: Task>(o: &RunOptions, settings: Settings<T::Model>, ranks: &Ranks) -> Result<()> {
    let resumed = o.resume.as_ref().map(Checkpoint::load).transpose()?;
    let settings = match &resumed {
        Some(c) => Settings::of_checkpoint::<T>(c)?,
        None => settings,
    };
    ranks.on_first("the places of a run", || check_places(o))?;
    let mut log = Log::new(o.json.as_deref().filter(|_| ranks.is_first()))?;
    let ranks_of_device = Some(ranks.device.clone());
    let mut options =
        DeviceOptions { ranks: ranks_of_device, recompute_limit: o.recompute_limit, ..DeviceOptions::default() };
    if o.no_foresight {
        options.foresight = Foresight::Off;
    }
    if let Some(t) = o.threads {
        options.threads = usize::from(t);
    }
    let task = Rc::new(T::new(&settings.model)?);
    let (threads, recompute_limit) = (options.threads, o.recompute_limit);
    let device = o.device.as_str();
    let dry = Dry { task: &task, settings: &settings, threads, device, compiled: o.compiled, recompute_limit, ranks };
    // one budget for all ranks, also where one of them has more to do
    let unbudgeted = ranks.largest(dry.peak()?)?;
    options.budget_bytes = o.memory_budget.bytes(|| Ok::<_, Error>(unbudgeted))?;
    // without a budget nothing is spilled, and the folder need not be measured
    let spill_to = o.spill_to.as_ref().filter(|_| options.budget_bytes.is_some());
    options.spill = spill_to.map(SpillTo::measure).transpose()?;
    let shown = options.budget_bytes.map_or_else(|| "unlimited".to_owned(), sizes::show);
    if ranks.size() > 1 {
        say!(
            "{} ranks, of which each takes {} of a batch of {}",
            ranks.size(),
            settings.batch_size / ranks.size(),
            settings.batch_size
        );
    }
    say!("memory budget {shown}; the peak without a budget is {}", sizes::show(unbudgeted));
    if o.find_budget {
        return find_budget(&dry, log);
    }
    let smallest = || dry.smallest_budget().map(|found| found.map(|f| f.bytes));
    let explain = |e: Error| {
        if e.kind() == ErrorKind::Budget
            && let Ok(Some(bytes)) = smallest()
        {
            note!("the smallest feasible budget of this run is about {} ({bytes} bytes)", sizes::show(bytes));
        }
        e
    };
    interrupt::install();
    let device = Device::open(&o.device, options.clone())?;
    let outcome = train(&device, &task, &settings, resumed.as_ref(), o, ranks, &mut log).map_err(explain)?;
    let memory = device.channel().report()?;
    let smallest = if options.budget_bytes.is_some() { smallest()? } else { None };
    report::print(&memory, smallest);
    if let Some(f) = &outcome.compiled {
        report::print_compiled(f);
    }
    let every = rank_figures(ranks, &memory, &outcome)?;
    log.line(|| results::<T>(&outcome, &settings, &memory, unbudgeted, smallest, options.threads, every));
    log.finish()
}

/// `--find-budget` names a budget under which a run takes no more than so many times as long.
const FEW_TIMES: f64 = 1.5;

/// `--find-budget`: the smallest budget of the run, and the smallest one under which steps take not much longer, without
/// training.
fn find_budget<T: Task>(dry: &Dry<'_, T>, mut log: Log) -> Result<()> {
    let started = Instant::now();
    let found = dry.smallest_budget()?.ok_or_else(|| {
        Error::new(ErrorKind::Budget, "no budget suffices within the limit of work: raise --recompute-limit")
    })?;
    let share = |f: &SmallestBudget| 100.0 * f.bytes as f64 / f.peak_bytes.max(1) as f64;
    say!(
        "smallest budget {} ({} bytes), {:.0} % of the peak; {} dry runs in {:.1} s",
        sizes::show(found.bytes),
        found.bytes,
        share(&found),
        found.runs,
        started.elapsed().as_secs_f64()
    );
    let within = dry.smallest_budget_within(FEW_TIMES)?;
    match &within {
        Some(f) => say!(
            "from {} ({} bytes) on, {:.0} % of the peak, steps take at most {FEW_TIMES} times as long, as is estimated; below, up to several times",
            sizes::show(f.bytes),
            f.bytes,
            share(f)
        ),
        None => say!("even under the peak, steps take more than {FEW_TIMES} times as long, as is estimated"),
    }
    log.line(|| {
        json!({
            "smallest_budget_bytes": found.bytes,
            "times_as_long": FEW_TIMES,
            "smallest_budget_within_times_bytes": within.map(|f| f.bytes),
            "refused_bytes": found.refused_bytes,
            "unbudgeted_peak_bytes": found.peak_bytes,
            "dry_runs": found.runs + within.map_or(0, |f| f.runs),
        })
    });
    log.finish()
}

/// The memory and communication of each rank; printed if there are several ranks.
fn rank_figures(ranks: &Ranks, memory: &remat::runtime::MemoryReport, outcome: &Outcome) -> Result<serde_json::Value> {
    let (s, c) = (&memory.stats, ranks.device.statistics());
    let all = ranks.figures(&[
        ("peak_bytes", s.peak_bytes as u64),
        ("budget_bytes", s.budget_bytes.unwrap_or(0) as u64),
        ("parameter_bytes", outcome.kept.parameters as u64),
        ("gradient_bytes", outcome.kept.gradients as u64),
        ("optimizer_state_bytes", outcome.kept.optimizer_state as u64),
        ("recomputed_ops", s.recomputed_ops + outcome.recomputed_calls),
        ("collectives", c.calls),
        ("communicated_bytes", c.bytes),
        ("waiting_ns", c.waiting_ns),
        ("moving_ns", c.moving_ns),
        ("communication_ns", s.communication_ns),
        ("exposed_communication_ns", s.exposed_communication_ns),
    ])?;
    for (rank, f) in all.as_array().into_iter().flatten().enumerate().filter(|_| ranks.size() > 1) {
        let number = |name: &str| f[name].as_u64().unwrap_or(0);
        let ms = |name: &str| number(name) as f64 / 1e6;
        say!(
            "rank {rank}: peak {}, {} of gradients, {} of optimiser state, {} ops again; {} in {} collectives, {:.0} ms waiting and \
             {:.0} ms moving, of which the device waited {:.0} ms",
            sizes::show(number("peak_bytes") as usize),
            sizes::show(number("gradient_bytes") as usize),
            sizes::show(number("optimizer_state_bytes") as usize),
            number("recomputed_ops"),
            sizes::show(number("communicated_bytes") as usize),
            number("collectives"),
            ms("waiting_ns"),
            ms("moving_ns"),
            ms("exposed_communication_ns"),
        );
    }
    Ok(all)
}

fn train<T: Task>(
    device: &Device,
    task: &Rc<T>,
    settings: &Settings<T::Model>,
    resumed: Option<&Checkpoint>,
    o: &RunOptions,
    ranks: &Ranks,
    log: &mut Log,
) -> Result<Outcome> {
    let mut session = Session::new(device, task, settings, o.compiled, ranks)?;
    if let Some(c) = resumed {
        session.restore(c)?;
    }
    let profile = o.profile.as_ref().filter(|_| ranks.is_first());
    if let Some(path) = profile {
        device.channel().start_trace_to(output::writer(path)?)?;
    }
    let progress = Progress::new(settings.epochs, session.steps_per_epoch(), T::UNIT, device);
    let save = o.save.clone().filter(|_| ranks.take_part_in_saving());
    let plot = o.plot.clone().filter(|_| ranks.is_first());
    let end = End { save: save.as_deref(), plot: plot.as_deref(), steps: o.steps };
    let outcome = session.run(&end, &progress, log)?;
    if let Some(path) = profile {
        device.channel().stop_trace().map_err(|e| e.context(path.display()))?;
        if !output::is_standard(path) {
            say!("wrote the trace to {}", path.display());
        }
    }
    Ok(outcome)
}

/// A task's options as they are when none is given. Errors (Internal) if there is one without a default.
pub(crate) fn defaults<O: Args>() -> Result<O> {
    let no = |e: clap::Error| Error::new(ErrorKind::Internal, e.to_string());
    let given = O::augment_args(clap::Command::new("defaults").no_binary_name(true));
    let given = given.try_get_matches_from(std::iter::empty::<&str>()).map_err(no)?;
    O::from_arg_matches(&given).map_err(no)
}

/// Errors before the work instead of after it: Io if a file cannot be written or a folder is not there, Value if a checkpoint
/// is in the way.
fn check_places(o: &RunOptions) -> Result<()> {
    if let Some(dir) = o.spill_to.as_ref().filter(|dir| !dir.is_dir()) {
        let text = format!("no spill file in `{}`: give a folder that exists", dir.display());
        return Err(Error::new(ErrorKind::Io, text));
    }
    for path in [&o.json, &o.profile, &o.plot].into_iter().flatten() {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        if parent.is_some_and(|p| !p.is_dir()) || path.is_dir() {
            let text = format!("{} cannot be written: give a file in a folder that exists", path.display());
            return Err(Error::new(ErrorKind::Io, text));
        }
    }
    match &o.save {
        Some(dir) => saving::check(dir, o.resume.as_deref(), o.overwrite),
        None => Ok(()),
    }
}

fn results<T: Task>(
    outcome: &Outcome,
    settings: &Settings<T::Model>,
    memory: &remat::runtime::MemoryReport,
    unbudgeted: usize,
    smallest: Option<usize>,
    threads: usize,
    ranks: serde_json::Value,
) -> serde_json::Value {
    let s = &memory.stats;
    json!({
        (T::RESULT): outcome.result,
        "first_step": outcome.first_step,
        "losses": outcome.losses,
        "weights_sha256": outcome.weights_sha256,
        "budget_bytes": s.budget_bytes,
        "peak_bytes": s.peak_bytes,
        "reserved_bytes": s.reserved_bytes,
        "unbudgeted_peak_bytes": unbudgeted,
        "smallest_feasible_bytes": smallest,
        "resident_peak_bytes": resident_peak_bytes(),
        "resident_file_bytes": resident_file_bytes(),
        "step_ms_median": outcome.step_ms_median(),
        "seconds": outcome.seconds,
        "recomputed_ops": s.recomputed_ops + outcome.recomputed_calls,
        "evictions": s.evictions,
        "threads": threads,
        "settings": settings,
        "compiled": outcome.compiled,
        "interrupted": interrupt::requested(),
        "memory": memory,
        "ranks": ranks,
    })
}
