//! Ctrl-C asks a run to end after its current step; a second one ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. A system that refuses leaves Ctrl-C as it was.
pub(crate) fn install() {
    let installed = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(super::EXIT_INTERRUPTED));
        }
        eprintln!("\nending after this step; press Ctrl-C again to end at once");
    });
    if let Err(e) = installed {
        eprintln!("warning: Ctrl-C will end the run at once: {e}");
    }
}

/// True once Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
