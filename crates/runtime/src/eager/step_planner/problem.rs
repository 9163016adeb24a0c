//! A step as the planner's problem.
//!
//! Storages that the step makes are *planned*, except for small ones and for parameters that are updated in place. All
//! others have no bytes in the problem. They lie in a part of the arena of their own, of [`StepProblem::fixed_bytes`],
//! and stay. Versions of storages that existed before the step count: a parameter that was overwritten cannot be read
//! again.
//!
//! A storage that has no recipe, or loses it in the step (a committed gradient), is made once and stays as long as in
//! the recorded step: no plan can free it. An op may work in place on a tensor that nothing else reads. It forms one
//! operator with the op before it, if it reads no other planned storage. Where another op could work in place, the
//! planner decides (`may_take`).
//!
//! Commands that can fail need no rule of their own: first runs keep their order, so no update moves before such a
//! command.

use remat_graph::plan::problem::{Bytes, OpSpec, OutputSpec, Problem, Spec, SpillRates};
use remat_types::{Result, SmallVec};
use rustc_hash::FxHashMap;

use super::step_trace::{CommandKind, Event, Local, Outcome, StepTrace};
use remat_device::Alignment;
use remat_device::spill::alignment;

/// Storages of at most this part of the budget, or of at most so many bytes, are not worth a decision.
const SMALL_SHARE: usize = 16_384;
const SMALL_BYTES: usize = 256;

/// The planner's operator for one command or several.
pub(super) struct Part {
    /// The commands in order. Each after the first works in place on the result of the one before.
    pub(super) events: SmallVec<[usize; 2]>,
}

/// See the module's note.
pub(super) struct StepProblem {
    pub(super) problem: Problem,
    /// The commands of each operator of the problem.
    pub(super) parts: Vec<Part>,
    /// For each planned storage, the storage whose bytes it has: itself, or the one that it took over.
    pub(super) root: Vec<Option<Local>>,
    /// Bytes outside the planned part.
    pub(super) fixed_bytes: usize,
    /// Time of the commands that are in no operator.
    pub(super) other_ns: u64,
}

/// The name of a planned storage.
pub(super) fn name(local: Local) -> String {
    format!("s{local}")
}

/// The problem of a trace under a budget, with these rates of spilling. Errors: those of [`Problem::new`], which a
/// trace cannot cause.
pub(super) fn to_problem(trace: &StepTrace, budget: usize, spill: SpillRates) -> Result<StepProblem> {
    let mut b = Builder::new(trace, (budget / SMALL_SHARE).max(SMALL_BYTES));
    for i in 0..trace.events.len() {
        b.event(i);
    }
    b.finish(spill, trace.alignment)
}

struct Builder<'t> {
    trace: &'t StepTrace,
    small: usize,
    planned: Vec<bool>,
    /// For each storage, the number of commands' inputs that it is.
    reads: Vec<u32>,
    /// For each event, the storages that were removed before it.
    gone: FxHashMap<u32, Vec<Local>>,
    root: Vec<Option<Local>>,
    /// The present version of storages from before the step that the step overwrites.
    version: FxHashMap<Local, String>,
    /// Whether the storage has no recipe, or loses it.
    is_leaf: Vec<bool>,
    /// Whether an operator reads it.
    is_read: Vec<bool>,
    values: Vec<(String, u64)>,
    ops: Vec<OpSpec>,
    parts: Vec<Part>,
    outputs: Vec<String>,
    fixed_bytes: usize,
    /// Scratch memory of commands that are in no operator.
    other_scratch: usize,
    other_ns: u64,
}

impl<'t> Builder<'t> {
    fn new(trace: &'t StepTrace, small: usize) -> Self {
        let n = trace.locals.len();
        let mut reads = vec![0; n];
        for e in &trace.events {
            e.done.x.iter().for_each(|&l| reads[l as usize] += 1);
        }
        let mut planned: Vec<bool> = trace.locals.iter().map(|l| !l.is_carried && l.bytes > small).collect();
        for d in trace.events.iter().map(|e| &e.done) {
            for (&y, hold) in d.y.iter().zip(&d.donated_from) {
                planned[y as usize] &= hold.is_none_or(|h| planned[d.x[usize::from(h)] as usize]);
            }
        }
        let mut b = Builder {
            trace,
            small,
            planned,
            reads,
            gone: FxHashMap::default(),
            root: vec![None; n],
            version: FxHashMap::default(),
            is_leaf: vec![false; n],
            is_read: vec![false; n],
            values: Vec::new(),
            ops: Vec::new(),
            parts: Vec::new(),
            outputs: Vec::new(),
            fixed_bytes: trace.fixed_bytes + trace.staging_bytes,
            other_scratch: 0,
            other_ns: 0,
        };
        for x in trace.events.iter().flat_map(|e| e.done.overwritten()) {
            if trace.locals[x as usize].is_carried && !b.version.contains_key(&x) {
                b.values.push((format!("v{x}"), 0));
                b.version.insert(x, format!("v{x}"));
            }
        }
        for (l, gone_at) in trace.locals.iter().enumerate().filter_map(|(l, s)| Some((l as Local, s.gone_at?))) {
            b.gone.entry(gone_at).or_default().push(l);
        }
        b
    }

