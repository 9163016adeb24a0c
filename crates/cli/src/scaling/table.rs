//! Predictions for people.

use super::Report;
use super::model::{Bound, Step};
use crate::sizes::show;

const HEADS: [&str; 11] = [
    "ranks",
    "machines",
    "all-reduce",
    "overlap",
    "batch",
    "step ms",
    "samples/s",
    "efficiency",
    "hidden",
    "sent/rank",
    "bound by",
];
const WIDTHS: [usize; 10] = [7, 8, 18, 7, 8, 10, 11, 10, 7, 11];

/// The limit of a step, in words.
fn words(bound: Bound) -> &'static str {
    match bound {
        Bound::Compute => "compute",
        Bound::Latency => "latency",
        Bound::Bandwidth => "bandwidth",
        Bound::Reduction => "adding up",
        Bound::LastBucket => "the last bucket",
    }
}

/// A line about the measurement, a table, and a line about the number of ranks at which scaling stops.
pub(super) fn text(r: &Report<'_>) -> String {
    let between = r.network.between;
    let mut text = format!(
        "{} with a batch of {}: {:.1} ms on one rank of {} threads; {} of gradients in {} buckets\n\
         {}: {:.1} us, {:.2} GB/s between machines of {} ranks\n\n",
        r.work,
        r.batch,
        r.one_rank_ms,
        r.threads,
        show(r.parameters_bytes),
        r.buckets,
        r.network_name,
        between.latency_s * 1e6,
        between.bytes_per_s / 1e9,
        r.network.ranks_per_machine,
    );
    text += &line(HEADS.map(str::to_owned));
    for s in r.steps {
        text += &line(cells(s));
    }
    if let Some(ends) = ends(r.steps) {
        text += &format!("\n{ends}\n");
    }
    text
}

fn cells(s: &Step) -> [String; 11] {
    let percent = |v: f64| format!("{:.1} %", 100.0 * v);
    [
        s.ranks.to_string(),
        s.machines.to_string(),
        s.all_reduce.clone(),
        if s.overlaps { "on" } else { "off" }.to_owned(),
        if s.batch.fract() == 0.0 { format!("{}", s.batch) } else { format!("{:.2}", s.batch) },
        format!("{:.2}", s.step_ms),
        format!("{:.0}", s.samples_per_s),
        percent(s.efficiency),
        s.hidden_share.map_or("-".to_owned(), |h| format!("{:.0} %", 100.0 * h)),
        show(s.sent_bytes as usize),
        words(s.bound).to_owned(),
    ]
}

fn line(cells: [String; 11]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        text += &format!("{cell:>width$} ");
    }
    format!("{text} {}\n", cells[10])
}

/// Below this efficiency more ranks are mostly lost.
const HALF: f64 = 0.5;

/// For each way to sum up, the most ranks of the table that are used by half at least.
fn ends(steps: &[Step]) -> Option<String> {
    let mut ways: Vec<(&str, bool)> = steps.iter().map(|s| (&*s.all_reduce, s.overlaps)).collect();
    ways.sort_unstable();
    ways.dedup();
    let end = |(how, overlaps): (&str, bool)| {
        let most = steps.iter().filter(|s| s.all_reduce == how && s.overlaps == overlaps && s.efficiency >= HALF);
        let most = most.map(|s| s.ranks).max().map_or("none".to_owned(), |n| n.to_string());
        format!("{how}, {}: {most}", if overlaps { "overlapped" } else { "not overlapped" })
    };
    let all: Vec<String> = ways.into_iter().map(end).collect();
    (!all.is_empty()).then(|| format!("most ranks with an efficiency of 50 % or more: {}", all.join("; ")))
}
