//! The bytes that live at each call, as figures and as a picture: the largest of the peak by name, one above the
//! other, all others in grey.

use remat::graph::ir::Graph;
use serde_json::{Value, json};

use super::{Lifetime, Lifetimes, name};
use crate::sizes::show;
use crate::svg::{self, escape};

const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 460.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;
/// Lines of the grid.
const GRID: usize = 4;
/// Lifetimes with a colour and a name of their own.
const NAMED: usize = 12;
const COLORS: [&str; NAMED] = [
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#b5a642",
    "#2f8f9d", "#c05a8a",
];
const FIXED: &str = "#8a8a8a";
const OTHERS: &str = "#d8d8d8";

/// A band of the picture: bytes at each call.
struct Band {
    color: &'static str,
    name: String,
    bytes: Vec<u64>,
}

/// The data of the picture, including the values that it shows in grey.
pub(crate) fn json(title: &str, g: &Graph, lifetimes: &Lifetimes) -> Value {
    let (peak_call, peak_bytes) = lifetimes.peak();
    let lifetime = |l: &Lifetime| json!({ "name": name(g, l), "bytes": l.bytes, "first_call": l.start, "last_call": l.end, "again": l.again });
    json!({
        "graph": title,
        "fixed_bytes": lifetimes.fixed_bytes,
        "peak_bytes": peak_bytes,
        "peak_call": peak_call,
        "bytes_at_call": lifetimes.load,
        "lives": lifetimes.lifetimes.iter().map(lifetime).collect::<Vec<_>>(),
    })
}

/// The picture of `lifetimes`; its legend lists the bands from the top down.
pub(crate) fn svg(title: &str, g: &Graph, lifetimes: &Lifetimes) -> String {
    let bands = bands(g, lifetimes);
    let (call, peak) = lifetimes.peak();
    let x = |at: usize| LEFT + at as f64 / lifetimes.load.len().max(1) as f64 * (WIDTH - LEFT - RIGHT);
    let y = |bytes: u64| HEIGHT - BOTTOM - bytes as f64 / peak.max(1) as f64 * (HEIGHT - BOTTOM - TOP);
    let heading = format!("{title}: at most {} at call {call} of {}", show(peak as usize), lifetimes.load.len());
    let mut s = svg::begin(WIDTH, HEIGHT, 11) + &svg::title(LEFT, &heading);
    let mut below = vec![0u64; lifetimes.load.len()];
    for b in &bands {
        let above: Vec<u64> = below.iter().zip(&b.bytes).map(|(a, b)| a + b).collect();
        for (from, to) in runs(&b.bytes) {
            area(&mut s, b, (from, to), &below, &above, &x, &y);
        }
        below = above;
    }
    grid(&mut s, peak, lifetimes.load.len(), &x, &y);
    legend(&mut s, &bands);
    s.push_str("</svg>\n");
    s
}

/// The bands from the bottom up: values that are always there, the largest lifetimes by their beginning, and all others.
fn bands(g: &Graph, lifetimes: &Lifetimes) -> Vec<Band> {
    let mut order: Vec<&Lifetime> = lifetimes.lifetimes.iter().collect();
    // The values at the peak decide the memory. Among equal sizes, those that live longer come first.
    let peak = lifetimes.peak().0;
    order.sort_by_key(|l| std::cmp::Reverse(((l.start..=l.end).contains(&peak), l.bytes, l.end - l.start)));
    let others = order.split_off(order.len().min(NAMED));
    order.sort_by_key(|l| l.start);
    let calls = lifetimes.load.len();
    let of = |l: &Lifetime| (0..calls).map(|c| if (l.start..=l.end).contains(&c) { l.bytes } else { 0 }).collect();
    let mut all = vec![Band {
        color: FIXED,
        name: "states, inputs and constants".into(),
        bytes: vec![lifetimes.fixed_bytes; calls],
    }];
    all.extend(order.iter().zip(COLORS).map(|(l, color)| Band { color, name: name(g, l), bytes: of(l) }));
    let named = |c: usize| all.iter().map(|b| b.bytes[c]).sum::<u64>();
    let rest = (0..calls).map(|c| lifetimes.load[c] - named(c)).collect();
    all.push(Band { color: OTHERS, name: format!("{} others", others.len()), bytes: rest });
    all
}

