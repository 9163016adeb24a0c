//! A schedule in a few lines for people.

use remat_graph::plan::problem::Problem;
use remat_graph::plan::remat::peak_bytes;
use remat_graph::plan::schedule::{Schedule, Step};

use super::percent;
use crate::sizes::show;

/// Operators that are listed.
const SHOWN: usize = 5;

/// The schedule of the problem called `title`.
pub(super) fn text(title: &str, p: &Problem, s: &Schedule) -> String {
    let peak = peak_bytes(p);
    let ms = |ns: u64| ns as f64 * 1e-6;
    let mut text = format!(
        "{title}: {} operators, {:.3} ms and {} without a budget\n",
        p.ops().len(),
        ms(s.base_time_ns),
        show(peak as usize)
    );
    text.push_str(&format!(
        "  budget   {} ({:.1} %), of which the arena takes {}\n",
        show(s.budget_bytes as usize),
        percent(s.budget_bytes, peak),
        show(s.arena_bytes as usize)
    ));
    text.push_str(&format!(
        "  time     {:.3} ms ({:+.2} %), within {:.2} % of the proven bound\n",
        ms(s.time_ns),
        100.0 * s.overhead(),
        100.0 * s.gap()
    ));
    text.push_str(&again(p, s));
    text.push_str(&spilled(p, s));
    text.push_str(&format!(
        "  planned in {:.2} s; `--json` prints the schedule, `--out FILE` writes it\n",
        s.plan_seconds
    ));
    text
}

/// The operators that run more than once, the longest first.
fn again(p: &Problem, s: &Schedule) -> String {
    let mut runs = vec![0u64; p.ops().len()];
    for step in &s.steps {
        if let Step::Compute { op, .. } = step {
            runs[*op] += 1;
        }
    }
    let more = |o: usize| runs[o].saturating_sub(1) * p.ops()[o].time_ns;
    let mut ops: Vec<usize> = (0..runs.len()).filter(|&o| runs[o] > 1).collect();
    if ops.is_empty() {
        return "  again    nothing is computed twice\n".to_owned();
    }
    ops.sort_by_key(|&o| (std::cmp::Reverse(more(o)), o));
    let mut text = format!("  again    {} executions more, of {} operators\n", s.repeats(p), ops.len());
    for &o in ops.iter().take(SHOWN) {
        let share = 100.0 * more(o) as f64 / s.base_time_ns.max(1) as f64;
        text.push_str(&format!("    {share:>6.2} %  {} x {}\n", runs[o] - 1, p.ops()[o].name));
    }
    text
}

/// The values copied out and back, if there are any.
fn spilled(p: &Problem, s: &Schedule) -> String {
    let (mut out, mut back) = (0, 0);
    for step in &s.steps {
        match step {
            Step::Spill { storage } => out += p.storages()[*storage].padded,
            Step::Fetch { storage, .. } => back += p.storages()[*storage].padded,
            _ => {}
        }
    }
    match out + back {
        0 => String::new(),
        _ => format!("  spilled  {} out, {} back\n", show(out as usize), show(back as usize)),
    }
}
