//! Reverse-mode differentiation over the tape.
//!
//! Nodes are visited by descending age. Each runs its cached backward graph: through the recording seam when a
//! gradient of the gradient is wanted, straight through the channel otherwise. Cotangents and saved values are handed
//! over, not shared, so that a budget sees them die as early as they can and kernels may overwrite them.

use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};

use remat_ops::{Apply, OpRef, pointwise::Binary, pointwise::BinaryFn};
use remat_runtime::{Channel, Handle, Kind};
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, HostTensor, Result, Shape, SmallVec};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Tensor;
use crate::tape::{self, Edge, Node, NodeKind, Saved, lock};

/// The seam at which gradients of gradients are recorded; errors carry the forward call's place.
struct Recording(Channel, CallSite);

impl Apply for Recording {
    type Value = Tensor;

    fn apply(&self, op: OpRef, x: SmallVec<[Tensor; 4]>) -> Result<SmallVec<[Tensor; 2]>> {
        tape::apply_on(&self.0, op, x, self.1)
    }

    fn fact(&self, v: &Tensor) -> Fact {
        v.handle.fact().clone()
    }
}

/// The seam at which nothing is recorded; errors carry the forward call's place.
struct Plain(Channel, CallSite);

impl Apply for Plain {
    type Value = Handle;

    fn apply(&self, op: OpRef, x: SmallVec<[Handle; 4]>) -> Result<SmallVec<[Handle; 2]>> {
        self.0.apply_at(op, x, SmallVec::new(), self.1)
    }

    fn fact(&self, v: &Handle) -> Fact {
        v.fact().clone()
    }
}

