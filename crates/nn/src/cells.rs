//! Small state that is no tensor, with interior mutability: a forward pass borrows its module.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use remat_runtime::{Device, Scope};
use remat_tensor::Tensor;
use remat_types::Result;

use crate::Rng;

/// Whether a module trains or is evaluated. Begins as training.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Mode {
    /// True while training.
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Chooses.
    pub fn set_training(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Default for Mode {
    fn default() -> Self {
        Mode(AtomicBool::new(true))
    }
}

/// A module's own source of random keys; checkpoints keep it.
#[derive(Debug)]
pub struct RngCell(Mutex<Rng>);

impl RngCell {
    /// A cell that continues `rng`.
    pub fn new(rng: Rng) -> Self {
        RngCell(Mutex::new(rng))
    }

    /// The next key on `device`: `u64 [2]`. Errors: Closed.
    pub fn next_key(&self, device: &Device) -> Result<Tensor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_key(device)
    }

    /// The generator as it is now.
    pub fn get(&self) -> Rng {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the generator.
    pub fn set(&self, rng: Rng) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = rng;
    }
}

/// The name under which reports and traces show a module.
#[derive(Debug)]
pub struct Label(Mutex<Arc<str>>);

impl Label {
    /// A label that says what the module is, until [`Module::name_scopes`](crate::Module::name_scopes) says which.
    pub fn new(name: &str) -> Self {
        Label(Mutex::new(name.into()))
    }

    /// The name.
    pub fn get(&self) -> Arc<str> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Renames.
    pub fn set(&self, name: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = name.into();
    }

    /// Enters a scope of this name.
    #[must_use = "the scope ends when it is dropped"]
    pub fn enter(&self) -> Scope {
        Scope::enter(&self.get())
    }
}
