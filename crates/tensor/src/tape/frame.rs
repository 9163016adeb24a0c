//! The tensors from outside that the body of a loop or a conditional uses while it is traced.

use remat_types::context::Part;

use crate::Tensor;

/// For each body that a thread traces, the tensors with a history that it was seen to use.
static USED: Part<Vec<Vec<Tensor>>> = Part::new();

/// Notes what a body uses: its handles alone would not lead gradients anywhere.
pub(super) fn note(x: &[Tensor]) {
    USED.with(|frames| {
        let Some(used) = frames.last_mut() else { return };
        for t in x.iter().filter(|t| t.edge.is_some()) {
            if used.iter().all(|u| u.handle.id() != t.handle.id()) {
                used.push(t.clone());
            }
        }
    });
}

/// The body that this thread traces now, until it is dropped.
pub(crate) struct Frame(());

impl Frame {
    pub(crate) fn begin() -> Frame {
        USED.with(|f| f.push(Vec::new()));
        Frame(())
    }

    /// The tensors with a history that the body used.
    pub(crate) fn used(&self) -> Vec<Tensor> {
        USED.with(|frames| frames.last().cloned().unwrap_or_default())
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let used = USED.with(Vec::pop);
        drop(used);
    }
}
