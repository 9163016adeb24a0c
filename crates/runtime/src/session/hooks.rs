//! Functions that are called when a run starts and when it has finished.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use remat_types::{Error, ErrorKind, Result};

/// The result of a run, for a function that only reads it.
pub type RunResult<'e> = std::result::Result<(), &'e Error>;

type Finish = dyn FnMut(RunResult<'_>) + Send;

/// Functions that are called around runs, in the order in which they were added, on the thread that runs.
///
/// Each run that starts calls the start functions. It calls the finish functions once its outputs are ready or it has
/// failed. A function that panics ends the run, and the panic reaches the caller. The object that runs stays usable.
#[derive(Default)]
pub struct RunHooks {
    start: Vec<Box<dyn FnMut() + Send>>,
    finish: Vec<Box<Finish>>,
}

impl fmt::Debug for RunHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunHooks ({} of the start, {} of the end)", self.start.len(), self.finish.len())
    }
}

impl RunHooks {
    /// Calls `f` before a run reads its inputs.
    pub fn on_start(&mut self, f: impl FnMut() + Send + 'static) {
        self.start.push(Box::new(f));
    }

    /// Calls `f` when the outputs of a run are ready, or when it has failed.
    pub fn on_finish(&mut self, f: impl FnMut(RunResult<'_>) + Send + 'static) {
        self.finish.push(Box::new(f));
    }

    /// A run starts.
    pub fn start(&mut self) {
        self.start.iter_mut().for_each(|f| f());
    }

    /// A run has finished with this result.
    pub fn finish(&mut self, result: RunResult<'_>) {
        self.finish.iter_mut().for_each(|f| f(result));
    }

    /// Calls `f` on `run`, between the start functions and the finish functions of the hooks that `of` gives. A run
    /// that panics has finished too, with an error of kind Internal, before its panic goes on.
    pub fn around<R>(run: &mut R, of: fn(&mut R) -> &mut RunHooks, f: impl FnOnce(&mut R) -> Result<()>) -> Result<()> {
        of(run).start();
        RunHooks::part(run, of, true, f)
    }

    /// Runs one part of a run that has started. The run finishes after a part that fails, and after its last part.
    pub(super) fn part<R>(
        run: &mut R,
        of: fn(&mut R) -> &mut RunHooks,
        is_last: bool,
        f: impl FnOnce(&mut R) -> Result<()>,
    ) -> Result<()> {
        let ended = catch_unwind(AssertUnwindSafe(|| f(run)));
        match &ended {
            Ok(Ok(())) if !is_last => {}
            Ok(result) => of(run).finish(result.as_ref().copied()),
            Err(_) => of(run).finish(Err(&Error::new(ErrorKind::Internal, "a kernel or callback panicked"))),
        }
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