/// The ranges of calls with bytes.
fn runs(bytes: &[u64]) -> Vec<(usize, usize)> {
    let (mut all, mut begun) = (Vec::new(), None);
    for (c, b) in bytes.iter().chain(std::iter::once(&0)).enumerate() {
        match (begun, *b > 0) {
            (None, true) => begun = Some(c),
            (Some(from), false) => {
                all.push((from, c));
                begun = None;
            }
            _ => {}
        }
    }
    all
}

/// A band over the calls `from .. to`, with steps where either edge changes.
fn area(
    s: &mut String,
    band: &Band,
    (from, to): (usize, usize),
    below: &[u64],
    above: &[u64],
    x: &dyn Fn(usize) -> f64,
    y: &dyn Fn(u64) -> f64,
) {
    // both ends of each stretch of calls with one height
    let edge = |of: &[u64]| {
        let mut points = Vec::new();
        let mut at = from;
        for stretch in of[from..to].chunk_by(|a, b| a == b) {
            points.push(format!("{:.1},{:.1}", x(at), y(stretch[0])));
            at += stretch.len();
            points.push(format!("{:.1},{:.1}", x(at), y(stretch[0])));
        }
        points
    };
    let mut points = edge(above);
    points.extend(edge(below).into_iter().rev());
    let most = band.bytes[from..to].iter().copied().max().unwrap_or(0);
    s.push_str(&format!(
        "<polygon points=\"{}\" fill=\"{}\"><title>{}: {}, calls {from} to {}</title></polygon>\n",
        points.join(" "),
        band.color,
        escape(&band.name),
        show(most as usize),
        to - 1,
    ));
}

fn grid(s: &mut String, peak: u64, calls: usize, x: &dyn Fn(usize) -> f64, y: &dyn Fn(u64) -> f64) {
    for i in 0..=GRID {
        let bytes = peak / GRID as u64 * i as u64;
        s.push_str(&format!(
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"#000\" stroke-opacity=\"0.15\"/>\n\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>\n",
            y(bytes),
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(bytes) + 4.0,
            show(bytes as usize),
        ));
        let call = calls * i / GRID;
        s.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{call}</text>\n",
            x(call),
            HEIGHT - BOTTOM + 16.0
        ));
    }
    s.push_str(&format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">call</text>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0
    ));
}

fn legend(s: &mut String, bands: &[Band]) {
    const LINE: f64 = 22.0;
    /// Characters that fit beside the picture.
    const FITS: usize = 62;
    for (i, b) in bands.iter().rev().enumerate() {
        let (x, y) = (WIDTH - RIGHT + 20.0, TOP + i as f64 * LINE);
        let most = b.bytes.iter().copied().max().unwrap_or(0);
        let text = format!("{} {}", show(most as usize), b.name);
        let short: String = text.chars().take(FITS).collect();
        s.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n<text x=\"{:.1}\" \
             y=\"{:.1}\">{}{}</text>\n",
            b.color,
            x + 18.0,
            y + 10.0,
            escape(&short),
            if text.chars().count() > FITS { "…" } else { "" },
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_where_bytes_are() {
        assert_eq!(runs(&[0, 3, 3, 0, 1]), [(1, 3), (4, 5)]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn an_edge_has_a_point_on_each_side_of_a_step() {
        let mut s = String::new();
        let band = Band { color: "#000", name: "<a>".into(), bytes: vec![2, 2, 2, 2] };
        let (below, above) = (vec![0, 0, 0, 1], vec![2, 2, 2, 3]);
        area(&mut s, &band, (0, 4), &below, &above, &|c| c as f64, &|b| b as f64);
        assert!(s.contains("points=\"0.0,2.0 3.0,2.0 3.0,3.0 4.0,3.0 4.0,1.0 3.0,1.0 3.0,0.0 0.0,0.0\""), "{s}");
        assert!(s.contains("&lt;a&gt;"), "{s}");
    }
}
