//! Time over memory: one plan for each of a range of budgets.

use remat::types::Result;
use remat_graph::plan::problem::Problem;
use remat_graph::plan::remat::peak_bytes;
use remat_graph::plan::schedule::{Plan, Schedule};

use super::{Options, bytes_of, effort, page, percent, picture, planned, summary};
use crate::output::{self, note};
use crate::sizes::show;

/// Budgets of a curve unless others are asked for.
pub(super) const PERCENTS: [u32; 9] = [100, 90, 80, 70, 60, 50, 40, 30, 20];

/// The curve, larger budgets first.
pub(super) struct Curve {
    pub(super) title: String,
    pub(super) peak: u64,
    pub(super) points: Vec<Schedule>,
    /// The budgets of those asked for that nothing was found for, larger ones first.
    pub(super) infeasible: Vec<u64>,
}

pub(super) fn run(o: &Options, p: &Problem) -> Result<()> {
    let curve = compute(o, p)?;
    let chosen = o.budget.and_then(|b| bytes_of(b, curve.peak));
    let shown = curve.shown(chosen);
    if let Some(path) = &o.svg {
        output::write(path, picture::curve(&curve))?;
    }
    if let Some(path) = &o.html {
        output::write(path, page::html(&curve, p, shown))?;
    }
    if let (Some(path), Some(s)) = (&o.out, curve.points.get(shown)) {
        output::write(path, Plan::Feasible(s.clone()).to_json_with_problem(p))?;
    }
    output::print(&table(&curve, p));
    Ok(())
}

fn compute(o: &Options, p: &Problem) -> Result<Curve> {
    let peak = peak_bytes(p);
    let mut percents = o.percents.clone();
    percents.sort_unstable_by_key(|&x| std::cmp::Reverse(x));
    percents.dedup();
    let mut budgets: Vec<u64> = percents.iter().map(|&x| (u128::from(peak) * u128::from(x) / 100) as u64).collect();
    budgets.extend(o.budget.and_then(|b| bytes_of(b, peak)));
    budgets.sort_unstable_by_key(|&b| std::cmp::Reverse(b));
    budgets.dedup();
    let title = format!("{}: {} operators, {} without a budget", o.title(), p.ops().len(), show(peak as usize));
    note!("{title}");
    let mut curve = Curve { title, peak, points: Vec::new(), infeasible: Vec::new() };
    for budget in budgets {
        match planned(p, Some(budget), effort(o, p))? {
            Plan::Feasible(s) => curve.add(p, s),
            Plan::Infeasible(s) => {
                let known = curve.points.last().map_or(u64::MAX, |last| last.budget_bytes);
                if curve.infeasible.is_empty()
                    && s.smallest_feasible_bytes < known
                    && let Plan::Feasible(s) = planned(p, Some(s.smallest_feasible_bytes), effort(o, p))?
                {
                    curve.add(p, s);
                }
                curve.infeasible.push(budget);
            }
        }
    }
    curve.make_monotone();
    Ok(curve)
}

impl Curve {
    fn add(&mut self, p: &Problem, s: Schedule) {
        note!("{}", summary(p, &s, self.peak));
        self.points.push(s);
    }

    /// A schedule within a budget is one within any larger budget.
    fn make_monotone(&mut self) {
        for i in (1..self.points.len()).rev() {
            if self.points[i - 1].time_ns > self.points[i].time_ns {
                let (budget_bytes, lower_bound_ns) =
                    (self.points[i - 1].budget_bytes, self.points[i - 1].lower_bound_ns);
                self.points[i - 1] = Schedule { budget_bytes, lower_bound_ns, ..self.points[i].clone() };
            }
        }
    }

    /// The point of the chosen budget, or the one in the middle.
    fn shown(&self, chosen: Option<u64>) -> usize {
        let at = chosen.and_then(|b| self.points.iter().position(|s| s.budget_bytes == b));
        at.unwrap_or(self.points.len() / 2)
    }
}

/// As Markdown.
fn table(c: &Curve, p: &Problem) -> String {
    let mut text = String::from(
        "| budget | bytes | arena | time, ms | added | proven gap | executions more | planned in |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for s in &c.points {
        text.push_str(&format!(
            "| {:.1} % | {} | {} | {:.3} | {:.2} % | {:.2} % | {} | {:.2} s |\n",
            percent(s.budget_bytes, c.peak),
            s.budget_bytes,
            s.arena_bytes,
            s.time_ns as f64 / 1e6,
            100.0 * s.overhead(),
            100.0 * s.gap(),
            s.repeats(p),
            s.plan_seconds,
        ));
    }
    for &b in &c.infeasible {
        text.push_str(&format!("| {:.1} % | {b} | infeasible | | | | | |\n", percent(b, c.peak)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(budget_bytes: u64, time_ns: u64) -> Schedule {
        Schedule {
            budget_bytes,
            arena_bytes: budget_bytes - 1,
            time_ns,
            base_time_ns: 10,
            lower_bound_ns: 10,
            plan_seconds: 0.0,
            values: Vec::new(),
            steps: Vec::new(),
        }
    }

    #[test]
    fn a_larger_budget_is_never_slower() {
        let points = vec![point(100, 10), point(90, 14), point(80, 13), point(70, 12), point(60, 15)];
        let mut c = Curve { title: String::new(), peak: 100, points, infeasible: Vec::new() };
        c.make_monotone();
        let found: Vec<(u64, u64)> = c.points.iter().map(|s| (s.budget_bytes, s.time_ns)).collect();
        assert_eq!(found, [(100, 10), (90, 12), (80, 12), (70, 12), (60, 15)]);
        assert_eq!((c.shown(Some(70)), c.shown(Some(71)), c.shown(None)), (3, 2, 2));
    }
}
