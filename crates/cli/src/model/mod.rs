//! Models from files: what every command that takes one asks for.

pub(crate) mod compare;
pub(crate) mod convert;
mod difference;
pub(crate) mod fit;
pub(crate) mod inputs;
pub(crate) mod inspect;
mod picture;
mod preprocess;
pub(crate) mod profile;
mod result;
pub(crate) mod run;
pub(crate) mod value;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use remat::runtime::{DeviceOptions, SpillTo};
use remat::types::{DType, Error, ErrorKind, HostTensor, Result, Shape, read_file};
use remat_lite::{Key, Network, Options, Port, Session, Shapes};

use inputs::Pictures;
use value::Input;

use crate::budget::MemoryBudget;
use crate::device::{CPU, computing_device};
use crate::output::note;
use crate::process::EXIT_UNSUPPORTED;
use crate::sizes::show;

/// The shapes of a model's inputs, and the inputs that are no longer such.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ShapeOptions {
    /// The shape of an input, such as `--shape tokens=1x128`; without a name that of the only input
    #[arg(long, value_name = "[NAME=]SHAPE", value_parser = shape)]
    shape: Vec<(Option<String>, Shape)>,
    /// The size of an extent that the model names, such as `--extent batch=8`
    #[arg(long, value_name = "NAME=N", value_parser = extent)]
    extent: Vec<(String, usize)>,
    /// Make an input a constant of the model, such as `--fix rate='[16000]'`; values are written as inputs are
    #[arg(long, value_name = "NAME=VALUE")]
    fix: Vec<Input>,
}

/// How a model runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// Compute threads [default: the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The device that computes, with one arena for the run, such as `cuda:0` for the first GPU [default: this thread and others of the processor]
    #[arg(long, value_name = "NAME", value_parser = computing_device)]
    device: Option<String>,
    /// Most bytes of the run, weights included; a percentage is relative to a run without a budget
    #[arg(long, default_value = "unlimited", value_name = "BUDGET", allow_hyphen_values = true)]
    memory_budget: MemoryBudget,
    #[command(flatten)]
    passes: PassOptions,
    #[command(flatten)]
    spill: SpillOptions,
    #[command(flatten)]
    key: KeyOption,
}

/// Where a run may keep what does not fit its budget.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SpillOptions {
    /// With a budget, copy what does not fit to a file in DIR where that is cheaper than computing it again, and read weights that do
    /// not fit from there [default: a folder of temporary files, for the weights of a budget that cannot be kept otherwise]
    #[arg(long, value_name = "DIR")]
    pub(crate) spill_to: Option<PathBuf>,
    /// Refuse a budget that the weights do not fit, rather than read them from a temporary file
    #[arg(long, conflicts_with = "spill_to")]
    no_spill: bool,
}

/// The key of a file whose weights are encrypted.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KeyOption {
    /// The key of a model whose weights are encrypted: 32 bytes, or 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl KeyOption {
    /// Errors: Io; Value for text that is no key.
    fn key(&self) -> Result<Option<Key>> {
        self.key_file.as_deref().map(read_key).transpose()
    }
}

/// The permitted changes of a model's graph.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PassOptions {
    /// Level of passes over a model's graph: 0 none, 2 all that keep every bit, 3 also those that change the last digits
    #[arg(long, default_value = "3", value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=3))]
    level: u8,
    /// Store a model's values between operators in this type; sums stay f32
    #[arg(long, value_enum, value_name = "TYPE")]
    half: Option<Half>,
}

/// Types of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Half {
    F16,
    Bf16,
}

impl RunOptions {
    pub(crate) fn new(
        threads: usize,
        memory_budget: MemoryBudget,
        passes: PassOptions,
        spill: SpillOptions,
    ) -> RunOptions {
        let threads = u16::try_from(threads).ok();
        RunOptions { threads, device: None, memory_budget, passes, spill, key: KeyOption::default() }
    }

    /// On a device of this name; on the CPU without one, as unless a device is asked for.
    pub(crate) fn on(self, device: &str) -> RunOptions {
        RunOptions { device: Some(device.to_owned()).filter(|d| d != CPU), ..self }
    }

