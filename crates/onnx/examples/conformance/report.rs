//! The cases that passed, by operator: as text and as a page of the book.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use remat_onnx::Model;

use crate::{Case, Outcome};

/// The operator that a case is about: the one that is there least often among all nodes of a graph that is not expanded. A model that
/// cannot be read has none.
pub(crate) fn operator(model: &Path) -> String {
    let Ok(model) = Model::open(model) else { return "-".to_owned() };
    let mut all = model.operators();
    all.retain(|(_, op, _)| !matches!(op.as_str(), "Constant" | "Identity" | "Cast" | "CastLike"));
    let named = |(domain, op, _): &(String, String, usize)| {
        if domain.is_empty() { op.clone() } else { format!("{domain}.{op}") }
    };
    match &all[..] {
        [one] => named(one),
        [] => model.operators().first().map_or("-".to_owned(), named),
        _ => "several".to_owned(),
    }
}

#[derive(Default)]
struct Count {
    cases: usize,
    passed: usize,
    left_out: usize,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        self.cases += 1;
        match outcome {
            Outcome::Passed | Outcome::Eager(_) => self.passed += 1,
            Outcome::LeftOut(_) => self.left_out += 1,
            Outcome::Failed(_) => {}
        }
    }

    fn share(&self) -> f64 {
        100.0 * self.passed as f64 / (self.cases - self.left_out).max(1) as f64
    }
}

fn by(cases: &[Case], key: impl Fn(&Case) -> String) -> BTreeMap<String, Count> {
    let mut all: BTreeMap<String, Count> = BTreeMap::new();
    cases.iter().for_each(|c| all.entry(key(c)).or_default().add(&c.outcome));
    all
}

/// Failures, and the totals by kind.
pub(crate) fn print(cases: &[Case], verbose: bool) {
    for c in cases {
        match &c.outcome {
            Outcome::Failed(why) => println!("FAILED {}/{}: {why}", c.kind, c.name),
            Outcome::LeftOut(why) if verbose => println!("left out {}/{}: {why}", c.kind, c.name),
            Outcome::Eager(why) if verbose => println!("eagerly alone {}/{}: {why}", c.kind, c.name),
            Outcome::Passed if verbose => println!("passed {}/{}", c.kind, c.name),
            _ => {}
        }
    }
    for (kind, n) in by(cases, |c| c.kind.to_owned()) {
        println!("{kind}: {} of {} ({:.2} %), {} left out", n.passed, n.cases - n.left_out, n.share(), n.left_out);
    }
    let eager = cases.iter().filter(|c| matches!(c.outcome, Outcome::Eager(_))).count();
    if eager > 0 {
        println!("{eager} of them eagerly alone: their values decide shapes or parameters");
    }
}

/// The page of the book.
pub(crate) fn page(cases: &[Case]) -> String {
    let mut page = String::from(HEAD);
    let _ = writeln!(page, "| cases | all | left out | run | passed | share |\n|---|---:|---:|---:|---:|---:|");
    for (kind, n) in by(cases, |c| c.kind.to_owned()) {
        let run = n.cases - n.left_out;
        let _ = writeln!(page, "| {kind} | {} | {} | {run} | {} | {:.1} % |", n.cases, n.left_out, n.passed, n.share());
    }
    page.push_str("\n## What is left out, and why\n\n| reason | cases |\n|---|---:|\n");
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for c in cases {
        if let Outcome::LeftOut(why) = &c.outcome {
            *reasons.entry(why).or_default() += 1;
        }
    }
    for (why, n) in reasons {
        let _ = writeln!(page, "| {why} | {n} |");
    }
    page.push_str("\n## Node cases by operator\n\n\"several\" are functions of the standard written out.\n\n");
    page.push_str("| operator | cases | left out | passed |\n|---|---:|---:|---:|\n");
    let nodes: Vec<&Case> = cases.iter().filter(|c| c.kind == "node").collect();
    let mut ops: BTreeMap<&str, Count> = BTreeMap::new();
    nodes.iter().for_each(|c| ops.entry(&c.op).or_default().add(&c.outcome));
    for (op, n) in ops {
        let _ = writeln!(page, "| {op} | {} | {} | {} |", n.cases, n.left_out, n.passed);
    }
    let failed: Vec<&Case> = cases.iter().filter(|c| matches!(c.outcome, Outcome::Failed(_))).collect();
    if !failed.is_empty() {
        page.push_str("\n## What fails\n\n");
        failed.iter().for_each(|c| {
            let _ = writeln!(page, "- {}/{}", c.kind, c.name);
        });
    }
    page
}

const HEAD: &str = "\
# ONNX conformance

After this page you know which operators of the ONNX standard Remat runs. The table has the standard's backend test data,
release 1.22.0, at its own tolerances. `python3 scripts/onnx_conformance.py --write` writes this page.

";