/// Nodes ordered by age for the heap.
struct ByAge(Arc<Node>);
impl PartialEq for ByAge {
    fn eq(&self, o: &Self) -> bool {
        self.0.seq == o.0.seq
    }
}
impl Eq for ByAge {}
impl PartialOrd for ByAge {
    fn partial_cmp(&self, o: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for ByAge {
    fn cmp(&self, o: &Self) -> std::cmp::Ordering {
        self.0.seq.cmp(&o.0.seq)
    }
}

type NodeId = *const Node;

/// One backward pass.
struct Sweep {
    create_graph: bool,
    retain_graph: bool,
    cotangents: FxHashMap<NodeId, SmallVec<[Option<Tensor>; 2]>>,
    queue: BinaryHeap<ByAge>,
    queued: FxHashSet<NodeId>,
    site: CallSite,
}

impl Sweep {
    fn add(&mut self, edge: &Edge, g: Tensor) -> Result<()> {
        let id = Arc::as_ptr(&edge.node);
        let slots = self.cotangents.entry(id).or_insert_with(|| SmallVec::from_elem(None, edge.node.y_facts.len()));
        let slot = &mut slots[edge.output];
        *slot = Some(match slot.take() {
            None => g,
            Some(have) => {
                let add = OpRef::new(Binary { f: BinaryFn::Add });
                let x: SmallVec<[Tensor; 4]> = SmallVec::from_iter([have, g]);
                tape::apply(add, x, self.site)?.swap_remove(0)
            }
        });
        if self.queued.insert(id) {
            self.queue.push(ByAge(edge.node.clone()));
        }
        Ok(())
    }

    /// Visits all nodes; `done` gets each leaf's complete gradient, and `wanted` ones that are no leaves are kept.
    fn run(
        &mut self,
        wanted: &FxHashMap<NodeId, usize>,
        mut done: impl FnMut(&Arc<Node>, Tensor) -> Result<()>,
    ) -> Result<()> {
        while let Some(ByAge(node)) = self.queue.pop() {
            let id = Arc::as_ptr(&node);
            let Some(dy) = self.cotangents.remove(&id) else { continue };
            if wanted.contains_key(&id) || matches!(node.kind, NodeKind::Leaf(_)) {
                if let Some(g) = dy.first().cloned().flatten() {
                    done(&node, g)?;
                }
                if matches!(node.kind, NodeKind::Leaf(_)) {
                    continue;
                }
            }
            let edges: SmallVec<[Option<Edge>; 4]> = lock(&node.inputs).clone();
            let grads = match &node.kind {
                NodeKind::Leaf(_) => continue,
                NodeKind::Custom { backward, name } => {
                    let dy: Vec<Option<Tensor>> = dy.into_iter().collect();
                    let g = backward(&dy).map_err(|e| e.with_op(name).with_call_site(node.site))?;
                    if g.len() != edges.len() {
                        let text = format!("backward gives {} gradients for {} inputs", g.len(), edges.len());
                        return Err(Error::new(ErrorKind::Arity, text).with_op(name).with_call_site(node.site));
                    }
                    g
                }
                NodeKind::Op { .. } => self.run_op(&node, dy)?,
            };
            if !self.retain_graph {
                lock(&node.inputs).clear();
            }
            for (edge, g) in edges.iter().zip(grads) {
                if let (Some(edge), Some(g)) = (edge, g) {
                    self.add(edge, g)?;
                }
            }
        }
        Ok(())
    }

    fn run_op(&self, node: &Arc<Node>, dy: SmallVec<[Option<Tensor>; 2]>) -> Result<Vec<Option<Tensor>>> {
        let NodeKind::Op { key, saved } = &node.kind else { return Ok(Vec::new()) };
        let freed = || {
            let text =
                "this part of the graph was freed by an earlier backward; use retain_graph to go through it again";
            Error::new(ErrorKind::NoValue, text).with_op(key.op.label()).with_call_site(node.site)
        };
        let saved: Saved = if self.retain_graph {
            let s = lock(saved);
            let s = s.as_ref().ok_or_else(freed)?;
            Saved { x: s.x.clone(), y: s.y.clone() }
        } else {
            lock(saved).take().ok_or_else(freed)?
        };
        let mut actual = (**key).clone();
        actual.has_dy = dy.iter().map(Option::is_some).collect();
        let channel = dy.iter().flatten().next().map(|t| t.handle.channel());
        let Some(channel) = channel else { return Ok(Vec::new()) };
        let backward = channel.backward(actual, &node.y_facts)?;
        let at = node.site;
        if self.create_graph {
            let y =
                saved.y.into_iter().enumerate().map(|(output, h)| {
                    h.map(|handle| Tensor { handle, edge: Some(Edge { node: node.clone(), output }) })
                });
            let inputs = saved.x.into_iter().chain(y).chain(dy.into_iter().filter(Option::is_some)).collect();
            let grads = backward.fragment.run(&Recording(channel, at), inputs, &backward.grads);
            return grads.map_err(in_backward);
        }
        let x = saved.x.into_iter().map(|t| t.map(|t| t.handle));
        let dy = dy.into_iter().filter(Option::is_some).map(|t| t.map(|t| t.handle));
        let inputs = x.chain(saved.y).chain(dy).collect();
        let grads = backward.fragment.run(&Plain(channel, at), inputs, &backward.grads);
        let grads = grads.map_err(in_backward)?;
        Ok(grads.into_iter().map(|g| g.map(Tensor::from_handle)).collect())
    }
}

fn in_backward(e: Error) -> Error {
    e.context("in the backward pass")
}

fn edge_of(y: &Tensor) -> Result<&Edge> {
    y.edge.as_ref().ok_or_else(|| {
        let text = "the tensor depends on nothing that requires a gradient, or was made within no_grad";
        Error::new(ErrorKind::NotDifferentiable, text)
    })
}

fn seed(y: &Tensor, dy: Option<&Tensor>) -> Result<Tensor> {
    let fact = y.handle.fact();
    match dy {
        Some(dy) if dy.handle.fact().same_type(fact) => Ok(dy.detach()),
        Some(dy) => {
            let f = dy.handle.fact();
            let text = format!("the cotangent is {} {}, the tensor {} {}", f.dtype, f.shape, fact.dtype, fact.shape);
            Err(Error::new(ErrorKind::Shape, text))
        }
        None => ones(y),
    }
}

fn ones(y: &Tensor) -> Result<Tensor> {
    let fact = y.handle.fact();
    let one = HostTensor::from_f64_slice(&[1.0], fact.dtype, Shape::scalar())?;
    Tensor::from_handle(y.handle.channel().put(&one)?).broadcast_to(fact.shape.clone())
}

fn sweep(create_graph: bool, retain_graph: bool, site: CallSite) -> Sweep {
    Sweep {
        create_graph,
        retain_graph: retain_graph || create_graph,
        cotangents: FxHashMap::default(),
        queue: BinaryHeap::new(),
        queued: FxHashSet::default(),
        site,
    }
}

/// Accumulates the gradient of `y` (times `dy`, by default ones) into every leaf it depends on.
pub(crate) fn backward(y: &Tensor, dy: Option<&Tensor>, retain_graph: bool, site: CallSite) -> Result<()> {
    let edge = edge_of(y).map_err(|e| e.with_call_site(site))?;
    let mut s = sweep(false, retain_graph, site);
    let quiet = tape::no_grad();
    s.add(edge, seed(y, dy)?)?;
    s.run(&FxHashMap::default(), |node, g| {
        let NodeKind::Leaf(leaf) = &node.kind else { return Ok(()) };
        for hook in lock(&leaf.hooks).iter() {
            hook(&g)?;
        }
        let mut slot = lock(&leaf.grad);
        let sum = match slot.take() {
            Some(have) => {
                let x: SmallVec<[Tensor; 4]> = SmallVec::from_iter([have, g]);
                tape::apply(OpRef::new(Binary { f: BinaryFn::Add }), x, site)?.swap_remove(0)
            }
            None => g,
        };
        sum.handle.channel().tag(&sum.handle, Kind::Gradient)?;
        *slot = Some(sum);
        Ok(())
    })?;
    drop(quiet);
    Ok(())
}

/// Gradients of the sum of `y` with respect to `x`, without touching any leaf's accumulated gradient. With
/// `create_graph` they are themselves differentiable. `None` where `y` does not depend on `x[i]`.
///
/// Errors: NotDifferentiable if nothing requires a gradient; those of the ops.
#[track_caller]
pub fn grad(y: &Tensor, x: &[&Tensor], create_graph: bool) -> Result<Vec<Option<Tensor>>> {
    grad_with(y, None, x, create_graph)
}

/// As [`grad`], with a cotangent `dy` of `y`'s dtype and shape.
#[track_caller]
pub fn grad_with(y: &Tensor, dy: Option<&Tensor>, x: &[&Tensor], create_graph: bool) -> Result<Vec<Option<Tensor>>> {
    let site = CallSite::here();
    let edge = edge_of(y).map_err(|e| e.with_call_site(site))?;
    let mut wanted: FxHashMap<NodeId, usize> = FxHashMap::default();
    let mut places: Vec<Option<(NodeId, usize)>> = Vec::new();
    for x in x {
        let e = edge_of(x).map_err(|e| e.with_call_site(site))?;
        if e.output != 0 {
            let text = "gradients of an op's second output are not offered; use detach and requires_grad on it";
            return Err(Error::new(ErrorKind::NotDifferentiable, text).with_call_site(site));
        }
        let id = Arc::as_ptr(&e.node);
        wanted.insert(id, 0);
        places.push(Some((id, e.output)));
    }
    let mut s = sweep(create_graph, true, site);
    let _quiet = (!create_graph).then(tape::no_grad);
    s.add(edge, seed(y, dy)?)?;
    let mut found: FxHashMap<NodeId, Tensor> = FxHashMap::default();
    s.run(&wanted, |node, g| {
        found.insert(Arc::as_ptr(node), g);
        Ok(())
    })?;
    Ok(places.into_iter().map(|p| p.and_then(|(id, _)| found.get(&id).cloned())).collect())
}

/// A function with a gradient of the caller's own: `y` was computed from `x` (its own history is ignored), and
/// `backward` gives one gradient per input from those of the outputs.
///
/// Errors: Arity without inputs; in the backward pass, if it gives another number of gradients than there are inputs.
#[track_caller]
pub fn custom(
    name: &'static str,
    x: &[&Tensor],
    y: Vec<Tensor>,
    backward: impl Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    if x.is_empty() || y.is_empty() {
        return Err(Error::new(ErrorKind::Arity, "a custom function needs inputs and outputs").with_op(name));
    }
    if !tape::is_recording() || x.iter().all(|t| t.edge.is_none()) {
        return Ok(y.iter().map(Tensor::detach).collect());
    }
    let seq = y.iter().map(|t| t.handle.id().order()).max().unwrap_or(0);
    let seq = x.iter().flat_map(|t| &t.edge).map(|e| e.node.seq + 1).max().unwrap_or(0).max(seq);
    let node = Arc::new(Node {
        kind: NodeKind::Custom { backward: Box::new(backward), name },
        seq,
        inputs: Mutex::new(x.iter().map(|t| t.edge.clone()).collect()),
        y_facts: y.iter().map(|t| t.handle.fact().clone()).collect(),
        site: CallSite::here(),
    });
    Ok(y.into_iter()
        .enumerate()
        .map(|(output, t)| {
            let float = t.handle.fact().dtype.is_float() && t.handle.fact().dtype != DType::Bool;
            let edge = float.then(|| Edge { node: node.clone(), output });
            Tensor { handle: t.handle, edge }
        })
        .collect())
}
