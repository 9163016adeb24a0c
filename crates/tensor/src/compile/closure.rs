//! A closure over tensors as the source of a compiled function: its trace, and the run of a form on its cells.

use std::sync::{Arc, MutexGuard};

use remat_runtime::compile::{Form, Function, FunctionTrace, SegmentRun, State, VersionedCell};
use remat_runtime::tracing::{self, TraceResults, Traced};
use remat_runtime::{Device, Handle, Kind, TensorId};
use remat_types::{CallSite, Error, ErrorKind, Fact, Result};
use rustc_hash::FxHashMap;

use crate::Tensor;
use crate::tape::{self, Leaf, Restored, Restores, StateCell, lock};

/// A cell of a parameter or of optimiser state.
#[derive(Clone)]
pub(super) struct CellRef(pub(super) Arc<dyn StateCell>);

impl VersionedCell for CellRef {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<u8>() as usize
    }

    fn version(&self) -> Option<Handle> {
        lock(self.0.slot()).as_ref().map(|t| t.handle.clone())
    }

    fn version_id(&self) -> Option<TensorId> {
        lock(self.0.slot()).as_ref().map(|t| t.handle.id())
    }
}

/// A function of tensors, and its device.
pub(super) struct Closure<F> {
    pub(super) device: Device,
    pub(super) f: F,
    /// How often `f` was called for a trace.
    pub(super) calls: usize,
    /// Traced twice; see [`CompileOptions::check_trace`](super::CompileOptions::check_trace).
    pub(super) is_checked: bool,
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Function for Closure<F> {
    type Cell = CellRef;

    fn trace(&mut self, facts: &[Fact], sizes: &[usize]) -> Result<FunctionTrace<CellRef>> {
        let first = self.trace_once(facts, sizes)?;
        if !self.is_checked {
            return Ok(first);
        }
        let again = self.trace_once(facts, sizes)?;
        first.check_same(&again)?;
        Ok(again)
    }

    fn run(&self, form: &Form<CellRef>, x: &[&Handle], run: &mut SegmentRun, site: CallSite) -> Result<Vec<Handle>> {
        self.run_form(form, x, run, site)
    }
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Closure<F> {
    fn trace_once(&mut self, facts: &[Fact], sizes: &[usize]) -> Result<FunctionTrace<CellRef>> {
        let restores = Restores;
        let mut found = Restored::default();
        let mut updated: Vec<TensorId> = Vec::new();
        let mut needs_gradient = Vec::new();
        self.calls += 1;
        let f = &mut self.f;
        let traced = tracing::trace(&self.device, facts, sizes, |x| {
            let x: Vec<Tensor> = x.iter().map(|h| Tensor::from_handle(h.clone())).collect();
            // whether gradients are recorded decides what the results lead to
            let is_recording = tape::is_recording();
            tracing::guard(move || tape::is_recording() == is_recording);
            let outputs = f(&x);
            found = restores.restore();
            let updates = std::mem::take(&mut found.updates);
            // of a trace that ends at a size the cells are wanted too, but nothing is updated
            let outputs = outputs?;
            if tracing::has_ended() {
                return Ok(TraceResults { outputs: Vec::new(), updates: Vec::new() });
            }
            needs_gradient = outputs.iter().map(|t| t.edge.as_ref().is_some_and(|e| !e.node.is_freed())).collect();
            let outputs: Vec<Handle> = outputs.into_iter().map(|t| t.handle).collect();
            if found.gradient_left {
                let text = "a parameter has a gradient at the end of the compiled function, which no run would add to; \
                            end it with the optimiser's step, or return the gradient (`grad`, `take_grad`)";
                return Err(Error::new(ErrorKind::Value, text));
            }
            updated = updates.iter().map(|(old, _)| old.id()).collect();
            Ok(TraceResults { outputs, updates })
        })?;
        drop(restores);
        let Traced { graph, captured, states, host_inputs, guards, marks_step, cuts } = traced;
        let cells: FxHashMap<TensorId, Arc<dyn StateCell>> = found.cells.into_iter().collect();
        let state = |(h, own): (Handle, Option<TensorId>)| match own.and_then(|own| Some((own, cells.get(&own)?))) {
            Some((own, cell)) if updated.contains(&own) => State::Updated(CellRef(cell.clone())),
            Some((_, cell)) => State::Read(CellRef(cell.clone())),
            None => State::Fixed(h),
        };
        let states = captured.into_iter().zip(states).map(state).collect();
        let (guards, after) = (Arc::new(guards), Arc::new(found.after));
        let number = self.calls;
        Ok(FunctionTrace { graph, states, host_inputs, guards, marks_step, needs_gradient, cuts, after, number })
    }
}

impl<F> Closure<F> {
    /// Runs a form: every cell that it updates is locked until it has its next version.
    pub(super) fn run_form(
        &self,
        form: &Form<CellRef>,
        x: &[&Handle],
        run: &mut SegmentRun,
        site: CallSite,
    ) -> Result<Vec<Handle>> {
        let channel = self.device.channel();
        form.check(&channel)?;
        let mut handles = form.inputs(&channel, x, run)?;
        let mut slots: Vec<Option<MutexGuard<'_, Option<Tensor>>>> = form.states().iter().map(|_| None).collect();
        for &i in form.order() {
            if let State::Updated(cell) = &form.states()[i] {
                slots[i] = Some(lock(cell.0.slot()));
            }
        }
        let lost = || Error::new(ErrorKind::Closed, "the device was closed while a parameter was being updated");
        for (s, slot) in form.states().iter().zip(&slots) {
            handles.push(match s {
                State::Fixed(_) | State::Read(_) => s.version()?,
                State::Updated(_) => slot.as_ref().and_then(|s| s.as_ref()).ok_or_else(lost)?.handle.clone(),
            });
        }
        form.admit(&handles, run)?;
        let mut slots: Vec<MutexGuard<'_, Option<Tensor>>> = slots.into_iter().flatten().collect();
        let leaves: Vec<Option<Arc<Leaf>>> =
            slots.iter_mut().map(|s| s.take().and_then(|t| t.leaf().cloned())).collect();
        let launched = form.launch(&channel, handles, site)?;
        let next = slots.iter_mut().zip(leaves).zip(launched.versions).zip(kinds(form));
        for (((slot, leaf), h), kind) in next {
            channel.commit(&h, kind)?;
            **slot = Some(Tensor::of_version(h, leaf)?);
        }
        drop(slots);
        form.end(&channel, launched.failed)?;
        Ok(launched.outputs)
    }
}

/// The results with the mark that no gradient passes here, where one would be wanted.
pub(super) fn with_edges(form: &Form<CellRef>, x: &[&Tensor], y: Vec<Handle>, site: CallSite) -> Vec<Tensor> {
    let is_from_inputs = x.iter().any(|t| t.edge.is_some());
    let is_wanted = |j: usize, t: &Tensor| {
        let leads = is_from_inputs || form.needs_gradient().get(j) == Some(&true);
        tape::is_recording() && leads && t.dtype().is_float()
    };
    let mark = |(j, h): (usize, Handle)| {
        let mut t = Tensor::from_handle(h);
        if is_wanted(j, &t) {
            t.edge = Some(tape::compiled(&t, x, site));
        }
        t
    };
    y.into_iter().enumerate().map(mark).collect()
}

/// The kinds of the updated states, in order.
fn kinds(form: &Form<CellRef>) -> impl Iterator<Item = Kind> + '_ {
    form.states().iter().filter_map(|s| if let State::Updated(c) = s { Some(c.0.kind()) } else { None })
}
