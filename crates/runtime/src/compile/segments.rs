//! Functions whose shapes follow from values: compiled in segments. Each segment ends at a size that only a run knows.
//!
//! A trace has no data, so it ends where the function asks for such a size ([`size`](crate::tracing::size)). The graph
//! up to there is a segment, and the size is its result. A call runs the segment, reads the number, and goes on to the
//! segment for that number. If there is none, it traces the function from its beginning with one more known size. The
//! last segment gives the results.
//!
//! Every trace begins with the graph of the trace before it. This is checked, so a value of a segment has the same id
//! in all later segments. Earlier segments hand over the values that a later one needs: they are compiled once more,
//! with those values as further results. If that does not fit the budget, the later segment recomputes the values.
//!
//! A call draws each host value once, for all of its segments. Only the last segment updates states. A state that
//! changes between two segments of a call is an error.

use std::sync::Arc;

use remat_graph::ir::{Graph, ValueId};
use remat_types::{CallSite, Error, ErrorKind, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::forms::nothing;
use super::{Beside, Form, Forms, Function, FunctionTrace, State, VersionedCell};
use crate::eager::trace::{self, GraphBreak};
use crate::eager::{Channel, Handle, TensorId};
use remat_device::Alignment;

/// A value of a segment that another one reads: the segment, counted from 0, and its id in the traces.
type Taken = (usize, ValueId);

/// A form's segment of the function.
pub(super) struct Segment<C> {
    /// The trace up to the segment's end, or to the end of the function.
    trace: FunctionTrace<C>,
    /// The sizes that earlier segments found.
    sizes: Vec<usize>,
    /// The values that it reads from earlier segments: its last inputs.
    takes: Vec<Taken>,
    /// The values that later segments read from it: its results after the size.
    gives: Vec<ValueId>,
    /// Bytes of other values that live while it runs, as assumed by its plan.
    beside_bytes: usize,
}

/// The values that the segments of one call share.
#[derive(Default)]
pub struct SegmentRun {
    sizes: Vec<usize>,
    /// The host inputs that segments have drawn, in order.
    drawn: Vec<Handle>,
    /// The values that each segment gave beside its size.
    given: Vec<FxHashMap<ValueId, Handle>>,
    /// The versions of cells that segments have read, by the cell's address.
    versions: FxHashMap<usize, TensorId>,
}

impl SegmentRun {
    /// Host input `i`, if a segment has drawn it.
    pub(super) fn drawn(&self, i: usize) -> Option<Handle> {
        self.drawn.get(i).cloned()
    }

    /// Keeps the next host input for later segments. Without segments nothing is kept.
    pub(super) fn keep(&mut self, h: Handle, in_segments: bool) -> Handle {
        if in_segments {
            self.drawn.push(h.clone());
        }
        h
    }

    /// Errors (Value) if a state has another version than an earlier segment of this call read.
    pub(super) fn same_versions<C: VersionedCell>(&mut self, states: &[State<C>], handles: &[Handle]) -> Result<()> {
        for (s, h) in states.iter().zip(handles) {
            let (State::Read(cell) | State::Updated(cell)) = s else { continue };
            let before = *self.versions.entry(cell.address()).or_insert(h.id());
            if before != h.id() {
                let text = "a parameter from which a shape follows was changed by another thread during the call";
                return Err(Error::new(ErrorKind::Value, text));
            }
        }
        Ok(())
    }
}

impl<C: VersionedCell> FunctionTrace<C> {
    /// The place at which the trace ended, given the first `known` sizes. `None` if it reached the end of the function.
    fn end(&self, known: usize) -> Option<&GraphBreak> {
        self.cuts.get(known)
    }

    /// The values that the segment after the first `known` sizes needs from earlier segments, for the function's
    /// results and `gives`.
    fn takes(&self, known: usize, gives: &[ValueId]) -> Vec<Taken> {
        let Some(cut) = known.checked_sub(1).and_then(|k| self.cuts.get(k)) else { return Vec::new() };
        let results: Vec<ValueId> = self.graph.outputs().iter().map(|o| o.value).chain(gives.iter().copied()).collect();
        let segment = |v: &ValueId| {
            let node = self.graph.producer(*v).map_or(0, |n| n.index());
            self.cuts.iter().take_while(|c| c.extent.nodes <= node).count()
        };
        self.graph.handed_over(&cut.extent, &results).into_iter().map(|v| (segment(&v), v)).collect()
    }

    fn bytes(&self, v: ValueId) -> usize {
        Alignment::HOST.pad(self.graph.fact(v).bytes())
    }

    /// The bytes of the states that `segment` does not have.
    fn state_bytes_beyond(&self, segment: &Self) -> usize {
        let beyond = self.graph.states().get(segment.graph.states().len()..).unwrap_or_default();
        beyond.iter().map(|s| self.bytes(s.value)).sum()
    }

    /// Errors (Value), with the line that asked for the last known size, unless this trace continues `first`.
    fn goes_on_from(&self, first: &Self, known: usize) -> Result<()> {
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

    /// Errors (Value) for an op that must run exactly once, since a segment may run again.
    fn is_repeatable(&self, cut: &GraphBreak) -> Result<()> {
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

impl<C: VersionedCell> Segment<C> {
    pub(super) fn trace(&self) -> &FunctionTrace<C> {
        &self.trace
    }

    /// The sizes that earlier segments found.
    pub(super) fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The line that asked for the size at the segment's end. `None` for the last segment.
    fn end(&self) -> Option<CallSite> {
        self.trace.end(self.sizes.len()).map(|c| c.site)
    }

    /// The error of a session of the segment.
    pub(super) fn in_session(&self) -> Error {
        let site = self.trace.cuts.first().map(|c| c.site);
        let text = "a session is planned before it runs, and a shape of this function follows from a value";
        let e = Error::new(
            ErrorKind::Value,
            format!("{text}, asked for at {}", site.map_or(String::new(), |s| s.to_string())),
        );
        e.with_op("session")
    }

    /// Appends the taken values to the inputs. The last segment is their last reader.
    pub(super) fn take(&self, run: &mut SegmentRun, handles: &mut SmallVec<[Handle; 4]>) -> Result<()> {
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

impl<C: VersionedCell> Form<C> {
    /// Runs a segment that ends at a size. Keeps the values that it gives, and returns the size.
    fn run_segment(
        &self,
        f: &impl Function<Cell = C>,
        channel: &Channel,
        x: &[&Handle],
        run: &mut SegmentRun,
        site: CallSite,
    ) -> Result<usize> {
        let segment = self.segment.as_ref().ok_or_else(nothing)?;
        let mut y = f.run(self, x, run, site)?.into_iter();
        let size = y.next().ok_or_else(nothing)?;
        let given: FxHashMap<ValueId, Handle> = segment.gives.iter().copied().zip(y).collect();
        let k = segment.sizes.len();
        run.given.resize_with(run.given.len().max(k + 1), FxHashMap::default);
        run.given[k] = given;
        let read = channel.value(&size).and_then(|n| trace::size_of(&n));
        read.map_err(|e| segment.end().map_or(e.clone(), |s| e.with_op("as_size").with_call_site(s)))
    }
}

impl<C: VersionedCell> Forms<C> {
    /// The graphs of the segments that a run went through. Errors (Value): the guards of one no longer hold.
    pub fn segments(&self, x: &[&Handle], run: &SegmentRun) -> Result<Vec<Arc<Graph>>> {
        let graph = |k: usize| self.find(x, &run.sizes[..k]).map(|at| self.entries[at].executable().graph().clone());
        (0..=run.sizes.len()).map(|k| graph(k).ok_or_else(changed)).collect()
    }

    /// Moves the form that gives the function's results for these inputs to the end. Makes the forms that are missing
    /// and runs the segments before the last. Errors: those of the trace, the passes and the plan; those of the
    /// segments' ops.
    pub fn reach(
        &mut self,
        f: &mut impl Function<Cell = C>,
        x: &[&Handle],
        run: &mut SegmentRun,
        site: CallSite,
    ) -> Result<()> {
        self.begin_call();
        let channel = self.device.channel();
        if self.owes_mark && self.entries.iter().any(Form::marks_step) {
            // before anything is drawn, so that draw and update are of one step
            self.owes_mark = false;
            channel.give_up_step()?;
        }
        let told = channel.failures_told();
        let reached = self.reach_last(f, &channel, x, run, site);
        if reached.is_err() && !run.drawn.is_empty() && channel.failures_told() == told {
            // what the segments before have drawn is drawn again when the step is repeated
            channel.note_failed_call();
        }
        reached
    }

    fn reach_last(
        &mut self,
        f: &mut impl Function<Cell = C>,
        channel: &Channel,
        x: &[&Handle],
        run: &mut SegmentRun,
        site: CallSite,
    ) -> Result<()> {
        loop {
            self.ready_for(f, x, &run.sizes)?;
            self.hand_over(&*f, x, run, site)?;
            let entry = self.entries.last_mut().ok_or_else(nothing)?;
            if entry.segment.as_ref().is_none_or(|p| p.end().is_none()) {
                if entry.marks_step() && std::mem::take(&mut self.owes_mark) {
                    channel.give_up_step()?;
                }
                return Ok(());
            }
            entry.before_run();
            match entry.run_segment(&*f, channel, x, run, site) {
                Ok(size) => run.sizes.push(size),
                Err(e) => {
                    self.owes_mark = true;
                    return Err(e);
                }
            }
        }
    }

    /// The form of a segment. It takes values from earlier segments, or recomputes them if only that fits the budget.
    pub(super) fn segment(&mut self, x: &[&Handle], sizes: &[usize], trace: FunctionTrace<C>) -> Result<Form<C>> {
        let known = sizes.len();
        if let Some(before) = known.checked_sub(1) {
            let first = self.find(x, &sizes[..before]).and_then(|at| self.entries[at].segment.as_ref());
            trace.goes_on_from(&first.ok_or_else(changed)?.trace, known)?;
        }
        if let Some(cut) = trace.end(known) {
            trace.is_repeatable(cut)?;
        }
        let takes = trace.takes(known, &[]);
        let segment = Segment { trace, sizes: sizes.to_vec(), takes, gives: Vec::new(), beside_bytes: 0 };
        let waits = self.waiting_bytes(x, &segment)?;
        self.segment_form(x, Segment { beside_bytes: waits, ..segment })
    }

    /// Bytes of values that earlier segments give and this segment does not take. They wait for later segments while it
    /// runs.
    fn waiting_bytes(&self, x: &[&Handle], segment: &Segment<C>) -> Result<usize> {
        if segment.end().is_none() {
            return Ok(0);
        }
        let mut bytes = 0;
        for k in 0..segment.sizes.len() {
            let earlier = self.find(x, &segment.sizes[..k]).and_then(|at| self.entries[at].segment.as_ref());
            let waits = |v: &&ValueId| !segment.takes.contains(&(k, **v));
            bytes +=
                earlier.ok_or_else(changed)?.gives.iter().filter(waits).map(|v| segment.trace.bytes(*v)).sum::<usize>();
        }
        Ok(bytes)
    }

    /// Plans a segment. If it does not fit the budget with the values that it takes, it takes none.
    fn segment_form(&mut self, x: &[&Handle], segment: Segment<C>) -> Result<Form<C>> {
        let made = self.planned(x, &segment);
        let (mut entry, segment) = match made {
            Err(e) if e.kind() == ErrorKind::Budget && !segment.takes.is_empty() => {
                let segment = Segment { takes: Vec::new(), ..segment };
                (self.planned(x, &segment)?, segment)
            }
            made => (made?, segment),
        };
        entry.segment = Some(segment);
        Ok(entry)
    }

    fn planned(&mut self, x: &[&Handle], segment: &Segment<C>) -> Result<Form<C>> {
        let t = &segment.trace;
        let names: Vec<String> = (0..segment.gives.len()).map(|i| format!("given{i}")).collect();
        let own = t.graph.outputs().iter().map(|o| (&*o.name, o.value));
        let results: Vec<(&str, ValueId)> =
            own.chain(names.iter().map(String::as_str).zip(segment.gives.iter().copied())).collect();
        let taken: Vec<ValueId> = segment.takes.iter().map(|t| t.1).collect();
        let graph = t.graph.piece(&taken, &results)?;
        let beside = Beside { bytes: segment.beside_bytes, takes: taken.len() };
        // the end of a step and the actions after a run belong to the last segment
        let is_last = segment.end().is_none();
        let after = if is_last { t.after.clone() } else { Arc::default() };
        self.form(x, FunctionTrace { graph, marks_step: t.marks_step && is_last, after, ..t.clone() }, beside)
    }

    /// Makes sure that earlier segments of this call have given the values that the last form takes. Segments that have
    /// not are compiled again and run again. If that does not fit the budget, the last form recomputes the values.
    fn hand_over(
        &mut self,
        f: &impl Function<Cell = C>,
        x: &[&Handle],
        run: &mut SegmentRun,
        site: CallSite,
    ) -> Result<()> {
        let Some(segment) = self.entries.last().and_then(|e| e.segment.as_ref()) else { return Ok(()) };
        if segment.takes.is_empty() {
            return Ok(());
        }
        match self.wanted(x, run).and_then(|wanted| self.made_again(x, wanted)) {
            Err(e) if e.kind() == ErrorKind::Budget => {
                let Some(segment) = self.entries.pop().and_then(|form| form.segment) else { return Err(e) };
                let alone = self.segment_form(x, Segment { takes: Vec::new(), ..segment })?;
                self.entries.push(alone);
                Ok(())
            }
            Err(e) => Err(e),
            Ok(wanted) => self.run_again(f, x, &wanted, run, site),
        }
    }

    /// For each earlier segment: the values to give, the values to take for that, and the bytes that wait while it
    /// runs.
    fn wanted(&self, x: &[&Handle], run: &SegmentRun) -> Result<Vec<Wanted>> {
        let last = self.entries.last().and_then(|e| e.segment.as_ref()).ok_or_else(nothing)?;
        let segments = (0..run.sizes.len()).map(|k| {
            let at = self.find(x, &run.sizes[..k]).ok_or_else(changed)?;
            let segment = self.entries[at].segment.as_ref().ok_or_else(nothing)?;
            Ok(Wanted {
                at,
                gives: segment.gives.clone(),
                takes: segment.takes.clone(),
                needed: Vec::new(),
                beside_bytes: 0,
            })
        });
        let mut segments = segments.collect::<Result<Vec<Wanted>>>()?;
        let mut list = last.takes.clone();
        for k in (0..segments.len()).rev() {
            let segment = self.entries[segments[k].at].segment.as_ref().ok_or_else(nothing)?;
            let w = &mut segments[k];
            w.needed = list.iter().filter(|t| t.0 == k).map(|t| t.1).collect();
            let lacking: Vec<ValueId> = w.needed.iter().copied().filter(|v| !w.gives.contains(v)).collect();
            if !lacking.is_empty() {
                w.gives.extend(lacking);
                w.takes = segment.trace.takes(k, &w.gives);
            }
            list.extend(w.takes.iter().copied());
            list.sort_unstable();
            list.dedup();
        }
        for k in 0..segments.len() {
            let segment = self.entries[segments[k].at].segment.as_ref().ok_or_else(nothing)?;
            let waiting = segments[..k].iter().enumerate().flat_map(|(j, p)| p.gives.iter().map(move |v| (j, *v)));
            let waits =
                waiting.filter(|t| !segments[k].takes.contains(t)).map(|t| last.trace.bytes(t.1)).sum::<usize>();
            segments[k].beside_bytes = waits + last.trace.state_bytes_beyond(&segment.trace);
        }
        Ok(segments)
    }

    /// Compiles segments again that lack a wanted value, or that were planned with more room than they now have.
    fn made_again(&mut self, x: &[&Handle], segments: Vec<Wanted>) -> Result<Vec<Wanted>> {
        let limited = self.options.memory_budget.is_some() || self.device.budget_bytes().is_some();
        for w in &segments {
            let e = &self.entries[w.at];
            let segment = e.segment.as_ref().ok_or_else(nothing)?;
            if segment.gives == w.gives && (!limited || segment.beside_bytes >= w.beside_bytes) {
                continue;
            }
            let (trace, sizes) = (segment.trace.clone(), segment.sizes.clone());
            let (gives, takes, beside_bytes) = (w.gives.clone(), w.takes.clone(), w.beside_bytes);
            let segment = Segment { trace, sizes, takes, gives, beside_bytes };
            let mut made = self.planned(x, &segment)?;
            made.segment = Some(segment);
            self.entries[w.at] = made;
        }
        Ok(segments)
    }

    /// Runs segments again that have not yet given a needed value in this call.
    fn run_again(
        &self,
        f: &impl Function<Cell = C>,
        x: &[&Handle],
        wanted: &[Wanted],
        run: &mut SegmentRun,
        site: CallSite,
    ) -> Result<()> {
        let channel = self.device.channel();
        for (k, w) in wanted.iter().enumerate() {
            if w.needed.iter().all(|v| run.given[k].contains_key(v)) {
                continue;
            }
            if self.entries[w.at].run_segment(f, &channel, x, run, site)? != run.sizes[k] {
                return Err(Error::new(ErrorKind::Internal, "a piece that ran again gave another size"));
            }
        }
        Ok(())
    }
}

/// The part of an earlier segment in a call of the last form.
struct Wanted {
    /// The index of its form.
    at: usize,
    gives: Vec<ValueId>,
    takes: Vec<Taken>,
    /// The values that this call needs from it.
    needed: Vec<ValueId>,
    beside_bytes: usize,
}

/// The error of guards that held when a segment ran and no longer hold.
fn changed() -> Error {
    let text =
        "what the function read was changed by another thread during the call (training or evaluation, parameters)";
    Error::new(ErrorKind::Value, text)
}
