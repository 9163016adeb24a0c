//! Errors of commands that ran after their callers went on, and the reports of them.
//!
//! A failure belongs to its dependents and to a step of the calling thread: the span between two marks of that thread.
//! The first call that can report a failure does so, once: a read of a dependent, else the thread's next call that
//! checks ([`Channel::check`](super::Channel::check)), else a sync, else the closing of the device. Until a call has
//! reported it, updates of that step are held back. Afterwards it affects only its dependents.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_types::{Error, ErrorKind};

/// A thread of the program that sends commands.
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
        // A thread may drop its handles after this variable is gone. Those commands cannot fail.
        Caller(OWN.try_with(|own| *own).unwrap_or(u32::MAX))
    }
}

/// The updates that a failure held back.
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
    /// The number of the caller's step in which it happened.
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
        // The error of a poisoned input has been reported already.
        let is_reported = error.kind() == ErrorKind::Poisoned;
        Arc::new(Failure { error, caller, step, state: Mutex::new(State { is_reported, held_back: None }) })
    }

    /// The failure of an update that was held back for `cause`, after `cause` was reported.
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

    /// The error, for others than the caller. The failure does not count as reported.
    pub(crate) fn error(&self) -> &Error {
        &self.error
    }

    /// Marks the failure as reported and gives the update that it held back. `None` if it was reported before.
    fn tell(&self) -> Option<Option<HeldBack>> {
        let mut state = lock(&self.state);
        (!std::mem::replace(&mut state.is_reported, true)).then_some(state.held_back)
    }

    pub(crate) fn is_reported(&self) -> bool {
        lock(&self.state).is_reported
    }

    /// Notes an update that the failure held back, for its report. False if it was reported before.
    pub(crate) fn hold_back(&self, what: HeldBack) -> bool {
        let mut state = lock(&self.state);
        if state.is_reported {
            return false;
        }
        // The report names the first step that was not taken, since later ones depend on it.
        if !matches!(state.held_back, Some(HeldBack::Step(_) | HeldBack::PartOfStep(_))) {
            state.held_back = Some(what);
        }
        true
    }

    /// The error that reports this failure together with all others of its step: a failed step is one event.
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

    /// True for an update that was held back for a failure that had been reported.
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

/// The failures of a device that were not reported. Callers ask here without waiting for the worker.
#[derive(Default)]
pub(crate) struct Failures {
    /// The length of the list. If nothing failed, a check costs one load.
    count: AtomicUsize,
    /// Each failure, with the caller that it concerns.
    list: Mutex<Vec<(Caller, Arc<Failure>)>>,
    /// The reported failures.
    told: Told,
}

/// The failures that were reported, each with its caller and the number of that caller's step.
#[derive(Default)]
struct Told {
    count: AtomicU64,
    /// The last of them.
    last: Mutex<VecDeque<(Caller, u64)>>,
}

impl Told {
    /// How many are kept. Failures of older steps are forgotten.
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

    /// True if an unreported failure concerns the caller.
    pub(crate) fn concern(&self, caller: Caller) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.list).iter().any(|(c, f)| *c == caller && !f.is_reported())
    }

    /// Reports the first unreported failure, with those of the same step. With `caller`, of the failures that concern
    /// that caller; otherwise of all.
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

    /// The error for a read of a dependent. The first time it is the failure's own error, with the other failures of
    /// the step until now and the updates that they held back. After that it is an error of kind Poisoned that names
    /// the failure.
    pub(crate) fn report(&self, failure: &Failure) -> Error {
        let mut list = lock(&self.list);
        let Some(held_back) = failure.tell() else { return failure.poisoned() };
        self.told.note(failure.caller, failure.step);
        let error = failure.with_step(held_back, &list);
        list.retain(|(_, f)| !f.is_reported());
        self.count.store(list.len(), Ordering::Release);
        error
    }

    /// A caller gave up a step: no call needs to report its other failures, nor updates that were held back before for
    /// a reported failure.
    pub(crate) fn give_up(&self, caller: Caller, step: u64) {
        let mut list = lock(&self.list);
        let is_over = |f: &Failure| f.is_of(caller, step) || (f.caller == caller && f.is_of_told());
        list.iter().filter(|(_, f)| is_over(f)).for_each(|(_, f)| {
            f.tell();
        });
        list.retain(|(_, f)| !f.is_reported());
        self.count.store(list.len(), Ordering::Release);
    }

    /// How many failures were reported.
    pub(crate) fn told(&self) -> u64 {
        self.told.count.load(Ordering::Acquire)
    }

    /// A caller's first step with a failure that was reported after the first `seen` reports.
    pub(crate) fn first_step_told(&self, caller: Caller, seen: u64) -> Option<u64> {
        let new = usize::try_from(self.told().saturating_sub(seen)).unwrap_or(usize::MAX);
        if new == 0 {
            return None;
        }
        lock(&self.told.last).iter().rev().take(new).filter(|(c, _)| *c == caller).map(|(_, step)| *step).min()
    }

    /// Notes that a call of `caller` reported its own failure, in the caller's step of this number.
    pub(crate) fn note_told(&self, caller: Caller, step: u64) {
        self.told.note(caller, step);
    }

    /// The first unreported failure. It stays unreported.
    pub(crate) fn first(&self) -> Option<Error> {
        lock(&self.list).iter().find(|(_, f)| !f.is_reported()).map(|(_, f)| f.error.clone())
    }

    /// Reports all failures at once. The error is the first one, with the number of the others.
    pub(crate) fn take_all(&self) -> Option<Error> {
        let first = self.take(None)?;
        let others: Vec<Error> = std::iter::from_fn(|| self.take(None)).collect();
        let Some(next) = others.first() else { return Some(first) };
        Some(first.context(format!("{} more failed that nobody read (the next: {next}); the first", others.len())))
    }

    /// The first unreported failure of a caller's step.
    pub(crate) fn of_step(&self, caller: Caller, step: u64) -> Option<Arc<Failure>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let list = lock(&self.list);
        let found = list.iter().find(|(c, f)| *c == caller && f.is_of(caller, step) && !f.is_reported());
        found.map(|(_, f)| f.clone())
    }
}

/// The reason that a command did not run.
pub(super) enum OpFailure {
    /// It failed itself.
    Own(Error),
    /// It depends on a failure.
    Inherited(Arc<Failure>),
}

impl OpFailure {
    /// The error for the caller that asked for the command's result.
    pub(super) fn report(self, failures: &Failures) -> Error {
        match self {
            OpFailure::Own(e) => e,
            OpFailure::Inherited(f) => failures.report(&f),
        }
    }

    /// The error, for others than the caller. The failure does not count as reported.
    pub(super) fn error(&self) -> &Error {
        match self {
            OpFailure::Own(e) => e,
            OpFailure::Inherited(f) => &f.error,
        }
    }

    /// True if the command failed itself for want of memory.
    pub(super) fn is_shortfall(&self) -> bool {
        matches!(self, OpFailure::Own(e) if e.kind() == ErrorKind::Budget)
    }
}

impl From<Error> for OpFailure {
    fn from(e: Error) -> Self {
        OpFailure::Own(e)
    }
}
