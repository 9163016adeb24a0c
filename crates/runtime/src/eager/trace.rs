//! Tracing: while a thread traces, the ops that it applies on the device go into a graph instead of the queue.
//!
//! The thread gets handles as ever, with facts but without data. A tensor from outside the trace becomes a state of the
//! graph at its first use. A value may change from run to run although no tensor says so, such as a learning rate or a
//! random key: it comes in through [`host_input`]. If the traced code reads a value on the host that must stay the
//! same, [`guard`] notes that. Asking for data that a trace does not have is an error.
//!
//! [`size`] asks for a number that decides shapes. [`trace`] is given the known sizes. At the first unknown size the
//! graph ends with that number as its result: run the graph, and trace again with one more size.

use std::sync::{Arc, Weak};

use remat_graph::ir::{Builder, Graph, GraphPrefix, ValueId};
use remat_ops::random::FoldIn;
use remat_ops::{Apply, OpRef};
use remat_types::context::{Mode, Part};
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, HostTensor, Result, Scope, SmallVec};
use rustc_hash::FxHashMap;

use super::channel::Channel;
use super::device::Device;
use super::handle::{Handle, HandleInner, TensorId};
use super::target::{Applied, Fallback, Target, kept as kept_inputs};
use super::update::NotUpdated;

/// Writes the value for each run: the bytes of its elements in row-major order.
pub type HostInput = Arc<dyn Fn(&mut [u8]) -> Result<()> + Send + Sync>;

/// True as long as the values that the trace read on the host still hold.
pub type Guard = Box<dyn Fn() -> bool + Send + Sync>;

/// The trace of a thread. [`Mode::Tracing`] is on while there is one.
static TRACE: Part<Option<Tracing>> = Part::new();

struct Tracing {
    device: Device,
    builder: Builder,
    values: FxHashMap<TensorId, ValueId>,
    captured: Vec<Handle>,
    /// For each captured tensor, the handle that [`state`] gave for it, if it did.
    states: Vec<Option<TensorId>>,
    /// The handles that a function was given, each with the line that asked for it. None may outlive the trace.
    made: Vec<(Weak<HandleInner>, Option<CallSite>)>,
    host_inputs: Vec<HostInput>,
    guards: Vec<Guard>,
    marks_step: bool,
    /// The body of an op. A tensor from outside becomes an input, and may belong to the trace around it.
    is_body: bool,
    /// The number of the step, for a body that runs once a step.
    step: Option<Handle>,
    /// The trace around it.
    outer: Option<Box<Tracing>>,
    /// An error for a thing that a trace cannot do, found where no error could be returned.
    refused: Option<Error>,
    /// The known sizes, if the function may ask for sizes.
    sizes: Option<Vec<usize>>,
    /// The places where sizes were asked for. With one more than the known sizes the graph has ended.
    cuts: Vec<GraphBreak>,
}

/// The place where a trace asked for a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphBreak {
    /// The size: an integer of one element.
    pub value: ValueId,
    /// The length of the graph at that place.
    pub extent: GraphPrefix,
    /// The line that asked.
    pub site: CallSite,
}

/// The most sizes that one function may ask for: each costs a segment, and a trace of all before it.
const MOST_SIZES: usize = 64;

/// The result of a trace.
pub struct Traced {
    /// The graph. Its inputs are the given ones, then the host inputs.
    pub graph: Graph,
    /// For each state of the graph, the tensor that it was when the trace began. For a body, the tensor of each input
    /// after the given ones.
    pub captured: Vec<Handle>,
    /// For each of them, the handle that [`state`] gave for it. `None` if the function used the tensor itself.
    pub states: Vec<Option<TensorId>>,
    /// The host functions that write the inputs after the given ones.
    pub host_inputs: Vec<HostInput>,
    /// The graph stands for the function as long as all of these hold.
    pub guards: Vec<Guard>,
    /// True if the function ended a step.
    pub marks_step: bool,
    /// The places where sizes were asked for. With one more than were given, the graph ends there and gives only that
    /// size.
    pub cuts: Vec<GraphBreak>,
}

/// The tensors that the traced function returns: its results, and the next version of each captured tensor that it
/// replaced.
pub struct TraceResults {
    /// The results, in order.
    pub outputs: Vec<Handle>,
    /// (captured, next version)
    pub updates: Vec<(Handle, Handle)>,
}

