//! States as constants.

use remat_graph::ir::{Graph, Patch};
use remat_types::{HostTensor, Result};

/// Makes constants of the states for which `value` gives data, so that passes can compute with them: for inference.
/// Also gives the indices of the states that are left. `value` is called with a state's index in [`Graph::states`].
///
/// Errors: those of `value`; Format for a state that has a next version, and for a value of another type.
pub fn freeze(g: &Graph, mut value: impl FnMut(usize) -> Result<Option<HostTensor>>) -> Result<(Graph, Vec<usize>)> {
    let mut patch = Patch::new();
    let mut left = Vec::new();
    for i in 0..g.states().len() {
        match value(i)? {
            Some(data) => patch.freeze(g, i, data),
            None => left.push(i),
        }
    }
    Ok((g.patched(&patch)?, left))
}
