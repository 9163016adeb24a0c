//! Checkpoints of a run: a place that cannot be written to is found before the work, and one that fills up does not end it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remat::nn::Checkpoint;
use remat::types::{Error, ErrorKind, Result};

/// After a failure saving is tried again between two steps, not more often than this.
const RETRY_EVERY: Duration = Duration::from_secs(20);
/// At the end of a run it is tried again after each of these.
const LAST_WAITS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// Errors, before any work: Value if `dir` holds a checkpoint that the run neither goes on from nor may replace; Io if
/// nothing can be written there.
pub(super) fn check(dir: &Path, resumed: Option<&Path>, overwrite: bool) -> Result<()> {
    let goes_on = resumed.is_some_and(|from| is_same(from, dir));
    if Checkpoint::is_in(dir) && !goes_on && !overwrite {
        let shown = dir.display();
        let text = format!(
            "{shown} holds a checkpoint already: go on from it with `--resume {shown}`, replace it with `--overwrite`, or \
             give another folder"
        );
        return Err(Error::new(ErrorKind::Value, text));
    }
    Checkpoint::prepare(dir)
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Where a run is saved, and whether that works.
pub(super) struct Saving {
    dir: Option<PathBuf>,
    /// Why the run as it is now is not saved, and since when.
    failure: Option<(Error, Instant)>,
}

impl Saving {
    /// `None` saves nothing.
    pub(super) fn new(dir: Option<&Path>) -> Saving {
        Saving { dir: dir.map(Path::to_owned), failure: None }
    }

    /// Whether the run as it is now is not saved.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether a save failed and is due again.
    pub(super) fn is_due_again(&self) -> bool {
        self.failure.as_ref().is_some_and(|(_, since)| since.elapsed() >= RETRY_EVERY)
    }

    /// Saves. A failure of the disk is told and kept; the run goes on. Errors: all others.
    pub(super) fn save(&mut self, save: impl FnOnce(&Path) -> Result<()>, tell: &dyn Fn(&str)) -> Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        match save(dir) {
            Ok(()) => {
                if self.failure.take().is_some() {
                    tell("the checkpoint is written now");
                }
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Io => {
                tell(&format!("warning: {e}; training goes on in memory, and saving is tried again"));
                self.failure = Some((e, Instant::now()));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Tries again what failed, some times, before the weights are lost. Errors: Io if that does not help.
    pub(super) fn finish(&mut self, save: impl Fn(&Path) -> Result<()>, tell: &dyn Fn(&str)) -> Result<()> {
        for wait in LAST_WAITS {
            if self.failure.is_none() {
                break;
            }
            tell(&format!("the run is not saved yet: make room; the next try is in {} s", wait.as_secs()));
            std::thread::sleep(wait);
            self.save(&save, tell)?;
        }
        match self.failure.take() {
            None => Ok(()),
            Some((e, _)) => Err(e.context("the trained weights are lost, for no checkpoint could be written")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn a_full_disk_is_told_and_tried_again_until_there_is_room() {
        let (tries, told) = (Cell::new(0), RefCell::new(Vec::new()));
        let tell = |t: &str| told.borrow_mut().push(t.to_owned());
        let save = |_: &Path| {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(Error::new(ErrorKind::Io, "No space left on device")) } else { Ok(()) }
        };
        let mut s = Saving::new(Some(Path::new("kept")));
        s.save(save, &tell).expect("the run goes on");
        assert!(!s.is_due_again(), "not at once");
        s.finish(save, &tell).expect("room in the end");
        assert_eq!(tries.get(), 3);
        let told = told.borrow();
        assert!(told[0].contains("No space") && told.last().is_some_and(|t| t.contains("written now")), "{told:?}");
    }

    #[test]
    fn what_is_no_failure_of_the_disk_ends_the_run() {
        let mut s = Saving::new(Some(Path::new("kept")));
        let poisoned = |_: &Path| Err(Error::new(ErrorKind::Poisoned, "lost"));
        assert_eq!(s.save(poisoned, &|_| ()).expect_err("not of the disk").kind(), ErrorKind::Poisoned);
    }
}
