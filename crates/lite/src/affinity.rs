//! The processors that a network computes on.
//!
//! Threads begin with the processors of the thread that starts them. So it is enough that a thread has the network's processors while
//! it makes a session or runs one: all that is started within has them for good, and the thread, which is the caller's, has its own
//! again when the call ends, by a panic too.

use remat_types::{Error, ErrorKind, Result};

/// Those that an option names; any unless set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Affinity(Option<system::Set>);

/// This thread has a network's processors until it goes.
pub(crate) struct Here(Option<system::Set>);

impl Affinity {
    /// Errors: Value for processors that the process does not have, or none; Device where the system cannot do it.
    pub(crate) fn new(processors: Option<&[usize]>) -> Result<Affinity> {
        let Some(processors) = processors else { return Ok(Affinity(None)) };
        let wrong = |text: String| Error::new(ErrorKind::Value, format!("option `affinity` {text}"));
        if processors.is_empty() {
            return Err(wrong("has no processor: a run takes at least one".into()));
        }
        let allowed = system::allowed()?;
        if let Some(other) = processors.iter().find(|p| !allowed.contains(p)) {
            let text = format!("has processor {other}; this process may run on {}", ranges(&allowed));
            return Err(wrong(text));
        }
        let affinity = Affinity(Some(system::set(processors)));
        // a group of processes may have fewer than its threads say
        let here = affinity.enter()?;
        if system::here()? != system::set(processors) {
            return Err(wrong("has processors that the system keeps from this process".into()));
        }
        drop(here);
        Ok(affinity)
    }

    /// Gives this thread the processors. Errors: Io if the system has taken them away since.
    pub(crate) fn enter(&self) -> Result<Here> {
        let Some(wanted) = &self.0 else { return Ok(Here(None)) };
        let own = system::here()?;
        if own == *wanted {
            return Ok(Here(None));
        }
        system::put(wanted)?;
        Ok(Here(Some(own)))
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(own) = self.0.take() {
            // refused only if the system has taken all of them away meanwhile, and has chosen others for the thread
            let _ = system::put(&own);
        }
    }
}

/// Ascending numbers as ranges: `0-3, 6`.
fn ranges(all: &[usize]) -> String {
    let mut text = String::new();
    for run in all.chunk_by(|a, b| a + 1 == *b) {
        let comma = if text.is_empty() { "" } else { ", " };
        text += &match run {
            [one] => format!("{comma}{one}"),
            [first, .., last] => format!("{comma}{first}-{last}"),
            [] => String::new(),
        };
    }
    text
}

#[cfg(target_os = "linux")]
mod system {
    use remat_types::{Error, ErrorKind, Result};
    use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

    pub(super) type Set = CpuSet;

    fn refused(e: rustix::io::Errno) -> Error {
        Error::new(ErrorKind::Io, format!("processors of a thread: {e}"))
    }

    /// The processors of the process, which are those of its first thread, and of this thread.
    pub(super) fn allowed() -> Result<Vec<usize>> {
        let here = here()?;
        let first = i32::try_from(std::process::id()).ok().and_then(Pid::from_raw);
        // the first thread may have ended
        let process = sched_getaffinity(first).unwrap_or(here);
        Ok((0..CpuSet::MAX_CPU).filter(|p| here.is_set(*p) || process.is_set(*p)).collect())
    }

    /// Of processors that are there.
    pub(super) fn set(processors: &[usize]) -> Set {
        let mut set = CpuSet::new();
        processors.iter().for_each(|p| set.set(*p));
        set
    }

    pub(super) fn here() -> Result<Set> {
        sched_getaffinity(None).map_err(refused)
    }

    pub(super) fn put(set: &Set) -> Result<()> {
        sched_setaffinity(None, set).map_err(refused)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use remat_types::{Error, ErrorKind, Result};

    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct Set;

    fn none<T>() -> Result<T> {
        Err(Error::new(ErrorKind::Device, "option `affinity` is for Linux: this system has no such call"))
    }

    pub(super) fn allowed() -> Result<Vec<usize>> {
        none()
    }

    pub(super) fn set(_: &[usize]) -> Set {
        Set
    }

    pub(super) fn here() -> Result<Set> {
        none()
    }

    pub(super) fn put(_: &Set) -> Result<()> {
        none()
    }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn numbers_are_told_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 6, 8, 9]), "0-3, 6, 8-9");
        assert_eq!(ranges(&[5]), "5");
    }
}
