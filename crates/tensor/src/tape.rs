//! The tape: which tensors came from which by what, kept as nodes that point from result to inputs.
//!
//! A node keeps only the forward values that the op's backward graph reads (the save mask). It is freed with the last
//! tensor that leads to it; freeing walks an explicit list, so that a deep graph cannot overflow the stack.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_ops::{BackwardKey, OpRef};
use remat_runtime::{Channel, Handle};
use remat_types::{CallSite, Error, ErrorKind, Fact, Result, SmallVec};

use crate::Tensor;

thread_local! {
    static NO_GRAD: Cell<u32> = const { Cell::new(0) };
}

/// While this value lives, its thread records nothing.
pub struct NoGrad(std::marker::PhantomData<*const ()>);

/// Stops recording on this thread until the returned value is dropped.
#[must_use]
pub fn no_grad() -> NoGrad {
    NO_GRAD.with(|n| n.set(n.get() + 1));
    NoGrad(std::marker::PhantomData)
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        NO_GRAD.with(|n| n.set(n.get() - 1));
    }
}

/// True unless this thread is within [`no_grad`].
pub fn is_recording() -> bool {
    NO_GRAD.with(|n| n.get() == 0)
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called with a leaf's gradient when it is complete.
pub(crate) type Hook = Box<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;

/// A tensor whose gradient is wanted.
#[derive(Default)]
pub(crate) struct Leaf {
    pub(crate) grad: Mutex<Option<Tensor>>,
    pub(crate) hooks: Mutex<Vec<Hook>>,
}

/// Gives the gradients of a custom function's inputs from those of its outputs.
pub(crate) type CustomBackward = Box<dyn Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync>;

/// What an op's backward graph will read.
pub(crate) struct Saved {
    pub(crate) x: SmallVec<[Option<Tensor>; 4]>,
    pub(crate) y: SmallVec<[Option<Handle>; 2]>,
}

pub(crate) enum NodeKind {
    Leaf(Arc<Leaf>),
    Op { key: Box<BackwardKey>, saved: Mutex<Option<Saved>> },
    Custom { backward: CustomBackward, name: &'static str },
}

/// An application on the tape.
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// Grows along every path, so that descending order visits results before inputs.
    pub(crate) seq: u64,
    /// For each input, the node and output it came from, if it requires a gradient.
    pub(crate) inputs: Mutex<SmallVec<[Option<Edge>; 4]>>,
    pub(crate) y_facts: SmallVec<[Fact; 2]>,
    pub(crate) site: CallSite,
}

/// Output `output` of `node`.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) output: usize,
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut list: Vec<Arc<Node>> = Vec::new();
        let drain = |n: &mut Node, list: &mut Vec<Arc<Node>>| {
            let inputs = n.inputs.get_mut().unwrap_or_else(PoisonError::into_inner);
            list.extend(inputs.drain(..).flatten().map(|e| e.node));
            if let NodeKind::Op { saved, .. } = &mut n.kind
                && let Some(s) = saved.get_mut().unwrap_or_else(PoisonError::into_inner).take()
            {
                list.extend(s.x.into_iter().flatten().filter_map(|t| t.edge.map(|e| e.node)));
            }
        };
        drain(self, &mut list);
        while let Some(node) = list.pop() {
            if let Ok(mut node) = Arc::try_unwrap(node) {
                drain(&mut node, &mut list);
            }
        }
    }
}

impl Node {
    pub(crate) fn leaf(seq: u64, fact: Fact, leaf: Arc<Leaf>) -> Arc<Node> {
        Arc::new(Node {
            kind: NodeKind::Leaf(leaf),
            seq,
            inputs: Mutex::default(),
            y_facts: std::iter::once(fact).collect(),
            site: CallSite::here(),
        })
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
        let x: SmallVec<[Handle; 4]> = x.into_iter().map(|t| t.handle).collect();
        let y = channel.apply_at(op, x, SmallVec::new(), site)?;
        return Ok(y.into_iter().map(Tensor::from_handle).collect());
    }
    let handles: SmallVec<[Handle; 4]> = x.iter().map(|t| t.handle.clone()).collect();
    let y = channel.apply_at(op.clone(), handles, SmallVec::new(), site)?;
    let y_facts: SmallVec<[Fact; 2]> = y.iter().map(|h| h.fact().clone()).collect();
    let differentiable: SmallVec<[bool; 2]> = y_facts.iter().map(|f| f.dtype.is_float()).collect();
    let plain = |f: &Fact| Fact { value: None, ..f.clone() };
    let key = BackwardKey {
        op,
        x: x.iter().map(|t| plain(t.handle.fact())).collect(),
        needs: x.iter().map(|t| t.edge.is_some()).collect(),
        has_dy: differentiable.clone(),
    };
    if !differentiable.contains(&true) {
        return Ok(y.into_iter().map(Tensor::from_handle).collect());
    }
    let keep = channel.saves(&key, &y_facts).map_err(|e| e.with_call_site(site))?;
    let edges = x.iter().map(|t| t.edge.clone()).collect();
    let saved = Saved {
        x: x.into_iter().zip(&keep.x).map(|(t, save)| save.then_some(t)).collect(),
        y: y.iter().zip(&keep.y).map(|(h, save)| save.then(|| h.clone())).collect(),
    };
    let seq = y.first().map_or(0, |h| h.id().order());
    let kind = NodeKind::Op { key: Box::new(key), saved: Mutex::new(Some(saved)) };
    let node = Arc::new(Node { kind, seq, inputs: Mutex::new(edges), y_facts, site });
    Ok(y.into_iter()
        .enumerate()
        .map(|(output, handle)| {
            let edge = differentiable[output].then(|| Edge { node: node.clone(), output });
            Tensor { handle, edge }
        })
        .collect())
}
