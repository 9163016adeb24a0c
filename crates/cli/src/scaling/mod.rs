//! `remat scaling`: how long a step of data parallel training would take on machines that are not here.
//!
//! One rank's step is measured by `measure` or read from a file, the network is named (`network`), `model` predicts, and `table` and
//! `picture` tell. Under a launcher `ranks` compares a prediction with what these ranks take, over the network that `fit` finds.

// only ranks over MPI measure calls; its tests need none
#[cfg(any(feature = "mpi", test))]
mod fit;
mod measure;
mod model;
mod network;
mod picture;
mod ranks;
mod table;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use remat::tensor::comm::cost::{AllReduce, MOST_RANKS, Network};
use remat::types::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::Value;

use crate::output::{self, note};
use crate::timing::seconds;
use crate::workload::Workload;
use measure::{Alone, How};
use model::{BUCKET_BYTES, Batch, Profile, Setting, Step, predict};
use network::NetworkOptions;

const EXAMPLES: &str = "\
Examples:
  remat scaling train:resnet18
  remat scaling train:resnet18 --save-profile resnet18.json
  remat scaling --profile resnet18.json --network 10gbe --all-reduce remat,cheapest --svg efficiency.svg
  remat scaling --profile resnet18.json --ranks 2,8,64 --ranks-per-machine 8 --all-reduce ring,hierarchical
  remat scaling --profile resnet18.json --global-batch 8192 --faster 50 --overlap on
  mpirun -n 2 remat scaling train:mlp --threads 1 --check --save-network here.json

Measuring runs the step for a few seconds on one rank, with two batches, and notes when each gradient is complete. What is
predicted from it assumes that all ranks compute as this one.";

/// Fewest numbers of ranks that a table has unless told: powers of two.
const USUAL_RANKS: [usize; 12] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// Whether reductions go on beside the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Overlap {
    /// Buckets are reduced while the backward pass goes on
    On,
    /// The device stops for each bucket
    Off,
    /// A row for each of these
    Both,
}

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The step: `train:NAME`, as for `remat plan`
    #[arg(value_name = "WORK", required_unless_present = "profile", conflicts_with = "profile")]
    work: Option<Workload>,
    /// Read one rank's step from a file that `--save-profile` wrote, instead of measuring it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Write the measurements of one rank's step
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    save_profile: Option<PathBuf>,
    /// Examples of a rank [default: as for `remat bench` and `remat train`, or that of the profile]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: Option<u32>,
    /// Examples of all ranks together, which share them: strong scaling
    #[arg(long, value_name = "N", conflicts_with_all = ["batch", "check"], value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    global_batch: Option<u32>,
    /// Compute threads of a rank [default: the processors]
    #[arg(long, value_name = "N", conflicts_with = "profile", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Time to measure
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    network: NetworkOptions,
    /// Numbers of ranks [default: powers of two from 2 to 4096]
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = ranks_of)]
    ranks: Vec<usize>,
    /// How gradients are summed up: ring, recursive-doubling, rabenseifner, binomial, hierarchical; mpich and open-mpi for what these
    /// libraries choose; cheapest; remat for what this framework does
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = "remat")]
    all_reduce: Vec<AllReduce>,
    /// Whether reductions go on beside the backward pass
    #[arg(long, value_enum, default_value_t = Overlap::Both)]
    overlap: Overlap,
    /// Standard deviation of ranks' compute times, in percent of them: all wait for the slowest
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    jitter: f64,
    /// Most bytes of a bucket of gradients
    #[arg(long, value_name = "BYTES", default_value_t = BUCKET_BYTES)]
    bucket_bytes: usize,
    /// A device that computes so many times faster than the measured one
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    faster: f64,
    /// Processors of a machine, for which the threads of its ranks wait if they are more [default: enough]
    #[arg(long, value_name = "N")]
    processors: Option<usize>,
    /// Under `mpirun`: measure links and steps of these ranks, and compare a prediction with them
    #[arg(long, conflicts_with_all = ["profile", "ranks", "svg", "network", "all_reduce"])]
    check: bool,
    /// With `--check`: write the links that were found, for `--network`
    #[arg(long, value_name = "FILE", requires = "check")]
    save_network: Option<PathBuf>,
    /// Figures for programs go to this file, or to standard output for `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the efficiency against the number of ranks
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn ranks_of(text: &str) -> std::result::Result<usize, String> {
    let n: Option<usize> = text.parse().ok().filter(|n| (1..=MOST_RANKS).contains(n));
    n.ok_or_else(|| format!("give numbers of ranks from 1 to {MOST_RANKS}, such as 2,8,64"))
}

/// The predictions, and their inputs.
#[derive(Serialize)]
struct Report<'a> {
    work: &'a str,
    threads: usize,
    /// Examples of the measured step.
    batch: f64,
    network_name: &'a str,
    network: Network,
    parameters_bytes: usize,
    buckets: usize,
    one_rank_ms: f64,
    steps: &'a [Step],
}