/// True while this thread traces.
#[inline]
pub fn is_tracing() -> bool {
    Mode::Tracing.is_on()
}

/// True once this thread's trace has ended at an unknown size. The function may do anything with the error, but it must
/// keep no tensor of the trace.
pub fn has_ended() -> bool {
    TRACE.with(|t| t.as_ref().is_some_and(|t| t.ended().is_some()))
}

fn none(what: &str) -> Error {
    Error::new(ErrorKind::Value, format!("{what} outside of a trace"))
}

fn with<R>(what: &str, f: impl FnOnce(&mut Tracing) -> Result<R>) -> Result<R> {
    TRACE.with(|t| {
        let t = t.as_mut().ok_or_else(|| none(what))?;
        t.ended().map_or(Ok(()), Err)?;
        f(t)
    })
}

/// Ends the trace of this thread also when the traced function fails or panics. The trace around it goes on.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        let mut ended = TRACE.take();
        set_trace(ended.as_mut().and_then(|t| t.outer.take()).map(|outer| *outer));
        // The trace is dropped outside of the borrow: handles in it may call back.
        drop(ended);
    }
}

fn set_trace(t: Option<Tracing>) {
    Mode::Tracing.replace(u32::from(t.is_some()));
    drop(TRACE.replace(t));
}

/// Leaves the body that this thread traces, until this value is dropped.
struct Outside {
    body: Option<Tracing>,
}

impl Outside {
    fn step() -> Outside {
        let mut body = TRACE.take();
        set_trace(body.as_mut().and_then(|t| t.outer.take()).map(|outer| *outer));
        Outside { body }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        body.outer = TRACE.take().map(Box::new);
        set_trace(Some(body));
    }
}

/// Traces `f` on `device` for inputs of these facts. `f` may ask for sizes that only a run knows ([`size`]); `sizes`
/// are the known ones.
///
/// Errors: those of `f`; Value if this thread traces already, if a result is not of this trace, or for a thing that a
/// trace cannot do; Shape for inputs of more elements than memory can address; Format if a state has two next versions.
pub fn trace(
    device: &Device,
    inputs: &[Fact],
    sizes: &[usize],
    f: impl FnOnce(&[Handle]) -> Result<TraceResults>,
) -> Result<Traced> {
    if is_tracing() {
        return Err(Error::new(ErrorKind::Value, "a compiled function was called for the first time within another"));
    }
    for fact in inputs {
        fact.shape.checked_elems()?;
    }
    begin(device, inputs, Kind::Function, Some(sizes.to_vec()), f)
}

/// Traces `f` as the body of an op that owns a graph, also within another trace. The graph has no states: tensors that
/// `f` takes from outside are its inputs after the given ones, in the order of [`Traced::captured`]. With `in_steps`
/// the body runs once a step, and its first input is the number of the step. Random keys then differ from step to step.
///
/// Errors: those of [`trace`]; Value for updates, for the end of a step, and for host inputs other than random keys: a
/// body would read them once for all of its runs.
pub fn trace_body(
    device: &Device,
    inputs: &[Fact],
    in_steps: bool,
    f: impl FnOnce(&[Handle]) -> Result<Vec<Handle>>,
) -> Result<Traced> {
    let traced = begin(device, inputs, Kind::Body { in_steps }, None, |x| {
        Ok(TraceResults { outputs: f(x)?, updates: Vec::new() })
    })?;
    if traced.marks_step {
        return Err(Error::new(ErrorKind::Value, "a step cannot end within a loop or a branch"));
    }
    Ok(traced)
}

/// The kind of a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Function,
    Body { in_steps: bool },
}

