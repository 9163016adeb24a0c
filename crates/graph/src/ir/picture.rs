//! A picture of a graph: nodes in layers from top to bottom, edges with shapes, bytes by colour.

use std::fmt::Write;

use remat_types::Fact;

use super::{Graph, NodeId, ValueId};

const BOX_WIDTH: usize = 190;
const BOX_HEIGHT: usize = 44;
const GAP_X: usize = 24;
const GAP_Y: usize = 40;
const MARGIN: usize = 20;

/// What a box stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Item {
    /// An input, state or constant.
    Value(ValueId),
    Node(NodeId),
}

struct Placed {
    item: Item,
    layer: usize,
    column: usize,
}

impl Graph {
    /// The graph as an SVG picture: a box for each input, state, constant and node with its type and bytes, inputs
    /// above what reads them; states green, inputs blue, constants grey, results outlined. Boxes of a layer stand in
    /// the order of definition.
    pub fn to_svg(&self) -> String {
        let placed = self.place();
        let columns = placed.iter().map(|p| p.column + 1).max().unwrap_or(1);
        let layers = placed.iter().map(|p| p.layer + 1).max().unwrap_or(1);
        let width = 2 * MARGIN + columns * (BOX_WIDTH + GAP_X);
        let height = 2 * MARGIN + layers * (BOX_HEIGHT + GAP_Y);
        let mut s = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" font-family=\"monospace\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" \
             fill=\"white\"/>\n"
        );
        let mut at = rustc_hash::FxHashMap::default();
        for p in &placed {
            at.insert(p.item, (MARGIN + p.column * (BOX_WIDTH + GAP_X), MARGIN + p.layer * (BOX_HEIGHT + GAP_Y)));
        }
        for (i, n) in self.nodes().iter().enumerate() {
            let Some(&to) = at.get(&Item::Node(NodeId(i as u32))) else { continue };
            for v in &n.x {
                let from = self.producer(*v).map_or(Item::Value(*v), Item::Node);
                if let Some(&from) = at.get(&from) {
                    edge(&mut s, from, to, &fact_text(self.fact(*v)));
                }
            }
        }
        for p in &placed {
            self.draw(&mut s, p.item, at[&p.item]);
        }
        s.push_str("</svg>\n");
        s
    }

    /// Layers by the longest path from the inputs; a value without a producer stands just above its first reader.
    fn place(&self) -> Vec<Placed> {
        let mut layer_of = vec![0usize; self.nodes().len()];
        for (i, n) in self.nodes().iter().enumerate() {
            let above = n.x.iter().filter_map(|v| self.producer(*v)).chain(n.after.iter().copied());
            layer_of[i] = above.map(|p| layer_of[p.index()] + 1).max().unwrap_or(1);
        }
        let mut used: Vec<usize> = Vec::new();
        let mut put = |item: Item, layer: usize| {
            if used.len() <= layer {
                used.resize(layer + 1, 0);
            }
            used[layer] += 1;
            Placed { item, layer, column: used[layer] - 1 }
        };
        let mut out = Vec::new();
        for v in self.value_ids().filter(|v| self.producer(*v).is_none()) {
            let first = self.readers(v).iter().map(|n| layer_of[n.index()]).min().unwrap_or(1);
            out.push(put(Item::Value(v), first - 1));
        }
        out.extend(self.node_ids().map(|n| put(Item::Node(n), layer_of[n.index()])));
        out
    }

    fn draw(&self, s: &mut String, item: Item, (x, y): (usize, usize)) {
        use super::Origin;
        let (fill, first, second, result) = match item {
            Item::Node(id) => {
                let n = self.node(id);
                let facts: Vec<String> = n.y.iter().map(|v| fact_text(self.fact(*v))).collect();
                let bytes: usize = n.y.iter().map(|v| self.fact(*v).bytes()).sum();
                let result = n.y.iter().any(|v| self.is_result(*v));
                let name = n.y.first().map(|v| self.label(*v)).unwrap_or_default();
                let title = format!("{} {name}", n.op.label());
                ("#fff3d6", title, format!("{} {}", facts.join(", "), bytes_text(bytes)), result)
            }
            Item::Value(v) => {
                let fill = match self.value(v).origin {
                    Origin::Input(_) => "#d6e8ff",
                    Origin::State(_) => "#d9f2d9",
                    _ => "#e8e8e8",
                };
                let f = self.fact(v);
                (fill, self.label(v), format!("{} {}", fact_text(f), bytes_text(f.bytes())), self.is_result(v))
            }
        };
        let stroke = if result { "#c00\" stroke-width=\"2" } else { "#555" };
        put(
            s,
            format_args!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"5\" fill=\"{fill}\" \
                 stroke=\"{stroke}\"/>\n<text x=\"{}\" y=\"{}\">{}</text>\n<text x=\"{}\" y=\"{}\">{}</text>\n",
                x + 6,
                y + 17,
                escaped(&shortened(&first)),
                x + 6,
                y + 35,
                escaped(&shortened(&second)),
            ),
        );
    }
}

fn edge(s: &mut String, from: (usize, usize), to: (usize, usize), title: &str) {
    let (x1, y1) = (from.0 + BOX_WIDTH / 2, from.1 + BOX_HEIGHT);
    let (x2, y2) = (to.0 + BOX_WIDTH / 2, to.1);
    let bend = GAP_Y / 2;
    put(
        s,
        format_args!(
            "<path d=\"M{x1} {y1} C{x1} {} {x2} {} {x2} {y2}\" fill=\"none\" stroke=\"#888\"><title>{}</title></path>\n",
            y1 + bend,
            y2 - bend.min(y2),
            escaped(title),
        ),
    );
}

fn put(s: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = s.write_fmt(args);
}

fn fact_text(f: &Fact) -> String {
    format!("{}{}", f.dtype, f.shape)
}

fn bytes_text(bytes: usize) -> String {
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    match bytes {
        b if b < KIB => format!("{b} B"),
        b if b < MIB => format!("{:.1} KiB", b as f64 / KIB as f64),
        b => format!("{:.1} MiB", b as f64 / MIB as f64),
    }
}

/// What fits into a box.
fn shortened(text: &str) -> String {
    const FITS: usize = 28;
    if text.chars().count() <= FITS {
        return text.to_owned();
    }
    text.chars().take(FITS - 1).chain(std::iter::once('…')).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
