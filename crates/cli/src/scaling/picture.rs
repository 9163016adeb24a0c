//! Efficiency against the number of ranks, as SVG.

use super::Report;
use super::model::Step;
use crate::svg;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 48.0;
const COLORS: [&str; 6] = ["#06c", "#c40", "#083", "#809", "#a70", "#077"];
/// Most labels of the axis of ranks.
const LABELS: usize = 13;

/// A line for each way to sum up, dashed where reductions are not overlapped.
pub(super) fn efficiency(r: &Report<'_>) -> String {
    let ranks = || r.steps.iter().map(|s| s.ranks);
    let (from, to) = (ranks().min().unwrap_or(1) as f64, ranks().max().unwrap_or(1) as f64);
    let width = (to / from).log2().max(1.0);
    let x = move |n: usize| LEFT + (n as f64 / from).log2() / width * (WIDTH - RIGHT - LEFT);
    let most = r.steps.iter().map(|s| s.efficiency).fold(1.0, f64::max);
    let y = move |e: f64| HEIGHT - BOTTOM - e / most * (HEIGHT - BOTTOM - TOP);
    let title = format!("{}, {}: efficiency of a step", r.work, r.network_name);
    let mut svg = svg::begin(WIDTH, HEIGHT, 12) + &svg::title(LEFT, &title);
    grid(&mut svg, r.steps, &x, &y);
    let ways = ways(r.steps);
    let mut names: Vec<&str> = ways.iter().map(|w| &*w.0).collect();
    names.dedup();
    for (i, (how, overlaps)) in ways.iter().enumerate() {
        let of: Vec<&Step> = r.steps.iter().filter(|s| s.all_reduce == *how && s.overlaps == *overlaps).collect();
        let points: Vec<String> = of.iter().map(|s| format!("{:.1},{:.1}", x(s.ranks), y(s.efficiency))).collect();
        let color = COLORS[names.iter().position(|n| n == how).unwrap_or(0) % COLORS.len()];
        let dash = if *overlaps { "none" } else { "5 4" };
        svg.push_str(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\n",
            points.join(" ")
        ));
        for s in of {
            svg.push_str(&format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"><title>{} ranks: {:.1} %, {:.2} ms</title></circle>\n",
                x(s.ranks),
                y(s.efficiency),
                s.ranks,
                100.0 * s.efficiency,
                s.step_ms
            ));
        }
        let at = TOP + 12.0 + 18.0 * i as f64;
        let left = WIDTH - RIGHT + 12.0;
        let name = svg::escape(how);
        let name = if *overlaps { format!("{name}, overlapped") } else { name };
        svg.push_str(&format!(
            "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"{color}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dash}\"/>\n<text x=\"{}\" y=\"{:.1}\">{name}</text>\n",
            left + 24.0,
            left + 30.0,
            at + 4.0
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Each way to sum up, not overlapped and overlapped, in the order of the table.
fn ways(steps: &[Step]) -> Vec<(String, bool)> {
    let mut ways: Vec<(String, bool)> = Vec::new();
    for s in steps {
        let way = (s.all_reduce.clone(), s.overlaps);
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

fn grid(svg: &mut String, steps: &[Step], x: &dyn Fn(usize) -> f64, y: &dyn Fn(f64) -> f64) {
    let mut all: Vec<usize> = steps.iter().map(|s| s.ranks).collect();
    all.sort_unstable();
    all.dedup();
    let stride = all.len().div_ceil(LABELS).max(1);
    for n in all.into_iter().step_by(stride) {
        svg.push_str(&format!(
            "<path d=\"M{:.1} {:.1}V{:.1}\" stroke=\"#ddd\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{n}</text>\n",
            x(n),
            y(0.0),
            TOP,
            x(n),
            y(0.0) + 16.0
        ));
    }
    for percent in (0..=100).step_by(20) {
        let at = y(f64::from(percent) / 100.0);
        svg.push_str(&format!(
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent} \
             %</text>\n",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        ));
    }
    svg.push_str(&format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">ranks</text>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0
    ));
}
