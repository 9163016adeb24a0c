//! The graph as a picture: an operator below those whose results it reads.
//!
//! Rows are longest paths from the inputs, and within a row operators are ordered by where what they read stands (Sugiyama, Tagawa
//! and Toda, 1981, "Methods for visual understanding of hierarchical system structures": the layers and the barycentre rule).

use remat::graph::ir::{Graph, NodeId};

use crate::svg::{self, escape};

const WIDE: f64 = 210.0;
const HIGH: f64 = 34.0;
const GAP_X: f64 = 16.0;
const GAP_Y: f64 = 26.0;
const MARGIN: f64 = 40.0;
/// Operators that are drawn: nobody reads a larger picture.
const MOST: usize = 3000;
/// Characters that fit into a box.
const FITS: usize = 30;

/// The colour of an operator's kind of work.
fn color(op: &str) -> &'static str {
    match op {
        o if o.contains("conv") => "#cfe0f7",
        o if o.contains("matmul") || o.contains("linear") || o.contains("attention") => "#d9efd3",
        o if o.contains("norm") || o.contains("softmax") => "#fbe8c8",
        o if o.contains("pool") || o.contains("reduce") => "#eadcf4",
        _ => "#f2f2f2",
    }
}

struct Place {
    x: f64,
    y: f64,
}

/// The picture; of a graph that is too large one that says so.
pub(super) fn svg(title: &str, g: &Graph) -> String {
    if g.nodes().len() > MOST {
        let text = format!("{title}: {} operators, too many to draw", g.nodes().len());
        return svg::begin(600.0, 40.0, 11) + &svg::title(MARGIN, &text) + "</svg>\n";
    }
    let places = places(g);
    let right = places.iter().map(|p| p.x + WIDE).fold(0.0, f64::max);
    let bottom = places.iter().map(|p| p.y + HIGH).fold(0.0, f64::max);
    let heading = format!("{title}: {} operators", g.nodes().len());
    let mut s = svg::begin((right + MARGIN).max(600.0), bottom + MARGIN, 11) + &svg::title(MARGIN, &heading);
    for (id, n) in g.node_ids().zip(g.nodes()) {
        let to = &places[id.index()];
        for from in n.x.iter().filter_map(|v| g.producer(*v)).map(|p| &places[p.index()]) {
            let [x0, y0, x1, y1] = [from.x + WIDE / 2.0, from.y + HIGH, to.x + WIDE / 2.0, to.y];
            let mid = (y0 + y1) / 2.0;
            // past the boxes between, which would hide a straight one
            if y1 - y0 > HIGH + GAP_Y {
                let (x0, x1, y0, y1) = (from.x + WIDE, to.x + WIDE, from.y + HIGH / 2.0, to.y + HIGH / 2.0);
                let out = x0.max(x1) + GAP_X * 3.0;
                s += &format!(
                    "<path d=\"M{x0:.1} {y0:.1} C{out:.1} {y0:.1} {out:.1} {y1:.1} {x1:.1} {y1:.1}\" fill=\"none\" stroke=\"#888\"/>\n"
                );
                continue;
            }
            s += &format!(
                "<path d=\"M{x0:.1} {y0:.1} C{x0:.1} {mid:.1} {x1:.1} {mid:.1} {x1:.1} {y1:.1}\" fill=\"none\" stroke=\"#888\"/>\n"
            );
        }
    }
    for (id, n) in g.node_ids().zip(g.nodes()) {
        let Place { x, y } = places[id.index()];
        let result = n.y.first().map_or_else(String::new, |v| format!("{}{}", g.fact(*v).dtype, g.fact(*v).shape));
        let scope = n.scope.as_deref().unwrap_or("");
        s += &format!(
            "<g><title>{}: {} {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{WIDE}\" height=\"{HIGH}\" rx=\"4\" fill=\"{}\" \
             stroke=\"#666\"/>\n<text x=\"{:.1}\" y=\"{:.1}\">{} <tspan fill=\"#555\">{}</tspan></text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\" fill=\"#555\">{}</text></g>\n",
            escape(scope),
            escape(n.op.label()),
            escape(&result),
            color(n.op.label()),
            x + 6.0,
            y + 14.0,
            escape(n.op.label()),
            escape(&shortened(&result, FITS.saturating_sub(n.op.label().len()))),
            x + 6.0,
            y + 27.0,
            escape(&shortened(scope, FITS + 10)),
        );
    }
    s + "</svg>\n"
}

/// The end of a text that is too long: names differ there.
fn shortened(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return text.to_owned();
    }
    std::iter::once('…').chain(text.chars().skip(n + 1 - most.max(1))).collect()
}

fn places(g: &Graph) -> Vec<Place> {
    let mut row_of = vec![0usize; g.nodes().len()];
    let parents = |id: NodeId| g.node(id).x.iter().filter_map(|v| g.producer(*v));
    for id in g.node_ids() {
        row_of[id.index()] = parents(id).map(|p| row_of[p.index()] + 1).max().unwrap_or(0);
    }
    let mut rows: Vec<Vec<NodeId>> = vec![Vec::new(); row_of.iter().max().map_or(0, |m| m + 1)];
    g.node_ids().for_each(|id| rows[row_of[id.index()]].push(id));
    let widest = rows.iter().map(Vec::len).max().unwrap_or(0) as f64 * (WIDE + GAP_X);
    let mut x: Vec<f64> = vec![0.0; g.nodes().len()];
    for row in &mut rows {
        // the mean of the places of its inputs
        let wanted = |id: &NodeId| {
            let (sum, n) = parents(*id).fold((0.0, 0.0), |(s, n), p| (s + x[p.index()], n + 1.0));
            if n > 0.0 { sum / n } else { widest / 2.0 }
        };
        let mut order: Vec<(f64, NodeId)> = row.iter().map(|id| (wanted(id), *id)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mean = order.iter().map(|o| o.0).sum::<f64>() / order.len().max(1) as f64;
        let left = (mean - (order.len() as f64 - 1.0) * (WIDE + GAP_X) / 2.0)
            .clamp(0.0, (widest - order.len() as f64 * (WIDE + GAP_X)).max(0.0));
        for (i, (_, id)) in order.iter().enumerate() {
            x[id.index()] = left + i as f64 * (WIDE + GAP_X);
        }
    }
    let y = |row: usize| MARGIN + row as f64 * (HIGH + GAP_Y);
    g.node_ids().map(|id| Place { x: MARGIN + x[id.index()], y: y(row_of[id.index()]) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("/layer1/conv", 20), "/layer1/conv");
        assert_eq!(shortened("/layer1/conv", 6), "…/conv");
        assert_eq!(shortened("abc", 0), "…");
    }
}
