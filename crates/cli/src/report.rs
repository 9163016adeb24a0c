//! The memory report and errors as people read them.

use remat::runtime::{MemoryFigures, MemoryReport, Stats};
use remat::types::Error;

use crate::output::{note, say};
use crate::sizes::show;

/// Holders listed by name; the rest are summed up.
const HOLDERS_SHOWN: usize = 8;

/// Prints where the bytes and the milliseconds went.
pub(crate) fn print(r: &MemoryReport, smallest_feasible: Option<usize>) {
    let s = &r.stats;
    let budget = s.budget_bytes.map_or_else(|| "unlimited".to_owned(), show);
    say!("\nMemory report");
    say!("  budget {budget}, peak {}, reserved {}", show(s.peak_bytes), show(s.reserved_bytes));
    print_holders("at the peak, by kind", &r.peak_by_kind, s.peak_bytes);
    print_holders("at the peak, by op", &r.peak_by_op, s.peak_bytes);
    let compacted = match s.compactions {
        0 => String::new(),
        1 => ", 1 compaction".to_owned(),
        n => format!(", {n} compactions"),
    };
    say!("  evictions {} ({}){compacted}", s.evictions, show(s.evicted_bytes as usize));
    let total = s.executed_ns + s.recomputed_ns;
    let share = if total == 0 { 0.0 } else { 100.0 * s.recomputed_ns as f64 / total as f64 };
    say!("  recomputed {} ops of {}, {share:.1} % of the compute time", s.recomputed_ops, s.executed_ops);
    for op in r.recomputed.iter().take(HOLDERS_SHOWN) {
        say!("    {:24} {:>8} times {:>10.1} ms", op.op, op.count, op.time_ns as f64 / 1e6);
    }
    print_foresight(s);
    print_spilled(s);
    if let Some(bytes) = smallest_feasible {
        say!("  smallest feasible budget: {} (by dry runs)", show(bytes));
    }
}

/// Prints how many steps ran as planned, if any was planned.
fn print_foresight(s: &Stats) {
    if s.steps_planned == 0 {
        return;
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    say!(
        "  foresight: {} plans in {:.0} ms, {} steps followed, {} abandoned, {} blocks misplaced",
        s.steps_planned,
        ms(s.planning_ns),
        s.steps_followed,
        s.steps_abandoned,
        s.misplaced
    );
    if s.steps_followed > 0 {
        let (planned, took) = (ms(s.planned_step_ns), ms(s.followed_step_ns));
        say!("    the ops of the last followed step took {took:.1} ms, {planned:.1} ms as planned");
    }
}

/// Prints what went to the spill file and came back, and whether the file is still used.
fn print_spilled(s: &Stats) {
    if s.spilled_bytes > 0 {
        say!(
            "  spilled {}, fetched {}, waited {:.1} ms for that",
            show(s.spilled_bytes as usize),
            show(s.fetched_bytes as usize),
            s.spill_wait_ns as f64 / 1e6
        );
    }
    if let Some(why) = &s.spill_failure {
        say!("  nothing is spilled any more, and what was is computed again: {why}");
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

fn print_holders(title: &str, holders: &[remat::runtime::HolderBytes], peak: usize) {
    say!("  {title}:");
    let share = |bytes: usize| 100.0 * bytes as f64 / peak.max(1) as f64;
    for h in holders.iter().take(HOLDERS_SHOWN) {
        say!("    {:24} {:>12} {:>5.1} %", h.name, show(h.bytes), share(h.bytes));
    }
    let rest: usize = holders.iter().skip(HOLDERS_SHOWN).map(|h| h.bytes).sum();
    if rest > 0 {
        say!("    {:24} {:>12} {:>5.1} %", "others", show(rest), share(rest));
    }
}

/// Prints an error; one of the budget with its figures.
pub(crate) fn print_error(e: &Error) {
    note!("error: {e}");
    let Some(s) = e.shortfall() else { return };
    note!("  operation: {}", s.op);
    note!("  needed at once: {}", show(s.needed_bytes));
    note!("  budget: {}", show(s.budget_bytes));
    for p in &s.pinned {
        note!("  pinned: {} by {}", show(p.bytes), p.by);
    }
    note!("  suffices for this operation: {}", show(s.smallest_feasible_bytes));
    note!("  no budget can do with less than: {}", show(s.least_bytes));
}
