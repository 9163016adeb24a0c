//! The cost of budgets for a step as an eager program. The runtime's worker itself runs the step, on a clock of recorded times.

use remat::runtime::{PolicyKind, Simulation, simulate, simulate_planned};
use remat::types::{ErrorKind, Result};

use super::{Options, percent};
use crate::output::{self, note};
use crate::sizes::show;
use crate::workload::Workload;

/// Steps of a recording: foresight plans a step that it has seen twice, and then follows the plan.
const STEPS: usize = 5;

/// Prints a row for each budget as it is simulated.
pub(super) fn run(o: &Options, work: Workload) -> Result<()> {
    let s = work.recorded(o.batch.map(usize::from), o.on(), STEPS, o.estimated)?;
    if let Some(path) = &o.out {
        output::write(path, s.to_json()?)?;
    }
    let free = simulate(&s, PolicyKind::default(), None)?;
    let how = if o.estimated { "estimated" } else { "measured" };
    note!("{work}: {:.3} s a step, {how}, and {} without a budget", step_ns(&free) * 1e-9, show(free.peak_bytes));
    output::print(
        "| budget | bytes | online | again | evictions | moved | foresight | planned | bound | steps followed |\n",
    );
    output::print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    let mut percents = o.percents.clone();
    percents.sort_unstable_by_key(|&x| std::cmp::Reverse(x));
    for share in percents {
        let budget = (free.peak_bytes as u128 * u128::from(share) / 100) as usize;
        let of = |r: Result<Simulation>| match r {
            Ok(r) => Ok(Some(r)),
            Err(e) if e.kind() == ErrorKind::Budget => Ok(None),
            Err(e) => Err(e),
        };
        let online = of(simulate(&s, PolicyKind::default(), Some(budget)))?;
        let foresight = of(simulate_planned(&s, PolicyKind::default(), Some(budget)))?;
        output::print(&row(budget, percent(budget as u64, free.peak_bytes as u64), &free, online, foresight));
    }
    Ok(())
}

/// Of the last step, in which foresight has its plan.
fn step_ns(s: &Simulation) -> f64 {
    s.step_ns.last().map_or(s.time_ns, |ns| *ns) as f64
}

fn row(
    budget: usize,
    percent: f64,
    free: &Simulation,
    online: Option<Simulation>,
    foresight: Option<Simulation>,
) -> String {
    const NO: &str = "infeasible";
    let ratio =
        |s: &Option<Simulation>| s.as_ref().map_or(NO.to_owned(), |s| format!("{:.3}", step_ns(s) / step_ns(free)));
    let of_step = |n: u64| n / free.step_ns.len().max(1) as u64;
    let counts = |s: &Simulation| {
        format!(
            "{} | {} | {}",
            of_step(s.recomputed_ops),
            of_step(s.evictions),
            show(of_step(s.compacted_bytes) as usize)
        )
    };
    let plan = foresight.as_ref().and_then(|f| f.plan).filter(|p| p.base_ns > 0);
    let planned = plan.map_or(" | ".to_owned(), |p| {
        let share = |ns: u64| ns as f64 / p.base_ns as f64;
        format!("{:.3} | {:.3}", share(p.planned_ns), share(p.bound_ns))
    });
    format!(
        "| {percent:.0} % | {} | {} | {} | {} | {planned} | {} |\n",
        show(budget),
        ratio(&online),
        online.as_ref().map_or(" | | ".to_owned(), counts),
        ratio(&foresight),
        foresight.as_ref().map_or(0, |f| f.steps_followed),
    )
}
