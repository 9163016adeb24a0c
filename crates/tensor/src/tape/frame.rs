//! The tensors from outside that the body of a loop or a conditional uses while it is traced.

use std::cell::RefCell;

use crate::Tensor;

thread_local! {
    /// For each body that this thread traces, what with a history it was seen to use.
    static USED: RefCell<Vec<Vec<Tensor>>> = const { RefCell::new(Vec::new()) };
}

/// Notes what a body uses: its handles alone would not lead gradients anywhere.
pub(super) fn note(x: &[Tensor]) {
    USED.with_borrow_mut(|frames| {
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
        USED.with_borrow_mut(|f| f.push(Vec::new()));
        Frame(())
    }

    /// The tensors with a history that the body used.
    pub(crate) fn used(&self) -> Vec<Tensor> {
        USED.with_borrow(|frames| frames.last().cloned().unwrap_or_default())
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let used = USED.with_borrow_mut(Vec::pop);
        drop(used);
    }
}