    /// For the loader; the budget is in bytes by now. Errors: those of a key.
    fn loader(&self, memory_budget: Option<usize>, outputs: Option<Vec<String>>) -> Result<Options> {
        let (threads, spill_to, key) = (self.threads(), self.spill.spill_to.clone(), self.key.key()?);
        if let Some(dir) = spill_to.as_deref().filter(|dir| SpillTo::is_in_memory(dir)) {
            note!(
                "warning: files in {} are kept in memory, and no part of the budget: nothing is saved there",
                dir.display()
            );
        }
        let device = self.device.clone();
        Ok(Options { threads, device, memory_budget, outputs, spill_to, key, ..self.passes.loader() })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or(DeviceOptions::default().threads, usize::from)
    }
}

impl Default for PassOptions {
    fn default() -> Self {
        PassOptions { level: Options::default().level, half: None }
    }
}

impl PassOptions {
    fn loader(self) -> Options {
        let half = self.half.map(|h| match h {
            Half::F16 => DType::F16,
            Half::Bf16 => DType::BF16,
        });
        Options { level: self.level, half, ..Options::default() }
    }
}

/// Files of keys are small; anything larger is another file.
const KEY_FILE_MAX_BYTES: u64 = 1024;

fn read_key(path: &Path) -> Result<Key> {
    let bytes = read_file(path, KEY_FILE_MAX_BYTES)?;
    Key::from_file_bytes(&bytes).map_err(|e| e.context(path.display()))
}

impl std::fmt::Display for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Half::F16 => "f16",
            Half::Bf16 => "bf16",
        })
    }
}

fn shape(text: &str) -> std::result::Result<(Option<String>, Shape), String> {
    let (name, dims) = text.rsplit_once('=').map_or((None, text), |(name, dims)| (Some(name.to_owned()), dims));
    let dims = value::dims(dims).ok_or_else(|| format!("`{dims}` is no shape; write sizes as in 1x3x224x224"))?;
    Ok((name, Shape::from(dims)))
}

fn extent(text: &str) -> std::result::Result<(String, usize), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    parsed.ok_or_else(|| format!("`{text}` is no extent; write its name and a whole number, as in batch=8"))
}

/// The name of an input that was not named: that of the only one. Errors (Value).
fn only<'p>(ports: &'p [Port], what: &str) -> Result<&'p str> {
    match ports {
        [one] => Ok(&one.name),
        _ => {
            let names: Vec<&str> = ports.iter().map(|p| &*p.name).collect();
            let text = format!("{what} without a name, and the model has {} inputs: {}", names.len(), names.join(", "));
            Err(Error::new(ErrorKind::Value, text))
        }
    }
}

impl ShapeOptions {
    pub(crate) fn is_empty(&self) -> bool {
        self.shape.is_empty() && self.extent.is_empty() && self.fix.is_empty()
    }

    /// The inputs that become constants. Errors: as for inputs that are given.
    fn fixed(&self, ports: &[Port]) -> Result<Vec<(String, HostTensor)>> {
        let given = inputs::tensors(&self.fix, ports, &Pictures::AS_THEY_ARE)?;
        Ok(ports.iter().zip(given).filter_map(|(p, x)| Some((p.name.clone(), x?))).collect())
    }

    /// The given shapes. Errors (Value): a shape without a name, of a model of several inputs.
    pub(crate) fn given(&self, ports: &[Port]) -> Result<Shapes> {
        let mut shapes = Shapes::new();
        for (name, shape) in &self.shape {
            let name = name.as_deref().map_or_else(|| only(ports, "a shape"), Ok)?;
            shapes = shapes.input(name, shape.clone());
        }
        Ok(self.extent.iter().fold(shapes, |all, (name, n)| all.extent(name, *n)))
    }

    /// The given shapes, and 1 for every extent that is still open. The command says so. Errors: as [`ShapeOptions::given`].
    pub(crate) fn or_ones(&self, ports: &[Port]) -> Result<Shapes> {
        let (shapes, ones) = self.given(ports)?.or_extents(ports, 1);
        if !ones.is_empty() {
            let ones: Vec<String> = ones.iter().map(|p| format!("{}: {}", p.name, p.ty)).collect();
            note!("open extents are taken as 1 (`--shape` and `--extent` give others): {}", ones.join("; "));
        }
        Ok(shapes)
    }
}