fn begin(
    device: &Device,
    inputs: &[Fact],
    kind: Kind,
    sizes: Option<Vec<usize>>,
    f: impl FnOnce(&[Handle]) -> Result<TraceResults>,
) -> Result<Traced> {
    let tracing = Tracing {
        device: device.clone(),
        builder: Builder::new(),
        values: FxHashMap::default(),
        captured: Vec::new(),
        states: Vec::new(),
        made: Vec::new(),
        host_inputs: Vec::new(),
        guards: Vec::new(),
        marks_step: false,
        is_body: kind != Kind::Function,
        step: None,
        outer: TRACE.take().map(Box::new),
        refused: None,
        sizes,
        cuts: Vec::new(),
    };
    set_trace(Some(tracing));
    let ends = Ends;
    let channel = device.channel();
    let x: Vec<Handle> = with("trace", |t| {
        Ok(inputs.iter().enumerate().map(|(i, f)| t.input(&channel, f, &format!("x{i}"))).collect())
    })?;
    if kind == (Kind::Body { in_steps: true }) {
        with("step", |t| {
            t.step = x.first().cloned();
            Ok(())
        })?;
    }
    let results = f(&x);
    let has_ended = has_ended();
    // the graph has ended, whatever the function made of the error
    let results = match has_ended {
        true => {
            drop(results);
            TraceResults { outputs: Vec::new(), updates: Vec::new() }
        }
        false => results?,
    };
    let mut t = TRACE.take().ok_or_else(|| none("trace"))?;
    set_trace(t.outer.take().map(|outer| *outer));
    std::mem::forget(ends);
    if let Some(e) = t.refused.take() {
        return Err(e);
    }
    if let Some(cut) = t.cuts.last().filter(|_| has_ended) {
        t.builder.output(cut.value, "size");
    }
    for (old, new) in &results.updates {
        let (old, new) = (t.value_of(old)?, t.value_of(new)?);
        t.builder.set_state(old, new)?;
    }
    for (i, y) in results.outputs.iter().enumerate() {
        let v = t.value_of(y)?;
        t.builder.output(v, &format!("y{i}"));
    }
    drop((results, x));
    let graph = t.builder.finish()?;
    let Tracing { captured, states, made, host_inputs, guards, marks_step, cuts, .. } = t;
    if let Some((_, site)) = made.iter().find(|(h, _)| h.strong_count() > 0) {
        return Err(kept(*site));
    }
    Ok(Traced { graph, captured, states, host_inputs, guards, marks_step, cuts })
}

/// The number in a tensor, an integer of one element. The number may decide shapes. An eager program reads it here. A
/// compiled function is cut here, and its trace ends with the error of an unknown size unless the size was given.
///
/// Errors: Value for a negative number, and within the body of an op, where every run has the same shapes; those of
/// [`Channel::value`].
pub fn size(h: &Handle, site: CallSite) -> Result<usize> {
    if h.fact().value.is_none() && is_tracing() {
        return with("size", |t| t.size(h, site)).map_err(|e| e.with_call_site(site));
    }
    let read = h.channel().value(h).and_then(|n| size_of(&n));
    read.map_err(|e| e.with_call_site(site))
}

/// The size in a number that was read. Errors: Value for a negative number, and for another count of elements than one.
pub fn size_of(n: &HostTensor) -> Result<usize> {
    match n.to_i64_vec()[..] {
        [n] => usize::try_from(n).map_err(|_| Error::new(ErrorKind::Value, format!("{n} is no size"))),
        _ => Err(Error::new(ErrorKind::Value, format!("{} elements are no single size", n.elems()))),
    }
}

/// A new state of the function that this thread traces. Its first version is `h`, and it has a handle of its own. So
/// two cells that hold one tensor are two states, and a tensor that was taken out of a cell before is no state. `None`
/// if this thread traces no function but only the body of an op, and for a tensor of another device.
pub fn state(h: &Handle) -> Option<Handle> {
    TRACE.with(|t| {
        let mut t = t.as_mut()?;
        while t.is_body {
            t = t.outer.as_deref_mut()?;
        }
        if t.ended().is_some() || t.device != h.channel().device() {
            return None;
        }
        let fact = Fact { value: None, ..h.fact().clone() };
        let v = t.builder.state(fact.clone(), Some(&format!("s{}", t.captured.len())));
        let own = t.handle(&h.channel(), v, fact, None);
        t.captured.push(h.clone());
        t.states.push(Some(own.id()));
        Some(own)
    })
}

/// A tensor of type `fact` whose value `f` writes: now in an eager program, before every run in a compiled one. Errors:
/// those of `f`; Closed.
#[track_caller]
pub fn host_input(channel: &Channel, fact: Fact, f: HostInput) -> Result<Handle> {
    if !is_tracing() {
        return channel.put(&host_value(&fact, &f)?);
    }
    with("host input", |t| {
        if t.is_body {
            let text = "a loop or a branch would read a value of the host once for all of its runs; do it outside and \
                        use the tensor";
            return Err(Error::new(ErrorKind::Value, text));
        }
        let name = format!("host{}", t.host_inputs.len());
        t.host_inputs.push(f);
        Ok(t.input(channel, &fact, &name))
    })
}

