//! The cells and gradients that a running trace has touched. They are restored when the trace ends.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use remat_runtime::compile::AfterRun;
use remat_runtime::{Handle, Kind, TensorId, tracing};
use remat_types::context::Part;
use remat_types::{Error, ErrorKind};
use rustc_hash::FxHashMap;

use super::{Hook, Leaf, RowGrad, lock};
use crate::Tensor;

/// A tensor that outlives a run and is replaced by updates: what a parameter is to a compiled function.
pub trait StateCell: Send + Sync {
    /// The present version.
    fn slot(&self) -> &Mutex<Option<Tensor>>;
    /// How its bytes count in reports.
    fn kind(&self) -> Kind;
}

/// A cell that the running trace has seen, and the version it had.
struct CapturedState {
    cell: Arc<dyn StateCell>,
    before: Tensor,
    /// The handle that stands for that version in the trace.
    own: Handle,
    /// The cell has what the trace put there, until that ends.
    is_written: bool,
}

/// A gradient from outside that the running trace has touched.
struct CapturedGradient {
    leaf: Arc<Leaf>,
    before: Option<Tensor>,
    /// The gradient as rows; the trace has failed if there are any.
    rows: Vec<RowGrad>,
    was_reduced: bool,
    own: Option<Handle>,
}

static CAPTURED: Part<Cells> = Part::new();
static GRADIENTS: Part<Vec<CapturedGradient>> = Part::new();

/// The cells that a trace has seen, in order and by address.
#[derive(Default)]
struct Cells {
    seen: Vec<CapturedState>,
    at: FxHashMap<usize, usize>,
}

fn address(cell: &Arc<dyn StateCell>) -> usize {
    Arc::as_ptr(cell).cast::<u8>() as usize
}

/// The tensor that stands for the version `now` of a cell in the trace of this thread; `now` itself if the trace has put it
/// there.
fn own_version(cell: &Arc<dyn StateCell>, now: &Tensor, is_written: bool) -> Tensor {
    CAPTURED.with(|cells| {
        let at = *cells.at.entry(address(cell)).or_insert_with(|| {
            let own = tracing::state(&now.handle).unwrap_or_else(|| now.handle.clone());
            cells.seen.push(CapturedState { cell: cell.clone(), before: now.clone(), own, is_written: false });
            cells.seen.len() - 1
        });
        let s = &mut cells.seen[at];
        if s.is_written {
            return now.clone();
        }
        s.is_written = is_written;
        Tensor { handle: s.own.clone(), edge: s.before.edge.clone() }
    })
}

/// A reader of a cell calls this while the thread traces; `now` is the cell's version. Returns the tensor that the reader
/// gets instead. The version becomes a state of the graph. The cell itself stays as it is, for other threads.
pub fn captured_version(cell: &Arc<dyn StateCell>, now: &Tensor) -> Tensor {
    if now.handle.is_traced() { now.clone() } else { own_version(cell, now, false) }
}

/// A writer of a cell calls this, with the cell locked. While this thread traces, the cell holds the traced tensor in place
/// of its version until the trace ends.
pub fn capture_state(cell: &Arc<dyn StateCell>, slot: &mut Option<Tensor>) {
    let Some(now) = slot.as_ref().filter(|t| !t.handle.is_traced()) else { return };
    *slot = Some(own_version(cell, now, true));
}

