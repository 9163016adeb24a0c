//! Functions whose shapes follow from values: compiled in pieces, each up to a size that only its run knows.
//!
//! A trace has no data, so it ends where the function asks for such a size ([`Tensor::as_size`]). The graph up to there is
//! a piece with the size as its result. A call runs it, reads the number, and goes on to the piece for that number, found
//! or traced: the function from its beginning, with one size more that is known. The last piece gives the results.
//!
//! Every trace begins with the graph of the one before it, which is checked; so the values of a piece have the same ids in
//! all later ones. What a later piece needs of an earlier one is handed over: the earlier one is made once more, with those
//! values as further results. Where that does not fit the budget, the later piece computes them again.
//!
//! What a call draws on the host it draws once, for all of its pieces. States are updated by the last piece alone, and a
//! state that changes between two pieces of a call is an error.

use std::sync::Arc;

use remat_graph::ir::{Graph, GraphPrefix, ShapeDepends, ValueId};
use remat_runtime::{Channel, Handle, TensorId, padded, tracing};
use remat_types::{CallSite, Error, ErrorKind, Fact, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::{Compiled, Entry, State, StateCell, Trace, nothing};
use crate::Tensor;

/// A value of a piece that another one reads: the piece, counted from 0, and its id in the traces.
type Taken = (usize, ValueId);

/// What an entry is among the pieces of a function.
pub(super) struct Part {
    /// Up to its end, or that of the function.
    trace: Trace,
    /// The sizes that the pieces before it found.
    sizes: Vec<usize>,
    /// What it reads of earlier pieces: its last inputs.
    takes: Vec<Taken>,
    /// What later ones read of it: its results after the size.
    gives: Vec<ValueId>,
    /// What else is there while it runs, as it was planned.
    beside_bytes: usize,
}

/// What counts against the budget of a piece and is not its own.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside {
    /// States that other pieces read, and values that wait for later pieces.
    pub(super) bytes: usize,
    /// How many of its last inputs other pieces gave.
    pub(super) takes: usize,
}

/// What the pieces of one call share.
#[derive(Default)]
pub(super) struct Run {
    sizes: Vec<usize>,
    /// The host inputs, in order, as far as pieces have drawn them.
    drawn: Vec<Handle>,
    /// What each piece gave beside its size.
    given: Vec<FxHashMap<ValueId, Handle>>,
    /// The versions of cells, by address, that pieces have read.
    versions: FxHashMap<usize, TensorId>,
}

impl Run {
    /// Host input `i`, if a piece has drawn it.
    pub(super) fn drawn(&self, i: usize) -> Option<Handle> {
        self.drawn.get(i).cloned()
    }

    /// Keeps the next host input for later pieces, if there are some.
    pub(super) fn keep(&mut self, h: Handle, in_pieces: bool) -> Handle {
        if in_pieces {
            self.drawn.push(h.clone());
        }
        h
    }

    /// Errors (Value) if a state has another version than an earlier piece of this call read.
    pub(super) fn same_versions(&mut self, states: &[State], handles: &[Handle]) -> Result<()> {
        for (s, h) in states.iter().zip(handles) {
            let (State::Read(cell) | State::Updated(cell)) = s else { continue };
            let before = *self.versions.entry(address(cell)).or_insert(h.id());
            if before != h.id() {
                let text = "a parameter from which a shape follows was changed by another thread during the call";
                return Err(Error::new(ErrorKind::Value, text));
            }
        }
        Ok(())
    }
}

fn address(cell: &Arc<dyn StateCell>) -> usize {
    Arc::as_ptr(cell).cast::<u8>() as usize
}

impl Trace {
    /// The place where it ended at a size, if it did, with so many sizes known.
    fn end(&self, known: usize) -> Option<&tracing::GraphBreak> {
        self.cuts.get(known)
    }

