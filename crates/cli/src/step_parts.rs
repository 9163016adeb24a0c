//! The parts of a training step of any task, for commands that time them.

use remat::nn::Parameter;
use remat::nn::distributed::{Communicator, DataParallel};
use remat::runtime::Device;
use remat::tensor::Tensor;
use remat::types::Result;

/// A training step of an eager program in its parts: a forward pass, `backward` of its loss, and an update.
pub(crate) trait StepParts {
    fn device(&self) -> &Device;

    /// The trained parameters, in the order of the network.
    fn named_parameters(&self) -> Vec<(String, Parameter)>;

    /// The same network on each rank. Errors: those of [`DataParallel::new`].
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "there is no other rank"))]
    fn parallel(&self, ranks: &Communicator) -> Result<DataParallel>;

    /// The loss of the next batch. Errors: those of the ops.
    fn loss(&mut self) -> Result<Tensor>;

    /// Moves the parameters. Errors: those of the optimiser.
    fn update(&mut self) -> Result<()>;
}
