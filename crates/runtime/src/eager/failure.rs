//! Errors of commands that ran after their caller went on, and who was told of them.
//!
//! A failure belongs to what depends on it, and to the step of the thread that asked: the span between two marks of that
//! thread. Each is reported once, by the first call that can tell: a read of what depends on it, else the next call of that
//! thread which checks ([`Channel::check`](super::Channel::check)), else a sync, else the closing of the device. While
//! nobody was told of it, updates of that step are held back; afterwards it has no effect on anything that does not depend
//! on it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_types::{Error, ErrorKind};

/// A thread of the program that asks for commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller(u32);

impl Caller {
    /// The thread that calls this.
    #[inline]
    pub(crate) fn current() -> Caller {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        thread_local! {
            static OWN: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        // A thread that ends drops its handles after this is gone; nothing that can fail is asked for then.
        Caller(OWN.try_with(|own| *own).unwrap_or(u32::MAX))
    }
}

/// What was not done because of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldBack {
    /// An update within the step of this number.
    Update(u64),
    /// The updates of an optimiser, of the step of this number.
    Step(u64),
    /// Some updates of an optimiser, after others had been made.
    PartOfStep(u64),
}

impl std::fmt::Display for HeldBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HeldBack::Update(step) => write!(f, "an update of step {step} was not made"),
            HeldBack::Step(step) => write!(f, "step {step} was not taken"),
            HeldBack::PartOfStep(step) => write!(f, "step {step} was taken in part only"),
        }
    }
}

/// A failed command. Every tensor that depends on it shares this record.
pub(crate) struct Failure {
    error: Error,
    caller: Caller,
    /// The step of the caller in which it happened.
    step: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_reported: bool,
    held_back: Option<HeldBack>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its data consistent at each point where it could unwind.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Failure {
    pub(crate) fn new(error: Error, caller: Caller, step: u64) -> Arc<Self> {
        // A poisoned input's own error has been told already.
        let is_reported = error.kind() == ErrorKind::Poisoned;
        Arc::new(Failure { error, caller, step, state: Mutex::new(State { is_reported, held_back: None }) })
    }

    /// What was held back for `cause`, of which somebody was told before.
    pub(crate) fn of_held_back(cause: &Failure, what: HeldBack, caller: Caller, step: u64) -> Arc<Self> {
        let state = State { is_reported: false, held_back: Some(what) };
        Arc::new(Failure { error: cause.poisoned(), caller, step, state: Mutex::new(state) })
    }

    fn poisoned(&self) -> Error {
        if self.error.kind() == ErrorKind::Poisoned {
            return self.error.clone();
        }
        let e = Error::new(ErrorKind::Poisoned, format!("depends on an operation that failed: {}", self.error));
        e.located_as(&self.error)
    }

    /// What went wrong, for others than the caller: nobody counts as told.
    pub(crate) fn error(&self) -> &Error {
        &self.error
    }

    /// Counts as told from now on. What it held back; `None` if somebody was told before.
    fn tell(&self) -> Option<Option<HeldBack>> {
        let mut state = lock(&self.state);
        (!std::mem::replace(&mut state.is_reported, true)).then_some(state.held_back)
    }

    pub(crate) fn is_reported(&self) -> bool {
        lock(&self.state).is_reported
    }

    /// Notes what it held back, for whoever is told. False if somebody was told before.
    pub(crate) fn hold_back(&self, what: HeldBack) -> bool {
        let mut state = lock(&self.state);
        if state.is_reported {
            return false;
        }
        // The first step that it kept from being taken is the one to tell of; later ones depend on that.
        if !matches!(state.held_back, Some(HeldBack::Step(_) | HeldBack::PartOfStep(_))) {
            state.held_back = Some(what);
        }
        true
    }

    /// The error for whoever is told of this one, and with it of all others of its step: they are one event, a step that
    /// failed.
    fn with_step(&self, mut held_back: Option<HeldBack>, list: &[(Caller, Arc<Failure>)]) -> Error {
        let mut count = 1;
        for (_, f) in list.iter().filter(|(_, f)| f.is_of(self.caller, self.step)) {
            if let Some(what) = f.tell() {
                count += 1;
                held_back =
                    if matches!(held_back, None | Some(HeldBack::Update(_))) { what.or(held_back) } else { held_back };
            }
        }
        let mut error = self.error.clone();
        if count > 1 {
            error = error.context(format!("{count} operations failed; the first"));
        }
        held_back.map_or(error.clone(), |what| error.context(what))
    }

    /// True for what was held back for a cause that had been told.
    fn is_of_told(&self) -> bool {
        self.error.kind() == ErrorKind::Poisoned
    }

    fn is_of(&self, caller: Caller, step: u64) -> bool {
        self.caller == caller && self.step == step
    }

    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }
}

/// The failures of a device of which nobody was told. Callers ask here without waiting for the worker.
#[derive(Default)]
pub(crate) struct Failures {
    /// How many the list has, so that asking costs a load where nothing failed.
    count: AtomicUsize,
    /// With whom each concerns.
    list: Mutex<Vec<(Caller, Arc<Failure>)>>,
    /// What was told.
    told: Told,
}

/// The failures that were told, each with the caller whose it is and that caller's step.
#[derive(Default)]
struct Told {
    count: AtomicU64,
    /// The last ones.
    last: Mutex<VecDeque<(Caller, u64)>>,
}