impl Options {
    /// How the step is measured. Errors: Value for a workload that does not train.
    fn how(&self) -> Result<How> {
        let no = || Error::new(ErrorKind::Value, "name a step such as `train:resnet18`, or give `--profile FILE`");
        let work = self.work.ok_or_else(no)?;
        let batch = match self.batch {
            Some(batch) => batch as usize,
            None => work.usual_batch()?,
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(How { work, batch, threads: self.threads.map_or(processors, usize::from) })
    }

    /// The setting of the prediction, for the first all-reduce.
    fn setting(&self, profile: &Profile) -> Setting {
        let batch = match (self.global_batch, self.batch) {
            (Some(all), _) => Batch::AllRanks(f64::from(all)),
            (None, Some(each)) => Batch::EachRank(f64::from(each)),
            (None, None) => Batch::EachRank(profile.batch()),
        };
        Setting {
            batch,
            how: AllReduce::Remat,
            overlaps: false,
            jitter: self.jitter / 100.0,
            bucket_bytes: self.bucket_bytes,
            faster: self.faster,
            processors: self.processors,
        }
    }
}

/// Runs the command.
pub(crate) fn run(o: &Options) -> Result<()> {
    if o.check {
        return ranks::run(o);
    }
    let network = o.network.read()?;
    let profile = match &o.profile {
        Some(path) => read_profile(path)?,
        None => measured(o, &network)?,
    };
    let setting = o.setting(&profile);
    let steps = table(o, &profile, &network, &setting)?;
    let alone = predict(&profile, &network, &setting, 1);
    let report = Report {
        work: &profile.work,
        threads: profile.threads,
        batch: profile.batch(),
        network_name: o.network.name(),
        network,
        parameters_bytes: profile.gradients.iter().map(|g| g.bytes).sum(),
        buckets: model::buckets(&profile.gradients, setting.bucket_bytes).len(),
        one_rank_ms: alone?.step_ms,
        steps: &steps,
    };
    if let Some(path) = &o.svg {
        output::write(path, picture::efficiency(&report))?;
    }
    match &o.json {
        Some(path) => write_json(path, &report),
        None => {
            output::print(&table::text(&report));
            Ok(())
        }
    }
}

/// A step for each number of ranks, way to sum up, and overlap, in this order.
///
/// Errors: those of [`predict`]. Numbers of ranks for which a shared batch is too small are left out, unless all are.
fn table(o: &Options, profile: &Profile, network: &Network, setting: &Setting) -> Result<Vec<Step>> {
    let mut ranks = if o.ranks.is_empty() { USUAL_RANKS.to_vec() } else { o.ranks.clone() };
    if let Some(all) = o.global_batch {
        let (some, none): (Vec<usize>, Vec<usize>) = ranks.iter().partition(|n| **n <= all as usize);
        if !some.is_empty() && !none.is_empty() {
            note!("left out: {} numbers of ranks above the batch of {all}", none.len());
            ranks = some;
        }
    }
    let overlaps: &[bool] = match o.overlap {
        Overlap::On => &[true],
        Overlap::Off => &[false],
        Overlap::Both => &[false, true],
    };
    let mut steps = Vec::new();
    for n in ranks {
        for how in &o.all_reduce {
            for overlaps in overlaps {
                steps.push(predict(profile, network, &Setting { how: *how, overlaps: *overlaps, ..*setting }, n)?);
            }
        }
    }
    Ok(steps)
}

/// Measures one rank, and keeps it where the user wants it.
fn measured(o: &Options, network: &Network) -> Result<Profile> {
    if remat::nn::distributed::launched()?.is_some_and(|(_, ranks)| ranks > 1) {
        let text = "a profile is of one rank: leave the launcher out, or ask for `--check`";
        return Err(Error::new(ErrorKind::Value, text));
    }
    let profile = measure::profile(&o.how()?, &Alone(o.seconds))?;
    save(o, &profile, network)?;
    Ok(profile)
}

/// Writes what the user wants to keep. Errors: Io.
fn save(o: &Options, profile: &Profile, network: &Network) -> Result<()> {
    if let Some(path) = &o.save_profile {
        write_json(path, profile)?;
    }
    match &o.save_network {
        Some(path) => write_json(path, network),
        None => Ok(()),
    }
}

/// Errors: Io; Format for a file that is no profile, Value for one that no measurement gives.
fn read_profile(path: &Path) -> Result<Profile> {
    let bad = |e: serde_json::Error| Error::new(ErrorKind::Format, format!("{}: {e}", path.display()));
    let text = crate::input::file_or_standard(path)?;
    let profile: Profile = serde_json::from_str(&text).map_err(bad)?;
    profile.check().map_err(|e| e.context(path.display()))?;
    Ok(profile)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let of = |e: serde_json::Error| Error::new(ErrorKind::Internal, e.to_string());
    let value: Value = serde_json::to_value(value).map_err(of)?;
    output::write(path, format!("{}\n", serde_json::to_string_pretty(&value).map_err(of)?))
}
