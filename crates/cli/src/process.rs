//! Figures of the system about this process, and the exit codes of this process.

use remat::types::{Error, ErrorKind};

/// The run ended with an error.
const EXIT_ERROR: u8 = 1;
/// The memory budget cannot be met.
pub(crate) const EXIT_BUDGET: u8 = 2;
/// The model has nodes that cannot run.
pub(crate) const EXIT_UNSUPPORTED: u8 = 3;
/// The command line is wrong (EX_USAGE), so that 2 means the budget and nothing else.
pub(crate) const EXIT_USAGE: u8 = 64;
/// Ended by Ctrl-C, SIGTERM or SIGHUP, as shells report the first.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// The exit code of a command that ends with an error.
pub(crate) fn exit_code(e: &Error) -> u8 {
    if e.kind() == ErrorKind::Budget { EXIT_BUDGET } else { EXIT_ERROR }
}

/// The most memory the process ever had resident, from the system; `None` where it does not say.
pub(crate) fn resident_peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Of the resident memory of now, what the system can read from files again: the program and its libraries.
pub(crate) fn resident_file_bytes() -> Option<u64> {
    status_bytes("RssFile:")
}

fn status_bytes(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Nanoseconds in which threads of this process were ready to run and had no processor, since their begin; `None` where the system
/// does not say.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "only ranks are compared with each other"))]
pub(crate) fn waited_for_processor_ns() -> Option<u64> {
    let mut sum = 0u64;
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        // a thread that has just ended waits no more
        let Ok(figures) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        sum = sum.saturating_add(figures.split_whitespace().nth(1)?.parse().ok()?);
    }
    Some(sum)
}