    /// What the piece after the first `known` sizes needs of those before it, to give the function's results and `gives`.
    fn takes(&self, known: usize, gives: &[ValueId]) -> Vec<Taken> {
        let Some(cut) = known.checked_sub(1).and_then(|k| self.cuts.get(k)) else { return Vec::new() };
        let results: Vec<ValueId> = self.graph.outputs().iter().map(|o| o.value).chain(gives.iter().copied()).collect();
        let piece = |v: &ValueId| {
            let node = self.graph.producer(*v).map_or(0, |n| n.index());
            self.cuts.iter().take_while(|c| c.extent.nodes <= node).count()
        };
        self.graph.handed_over(&cut.extent, &results).into_iter().map(|v| (piece(&v), v)).collect()
    }

    fn bytes(&self, v: ValueId) -> usize {
        padded(self.graph.fact(v).bytes())
    }

    /// The bytes of the states that are not among the first of `piece`'s.
    fn state_bytes_beyond(&self, piece: &Trace) -> usize {
        let beyond = self.graph.states().get(piece.graph.states().len()..).unwrap_or_default();
        beyond.iter().map(|s| self.bytes(s.value)).sum()
    }

    /// Errors (Value), with the line that asked for the last known size, unless this trace goes on from `first`.
    fn goes_on_from(&self, first: &Trace, known: usize) -> Result<()> {
        let cut = &first.cuts[known - 1];
        let same = self.cuts.get(..known) == Some(&first.cuts[..])
            && self.host_inputs.len() >= first.host_inputs.len()
            && self.states.len() >= first.states.len()
            && first.states.iter().zip(&self.states).all(|(a, b)| a.is_the_state_of(b));
        let same = match same {
            true => self.graph.begins_with(&first.graph),
            false => Err(Error::new(ErrorKind::Value, "it takes other tensors from outside, or asks for other sizes")),
        };
        same.map_err(|e| {
            let text = format!("the function does something else before this size when it is traced again: {e}");
            Error::new(ErrorKind::Value, text).with_op("as_size").with_call_site(cut.site)
        })
    }

    /// Errors (Value) for an op that runs exactly once, in a graph whose pieces may run again.
    fn is_repeatable(&self, cut: &tracing::GraphBreak) -> Result<()> {
        match self.graph.nodes().iter().find(|n| !n.op.repeatable()) {
            None => Ok(()),
            Some(n) => {
                let text =
                    format!("`{}` runs exactly once; it cannot stand before a size at {}", n.op.label(), cut.site);
                let e = Error::new(ErrorKind::Value, text);
                Err(n.site.map_or(e.clone(), |s| e.with_call_site(s)))
            }
        }
    }
}

impl State {
    /// True for states of one cell, whatever becomes of it.
    fn is_the_state_of(&self, other: &State) -> bool {
        match (self, other) {
            (State::Fixed(a), State::Fixed(b)) => a.id() == b.id(),
            (State::Read(a) | State::Updated(a), State::Read(b) | State::Updated(b)) => address(a) == address(b),
            _ => false,
        }
    }
}

impl Part {
    /// The line that asked for the size which ends it; `None` for the last piece.
    fn end(&self) -> Option<CallSite> {
        self.trace.end(self.sizes.len()).map(|c| c.site)
    }

    /// The error of a session of it.
    pub(super) fn in_session(&self) -> Error {
        let site = self.trace.cuts.first().map(|c| c.site);
        let text = "a session is planned before it runs, and a shape of this function follows from a value";
        let e = Error::new(
            ErrorKind::Value,
            format!("{text}, asked for at {}", site.map_or(String::new(), |s| s.to_string())),
        );
        e.with_op("session")
    }

    /// Puts what it takes behind the inputs. The last piece is the last reader of it all.
    pub(super) fn take(&self, run: &mut Run, handles: &mut SmallVec<[Handle; 4]>) -> Result<()> {
        for (k, v) in &self.takes {
            let h = run.given.get(*k).and_then(|g| g.get(v)).ok_or_else(nothing)?;
            handles.push(h.clone());
        }
        if self.end().is_none() {
            run.given.clear();
        }
        Ok(())
    }
}

impl Entry {
    /// The sizes that the pieces before it found.
    pub(super) fn sizes(&self) -> &[usize] {
        self.part.as_ref().map_or(&[], |p| &p.sizes)
    }

