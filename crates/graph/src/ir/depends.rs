//! The inputs that decide a shape.

use remat_ops::OpRef;
use remat_types::SmallVec;

use super::{Graph, GraphPrefix, Origin, ValueId};

/// The inputs of a graph that decide the shape of a value; indices into [`Graph::inputs`], ascending.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShapeDepends {
    /// Inputs whose shape may decide it.
    pub shapes: Vec<usize>,
    /// Inputs whose elements may decide it.
    pub values: Vec<usize>,
}

const SHAPE: u8 = 1;
const ELEMENTS: u8 = 2;

impl Graph {
    /// The inputs whose shapes, and those whose elements, may decide the shape of `v`, as far as the ops say: by
    /// [`host_inputs`](remat_ops::Op::host_inputs) and [`shape_inputs`](remat_ops::Op::shape_inputs) an op's result has a shape that
    /// follows from the input's elements, by any other input one that may follow from its shape. An op may still give the same shape whatever comes in.
    pub fn shape_depends(&self, v: ValueId) -> ShapeDepends {
        self.shape_depends_with(v, &[])
    }

    /// [`Graph::shape_depends`] of a graph whose maker read sizes: integers of the graph, and how far it had grown then. What
    /// was made later with a number among its parameters may follow from them.
    pub fn shape_depends_with(&self, v: ValueId, sizes: &[(ValueId, GraphPrefix)]) -> ShapeDepends {
        let mut asked = vec![0u8; self.values().len()];
        let mut found = ShapeDepends::default();
        let mut list: SmallVec<[(ValueId, u8); 16]> = SmallVec::new();
        list.push((v, SHAPE));
        while let Some((v, what)) = list.pop() {
            let Some(seen) = asked.get_mut(v.index()).filter(|seen| **seen & what != what) else { continue };
            *seen |= what;
            match &self.value(v).origin {
                Origin::Input(i) if what == SHAPE => found.shapes.push(*i),
                Origin::Input(i) => found.values.push(*i),
                Origin::Node { node, .. } => {
                    let n = self.node(*node);
                    if has_number(&n.op) {
                        list.extend(read(sizes, |e| e.nodes <= node.index()));
                    }
                    let decides: SmallVec<[&usize; 2]> = n.op.host_inputs().iter().chain(n.op.shape_inputs()).collect();
                    for (i, x) in n.x.iter().enumerate() {
                        list.push((*x, SHAPE));
                        if what == ELEMENTS || decides.contains(&&i) {
                            list.push((*x, ELEMENTS));
                        }
                    }
                }
                Origin::Constant(_) => list.extend(read(sizes, |e| e.values <= v.index())),
                Origin::State(_) => {}
            }
        }
        found.shapes.sort_unstable();
        found.values.sort_unstable();
        found
    }
}

/// The sizes that were read before.
fn read(sizes: &[(ValueId, GraphPrefix)], before: impl Fn(&GraphPrefix) -> bool) -> SmallVec<[(ValueId, u8); 4]> {
    sizes.iter().filter(|s| before(&s.1)).map(|s| (s.0, ELEMENTS)).collect()
}

/// True if a number is among the parameters of an op: without one its shapes follow from its inputs.
fn has_number(op: &OpRef) -> bool {
    fn within(v: &serde_json::Value) -> bool {
        match v {
            serde_json::Value::Number(_) => true,
            serde_json::Value::Array(all) => all.iter().any(within),
            serde_json::Value::Object(fields) => fields.values().any(within),
            // a graph within an op is text
            serde_json::Value::String(text) => text.bytes().any(|b| b.is_ascii_digit()),
            _ => false,
        }
    }
    op.to_json().map_or(true, |form| form.get("params").is_some_and(within))
}
