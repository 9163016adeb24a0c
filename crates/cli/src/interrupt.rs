//! Ctrl-C, SIGTERM and SIGHUP ask a run to end after its current step; a second one ends it at once.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::output::note;
use crate::process::EXIT_INTERRUPTED;

/// A request within this time is the same one: a terminal that closes, or who stops a service, sends several.
const SAME_REQUEST: Duration = Duration::from_secs(2);

static REQUESTED: OnceLock<Instant> = OnceLock::new();

/// Installs the handler. A system that refuses leaves signals as they were.
pub(crate) fn install() {
    let installed = ctrlc::set_handler(|| match REQUESTED.get() {
        None => {
            let _ = REQUESTED.set(Instant::now());
            note!("\nending after this step; press Ctrl-C again to end at once");
        }
        Some(then) if then.elapsed() < SAME_REQUEST => {}
        Some(_) => std::process::exit(i32::from(EXIT_INTERRUPTED)),
    });
    if let Err(e) = installed {
        note!("warning: Ctrl-C will end the run at once: {e}");
    }
}

/// True once the run was asked to end.
pub(crate) fn requested() -> bool {
    REQUESTED.get().is_some()
}
