//! Modules, losses, optimisers, schedules, data loading, checkpoints.
//!
//! A network is a struct whose fields are layers or [`Parameter`]s; `#[derive(Module)]` writes its traversal, and so its
//! named state. All of its parameters, gradients and optimiser state live in the device's arena, under the device's
//! budget; an update is an in-place op that happens as a whole or not at all.
#![forbid(unsafe_code)]

mod average;
mod cells;
mod checkpoint;
mod data;
pub mod distributed;
pub mod distribution;
mod divided;
mod division;
mod draws;
mod earlier;
mod init;
mod keys;
mod layers;
pub mod loss;
mod module;
mod optim;
mod parameter;
mod rng;
mod sample;
mod schedule;
mod state;
mod statistics;
mod update;
mod visit;

pub use average::{Average, AverageOptions, update_batch_norm};
pub use cells::{Label, Mode, Momentum, RngCell, StatisticsGroup, Tap, Tapped};
pub use checkpoint::{Checkpoint, FILE_NAME, OptimizerState, TrainState};
pub use data::{DataLoader, Dataset, LoaderOptions, LoaderPosition, Shard, TensorDataset};
pub use init::{Fan, Gain, Init, InitCx, adopting};
pub use layers::*;
pub use module::{Layer, Module};
pub use optim::*;
pub use parameter::{Parameter, Role};
pub use remat_derive::{Module, calc};
pub use remat_tensor::{
    Attend, BagMode, Bags, BatchStatistics, Between, Beyond, ConvParams, Divisor, Interpolate, InterpolateOptions,
    Nonlinearity, PadMode, Padding, Patches, Pooling, QueryPlace, Reduction, Sizes, Windows,
};
pub use rng::Rng;
pub use sample::Sampler;
pub use schedule::{OneCycle, Plateau, PlateauOptions, Schedule};
pub use state::LoadReport;
pub use update::{Arg, update};
pub use visit::{Visit, Visitor, Walk};
