//! The tape: which tensors came from which by what, kept as nodes that point from result to inputs.
//!
//! A node keeps only the forward values that the op's backward graph reads (the save mask). It is freed with the last
//! tensor that leads to it; freeing walks an explicit list, so that a deep graph cannot overflow the stack. A pass that
//! does not retain the graph takes what the nodes kept, and a later one that comes by is an error, not a missing term.

mod captured;
mod frame;
mod recorded;
mod rows;

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use remat_ops::{Apply, OpRef};
use remat_runtime::{Channel, Device, Handle, tracing};
use remat_types::context::Mode;
use remat_types::{
    CallSite, DType, Error, ErrorKind, Fact, HostTensor, Result, Scalar, Scope, Shape, SmallVec, for_dtype,
};

pub(crate) use captured::{Restored, Restores, capture_gradient, guard_hooks};
pub use captured::{StateCell, capture_state, captured_version};
pub(crate) use frame::Frame;
pub(crate) use recorded::Recorded;
pub use rows::RowGrad;
pub(crate) use rows::{keep_rows, mark_lookup};

use crate::Tensor;

/// While this value lives, its thread records nothing.
pub struct NoGrad(std::marker::PhantomData<*const ()>);

/// Stops recording on this thread until the returned value is dropped.
#[must_use]
pub fn no_grad() -> NoGrad {
    Mode::Unrecorded.replace(Mode::Unrecorded.depth() + 1);
    NoGrad(std::marker::PhantomData)
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        Mode::Unrecorded.replace(Mode::Unrecorded.depth().saturating_sub(1));
    }
}

/// While this value lives, its thread records, though it is within [`no_grad`].
pub struct Recording {
    before: u32,
    _own_thread: std::marker::PhantomData<*const ()>,
}

/// Records on this thread until the returned value is dropped: for the backward function of a [`custom`](crate::custom) one that makes
/// part of its forward pass again, and the backward pass of that.
#[must_use]
pub fn recording() -> Recording {
    Recording { before: Mode::Unrecorded.replace(0), _own_thread: std::marker::PhantomData }
}

impl Drop for Recording {
    fn drop(&mut self) {
        Mode::Unrecorded.replace(self.before);
    }
}