    fn is_planned(&self, l: Local) -> bool {
        self.planned[l as usize]
    }

    /// Keeps a leaf until it is removed, as if something read it then.
    fn keep_leaves(&mut self, i: usize) {
        let gone = self.gone.remove(&(i as u32)).unwrap_or_default();
        let is_leaf = |l: &Local| self.is_leaf[*l as usize];
        let inputs: Vec<String> = gone.into_iter().filter(is_leaf).filter_map(|l| self.readable(l)).collect();
        if !inputs.is_empty() {
            let name = format!("until {i}");
            self.ops.push(OpSpec { name, time_ns: 0, inputs, outputs: vec![], workspace: 0, repeatable: false });
            self.parts.push(Part { events: SmallVec::new() });
        }
    }

    fn event(&mut self, i: usize) {
        self.keep_leaves(i);
        let e = &self.trace.events[i];
        let d = &e.done;
        // A view makes nothing. Commits show in the storages that lost their recipes.
        let is_view = d.y.iter().all(|y| d.x.contains(y)) && !d.y.is_empty();
        if is_view || e.what == CommandKind::Commit {
            return;
        }
        for (&y, hold) in d.y.iter().zip(d.donated_from.iter().chain(std::iter::repeat(&None))) {
            let takes_fixed = hold.is_some_and(|h| !self.is_planned(d.x[usize::from(h)]));
            if !self.is_planned(y) && !takes_fixed {
                self.fixed_bytes += self.trace.locals[y as usize].bytes;
            }
        }
        let is_planned = |l: &Local| self.is_planned(*l);
        let ends_a_version = d.overwritten().any(|x| self.is_read[x as usize]);
        if !d.x.iter().chain(&d.y).any(is_planned) && d.scratch_bytes <= self.small && !ends_a_version {
            self.other_scratch = self.other_scratch.max(d.scratch_bytes);
            self.other_ns += d.cost_ns;
            // No operator makes this version or the one before it, but one may read it.
            let versions = self.overwrite(i, d);
            self.values.extend(versions.into_iter().map(|(_, new)| (new, 0)));
            return;
        }
        if !self.continues(i, e) {
            self.operator(i, e);
        }
    }

    /// True if the command works in place on a result of the last operator. It is a part of that operator then.
    fn continues(&mut self, i: usize, e: &Event) -> bool {
        let d = &e.done;
        let ([y], [Some(h)]) = (&d.y[..], &d.donated_from[..]) else { return false };
        let x = d.x[*h as usize];
        let is_alone = self.is_planned(x) && self.reads[x as usize] == 1;
        let is_plain = d.has_recipe && d.scratch_bytes == 0 && !self.trace.locals[*y as usize].lost_recipe;
        if !(is_alone && is_plain && self.is_planned(*y)) {
            return false;
        }
        let Some(root) = self.root[x as usize].map(name) else { return false };
        // Its other inputs would have to be resident beside the operator's inputs, which may lie where the output does.
        let is_beside = |l: &Local| self.is_planned(*l) && self.root[*l as usize].map(name).is_some_and(|n| n != root);
        if d.x.iter().any(is_beside) {
            return false;
        }
        let inputs: Vec<String> = d.x.iter().filter_map(|&l| self.readable(l)).filter(|n| *n != root).collect();
        let Some((op, part)) = self.ops.last_mut().zip(self.parts.last_mut()) else { return false };
        let made_here = |n: &String| op.outputs.iter().any(|o| o.name == *n);
        if !op.repeatable || !made_here(&root) || inputs.iter().any(made_here) {
            return false;
        }
        let new: Vec<String> = inputs.into_iter().filter(|n| !op.inputs.contains(n)).collect();
        op.inputs.extend(new);
        d.x.iter().for_each(|&l| self.is_read[l as usize] = true);
        op.time_ns += d.cost_ns;
        part.events.push(i);
        self.root[*y as usize] = self.root[x as usize];
        if self.trace.locals[*y as usize].outlives {
            self.outputs.push(root);
        }
        true
    }

