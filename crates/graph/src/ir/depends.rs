//! What decides a shape.

use remat_types::SmallVec;

use super::{Graph, Origin, ValueId};

/// The inputs of a graph that decide the shape of a value; indices into [`Graph::inputs`], ascending.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ShapeDepends {
    /// Inputs whose shape may decide it.
    pub shapes: Vec<usize>,
    /// Inputs whose elements may decide it.
    pub values: Vec<usize>,
}

impl Graph {
    /// The inputs whose shapes, and those whose elements, may decide the shape of `v`, as far as the ops say: by
    /// [`host_inputs`](remat_ops::Op::host_inputs) an op's result has a shape that follows from the input's elements, by
    /// any other input one that may follow from its shape. An op may still give the same shape whatever comes in.
    pub fn shape_depends(&self, v: ValueId) -> ShapeDepends {
        const SHAPE: u8 = 1;
        const ELEMENTS: u8 = 2;
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
                    for (i, x) in n.x.iter().enumerate() {
                        list.push((*x, SHAPE));
                        if what == ELEMENTS || n.op.host_inputs().contains(&i) {
                            list.push((*x, ELEMENTS));
                        }
                    }
                }
                Origin::State(_) | Origin::Constant(_) => {}
            }
        }
        found.shapes.sort_unstable();
        found.values.sort_unstable();
        found
    }
}
