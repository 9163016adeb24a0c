//! Small state that is no tensor, with interior mutability: a forward pass borrows its module.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_runtime::{Device, tracing};
use remat_tensor::Tensor;
use remat_tensor::comm::Communicator;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use crate::Rng;
use crate::draws::{self, Draws};
use crate::keys::{self, Source};

/// Whether a module trains or is evaluated. Begins as training.
#[derive(Debug)]
pub struct Mode(Arc<AtomicBool>);

impl Mode {
    /// True while training.
    pub fn is_training(&self) -> bool {
        let training = self.0.load(Ordering::Relaxed);
        if tracing::is_tracing() {
            let own = self.0.clone();
            tracing::guard(move || own.load(Ordering::Relaxed) == training);
        }
        training
    }

    /// Chooses.
    #[track_caller]
    pub fn set_training(&self, training: bool) {
        tracing::refuse("changing between training and evaluation");
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Default for Mode {
    fn default() -> Self {
        Mode(Arc::new(AtomicBool::new(true)))
    }
}

/// The weight of a batch in running statistics.
#[derive(Debug)]
pub struct Momentum(Arc<AtomicU64>);

impl Momentum {
    /// A weight of `momentum`.
    pub fn new(momentum: f64) -> Self {
        Momentum(Arc::new(AtomicU64::new(momentum.to_bits())))
    }

    /// The weight.
    pub fn get(&self) -> f64 {
        let bits = self.0.load(Ordering::Relaxed);
        if tracing::is_tracing() {
            let own = self.0.clone();
            tracing::guard(move || own.load(Ordering::Relaxed) == bits);
        }
        f64::from_bits(bits)
    }

    /// Replaces it.
    #[track_caller]
    pub fn set(&self, momentum: f64) {
        tracing::refuse("changing the momentum of running statistics");
        self.0.store(momentum.to_bits(), Ordering::Relaxed);
    }
}

/// The ranks over whose batches a norm takes its statistics: this rank alone until [`StatisticsGroup::set`] says otherwise.
#[derive(Debug, Default)]
pub struct StatisticsGroup(Arc<Mutex<Option<Communicator>>>);

impl StatisticsGroup {
    /// The ranks, if they are more than this one.
    pub fn get(&self) -> Option<Communicator> {
        let read = |own: &Mutex<Option<Communicator>>| own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let group = read(&self.0);
        if tracing::is_tracing() {
            let (own, seen) = (self.0.clone(), group.clone());
            tracing::guard(move || read(&own) == seen);
        }
        group
    }

    /// Chooses; none for this rank alone.
    #[track_caller]
    pub fn set(&self, group: Option<&Communicator>) {
        tracing::refuse("changing the ranks of a norm's statistics");
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = group.filter(|g| g.size() > 1).cloned();
    }
}

/// A module's own source of random keys; checkpoints keep it.
#[derive(Debug)]
pub struct RngCell {
    own: Arc<Mutex<Draws>>,
    /// Made while its thread traced: by every call anew, with the same keys.
    is_of_trace: bool,
}

impl RngCell {
    /// A cell that continues `rng`.
    pub fn new(rng: Rng) -> Self {
        RngCell { own: Arc::new(Mutex::new(Draws::of(rng))), is_of_trace: tracing::is_tracing() }
    }

    /// The next key on `device`: `u64 [2]`; within a loop each step gets one of its own. A cell that a compiled function makes
    /// itself gives every run the same keys, as it gives them to every eager call. After a step that failed, the cell gives the
    /// keys of that step again, so that the step can be repeated. Errors: Closed.
    pub fn next_key(&self, device: &Device) -> Result<Tensor> {
        let (own, source) = (self.own.clone(), keys::next()?);
        let is_drawn = matches!(source, Source::Drawn(_));
        let known = (self.is_of_trace && is_drawn).then(|| self.lock().draw(None));
        draws::note_device(device);
        let steps = device.downgrade();
        let next = move |to: &mut [u8]| {
            let draw = || {
                known.unwrap_or_else(|| {
                    // a compiled function draws at each of its calls
                    let moment = steps.upgrade().map(|d| d.channel().moment());
                    own.lock().unwrap_or_else(PoisonError::into_inner).draw(moment)
                })
            };
            let key = match &source {
                Source::Drawn(None) => draw(),
                Source::Drawn(Some(place)) => {
                    let key = draw();
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = key;
                    key
                }
                Source::Noted(place) => *place.lock().unwrap_or_else(PoisonError::into_inner),
            };
            to.chunks_exact_mut(size_of::<u64>())
                .zip(key)
                .for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
            Ok(())
        };
        Ok(Tensor::from_handle(tracing::random_key(&device.channel(), Arc::new(next))?))
    }

    fn lock(&self) -> MutexGuard<'_, Draws> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For what a compiled function does with those cells alone that it makes itself.
    #[track_caller]
    fn untraced(&self) -> MutexGuard<'_, Draws> {
        if !self.is_of_trace {
            tracing::refuse("reading the state of a generator, or seeding or splitting it,");
        }
        self.lock()
    }

    /// `f` of the generator, which no other thread draws from meanwhile. A compiled function can do so with those alone that it
    /// makes itself.
    #[track_caller]
    pub fn with<T>(&self, f: impl FnOnce(&mut Rng) -> T) -> T {
        self.untraced().with(f)
    }

    /// As [`RngCell::with`], for what a layer begins from: a failure of the thread's first step does not take that back.
    #[track_caller]
    pub fn making<T>(&self, f: impl FnOnce(&mut Rng) -> T) -> T {
        self.untraced().making(f)
    }

    /// The generator as it is now.
    #[track_caller]
    pub fn get(&self) -> Rng {
        self.with(|rng| rng.clone())
    }

    /// Replaces the generator.
    #[track_caller]
    pub fn set(&self, rng: Rng) {
        self.with(|own| *own = rng);
    }
}

/// A hook around a layer within another module. It may change the layer's input and output, or compute in its place. See
/// [`Label::set_tap`].
pub trait Tap: Send + Sync {
    /// Called with what the layer is to read.
    fn before(&self, x: &Tensor) -> Result<Tapped>;
    /// Called with the layer's input and output; returns the result.
    fn after(&self, x: &Tensor, y: Tensor) -> Result<Tensor>;
}

/// The answer of a [`Tap`] to a layer's input.
pub enum Tapped {
    /// The layer computes, of this.
    Input(Tensor),
    /// This is the result; the layer does not compute.
    Output(Tensor),
}

/// The tap of a layer, and how often it was changed.
#[derive(Default)]
struct Taps {
    changes: AtomicU64,
    /// False where the lock need not be taken.
    is_set: AtomicBool,
    tap: Mutex<Option<Arc<dyn Tap>>>,
}

/// The name under which reports and traces show a module, and the [`Tap`] of a layer of one tensor.
pub struct Label {
    name: Mutex<Arc<str>>,
    taps: Option<Arc<Taps>>,
}

impl std::fmt::Debug for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Label").field(&self.get()).finish()
    }
}