/// A session of a model in a file, under a budget that may be a share of the peak without one.
pub(crate) struct Loaded {
    pub(crate) session: Session,
    pub(crate) budget_bytes: Option<usize>,
}

/// Reads a model. A budget that is a share is not set yet: [`load`] knows of what. Errors: those of [`open_with`].
pub(crate) fn open(
    path: &Path,
    options: &RunOptions,
    shapes: &ShapeOptions,
    outputs: Option<Vec<String>>,
) -> Result<Network> {
    let budget = match options.memory_budget {
        MemoryBudget::Bytes(bytes) => Some(bytes),
        MemoryBudget::Share(_) | MemoryBudget::Unlimited => None,
    };
    open_with(path, options.loader(budget, outputs)?, shapes)
}

/// Reads a model with the inputs that are to be constants. Errors: those of [`Network::open`], and of inputs that are given.
fn open_with(path: &Path, mut options: Options, shapes: &ShapeOptions) -> Result<Network> {
    if !shapes.fix.is_empty() {
        // the model says of what type a number is
        let network = Network::open(path, options.clone())?;
        options.fixed = shapes.fixed(network.inputs())?;
    }
    Network::open(path, options)
}

/// A session of what [`open`] read from this path. Errors: those of [`Network::session`]; Io where the file is read again.
pub(crate) fn load(path: &Path, network: Network, options: &RunOptions, shapes: &Shapes) -> Result<Loaded> {
    let total = || Ok::<usize, Error>(network.session(shapes)?.memory()?.total_bytes());
    let budget_bytes = options.memory_budget.bytes(total)?;
    let network = match options.memory_budget {
        MemoryBudget::Share(_) => {
            let options = Options { memory_budget: budget_bytes, ..network.options().clone() };
            // its weights go before they come again
            drop(network);
            Network::open(path, options)?
        }
        MemoryBudget::Bytes(_) | MemoryBudget::Unlimited => network,
    };
    let session = match network.session(shapes) {
        Err(e) if e.kind() == ErrorKind::Budget => with_stored_weights(path, network, &options.spill, shapes, e)?,
        made => made?,
    };
    Ok(Loaded { session, budget_bytes })
}

/// The session under a budget that is too little for all weights. Errors: `refused`, where weights may not go to a file; those of
/// [`Network::session`].
fn with_stored_weights(
    path: &Path,
    network: Network,
    spill: &SpillOptions,
    shapes: &Shapes,
    refused: Error,
) -> Result<Session> {
    let may_store = !spill.no_spill && spill.spill_to.is_none();
    let Some(dir) = temporary_folder().filter(|_| may_store) else { return Err(refused) };
    let options = Options { spill_to: Some(dir.clone()), ..network.options().clone() };
    drop(network);
    let mut session = Network::open(path, options)?.session(shapes)?;
    let what = match session.memory()?.stored_bytes {
        0 => "values that do not fit the budget are copied to".to_owned(),
        bytes => format!("{} of weights do not fit the budget: each run reads them from", show(bytes)),
    };
    note!("{what} a file in {} (`--spill-to DIR` names another folder)", dir.display());
    Ok(session)
}

/// A folder on a disk for temporary files: that of `TMPDIR`, or /var/tmp, which outlasts the machine's memory where /tmp need not
/// (Filesystem Hierarchy Standard 3.0, section 5.15).
fn temporary_folder() -> Option<PathBuf> {
    let given = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let all = given.into_iter().chain([PathBuf::from("/var/tmp"), std::env::temp_dir()]);
    all.into_iter().find(|dir| dir.is_dir() && !SpillTo::is_in_memory(dir))
}

/// The error of a model whose operators run one by one, where a plan is asked for.
pub(crate) fn no_single_graph(path: &Path) -> Error {
    let text = format!("{}: sizes of the model follow from values, so that it is no single graph", path.display());
    Error::new(ErrorKind::Value, text)
}

/// Prints the nodes that cannot run; the exit code if there are any.
pub(crate) fn refuse_unsupported(network: &Network) -> Option<u8> {
    let missing = network.unsupported();
    if missing.is_empty() {
        return None;
    }
    note!("error: {} nodes of the model cannot run", missing.len());
    missing.iter().for_each(|m| note!("  {m}"));
    Some(EXIT_UNSUPPORTED)
}