    fn shape_depends(&self, j: usize) -> Result<ShapeDepends> {
        let g = self.part.as_ref().map_or(&**self.executable.graph(), |p| &p.trace.graph);
        let output = g.outputs().get(j).filter(|_| j < self.outputs);
        let none = || Error::new(ErrorKind::Value, format!("output {j} of a function that has {}", self.outputs));
        let cuts = self.part.iter().flat_map(|p| &p.trace.cuts);
        let sizes: Vec<(ValueId, GraphPrefix)> = cuts.map(|c| (c.value, c.extent)).collect();
        Ok(g.shape_depends_with(output.ok_or_else(none)?.value, &sizes))
    }

    /// Runs a piece that ends at a size: keeps what it gives, and tells the size.
    fn run_piece(&self, channel: &Channel, x: &[&Tensor], run: &mut Run, site: CallSite) -> Result<usize> {
        let part = self.part.as_ref().ok_or_else(nothing)?;
        let mut y = self.run(channel, x, run, site)?.into_iter();
        let size = y.next().ok_or_else(nothing)?;
        let given: FxHashMap<ValueId, Handle> = part.gives.iter().copied().zip(y.map(Tensor::into_handle)).collect();
        let k = part.sizes.len();
        run.given.resize_with(run.given.len().max(k + 1), FxHashMap::default);
        run.given[k] = given;
        let read = channel.value(&size.into_handle()).and_then(|n| tracing::size_of(&n));
        read.map_err(|e| part.end().map_or(e.clone(), |s| e.with_op("as_size").with_call_site(s)))
    }
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Compiled<F> {
    /// The graphs that a call with these inputs runs one after another: one, or where shapes follow from values, the pieces,
    /// those before the last with a size as their first output. Runs those to find the sizes. Errors: as
    /// [`Compiled::executable`].
    #[track_caller]
    pub fn pieces(&mut self, x: &[&Tensor]) -> Result<Vec<Arc<Graph>>> {
        let mut run = Run::default();
        let site = CallSite::here();
        let reached = self.reach(x, &mut run, site).map_err(|e| e.with_call_site(site));
        let entry = |k: usize| self.find(x, &run.sizes[..k]).map(|at| self.entries[at].executable.graph().clone());
        let pieces = (0..=run.sizes.len()).map(|k| entry(k).ok_or_else(changed)).collect();
        self.trim();
        reached.and(pieces)
    }

    /// What decides the shape of output `j` for these inputs, sizes that only a run knows included: what of the function
    /// comes after [`Tensor::as_size`] and has a number in it may follow from that size. See [`Graph::shape_depends`].
    ///
    /// Errors: Value for an output that there is not; as [`Compiled::executable`].
    #[track_caller]
    pub fn shape_depends(&mut self, x: &[&Tensor], j: usize) -> Result<ShapeDepends> {
        let site = CallSite::here();
        let reached = self.reach(x, &mut Run::default(), site);
        let found = reached.and_then(|()| self.entries.last().ok_or_else(nothing)?.shape_depends(j));
        self.trim();
        found.map_err(|e| e.with_call_site(site))
    }

    /// Puts the entry that gives the results of the function for these inputs last: runs the pieces before it.
    pub(super) fn reach(&mut self, x: &[&Tensor], run: &mut Run, site: CallSite) -> Result<()> {
        let channel = self.device.channel();
        loop {
            self.ready(x, &run.sizes)?;
            self.hand_over(x, run, site)?;
            let entry = self.entries.last_mut().ok_or_else(nothing)?;
            if entry.part.as_ref().is_none_or(|p| p.end().is_none()) {
                if entry.marks_step && std::mem::take(&mut self.owes_mark) {
                    channel.give_up_step()?;
                }
                return Ok(());
            }
            entry.replan();
            match entry.run_piece(&channel, x, run, site) {
                Ok(size) => run.sizes.push(size),
                Err(e) => {
                    self.owes_mark = true;
                    return Err(e);
                }
            }
        }
    }

    /// The entry of a piece, which takes of earlier ones what it needs, or computes it again if only that fits the budget.
    pub(super) fn piece(&mut self, x: &[&Tensor], facts: Vec<Fact>, sizes: &[usize], trace: Trace) -> Result<Entry> {
        let known = sizes.len();
        if let Some(before) = known.checked_sub(1) {
            let first = self.find(x, &sizes[..before]).and_then(|at| self.entries[at].part.as_ref());
            trace.goes_on_from(&first.ok_or_else(changed)?.trace, known)?;
        }
        if let Some(cut) = trace.end(known) {
            trace.is_repeatable(cut)?;
        }
        let takes = trace.takes(known, &[]);
        let part = Part { trace, sizes: sizes.to_vec(), takes, gives: Vec::new(), beside_bytes: 0 };
        let waits = self.waiting_bytes(x, &part)?;
        self.part_entry(facts, Part { beside_bytes: waits, ..part })
    }

    /// The bytes of what earlier pieces give and a piece does not take: they wait for later ones while it runs.
    fn waiting_bytes(&self, x: &[&Tensor], part: &Part) -> Result<usize> {
        if part.end().is_none() {
            return Ok(0);
        }
        let mut bytes = 0;
        for k in 0..part.sizes.len() {
            let earlier = self.find(x, &part.sizes[..k]).and_then(|at| self.entries[at].part.as_ref());
            let waits = |v: &&ValueId| !part.takes.contains(&(k, **v));
            bytes +=
                earlier.ok_or_else(changed)?.gives.iter().filter(waits).map(|v| part.trace.bytes(*v)).sum::<usize>();
        }
        Ok(bytes)
    }

    /// The entry of a part as it says. If it does not fit the budget with what it takes, it takes nothing.
    fn part_entry(&mut self, facts: Vec<Fact>, part: Part) -> Result<Entry> {
        let made = self.planned(facts.clone(), &part);
        let (mut entry, part) = match made {
            Err(e) if e.kind() == ErrorKind::Budget && !part.takes.is_empty() => {
                let part = Part { takes: Vec::new(), ..part };
                (self.planned(facts, &part)?, part)
            }
            made => (made?, part),
        };
        entry.part = Some(part);
        Ok(entry)
    }

    fn planned(&mut self, facts: Vec<Fact>, part: &Part) -> Result<Entry> {
        let t = &part.trace;
        let names: Vec<String> = (0..part.gives.len()).map(|i| format!("given{i}")).collect();
        let own = t.graph.outputs().iter().map(|o| (&*o.name, o.value));
        let results: Vec<(&str, ValueId)> =
            own.chain(names.iter().map(String::as_str).zip(part.gives.iter().copied())).collect();
        let taken: Vec<ValueId> = part.takes.iter().map(|t| t.1).collect();
        let graph = t.graph.piece(&taken, &results)?;
        let beside = Beside { bytes: part.beside_bytes, takes: taken.len() };
        // the end of a step is the last piece's
        let marks_step = t.marks_step && part.end().is_none();
        self.entry(facts, Trace { graph, marks_step, ..t.clone() }, beside)
    }

    /// Sees to it that the earlier pieces of this call have given what the last entry takes: makes and runs those again that
    /// have not. If that does not fit the budget, the last entry computes it again itself.
    fn hand_over(&mut self, x: &[&Tensor], run: &mut Run, site: CallSite) -> Result<()> {
        let Some(part) = self.entries.last().and_then(|e| e.part.as_ref()) else { return Ok(()) };
        if part.takes.is_empty() {
            return Ok(());
        }
        match self.wanted(x, run).and_then(|wanted| self.made_again(x, wanted)) {
            Err(e) if e.kind() == ErrorKind::Budget => {
                let Some(Entry { facts, part: Some(part), .. }) = self.entries.pop() else { return Err(e) };
                let alone = self.part_entry(facts, Part { takes: Vec::new(), ..part })?;
                self.entries.push(alone);
                Ok(())
            }
            Err(e) => Err(e),
            Ok(pieces) => self.run_again(x, &pieces, run, site),
        }
    }

    /// For each earlier piece what it has to give, what it takes for that, and what waits while it runs.
    fn wanted(&self, x: &[&Tensor], run: &Run) -> Result<Vec<Wanted>> {
        let last = self.entries.last().and_then(|e| e.part.as_ref()).ok_or_else(nothing)?;
        let pieces = (0..run.sizes.len()).map(|k| {
            let at = self.find(x, &run.sizes[..k]).ok_or_else(changed)?;
            let part = self.entries[at].part.as_ref().ok_or_else(nothing)?;
            Ok(Wanted { at, gives: part.gives.clone(), takes: part.takes.clone(), needed: Vec::new(), beside_bytes: 0 })
        });
        let mut pieces = pieces.collect::<Result<Vec<Wanted>>>()?;
        let mut list = last.takes.clone();
        for k in (0..pieces.len()).rev() {
            let part = self.entries[pieces[k].at].part.as_ref().ok_or_else(nothing)?;
            let w = &mut pieces[k];
            w.needed = list.iter().filter(|t| t.0 == k).map(|t| t.1).collect();
            let lacking: Vec<ValueId> = w.needed.iter().copied().filter(|v| !w.gives.contains(v)).collect();
            if !lacking.is_empty() {
                w.gives.extend(lacking);
                w.takes = part.trace.takes(k, &w.gives);
            }
            list.extend(w.takes.iter().copied());
            list.sort_unstable();
            list.dedup();
        }
        for k in 0..pieces.len() {
            let part = self.entries[pieces[k].at].part.as_ref().ok_or_else(nothing)?;
            let waiting = pieces[..k].iter().enumerate().flat_map(|(j, p)| p.gives.iter().map(move |v| (j, *v)));
            let waits = waiting.filter(|t| !pieces[k].takes.contains(t)).map(|t| last.trace.bytes(t.1)).sum::<usize>();
            pieces[k].beside_bytes = waits + last.trace.state_bytes_beyond(&part.trace);
        }
        Ok(pieces)
    }

    /// Makes pieces again that do not give what is wanted, or have less room than they were planned for.
    fn made_again(&mut self, x: &[&Tensor], pieces: Vec<Wanted>) -> Result<Vec<Wanted>> {
        let limited = self.options.memory_budget.is_some() || self.device.options().budget_bytes.is_some();
        for w in &pieces {
            let e = &self.entries[w.at];
            let part = e.part.as_ref().ok_or_else(nothing)?;
            if part.gives == w.gives && (!limited || part.beside_bytes >= w.beside_bytes) {
                continue;
            }
            let (trace, sizes) = (part.trace.clone(), part.sizes.clone());
            let (gives, takes, beside_bytes) = (w.gives.clone(), w.takes.clone(), w.beside_bytes);
            let facts = x.iter().map(|t| Fact::new(t.dtype(), t.shape().clone())).collect();
            let part = Part { trace, sizes, takes, gives, beside_bytes };
            let mut made = self.planned(facts, &part)?;
            made.part = Some(part);
            self.entries[w.at] = made;
        }
        Ok(pieces)
    }

    /// Runs pieces again that have not yet given what is needed in this call.
    fn run_again(&self, x: &[&Tensor], pieces: &[Wanted], run: &mut Run, site: CallSite) -> Result<()> {
        let channel = self.device.channel();
        for (k, w) in pieces.iter().enumerate() {
            if w.needed.iter().all(|v| run.given[k].contains_key(v)) {
                continue;
            }
            if self.entries[w.at].run_piece(&channel, x, run, site)? != run.sizes[k] {
                return Err(Error::new(ErrorKind::Internal, "a piece that ran again gave another size"));
            }
        }
        Ok(())
    }
}

/// What an earlier piece of a call has to do for the last entry.
struct Wanted {
    /// Its entry.
    at: usize,
    gives: Vec<ValueId>,
    takes: Vec<Taken>,
    /// What of it this call needs.
    needed: Vec<ValueId>,
    beside_bytes: usize,
}

/// The error of guards that held when a piece ran and do not hold any more.
fn changed() -> Error {
    let text =
        "what the function read was changed by another thread during the call (training or evaluation, parameters)";
    Error::new(ErrorKind::Value, text)
}