/// A random key, `u64 [2]`, which `next` draws: now in an eager program, before every run in a compiled one. Within the
/// body of an op the key is drawn outside, once a run of the op. If the body runs in steps, it is folded with the
/// number of the step, so that every step has a key of its own. Errors: those of `next`; Closed.
#[track_caller]
pub fn random_key(channel: &Channel, next: HostInput) -> Result<Handle> {
    let step = TRACE.with(|t| t.as_ref().filter(|t| t.is_body).map(|t| t.step.clone()));
    let Some(step) = step else { return host_input(channel, Fact::new(DType::U64, [2]), next) };
    let key = {
        let _outside = Outside::step();
        random_key(channel, next)?
    };
    match step {
        Some(step) => Tracer(channel).apply1(FoldIn {}, [key, step]),
        None => Ok(key),
    }
}

/// The present value of a host input. Errors: those of `f`.
pub fn host_value(fact: &Fact, f: &HostInput) -> Result<HostTensor> {
    let mut value = HostTensor::zeros(fact.dtype, fact.shape.clone())?;
    f(value.bytes_mut())?;
    Ok(value)
}

/// While tracing, notes a condition: the graph stands for the function as long as the condition returns true.
pub fn guard(donated_from: impl Fn() -> bool + Send + Sync + 'static) {
    TRACE.with(|t| {
        if let Some(t) = t.as_mut().filter(|t| t.ended().is_none()) {
            t.guards.push(Box::new(donated_from));
        }
    });
}

/// While tracing, makes the trace fail: `what` would happen only now and in no later run. The error says so.
#[track_caller]
pub fn refuse(what: &str) {
    if !is_tracing() {
        return;
    }
    let text = format!("{what} within a compiled function would happen only while it is compiled; do it outside");
    fail(Error::new(ErrorKind::Value, text).with_call_site(CallSite::here()));
}

/// While tracing, makes the trace fail with `e`.
pub fn fail(e: Error) {
    TRACE.with(|t| {
        if let Some(t) = t.as_mut().filter(|t| t.ended().is_none()) {
            t.refused.get_or_insert(e);
        }
    });
}

impl Tracing {
    fn handle(&mut self, channel: &Channel, v: ValueId, fact: Fact, site: Option<CallSite>) -> Handle {
        let h = channel.traced_handle(fact);
        if !self.is_body {
            self.made.push((Arc::downgrade(&h.0), site));
        }
        self.values.insert(h.id(), v);
        h
    }

    fn input(&mut self, channel: &Channel, fact: &Fact, name: &str) -> Handle {
        let v = self.builder.input(fact.clone(), Some(name));
        self.handle(channel, v, Fact { value: None, ..fact.clone() }, None)
    }

    /// The error of every call after an unknown size.
    fn ended(&self) -> Option<Error> {
        let known = self.sizes.as_ref()?.len();
        let cut = self.cuts.get(known)?;
        let text = format!("a size that only a run knows ends the trace here, at {}: pass the error on", cut.site);
        Some(Error::new(ErrorKind::NoValue, text))
    }

    fn size(&mut self, h: &Handle, site: CallSite) -> Result<usize> {
        let Some(sizes) = &self.sizes else {
            let text =
                "a loop, a branch or a call is planned before it runs: no value of a run can decide a shape there";
            return Err(Error::new(ErrorKind::Value, text));
        };
        if self.device != h.channel().device() {
            return Err(Error::new(
                ErrorKind::Device,
                "a compiled function works on the device that it was compiled for",
            ));
        }
        let sizes = sizes.clone();
        let value = self.value_of(h)?;
        // a number that was asked for before is known
        if let Some(n) = self.cuts.iter().position(|c| c.value == value).and_then(|k| sizes.get(k)) {
            return Ok(*n);
        }
        if self.cuts.len() >= MOST_SIZES {
            let text = format!("more than {MOST_SIZES} sizes that only a run knows in one compiled function");
            return Err(Error::new(ErrorKind::Value, text));
        }
        let known = sizes.get(self.cuts.len()).copied();
        self.cuts.push(GraphBreak { value, extent: self.builder.prefix(), site });
        known.ok_or_else(|| self.ended().unwrap_or_else(|| none("size")))
    }

