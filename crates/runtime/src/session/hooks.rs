//! What is called when a run starts and when it has finished.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use remat_types::{Error, ErrorKind, Result};

/// How a run finished, for a function that only looks.
pub type RunResult<'e> = std::result::Result<(), &'e Error>;

type Finish = dyn FnMut(RunResult<'_>) + Send;

/// Functions that are called around runs, in the order in which they were added, on the thread that runs.
///
/// For each run that starts, those of the start are called, and those of the end once its outputs are there or it has failed. One that
/// panics ends the run, and the panic is the caller's; what is run stays usable.
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

    /// Calls `f` when the outputs of a run are there, or it has failed.
    pub fn on_finish(&mut self, f: impl FnMut(RunResult<'_>) + Send + 'static) {
        self.finish.push(Box::new(f));
    }

    /// A run starts.
    pub fn start(&mut self) {
        self.start.iter_mut().for_each(|f| f());
    }

    /// A run has finished so.
    pub fn finish(&mut self, result: RunResult<'_>) {
        self.finish.iter_mut().for_each(|f| f(result));
    }

    /// Runs `run`, whose hooks `of` gives, between those of the start and those of the end. A run that panics has finished too, with an
    /// error of kind Internal, before its panic goes on.
    pub fn around<R>(run: &mut R, of: fn(&mut R) -> &mut RunHooks, f: impl FnOnce(&mut R) -> Result<()>) -> Result<()> {
        of(run).start();
        RunHooks::part(run, of, true, f)
    }

    /// A part of a run that has started. After one that fails, and after the last, the run has finished.
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