    fn operator(&mut self, i: usize, e: &Event) {
        let d = &e.done;
        d.x.iter().for_each(|&l| self.is_read[l as usize] = true);
        let mut inputs: Vec<String> = Vec::new();
        for n in d.x.iter().filter_map(|&l| self.readable(l)) {
            if !inputs.contains(&n) {
                inputs.push(n);
            }
        }
        let mut outputs = Vec::new();
        for (&y, hold) in d.y.iter().zip(d.donated_from.iter().chain(std::iter::repeat(&None))) {
            if !self.is_planned(y) {
                continue;
            }
            // A leaf is overwritten where it lies.
            let over = hold.map(|h| d.x[usize::from(h)]).filter(|x| self.is_planned(*x) && self.is_leaf[*x as usize]);
            let about = &self.trace.locals[y as usize];
            let bytes = match over.and_then(|x| Some((x, self.root[x as usize]?, self.readable(x)?))) {
                Some((x, root, old)) => {
                    self.is_leaf[x as usize] = false;
                    self.root[y as usize] = Some(root);
                    self.version.insert(y, name(y));
                    Bytes::Writes(old)
                }
                None => {
                    self.root[y as usize] = Some(y);
                    self.own(d, about.bytes)
                }
            };
            outputs.push(OutputSpec { name: name(y), bytes });
            self.is_leaf[y as usize] = !d.has_recipe || about.lost_recipe;
            if about.outlives || self.is_leaf[y as usize] && about.gone_at.is_none() {
                self.outputs.push(name(y));
            }
        }
        let mut repeatable = d.has_recipe && !d.y.iter().any(|y| self.is_leaf[*y as usize]);
        for (old, new) in self.overwrite(i, d) {
            repeatable = false;
            if !inputs.contains(&old) {
                inputs.push(old.clone());
            }
            outputs.push(OutputSpec { name: new, bytes: Bytes::Writes(old) });
        }
        self.ops.push(OpSpec {
            name: format!("{i}"),
            time_ns: d.cost_ns,
            inputs,
            outputs,
            workspace: d.scratch_bytes as u64,
            repeatable,
        });
        self.parts.push(Part { events: SmallVec::from_slice(&[i]) });
    }

    /// The bytes of an output: its own, or those of an input that it may take over.
    fn own(&self, d: &Outcome, bytes: usize) -> Bytes {
        let x = d.may_take.iter().map(|i| d.x[usize::from(*i)]);
        let fits = |x: &Local| self.is_planned(*x) && !self.is_leaf[*x as usize];
        let of: Vec<String> = x
            .filter(|x| fits(x) && self.trace.locals[*x as usize].bytes == bytes)
            .filter_map(|x| self.readable(x))
            .collect();
        if of.is_empty() { Bytes::Own(bytes as u64) } else { Bytes::OwnOr(bytes as u64, of) }
    }

    /// The problem's name for the present content of a storage, if the problem has it.
    fn readable(&self, l: Local) -> Option<String> {
        self.version.get(&l).cloned().or_else(|| self.root[l as usize].map(name))
    }

    /// New versions of storages from before the step: (old, new), by name.
    fn overwrite(&mut self, i: usize, d: &Outcome) -> Vec<(String, String)> {
        let mut versions = Vec::new();
        for (&y, hold) in d.y.iter().zip(&d.donated_from) {
            let Some(x) = hold.map(|h| d.x[h as usize]).filter(|x| !self.is_planned(*x)) else { continue };
            // Known to the problem from its first reader on.
            let Some(old) = self.version.get(&x).cloned() else { continue };
            let new = format!("v{y} after {i}");
            self.version.insert(y, new.clone());
            versions.push((old, new));
        }
        versions
    }

    fn finish(self, spill: SpillRates, unit: Alignment) -> Result<StepProblem> {
        let align = if spill.is_possible() { alignment(&self.ops, unit) } else { unit.bytes() as u64 };
        let spec = Spec { align, values: self.values, ops: self.ops, outputs: self.outputs, spill };
        Ok(StepProblem {
            problem: Problem::new(spec)?,
            parts: self.parts,
            root: self.root,
            fixed_bytes: self.fixed_bytes + self.other_scratch,
            other_ns: self.other_ns,
        })
    }
}