    fn value_of(&mut self, h: &Handle) -> Result<ValueId> {
        if let Some(v) = self.values.get(&h.id()) {
            return Ok(*v);
        }
        if h.is_traced() && !self.is_body {
            return Err(Error::new(ErrorKind::Value, "a tensor of another, earlier trace"));
        }
        let v = match self.is_body {
            true => self.builder.input(h.fact().clone(), None),
            false => self.builder.state(h.fact().clone(), Some(&format!("s{}", self.captured.len()))),
        };
        self.captured.push(h.clone());
        self.states.push(None);
        self.values.insert(h.id(), v);
        Ok(v)
    }
}

/// The error of a trace's tensor that is kept beyond the trace, though it never has a value.
fn kept(site: Option<CallSite>) -> Error {
    let text = "a tensor that the compiled function made is kept beyond it, and would stay what it was in the first call; \
                return it, or keep it in a `Parameter`, which every run updates";
    let e = Error::new(ErrorKind::Value, text);
    match site {
        Some(site) => e.with_call_site(site),
        None => e,
    }
}

/// A channel of a thread that traces. Its calls become nodes of the graph.
pub(super) struct Tracer<'c>(pub(super) &'c Channel);

impl Tracer<'_> {
    fn node(&self, op: OpRef, x: &[Handle], site: CallSite) -> Result<SmallVec<[Handle; 2]>> {
        let channel = self.0;
        with("apply", |t| {
            if t.device != channel.device() {
                let text = "a compiled function works on the device that it was compiled for";
                return Err(Error::new(ErrorKind::Device, text).with_op(op.label()).with_call_site(site));
            }
            let x: SmallVec<[ValueId; 4]> = x.iter().map(|h| t.value_of(h)).collect::<Result<_>>()?;
            t.builder.set_scope(Scope::current());
            let y = t.builder.node(op, &x, Some(site))?;
            y.into_iter()
                .map(|v| {
                    let fact = t.builder.fact_of(v)?;
                    Ok(t.handle(channel, v, fact, Some(site)))
                })
                .collect()
        })
    }
}

impl Apply for Tracer<'_> {
    type Value = Handle;

    #[track_caller]
    fn apply(&self, op: OpRef, x: SmallVec<[Handle; 4]>) -> Result<SmallVec<[Handle; 2]>> {
        self.node(op, &x, CallSite::here())
    }

    fn fact(&self, v: &Handle) -> Fact {
        v.fact().clone()
    }
}

impl Target for Tracer<'_> {
    fn update(&self, op: OpRef, x: SmallVec<[Handle; 4]>, fallback: Fallback, site: CallSite) -> Applied {
        self.node(op, &x, site).map_err(|error| NotUpdated { error, old: kept_inputs(&x, &fallback) })
    }

    /// Adds a constant.
    fn put(&self, data: &HostTensor, _: CallSite) -> Result<Handle> {
        with("put", |t| {
            let v = t.builder.constant(data);
            Ok(t.handle(self.0, v, Fact::of(data), None))
        })
    }

    fn put_as(&self, data: &HostTensor, _: crate::report::Kind, site: CallSite) -> Result<Handle> {
        self.put(data, site)
    }

    fn copy_from(&self, _: &Handle, _: CallSite) -> Result<Handle> {
        let text = "a compiled function works on one device: copy tensors there before it is called";
        Err(Error::new(ErrorKind::Device, text))
    }

    /// A step that ends here ends in every run.
    fn mark_step(&self) -> Result<()> {
        with("step mark", |t| {
            t.marks_step = true;
            Ok(())
        })
    }

    fn give_up_step(&self) -> Result<()> {
        self.mark_step()
    }

    /// A trace fails in the call itself, so there is nothing to report later.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn check_step(&self) -> Result<()> {
        Ok(())
    }

    fn meet_again(&self) -> Result<()> {
        Ok(())
    }
}

/// Errors (NoValue) for a tensor of a trace.
pub(super) fn no_value(h: &Handle) -> Result<()> {
    if !h.is_traced() {
        return Ok(());
    }
    let text = "a value was read within a compiled function, where there is none yet; return the tensor and read it \
                after the call";
    Err(Error::new(ErrorKind::NoValue, text))
}
