//! Optimisers: what a step does with accumulated gradients.
//!
//! A step is one fused op a parameter, in place, whose learning rate is a tensor, so that a schedule makes no new ops. It
//! happens as a whole or not at all ([`Channel::group`](remat_runtime::Channel::group)): Every parameter and all state keep
//! their old version if a gradient failed, if an unreported failure belongs to the step (a budget too small, a label out of
//! range), or if an update would not fit the budget. This holds for the step counts of Adam, too, which live on the device
//! for that reason.

mod accumulate;
mod adadelta;
mod adafactor;
mod adagrad;
mod adamax;
mod adamw;
mod clip;
mod groups;
mod lamb;
mod lbfgs;
mod lion;
mod nadam;
mod pattern;
mod radam;
mod rmsprop;
mod rule;
mod sgd;
mod sparse_adam;

pub use accumulate::Accumulate;
pub use adadelta::{Adadelta, AdadeltaOptions};
pub use adafactor::{Adafactor, AdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adamax::{Adamax, AdamaxOptions};
pub use adamw::{AdamW, AdamWOptions};
pub use clip::{clip_grad_norm, clip_grad_norm_with, clip_grad_value};
pub use groups::Grouped;
pub use lamb::{Lamb, LambOptions};
pub use lbfgs::{Lbfgs, LbfgsOptions};
pub use lion::{Lion, LionOptions};
pub use nadam::{NAdam, NAdamOptions};
pub use pattern::{group_by_name, split_decay};
pub use radam::{RAdam, RAdamOptions};
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use rule::{Rule, Slot, StateSpec};
pub use sgd::{Sgd, SgdOptions};
pub use sparse_adam::{SparseAdam, SparseAdamOptions};

use std::collections::BTreeMap;
use std::sync::Arc;

use remat_types::{HostTensor, Result};

use crate::Parameter;
use crate::state::{self, LoadReport};

/// Sets an optimiser's learning rate from outside; see [`Optimizer::learning_rate`].
#[derive(Clone)]
pub struct LearningRate(Arc<dyn Fn(f64) + Send + Sync>);

impl LearningRate {
    /// A handle that sets by `f`.
    pub fn new(f: impl Fn(f64) + Send + Sync + 'static) -> Self {
        LearningRate(Arc::new(f))
    }

    /// Sets the learning rate from the next step on, as [`Optimizer::set_lr`].
    #[track_caller]
    pub fn set(&self, lr: f64) {
        remat_runtime::tracing::refuse("setting the learning rate");
        (self.0)(lr);
    }
}

/// An optimiser over named parameters in groups with options of their own.
pub trait Optimizer: Send {
    /// Moves every parameter that has a gradient, consumes the gradients, and ends the step
    /// ([`Channel::step_mark`](remat_runtime::Channel::step_mark)). A parameter that was frozen since it got its gradient does
    /// not move, nor does its state; the gradient is dropped.
    ///
    /// Errors, after which nothing has moved in this call and, but for options, the gradients are gone: Value for options outside their domain; Budget for state that a
    /// change of options calls for; what failed on the device and no call has told yet. A device that runs ahead tells what
    /// kept this step from being taken at the next call that can: a read of what failed, `backward`, or at the latest the
    /// next `step`, and says which step was not taken.
    fn step(&mut self) -> Result<()>;

    /// The parameters with their names, group by group.
    fn named_parameters(&self) -> Vec<(String, Parameter)>;

    /// The state on the device with its names: `fc.weight.momentum_buffer`. Of divided state this rank's part.
    fn named_state(&self) -> Vec<(String, Parameter)>;

    /// The learning rate of the first group that was given one other than 0.
    fn lr(&self) -> f64;

    /// Sets the learning rate of the first group that was given one other than 0, and scales the rates of the others by as
    /// much: groups keep the proportions in which their options were given, whatever a schedule does. If all were given
    /// 0, all have `lr`.
    fn set_lr(&mut self, lr: f64);

    /// A handle that sets the learning rate, as [`Optimizer::set_lr`], of every group that is there now, also while a compiled function owns the
    /// optimiser.
    fn learning_rate(&self) -> LearningRate;

    /// The options of every group, for a checkpoint. Errors: Format.
    fn options(&self) -> Result<serde_json::Value>;

    /// Restores what [`Optimizer::options`] gave. Errors: Format if it is of another optimiser, Value for another number
    /// of groups; nothing has changed then.
    fn load_options(&mut self, options: &serde_json::Value) -> Result<()>;

    /// Drops every accumulated gradient.
    fn zero_grad(&self) {
        self.named_parameters().iter().for_each(|(_, p)| p.drop_grad());
    }

    /// Gives a step up after an error: drops the gradients and ends the step. What else failed in it is not told any more. On a
    /// device of several ranks all of them call it, and go on together.
    ///
    /// Errors: Closed; Peer if a rank is gone, or does not come.
    fn skip_step(&self) -> Result<()> {
        self.zero_grad();
        match self.named_parameters().first() {
            Some((_, p)) => {
                let channel = p.device().channel();
                channel.give_up_step()?;
                channel.meet_again()
            }
            None => Ok(()),
        }
    }

    /// Lets an optimiser that keeps copies of parameters take them anew: after the parameters were loaded. [`Checkpoint::restore`](crate::Checkpoint::restore)
    /// calls it. Errors: Budget.
    fn take_parameters(&self) -> Result<()> {
        Ok(())
    }

    /// The state on the host; divided state is put together, for which all ranks must call this. Errors: the failure of the
    /// state; Peer.
    fn state_dict(&self) -> Result<BTreeMap<String, HostTensor>> {
        state::read(&self.named_state())
    }

    /// Replaces the state, as [`Module::load_state_dict`](crate::Module::load_state_dict) does; of divided state each rank takes
    /// its part of the whole.
    fn load_state_dict(&mut self, state: &BTreeMap<String, HostTensor>, strict: bool) -> Result<LoadReport> {
        state::stage(&self.named_state(), state, strict)?.apply()
    }
}
