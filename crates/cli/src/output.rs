//! All that the command says: results to files and standard output, notes to standard error.
//!
//! A reader may go away, and a disk may be full. This never ends a run. Only this module prints. After the first failure
//! standard output stays silent. A reader that closed its end has read enough, so the command ends as if it had read on;
//! any other failure is an error once the work is done: [`finish`].

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use remat::types::{Error, Result};

/// Why standard output is silent.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Nothing is printed to standard output: another rank prints.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Prints a line of the results.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
/// Prints a line for who watches, to standard error.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::note_line(format_args!($($text)*)) };
}
pub(crate) use {note, say};

/// Whether a path stands for standard output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Prints to standard output.
pub(crate) fn print(text: &str) {
    print_bytes(text.as_bytes());
}

/// Flushes a line that is not complete yet.
pub(crate) fn flush() {
    attempt(Write::flush);
}

/// As `say!`.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    print(&format!("{text}\n"));
}

/// As `note!`. A failure cannot be reported, so it is ignored.
pub(crate) fn note_line(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Writes a file, or to standard output for `-`. Errors: Io, for a file.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    if is_standard(path) {
        print_bytes(bytes.as_ref());
        return Ok(());
    }
    std::fs::write(path, bytes).map_err(|e| Error::from(e).context(path.display()))
}

/// Where a file, or what goes to standard output for `-`, is written bit by bit. Errors: Io if the file cannot be made.
pub(crate) fn writer(path: &Path) -> Result<Box<dyn Write + Send>> {
    struct Standard;

    impl Write for Standard {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            print_bytes(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            flush();
            Ok(())
        }
    }

    if is_standard(path) {
        return Ok(Box::new(Standard));
    }
    let file = std::fs::File::create(path).map_err(|e| Error::from(e).context(path.display()))?;
    Ok(Box::new(io::BufWriter::new(file)))
}

/// Reports a failure of standard output. Errors: Io if results could not be printed, unless the reader went away.
pub(crate) fn finish() -> Result<()> {
    attempt(Write::flush);
    match failure().take() {
        Some(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Error::from(e).context("standard output")),
        _ => Ok(()),
    }
}

/// From now on standard output stays empty.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "only ranks are silent"))]
pub(crate) fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

/// True after [`silence`].
pub(crate) fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

fn print_bytes(bytes: &[u8]) {
    if is_silent() {
        return;
    }
    attempt(|to| to.write_all(bytes));
}

fn failure() -> std::sync::MutexGuard<'static, Option<io::Error>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attempt(what: impl FnOnce(&mut io::StdoutLock<'static>) -> io::Result<()>) {
    let mut failed = failure();
    if failed.is_none() {
        *failed = what(&mut io::stdout().lock()).err();
    }
}