/// Called before a leaf's gradient is read or replaced. While this thread traces a function, the compiled form depends on whether
/// there is a gradient, and whether it is reduced over all ranks. An existing gradient is a state of the graph.
pub(crate) fn capture_gradient(leaf: &Arc<Leaf>) {
    if !tracing::is_tracing() || leaf.is_of_trace {
        return;
    }
    let is_seen = GRADIENTS.with(|seen| seen.iter().any(|s| Arc::ptr_eq(&s.leaf, leaf)));
    if is_seen {
        return;
    }
    let rows = std::mem::take(&mut *lock(&leaf.rows));
    if !rows.is_empty() {
        let text = "the gradient of a table looked up in was kept as rows before the compiled function, which takes none in: make it a \
                    tensor first (read the table's gradient), or take the optimiser's step";
        tracing::fail(Error::new(ErrorKind::Value, text));
    }
    let mut slot = lock(&leaf.grad);
    let before = slot.clone();
    let own = before.as_ref().and_then(|g| tracing::state(&g.handle));
    if let Some(own) = &own {
        *slot = Some(Tensor::from_handle(own.clone()));
    }
    drop(slot);
    let (of, is_there) = (leaf.clone(), before.is_some());
    let was_reduced = is_there && leaf.is_grad_reduced.load(Ordering::Relaxed);
    tracing::guard(move || {
        let is_now = lock(&of.grad).is_some();
        lock(&of.rows).is_empty()
            && is_now == is_there
            && (is_now && of.is_grad_reduced.load(Ordering::Relaxed)) == was_reduced
    });
    GRADIENTS.with(|seen| seen.push(CapturedGradient { leaf: leaf.clone(), before, rows, was_reduced, own }));
}

/// While tracing: the compiled form depends on the hooks of a leaf from outside.
pub(crate) fn guard_hooks(leaf: &Arc<Leaf>, hooks: &[Hook]) {
    if !tracing::is_tracing() || leaf.is_of_trace {
        return;
    }
    // by address, which no other hook gets as long as these live
    let seen: Vec<_> = hooks.iter().map(|h| Arc::downgrade(&h.f)).collect();
    let of = leaf.clone();
    tracing::guard(move || {
        let now = lock(&of.hooks);
        now.len() == seen.len() && now.iter().zip(&seen).all(|(a, b)| std::ptr::addr_eq(Arc::as_ptr(&a.f), b.as_ptr()))
    });
}

/// A gradient is the state of its leaf.
impl StateCell for Leaf {
    fn slot(&self) -> &Mutex<Option<Tensor>> {
        &self.grad
    }

    fn kind(&self) -> Kind {
        Kind::Gradient
    }
}

/// The cells and gradients that a trace found, after they were restored.
#[derive(Default)]
pub(crate) struct Restored {
    /// The cells of the states, by the handles that stood for them.
    pub(crate) cells: Vec<(TensorId, Arc<dyn StateCell>)>,
    /// The states that were replaced, and by what.
    pub(crate) updates: Vec<(Handle, Handle)>,
    /// A gradient is there at the end that was not there at the beginning, or another one.
    pub(crate) gradient_left: bool,
    /// Drops what gradients the function took.
    pub(crate) after: Vec<AfterRun>,
}

/// Puts the cells back as they were, also when the traced function fails or panics.
pub(crate) struct Restores;

impl Restores {
    /// Puts back every cell and every gradient.
    pub(crate) fn restore(&self) -> Restored {
        let mut found = Restored::default();
        for s in CAPTURED.take().seen {
            if s.is_written {
                let mut slot = lock(s.cell.slot());
                if let Some(now) = slot.as_ref().filter(|t| t.handle.id() != s.own.id()) {
                    found.updates.push((s.own.clone(), now.handle.clone()));
                }
                *slot = Some(s.before);
            }
            found.cells.push((s.own.id(), s.cell));
        }
        for s in GRADIENTS.take() {
            // of a trace that failed for rows from before nothing more is told
            let had_none = s.rows.is_empty();
            found.gradient_left |= !std::mem::replace(&mut *lock(&s.leaf.rows), s.rows).is_empty() && had_none;
            let own = s.own.map(|h| h.id());
            let before = own.or(s.before.as_ref().map(|g| g.handle.id()));
            s.leaf.is_grad_reduced.store(s.was_reduced, Ordering::Relaxed);
            let now = std::mem::replace(&mut *lock(&s.leaf.grad), s.before).map(|g| g.handle.id());
            if now.is_none() && own.is_some() {
                let leaf = s.leaf.clone();
                found.after.push(Box::new(move || {
                    leaf.is_grad_reduced.store(false, Ordering::Relaxed);
                    drop(lock(&leaf.grad).take());
                }));
            } else if now != before {
                found.gradient_left = true;
            }
            found.cells.extend(own.map(|id| (id, s.leaf as Arc<dyn StateCell>)));
        }
        found
    }
}

impl Drop for Restores {
    fn drop(&mut self) {
        self.restore();
    }
}
