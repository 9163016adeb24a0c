//! Modules, losses, optimisers, schedules, data loading, checkpoints; and networks from the literature with weights from files.
//!
//! A network is a struct whose fields are layers or [`Parameter`]s; `#[derive(Module)]` writes its traversal, and so its named
//! state. All of its parameters, gradients and optimiser state live in the device's arena, under the device's budget; an update is
//! an in-place op that happens as a whole or not at all.
//!
//! [`models`] has networks from the literature, and [`load_weights`] reads into any module what other frameworks have saved.

#[doc(inline)]
pub use remat_nn::*;
#[doc(inline)]
pub use remat_zoo::*;