/// True unless this thread is within [`no_grad`].
pub fn is_recording() -> bool {
    !Mode::Unrecorded.is_on()
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A function that a leaf calls with its gradient, once a pass has completed the gradient.
#[derive(Clone)]
pub(crate) struct Hook {
    /// Gives what takes the gradient's place, if anything.
    pub(crate) f: Arc<HookFn>,
    /// A part of what the gradient is, so that `grad` calls it, which accumulates nothing.
    pub(crate) is_of_value: bool,
}
pub(crate) type HookFn = dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync;

/// A hook that was given to a leaf, by which it can be taken out again; dropping this leaves the hook where it is.
#[derive(Clone, Debug)]
pub struct GradHook {
    leaf: Weak<Leaf>,
    /// Held by the leaf: a hook may own what holds this.
    hook: Weak<HookFn>,
}

impl GradHook {
    pub(crate) fn give(leaf: &Arc<Leaf>, hook: Hook) -> GradHook {
        let given = GradHook { leaf: Arc::downgrade(leaf), hook: Arc::downgrade(&hook.f) };
        lock(&leaf.hooks).push(hook);
        given
    }

    /// Takes the hook out. A pass under way may still call it. Does nothing a second time.
    pub fn remove(&self) {
        let Some(leaf) = self.leaf.upgrade() else { return };
        let mut hooks = lock(&leaf.hooks);
        let place = hooks.iter().position(|h| std::ptr::addr_eq(Arc::as_ptr(&h.f), self.hook.as_ptr()));
        let hook = place.map(|i| hooks.remove(i));
        // what it owns goes without the lock: that may be anything
        drop(hooks);
        drop(hook);
    }
}

/// A tensor whose gradient is wanted.
pub(crate) struct Leaf {
    pub(crate) grad: Mutex<Option<Tensor>>,
    /// The gradient as rows; none while there is another.
    pub(crate) rows: Mutex<Vec<RowGrad>>,
    /// Of a gradient that is there: it is that of all ranks together.
    pub(crate) is_grad_reduced: AtomicBool,
    pub(crate) hooks: Mutex<Vec<Hook>>,
    /// Made while its thread traced, so that no later run knows it.
    pub(crate) is_of_trace: bool,
}

impl Default for Leaf {
    fn default() -> Self {
        Leaf {
            grad: Mutex::default(),
            rows: Mutex::default(),
            is_grad_reduced: AtomicBool::new(false),
            hooks: Mutex::default(),
            is_of_trace: tracing::is_tracing(),
        }
    }
}

/// Gives the gradients of a custom function's inputs from those of its outputs, and what was kept.
type CustomBackwardFn = dyn Fn(&[Option<Tensor>], &[Tensor]) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// A value that a custom function keeps for its backward pass: how it is found again with its history, so that the gradient of a
/// gradient has all its parts.
#[derive(Clone, Debug)]
pub enum Kept {
    /// As it is, history and all: an input of the function, or what has nothing to do with it.
    Value(Tensor),
    /// The function's output of this number. Kept as itself it would keep its own graph, and neither would ever be freed.
    Output(usize),
    /// Made on the way from the inputs, with nothing recorded: a gradient that has to pass it is an error, not a missing term.
    Intermediate(Tensor),
}

/// The backward pass of a custom function.
#[derive(Clone)]
pub(crate) struct CustomBackward {
    pub(crate) f: Arc<CustomBackwardFn>,
    pub(crate) kept: SmallVec<[Kept; 4]>,
    /// The handles of outputs that are kept.
    pub(crate) y: SmallVec<[Option<Handle>; 2]>,
}

/// The required dtype, shape and device of a gradient.
pub(crate) struct TensorSpec {
    pub(crate) fact: Fact,
    pub(crate) device: Device,
}

impl TensorSpec {
    pub(crate) fn of(t: &Tensor) -> TensorSpec {
        TensorSpec { fact: Fact { value: None, ..t.handle.fact().clone() }, device: t.device() }
    }

    /// Errors (Shape, Device) unless `g` could be the gradient of a tensor of this place.
    pub(crate) fn check(&self, g: &Tensor) -> Result<()> {
        let (own, f) = (&self.fact, g.handle.fact());
        if !f.same_type(own) {
            let text = format!("a gradient of {} {} for {} {}", f.dtype, f.shape, own.dtype, own.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        if g.device() != self.device {
            return Err(Error::new(ErrorKind::Device, "a gradient on another device than its tensor"));
        }
        Ok(())
    }
}

/// The values that an op's backward graph will read.
pub(crate) struct Saved {
    pub(crate) x: SmallVec<[Option<Tensor>; 4]>,
    pub(crate) y: SmallVec<[Option<Handle>; 2]>,
}

pub(crate) enum NodeKind {
    Leaf(Arc<Leaf>),
    Op {
        recorded: Arc<Recorded>,
        saved: Mutex<Option<Saved>>,
        /// A lookup of rows whose gradient a backward pass leaves as rows; see [`mark_lookup`].
        keeps_rows: AtomicBool,
    },
    Custom {
        backward: Mutex<Option<CustomBackward>>,
        x: Vec<TensorSpec>,
        name: &'static str,
    },
    /// A compiled function: what it was made of is not known, so no gradient can pass.
    Compiled,
    /// A value on the way within the custom function of this name: as `Compiled`.
    Within(&'static str),
}

/// An application on the tape.
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// The age of the results, but above that of all inputs, whatever device they are of and however old a custom
    /// function's results are: so descending order visits results before inputs.
    pub(crate) seq: u64,
    /// For each input, the node and output it came from, if it requires a gradient.
    pub(crate) inputs: Mutex<SmallVec<[Option<Edge>; 4]>>,
    /// How many results it has.
    pub(crate) outputs: usize,
    pub(crate) site: CallSite,
    /// The part of the program, whose backward pass this is too.
    pub(crate) scope: Option<Arc<str>>,
}

/// Output `output` of `node`.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) output: usize,
}

/// The contents of a dropped node.
struct Remains {
    _inputs: SmallVec<[Option<Edge>; 4]>,
    _saved: Option<Saved>,
    _backward: Option<CustomBackward>,
}

thread_local! {
    /// While this thread drops what a node held: what the nodes held that this is dropped with.
    static DYING: RefCell<Option<Vec<Remains>>> = const { RefCell::new(None) };
}

impl Drop for Node {
    fn drop(&mut self) {
        let (mut saved_values, mut function) = (None, None);
        match &mut self.kind {
            NodeKind::Op { saved, .. } => saved_values = saved.get_mut().unwrap_or_else(PoisonError::into_inner).take(),
            NodeKind::Custom { backward, .. } => {
                function = backward.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            }
            NodeKind::Leaf(_) | NodeKind::Compiled | NodeKind::Within(_) => {}
        }
        let inputs = std::mem::take(self.inputs.get_mut().unwrap_or_else(PoisonError::into_inner));
        let remains = Remains { _inputs: inputs, _saved: saved_values, _backward: function };
        // Whatever leads from here to the next node, tensors that a custom function captured included, that node comes by
        // here as well and leaves what it held to the first.
        let first = DYING.try_with(|dying| match &mut *dying.borrow_mut() {
            Some(list) => {
                list.push(remains);
                false
            }
            none => {
                *none = Some(vec![remains]);
                true
            }
        });
        if first == Ok(true) {
            while let Some(next) = DYING.with_borrow_mut(|d| d.as_mut().and_then(Vec::pop)) {
                drop(next);
            }
            DYING.set(None);
        }
    }
}

/// The least [`Node::seq`] of what is made from these.
pub(crate) fn after(edges: &[Option<Edge>]) -> u64 {
    edges.iter().flatten().map(|e| e.node.seq + 1).max().unwrap_or(0)
}

impl Node {
    /// True if a pass took what the node kept.
    pub(crate) fn is_freed(&self) -> bool {
        match &self.kind {
            NodeKind::Leaf(_) => false,
            // Whatever is wanted may lie behind it: who comes by is told.
            NodeKind::Compiled | NodeKind::Within(_) => true,
            NodeKind::Op { saved, .. } => lock(saved).is_none(),
            NodeKind::Custom { backward, .. } => lock(backward).is_none(),
        }
    }

    pub(crate) fn leaf(seq: u64, leaf: Arc<Leaf>) -> Arc<Node> {
        Arc::new(Node {
            kind: NodeKind::Leaf(leaf),
            seq,
            inputs: Mutex::default(),
            outputs: 1,
            site: CallSite::here(),
            scope: None,
        })
    }
}

/// Where a result of a compiled function comes from, as far as that is known.
pub(crate) fn compiled(y: &Tensor, x: &[&Tensor], site: CallSite) -> Edge {
    let inputs: SmallVec<[Option<Edge>; 4]> = x.iter().map(|t| t.edge.clone()).collect();
    let seq = y.handle.id().order().max(after(&inputs));
    let node =
        Node { kind: NodeKind::Compiled, seq, inputs: Mutex::new(inputs), outputs: 1, site, scope: Scope::current() };
    Edge { node: Arc::new(node), output: 0 }
}

/// The seam of the user's thread: tensors of a device, recorded where a gradient is wanted. Errors carry the place of the
/// user's call, for what is applied on its behalf: `compose::stack(&TapeCx::of(&a), [a, b], 0)`.
pub struct TapeCx(pub(crate) Channel, pub(crate) CallSite);

impl TapeCx {
    /// The seam of a device, for the call of a `#[track_caller]` method.
    #[track_caller]
    pub fn on(device: &Device) -> TapeCx {
        TapeCx(device.channel(), CallSite::here())
    }

    /// The seam of this tensor's device, for the call of a `#[track_caller]` method.
    #[track_caller]
    pub fn of(t: &Tensor) -> TapeCx {
        TapeCx(t.handle.channel(), CallSite::here())
    }
}

impl Apply for TapeCx {
    type Value = Tensor;

    fn apply(&self, op: OpRef, x: SmallVec<[Tensor; 4]>) -> Result<SmallVec<[Tensor; 2]>> {
        apply_on(&self.0, op, x, self.1)
    }

    fn fact(&self, v: &Tensor) -> Fact {
        v.handle.fact().clone()
    }

    fn scalar(&self, dtype: DType, v: Scalar) -> Result<Tensor> {
        let host = for_dtype!(dtype, T => HostTensor::from_slice(&[v.cast::<T>()], Shape::scalar()))?;
        Ok(Tensor::from_handle(self.0.put(&host)?))
    }
}

/// Applies an op to tensors, whose first names the device, and records it if a gradient is wanted.
pub(crate) fn apply(op: OpRef, x: SmallVec<[Tensor; 4]>, site: CallSite) -> Result<SmallVec<[Tensor; 2]>> {
    let Some(first) = x.first() else {
        let e = Error::new(ErrorKind::Arity, "no input names the device; use the device's channel");
        return Err(e.with_op(op.label()).with_call_site(site));
    };
    let channel = first.handle.channel();
    apply_on(&channel, op, x, site)
}

/// As [`apply`], on the channel's device: with it, ops without inputs can run too.
pub(crate) fn apply_on(
    channel: &Channel,
    op: OpRef,
    x: SmallVec<[Tensor; 4]>,
    site: CallSite,
) -> Result<SmallVec<[Tensor; 2]>> {
    if !is_recording() || x.iter().all(|t| t.edge.is_none()) {
        if tracing::is_tracing() {
            frame::note(&x);
        }
        // Pushes, as in the channel: collecting into a SmallVec costs several times as much.
        let mut handles: SmallVec<[Handle; 4]> = SmallVec::new();
        x.into_iter().for_each(|t| handles.push(t.handle));
        let mut y: SmallVec<[Tensor; 2]> = SmallVec::new();
        channel.apply_at(op, handles, site)?.into_iter().for_each(|h| y.push(Tensor::from_handle(h)));
        return Ok(y);
    }
    let mut handles: SmallVec<[Handle; 4]> = SmallVec::new();
    x.iter().for_each(|t| handles.push(t.handle.clone()));
    let y = channel.apply_at(op.clone(), handles, site)?;
    let Some(recorded) = Recorded::of(channel, &op, &x, &y).map_err(|e| e.with_call_site(site))? else {
        return Ok(y.into_iter().map(Tensor::from_handle).collect());
    };
    let mut inputs: SmallVec<[Option<Edge>; 4]> = SmallVec::new();
    x.iter().for_each(|t| inputs.push(t.edge.clone()));
    let mut saved = Saved { x: SmallVec::new(), y: SmallVec::new() };
    x.into_iter().zip(&recorded.keep.x).for_each(|(t, save)| saved.x.push(save.then_some(t)));
    y.iter().zip(&recorded.keep.y).for_each(|(h, save)| saved.y.push(save.then(|| h.clone())));
    let seq = y.first().map_or(0, |h| h.id().order()).max(after(&inputs));
    let kind = NodeKind::Op { recorded, saved: Mutex::new(Some(saved)), keeps_rows: AtomicBool::new(false) };
    let (inputs, outputs) = (Mutex::new(inputs), y.len());
    let node = Arc::new(Node { kind, seq, inputs, outputs, site, scope: Scope::current() });
    let mut results: SmallVec<[Tensor; 2]> = SmallVec::new();
    for (output, handle) in y.into_iter().enumerate() {
        let edge = handle.fact().dtype.is_float().then(|| Edge { node: node.clone(), output });
        results.push(Tensor { handle, edge });
    }
    Ok(results)
}