impl Label {
    /// A label that says what the module is, until [`Module::name_scopes`](crate::Module::name_scopes) says which.
    pub fn new(name: &str) -> Self {
        Label { name: Mutex::new(name.into()), taps: None }
    }

    /// The label of a layer whose `forward` is within [`Label::around`], so that it may have a [`Tap`].
    pub fn of_layer(name: &str) -> Self {
        Label { taps: Some(Arc::default()), ..Label::new(name) }
    }

    /// The name.
    pub fn get(&self) -> Arc<str> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Renames.
    pub fn set(&self, name: &str) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name.into();
    }

    /// Enters a scope of this name. In a `#[track_caller]` function, errors name the line that called it.
    #[must_use = "the scope ends when it is dropped"]
    #[track_caller]
    pub fn enter(&self) -> Scope {
        Scope::called(&self.get(), CallSite::here())
    }

    /// True if the module may have a [`Tap`].
    pub fn takes_tap(&self) -> bool {
        self.taps.is_some()
    }

    /// Puts a tap around the layer, in the place of the one there was; none takes it out. Errors: Value for a module that takes none.
    #[track_caller]
    pub fn set_tap(&self, tap: Option<Arc<dyn Tap>>) -> Result<()> {
        tracing::refuse("changing what stands around a layer");
        let Some(taps) = &self.taps else {
            return Err(Error::new(ErrorKind::Value, format!("`{}` is no layer of one tensor", self.get())));
        };
        let mut own = taps.tap.lock().unwrap_or_else(PoisonError::into_inner);
        taps.is_set.store(tap.is_some(), Ordering::Relaxed);
        *own = tap;
        taps.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The output of a layer that computes `own`, for `x`. The layer's tap may change or replace it.
    pub fn around(&self, x: &Tensor, own: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let Some(taps) = &self.taps else { return own(x) };
        if tracing::is_tracing() {
            let (taps, seen) = (taps.clone(), taps.changes.load(Ordering::Relaxed));
            tracing::guard(move || taps.changes.load(Ordering::Relaxed) == seen);
        }
        if !taps.is_set.load(Ordering::Relaxed) {
            return own(x);
        }
        // a copy, so that no lock is held while the tap runs
        let tap = taps.tap.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(tap) = tap else { return own(x) };
        match tap.before(x)? {
            Tapped::Output(y) => Ok(y),
            Tapped::Input(x) => tap.after(&x, own(&x)?),
        }
    }
}
