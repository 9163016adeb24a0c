//! Checkpoints: everything that a training run needs to go on bit for bit, in one file.
//!
//! A checkpoint is `checkpoint.safetensors` in a directory. Parameters and buffers are tensors `model.<name>`, the
//! optimiser's state `optimizer.<name>`; all else is JSON under the key `remat` of the file's `__metadata__`, with a
//! version. Writing streams one tensor at a time to a file beside, which then replaces the old one: a reader sees the old
//! checkpoint or the new one, whatever happens and whoever else writes. Reading trusts nothing. It checks that the path is a
//! file, and checks sizes against the file before it allocates memory for them. A checksum covers every byte. The model
//! changes only after the whole file has been checked.

mod format;
mod publish;
mod read;
mod seal;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use remat_types::{Error, HostTensor, Result};
use serde::Serialize;

use crate::state;
use crate::{LoaderPosition, Module, Optimizer, Rng, Schedule};

/// The file's name within its directory.
pub const FILE_NAME: &str = "checkpoint.safetensors";

/// The state of a training run beside tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrainState {
    /// Steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: u64,
    /// The learning rate's schedule.
    pub schedule: Option<Schedule>,
    /// The run's own generator.
    pub rng: Option<Rng>,
    /// The batch that comes next.
    pub loader: Option<LoaderPosition>,
    /// Anything else.
    pub user: serde_json::Value,
}

/// A checkpoint that was read.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The run.
    pub train: TrainState,
    /// Parameters and buffers by name.
    pub model: BTreeMap<String, HostTensor>,
    /// The model's sources of random keys by name.
    pub rngs: BTreeMap<String, Rng>,
    /// The optimiser's options and state, if there was one.
    pub optimizer: Option<OptimizerState>,
}

/// An optimiser's part of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerState {
    /// As [`Optimizer::options`] gave them.
    pub options: serde_json::Value,
    /// State by name.
    pub state: BTreeMap<String, HostTensor>,
}

impl Checkpoint {
    /// Writes a checkpoint of a run into `dir`, which is made if it is not there, and replaces the one there was. Others may
    /// save there and load at the same time: the last one stays, and each is whole.
    ///
    /// If some of it is divided among ranks ([`Sharded`](crate::distributed::Sharded)), all of them call this, each between the same
    /// two steps, and rank 0 writes: the file has the whole, which it is given one tensor at a time, and is that of any number of ranks.
    ///
    /// Errors, after which the old checkpoint stays: Io; what made a tensor fail, and whatever else failed on its device and no call has
    /// told yet; Value if two parameters have one name, or state is divided among two groups. An error of one rank is one of kind Peer
    /// on the others.
    pub fn save(
        dir: impl AsRef<Path>,
        model: &dyn Module,
        optimizer: Option<&dyn Optimizer>,
        train: &TrainState,
    ) -> Result<()> {
        write::write(dir.as_ref(), model, optimizer, train)
    }

    /// Makes sure that a checkpoint can be written into `dir`, which is made if it is not there: before the work instead of
    /// after it. Errors: Io.
    pub fn prepare(dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref();
        let probed = publish::begin(dir).map(drop);
        probed.map_err(|e| Error::from(e).context(format_args!("no checkpoint can be written to {}", dir.display())))
    }

    /// Whether there is a checkpoint in `dir`, or what has its name.
    pub fn is_in(dir: impl AsRef<Path>) -> bool {
        dir.as_ref().join(FILE_NAME).symlink_metadata().is_ok()
    }

    /// Reads the checkpoint in `dir`. Errors: Io; Format, naming the file and the tensor or field, for a file that is no
    /// checkpoint, or in which a bit differs from the saved one.
    pub fn load(dir: impl AsRef<Path>) -> Result<Checkpoint> {
        read::read(&dir.as_ref().join(FILE_NAME))
    }

    /// Puts model and optimiser into the state of the checkpoint. Both must have exactly the names, shapes and dtypes
    /// that were saved; of a divided entry each rank takes its part.
    ///
    /// Errors, after which nothing has changed: Value, naming all that does not fit; Budget if old and new state do not
    /// fit together; Format or Value for options of another optimiser.
    pub fn restore(&self, model: &dyn Module, mut optimizer: Option<&mut dyn Optimizer>) -> Result<()> {
        let model_state = state::stage(&model.named_state(), &self.model, true).map_err(|e| e.context("model"))?;
        if let Some(optimizer) = &mut optimizer {
            let none = OptimizerState { options: serde_json::Value::Null, state: BTreeMap::new() };
            let saved = self.optimizer.as_ref().unwrap_or(&none);
            let before = optimizer.options()?;
            // options first: they decide which state there is
            optimizer.load_options(&saved.options).map_err(|e| e.context("optimizer"))?;
            let staged = state::stage(&optimizer.named_state(), &saved.state, true).map_err(|e| e.context("optimizer"));
            let staged = match staged {
                Ok(s) => s,
                Err(e) => {
                    optimizer.load_options(&before)?;
                    return Err(e);
                }
            };
            staged.apply()?;
        }
        model_state.apply()?;
        model.load_rng_states(&self.rngs);
        optimizer.map_or(Ok(()), |o| o.take_parameters())
    }
}
