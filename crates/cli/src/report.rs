//! The memory report and errors as people read them.

use remat::runtime::{MemoryFigures, MemoryReport};
use remat::types::Error;

use crate::output::{note, say};
use crate::sizes::show;

/// Prints where the bytes and the milliseconds went.
pub(crate) fn print(r: &MemoryReport, smallest_feasible: Option<usize>) {
    say!("\n{r}");
    if let Some(bytes) = smallest_feasible {
        say!("  smallest feasible budget: {} (by dry runs)", show(bytes));
    }
}

/// Prints what a compiled step takes.
pub(crate) fn print_compiled(f: &MemoryFigures) {
    say!(
        "  the compiled step: workspace {} (lower bound {}), states {}, constants {}; {} calls run again in each step",
        show(f.arena_bytes),
        show(f.lower_bound_bytes),
        show(f.state_bytes),
        show(f.constant_bytes),
        f.recomputed_calls
    );
    if f.spilled_bytes > 0 {
        say!("    {} go to the spill file in each step, {} come back", show(f.spilled_bytes), show(f.fetched_bytes));
    }
}

/// Prints an error; one of the budget with its figures.
pub(crate) fn print_error(e: &Error) {
    note!("error: {e}");
    let Some(s) = e.shortfall() else { return };
    note!("  no budget can do with less than: {}", show(s.least_bytes));
}