impl Told {
    /// How many are kept. A step that lies further back is forgotten.
    const KEPT: usize = 64;

    fn note(&self, caller: Caller, step: u64) {
        let mut last = lock(&self.last);
        if last.len() == Told::KEPT {
            last.pop_front();
        }
        last.push_back((caller, step));
        self.count.fetch_add(1, Ordering::Release);
    }
}

impl Failures {
    /// Notes a failure that concerns a caller.
    pub(crate) fn record(&self, caller: Caller, failure: &Arc<Failure>) {
        let mut list = lock(&self.list);
        list.retain(|(_, f)| !f.is_reported());
        list.push((caller, failure.clone()));
        self.count.store(list.len(), Ordering::Release);
    }

    /// True if there is one that concerns a caller.
    pub(crate) fn concern(&self, caller: Caller) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.list).iter().any(|(c, f)| *c == caller && !f.is_reported())
    }

    /// Reports the first that nobody was told of, and with it those of the same step: of those that concern `caller`, or of
    /// all.
    pub(crate) fn take(&self, caller: Option<Caller>) -> Option<Error> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut list = lock(&self.list);
        let concerns = |c: Caller| caller.is_none_or(|caller| caller == c);
        let found = list.iter().filter(|(c, _)| concerns(*c)).find_map(|(_, f)| Some((f.clone(), f.tell()?)));
        let error = found.map(|(first, held_back)| {
            self.told.note(first.caller, first.step);
            first.with_step(held_back, &list)
        });
        list.retain(|(_, f)| !f.is_reported());
        self.count.store(list.len(), Ordering::Release);
        error
    }

    /// For whoever reads what depends on a failure: the error itself the first time, with what else failed in its step until
    /// now and what that held back, and after that one of kind Poisoned that names it.
    pub(crate) fn report(&self, failure: &Failure) -> Error {
        let mut list = lock(&self.list);
        let Some(held_back) = failure.tell() else { return failure.poisoned() };
        self.told.note(failure.caller, failure.step);
        let error = failure.with_step(held_back, &list);
        list.retain(|(_, f)| !f.is_reported());
        self.count.store(list.len(), Ordering::Release);
        error
    }

    /// A caller gave up a step: nobody needs to be told what else failed in it, nor what was held back before for a failure
    /// that was told.
    pub(crate) fn give_up(&self, caller: Caller, step: u64) {
        let mut list = lock(&self.list);
        let is_over = |f: &Failure| f.is_of(caller, step) || (f.caller == caller && f.is_of_told());
        list.iter().filter(|(_, f)| is_over(f)).for_each(|(_, f)| {
            f.tell();
        });
        list.retain(|(_, f)| !f.is_reported());
        self.count.store(list.len(), Ordering::Release);
    }

    /// How many were told.
    pub(crate) fn told(&self) -> u64 {
        self.told.count.load(Ordering::Acquire)
    }

    /// The first step of a caller in which something failed that was told after the first `seen` ones.
    pub(crate) fn first_step_told(&self, caller: Caller, seen: u64) -> Option<u64> {
        let new = usize::try_from(self.told().saturating_sub(seen)).unwrap_or(usize::MAX);
        if new == 0 {
            return None;
        }
        lock(&self.told.last).iter().rev().take(new).filter(|(c, _)| *c == caller).map(|(_, step)| *step).min()
    }

    /// A call of `caller` in its step of this number told it of a failure of its own.
    pub(crate) fn note_told(&self, caller: Caller, step: u64) {
        self.told.note(caller, step);
    }

    /// The first that nobody was told of, which stays so.
    pub(crate) fn first(&self) -> Option<Error> {
        lock(&self.list).iter().find(|(_, f)| !f.is_reported()).map(|(_, f)| f.error.clone())
    }

    /// Reports all at once: the first, which counts the others.
    pub(crate) fn take_all(&self) -> Option<Error> {
        let first = self.take(None)?;
        let others: Vec<Error> = std::iter::from_fn(|| self.take(None)).collect();
        let Some(next) = others.first() else { return Some(first) };
        Some(first.context(format!("{} more failed that nobody read (the next: {next}); the first", others.len())))
    }

    /// The first of a caller's step that nobody was told of.
    pub(crate) fn of_step(&self, caller: Caller, step: u64) -> Option<Arc<Failure>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let list = lock(&self.list);
        let found = list.iter().find(|(c, f)| *c == caller && f.is_of(caller, step) && !f.is_reported());
        found.map(|(_, f)| f.clone())
    }
}

/// Why a command did not run.
pub(super) enum OpFailure {
    /// It failed itself.
    Own(Error),
    /// It depends on a failure.
    Inherited(Arc<Failure>),
}

impl OpFailure {
    /// For who asked for the command's result.
    pub(super) fn report(self, failures: &Failures) -> Error {
        match self {
            OpFailure::Own(e) => e,
            OpFailure::Inherited(f) => failures.report(&f),
        }
    }

    /// What went wrong, for others than the caller: nobody counts as told.
    pub(super) fn error(&self) -> &Error {
        match self {
            OpFailure::Own(e) => e,
            OpFailure::Inherited(f) => &f.error,
        }
    }

    /// True if it failed itself for want of memory.
    pub(super) fn is_shortfall(&self) -> bool {
        matches!(self, OpFailure::Own(e) if e.kind() == ErrorKind::Budget)
    }
}

impl From<Error> for OpFailure {
    fn from(e: Error) -> Self {
        OpFailure::Own(e)
    }
}
