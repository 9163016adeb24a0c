//! Constants that several graphs share: forms of one model for other shapes have the same packed weights.

use std::hash::Hasher;
use std::sync::{Mutex, PoisonError};

use remat_graph::ir::{Graph, Origin};
use remat_types::{HostTensor, Result};
use rustc_hash::{FxHashMap, FxHasher};

/// Smaller constants are not worth the lookup.
const LEAST_BYTES: usize = 4096;

/// The large constants of compiled graphs. A graph with equal bytes shares their memory. This value keeps all of them
/// alive.
#[derive(Debug, Default)]
pub struct SharedConstants(Mutex<FxHashMap<u64, Vec<HostTensor>>>);

impl SharedConstants {
    fn known(&self) -> std::sync::MutexGuard<'_, FxHashMap<u64, Vec<HostTensor>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces constants of a graph by known ones of the same type, shape and bytes.
    pub(super) fn share(&self, graph: &mut Graph) -> Result<()> {
        let known = self.known();
        graph.move_constants(|c| {
            let of_hash = if is_large(c) { known.get(&hash(c)) } else { None };
            let is_same = |k: &&HostTensor| (k.dtype(), k.shape()) == (c.dtype(), c.shape()) && k.bytes() == c.bytes();
            Ok(of_hash.and_then(|all| all.iter().find(is_same)).cloned())
        })
    }

    /// Notes the constants of a graph once they lie at their final place.
    pub(super) fn note(&self, graph: &Graph) {
        let mut known = self.known();
        for v in graph.value_ids() {
            let Origin::Constant(c) = &graph.value(v).origin else { continue };
            if is_large(c) {
                let all = known.entry(hash(c)).or_default();
                if !all.iter().any(|k| std::ptr::eq(k.bytes(), c.bytes())) {
                    all.push((**c).clone());
                }
            }
        }
    }
}

fn is_large(c: &HostTensor) -> bool {
    c.bytes().len() >= LEAST_BYTES
}

fn hash(c: &HostTensor) -> u64 {
    let mut h = FxHasher::default();
    h.write(c.bytes());
    h.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use remat_graph::ir::Builder;
    use remat_ops::pointwise::{Binary, BinaryFn};
    use remat_types::{DType, Fact};

    use super::*;
    use crate::Session;
    use crate::compile::{CompileCx, CompileOptions, CompiledGraph};

    /// `x + w`, of a row of each of `rows`.
    fn sum(rows: usize, w: &[f32]) -> Graph {
        let b = Builder::new();
        let x = b.input(Fact::new(DType::F32, [rows, w.len()]), Some("x"));
        let w = b.constant(&HostTensor::from_slice(w, [w.len()]).expect("fits"));
        let y = b.node(Binary { f: BinaryFn::Add }.into(), &[x, w], None).expect("fits")[0];
        b.output(y, "y");
        b.finish().expect("a graph")
    }

    fn weights(g: &CompiledGraph) -> *const u8 {
        let g = g.executable().graph();
        let mut constants = g.value_ids().filter_map(|v| match &g.value(v).origin {
            Origin::Constant(c) if is_large(c) => Some(c.bytes().as_ptr()),
            _ => None,
        });
        constants.next_back().expect("there is one")
    }

    #[test]
    fn forms_of_other_shapes_share_weights_and_other_weights_do_not() {
        let options = CompileOptions::default();
        let shared = Some(Arc::new(SharedConstants::default()));
        let cx = CompileCx { shared, ..CompileCx::alone(1, &options) };
        // enough for a mapping of their own
        let w: Vec<f32> = (0..2 << 20).map(|i| i as f32).collect();
        let mut other = w.clone();
        other[7] = -0.0;
        let compiled = |rows, w: &[f32]| CompiledGraph::new(sum(rows, w), &cx, &options).expect("compiles");
        let (a, b, c) = (compiled(1, &w), compiled(2, &w), compiled(2, &other));
        assert_eq!(weights(&a), weights(&b));
        assert_ne!(weights(&b), weights(&c));
        for (g, w) in [(&b, &w), (&c, &other)] {
            let mut s = Session::new(g.executable().clone()).expect("memory");
            s.input_as_mut::<f32>(0).expect("there").fill(1.0);
            s.run().expect("runs");
            let y = s.output(0).expect("there").as_slice::<f32>().expect("f32").to_vec();
            assert!(y.iter().zip(w.iter().cycle()).all(|(y, w)| *y == w + 1.0));
        }
    }
}
