//! Reverse-mode differentiation over the tape.
//!
//! Nodes are visited by descending age, but for leaves with hooks, which are as soon as their gradients are complete (`watched.rs`). Each runs its cached backward graph: through the recording seam when a
//! gradient of the gradient is wanted, straight through the channel otherwise. Cotangents and saved values are handed
//! over, not shared, so that a budget sees them die as early as they can and kernels may overwrite them.

mod watched;

use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use remat_ops::pointwise::{Binary, BinaryFn};
use remat_ops::{Apply, Backward, BackwardKey, OpRef};
use remat_runtime::{Channel, Handle, Kind};
use remat_types::{CallSite, Error, ErrorKind, Fact, HostTensor, Result, Scope, Shape, SmallVec};
use rustc_hash::{FxHashMap, FxHashSet};

use self::watched::Watched;
use crate::Tensor;
use crate::site::InOp;
use crate::tape::{
    self, CustomBackward, Edge, Hook, Kept, Leaf, Node, NodeKind, Recorded, Saved, TapeCx, TensorSpec,
    capture_gradient, guard_hooks, lock,
};

/// The seam at which nothing is recorded; errors carry the forward call's place.
struct Plain(Channel, CallSite);

impl Apply for Plain {
    type Value = Handle;

    fn apply(&self, op: OpRef, x: SmallVec<[Handle; 4]>) -> Result<SmallVec<[Handle; 2]>> {
        self.0.apply_at(op, x, self.1)
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
    /// Gradients of lookups may stay rows: they are accumulated.
    keeps_rows: bool,
    /// The nodes on the way to the wanted tensors; `None` for all.
    way: Option<FxHashSet<NodeId>>,
    cotangents: FxHashMap<NodeId, SmallVec<[Option<Tensor>; 2]>>,
    queue: BinaryHeap<ByAge>,
    queued: FxHashSet<NodeId>,
    watched: Watched,
    site: CallSite,
}

impl Sweep {
    fn new(create_graph: bool, retain_graph: bool, site: CallSite) -> Sweep {
        Sweep {
            create_graph,
            retain_graph: retain_graph || create_graph,
            keeps_rows: false,
            way: None,
            cotangents: FxHashMap::default(),
            queue: BinaryHeap::new(),
            queued: FxHashSet::default(),
            watched: Watched::default(),
            site,
        }
    }

    fn add(&mut self, edge: &Edge, g: Tensor) -> Result<()> {
        let id = Arc::as_ptr(&edge.node);
        if self.way.as_ref().is_some_and(|w| !w.contains(&id)) {
            return Ok(());
        }
        // a custom function may return a tensor that it captured, history and all
        let g = if self.create_graph { g } else { g.detach() };
        let slots = self.cotangents.entry(id).or_insert_with(|| SmallVec::from_elem(None, edge.node.outputs));
        let slot = &mut slots[edge.output];
        *slot = Some(match slot.take() {
            None => g,
            Some(have) => sum(have, g, self.site)?,
        });
        if self.queued.insert(id) {
            self.queue.push(ByAge(edge.node.clone()));
        }
        Ok(())
    }

    /// Visits all nodes on the way; `done` gets the complete gradients of leaves and of `wanted` nodes.
    fn run(
        &mut self,
        wanted: &FxHashSet<NodeId>,
        mut done: impl FnMut(&Arc<Node>, SmallVec<[Option<Tensor>; 2]>) -> Result<()>,
    ) -> Result<()> {
        while let Some(ByAge(node)) = self.queue.pop() {
            let id = Arc::as_ptr(&node);
            let Some(dy) = self.cotangents.remove(&id) else { continue };
            if matches!(node.kind, NodeKind::Leaf(_)) {
                done(&node, dy)?;
                continue;
            }
            if wanted.contains(&id) {
                done(&node, dy.clone())?;
            }
            let edges: SmallVec<[Option<Edge>; 4]> = lock(&node.inputs).clone();
            let _scope = node.scope.clone().map(Scope::again);
            let grads = match &node.kind {
                NodeKind::Leaf(_) => continue,
                NodeKind::Compiled => return Err(compiled(node.site)),
                NodeKind::Within(name) => return Err(within(name, node.site)),
                NodeKind::Custom { backward, x, name } => {
                    self.run_custom(&node, backward, x, &dy).map_err(|e| e.with_op(name).with_call_site(node.site))?
                }
                NodeKind::Op { recorded, saved, .. } => {
                    let mut dy = dy;
                    match self.keeps_rows && tape::keep_rows(&node, &edges, &mut dy, self.retain_graph)? {
                        true => Vec::new(),
                        false => self.run_op(&node, &edges, recorded, saved, dy)?,
                    }
                }
            };
            if !self.retain_graph {
                lock(&node.inputs).clear();
            }
            self.watched.come_to(&edges, &self.queue);
            for (edge, g) in edges.iter().zip(grads) {
                if let (Some(edge), Some(g)) = (edge, g) {
                    self.add(edge, g)?;
                }
            }
            for edge in edges.iter().flatten() {
                if self.watched.is_last_use(edge)
                    && let Some(dy) = self.cotangents.remove(&Arc::as_ptr(&edge.node))
                {
                    done(&edge.node, dy)?;
                }
            }
        }
        Ok(())
    }

    fn freed(&self, op: &str) -> Error {
        let text = "this part of the graph was freed by an earlier backward; use retain_graph to go through it again";
        Error::new(ErrorKind::NoValue, text).with_op(op).with_call_site(self.site)
    }

    fn run_custom(
        &self,
        node: &Arc<Node>,
        backward: &Mutex<Option<CustomBackward>>,
        x: &[TensorSpec],
        dy: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let mut slot = lock(backward);
        let f = if self.retain_graph { slot.clone() } else { slot.take() };
        drop(slot);
        let NodeKind::Custom { name, .. } = &node.kind else { return Ok(Vec::new()) };
        let rule = f.ok_or_else(|| self.freed(name))?;
        let kept = if self.create_graph { with_history(node, name, &rule)? } else { without_history(&rule)? };
        let g = (rule.f)(dy, &kept)?;
        if g.len() != x.len() {
            let text = format!("backward gives {} gradients for {} inputs", g.len(), x.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        let fits = |(i, (g, x)): (usize, (&Option<Tensor>, &TensorSpec))| {
            g.as_ref().map_or(Ok(()), |g| x.check(g)).map_err(|e| e.context(format!("input {i}")))
        };
        g.iter().zip(x).enumerate().try_for_each(fits)?;
        Ok(g)
    }

    fn run_op(
        &self,
        node: &Arc<Node>,
        edges: &[Option<Edge>],
        recorded: &Recorded,
        saved: &Mutex<Option<Saved>>,
        dy: SmallVec<[Option<Tensor>; 2]>,
    ) -> Result<Vec<Option<Tensor>>> {
        let mut slot = lock(saved);
        let saved = match &*slot {
            Some(s) if self.retain_graph => Some(Saved { x: s.x.clone(), y: s.y.clone() }),
            _ => slot.take(),
        };
        drop(slot);
        let saved = saved.ok_or_else(|| self.freed(recorded.key.op.label()))?;
        let mut actual = recorded.key.clone();
        actual.has_dy = dy.iter().map(Option::is_some).collect();
        let channel = dy.iter().flatten().next().map(|t| t.handle.channel());
        let Some(channel) = channel else { return Ok(Vec::new()) };
        let backward = self.backward_of(&channel, recorded, actual, edges, &saved)?;
        let at = node.site;
        if self.create_graph {
            let output = |(output, h): (usize, Option<Handle>)| {
                h.map(|handle| Tensor { handle, edge: Some(Edge { node: node.clone(), output }) })
            };
            let y = saved.y.into_iter().enumerate().map(output);
            let inputs = saved.x.into_iter().chain(y).chain(dy.into_iter().filter(Option::is_some)).collect();
            let grads = backward.fragment.run(&TapeCx(channel, at), inputs, &backward.grads);
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

impl Sweep {
    /// The backward graph of an application: of the gradients on the way alone, where it reads no more than the tape kept.
    fn backward_of(
        &self,
        channel: &Channel,
        recorded: &Recorded,
        key: BackwardKey,
        edges: &[Option<Edge>],
        saved: &Saved,
    ) -> Result<Arc<Backward>> {
        if let Some(way) = &self.way {
            let on_way = |e: &Option<Edge>| e.as_ref().is_some_and(|e| way.contains(&Arc::as_ptr(&e.node)));
            let needs: SmallVec<[bool; 4]> = key.needs.iter().zip(edges).map(|(n, e)| *n && on_way(e)).collect();
            if needs != key.needs {
                let less = channel.backward(BackwardKey { needs, ..key.clone() }, &recorded.y_facts)?;
                let is_kept = less.saves_x.iter().zip(&saved.x).all(|(s, x)| !s || x.is_some())
                    && less.saves_y.iter().zip(&saved.y).all(|(s, y)| !s || y.is_some());
                if is_kept {
                    return Ok(less);
                }
            }
        }
        channel.backward(key, &recorded.y_facts)
    }
}

/// `a + b`. The sum may take the storage of either.
fn sum(a: Tensor, b: Tensor, site: CallSite) -> Result<Tensor> {
    let x: SmallVec<[Tensor; 4]> = SmallVec::from_iter([a, b]);
    Ok(tape::apply(OpRef::new(Binary { f: BinaryFn::Add }), x, site)?.swap_remove(0))
}

/// The nodes from which some of `wanted` can be reached, `wanted` included. Freed nodes are included, too, since
/// their inputs are no longer known.
fn way_to(root: &Arc<Node>, wanted: &FxHashSet<NodeId>) -> FxHashSet<NodeId> {
    let mut way = wanted.clone();
    let mut seen: FxHashSet<NodeId> = FxHashSet::default();
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    let mut stack = vec![root.clone()];
    while let Some(node) = stack.pop() {
        if seen.insert(Arc::as_ptr(&node)) {
            stack.extend(lock(&node.inputs).iter().flatten().map(|e| e.node.clone()));
            nodes.push(node);
        }
    }
    // inputs are older, so that each is decided before what was made from it
    nodes.sort_by_key(|n| n.seq);
    for node in nodes {
        if node.is_freed() || lock(&node.inputs).iter().flatten().any(|e| way.contains(&Arc::as_ptr(&e.node))) {
            way.insert(Arc::as_ptr(&node));
        }
    }
    way
}

/// The tensors that a custom function kept, for a pass that is not recorded.
fn without_history(rule: &CustomBackward) -> Result<Vec<Tensor>> {
    let one = |kept: &Kept| match kept {
        Kept::Value(t) | Kept::Intermediate(t) => Ok(t.clone()),
        Kept::Output(j) => kept_output(rule, *j).map(Tensor::from_handle),
    };
    rule.kept.iter().map(one).collect()
}

/// The tensors that a custom function kept, for a pass that is differentiated again.
fn with_history(node: &Arc<Node>, name: &'static str, rule: &CustomBackward) -> Result<Vec<Tensor>> {
    let one = |kept: &Kept| match kept {
        Kept::Value(t) => Ok(t.clone()),
        Kept::Output(output) => {
            let handle = kept_output(rule, *output)?;
            let edge = handle.fact().dtype.is_float().then(|| Edge { node: node.clone(), output: *output });
            Ok(Tensor { handle, edge })
        }
        Kept::Intermediate(t) => {
            let edge = t.dtype().is_float().then(|| {
                let inputs = lock(&node.inputs).clone();
                let seq = tape::after(&inputs);
                let (inputs, scope) = (Mutex::new(inputs), node.scope.clone());
                let within = Node { kind: NodeKind::Within(name), seq, inputs, outputs: 1, site: node.site, scope };
                Edge { node: Arc::new(within), output: 0 }
            });
            Ok(Tensor { handle: t.handle.clone(), edge })
        }
    };
    rule.kept.iter().map(one).collect()
}

fn kept_output(rule: &CustomBackward, output: usize) -> Result<Handle> {
    let none = || Error::new(ErrorKind::Internal, format!("output {output} was not kept"));
    rule.y.get(output).cloned().flatten().ok_or_else(none)
}

/// A gradient was to pass a value that a custom function made on its way.
fn within(name: &str, site: CallSite) -> Error {
    let text = "the gradient of this gradient passes a value that `forward` made on its way and saved, of which nothing is \
                recorded; save the inputs and make it again in `backward`, return it as a result, or keep it as an \
                attribute of the context if it counts as constant";
    Error::new(ErrorKind::NotDifferentiable, text).with_op(name).with_call_site(site)
}

/// A gradient was to pass a compiled function.
fn compiled(site: CallSite) -> Error {
    let text = "no gradient passes a compiled function; take the gradient within it (`grad`, or `backward` and the \
                optimiser's step), or detach what goes into it or comes out of it";
    Error::new(ErrorKind::NotDifferentiable, text).with_op("compiled").with_call_site(site)
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

fn seed(y: &Tensor, dy: Option<&Tensor>, create_graph: bool) -> Result<Tensor> {
    let Some(dy) = dy else { return ones(y) };
    TensorSpec::of(y).check(dy).map_err(|e| e.context("the cotangent"))?;
    Ok(if create_graph { dy.clone() } else { dy.detach() })
}

fn ones(y: &Tensor) -> Result<Tensor> {
    let fact = y.handle.fact();
    let one = HostTensor::from_f64_slice(&[1.0], fact.dtype, Shape::scalar())?;
    Tensor::from_handle(y.handle.channel().put(&one)?).broadcast_to(fact.shape.clone())
}

/// Accumulates the gradient of `y` (times `dy`, by default ones) into every leaf it depends on.
pub(crate) fn backward(y: &Tensor, dy: Option<&Tensor>, retain_graph: bool, site: CallSite) -> Result<()> {
    let mut s = Sweep::new(false, retain_graph, site);
    s.keeps_rows = true;
    let _quiet = tape::no_grad();
    y.handle.channel().check()?;
    edge_of(y).and_then(|edge| s.add(edge, seed(y, dy, false)?)).in_op_at("backward", site)?;
    s.run(&FxHashSet::default(), |node, mut g| {
        let (NodeKind::Leaf(leaf), Some(mut g)) = (&node.kind, g.pop().flatten()) else { return Ok(()) };
        g = hooked(leaf, g, |_| true)?.detach();
        capture_gradient(leaf);
        leaf.fold_rows(g.handle.fact(), site)?;
        let mut slot = lock(&leaf.grad);
        let grad = match slot.take() {
            Some(have) => {
                let grad = sum(have, g, site)?;
                // Of many passes over parts of a batch, each would else keep its part.
                grad.handle.channel().note_leaf(&grad.handle)?;
                grad
            }
            None => {
                leaf.is_grad_reduced.store(false, Ordering::Relaxed);
                g
            }
        };
        grad.handle.channel().tag(&grad.handle, Kind::Gradient)?;
        *slot = Some(grad);
        Ok(())
    })
}

/// The complete gradient `g` of a leaf, as its hooks that are `called` make it.
fn hooked(leaf: &Arc<Leaf>, mut g: Tensor, called: impl Fn(&Hook) -> bool) -> Result<Tensor> {
    // a copy: a hook may add another, or make a pass of its own
    let hooks = lock(&leaf.hooks).clone();
    guard_hooks(leaf, &hooks);
    for hook in hooks.iter().filter(|h| called(h)) {
        if let Some(other) = (hook.f)(&g)? {
            g = other;
        }
    }
    Ok(g)
}

/// Gradients of the sum of `y` with respect to `x`, without touching any leaf's accumulated gradient, as the hooks of [`Tensor::map_grad`]
/// make them. With
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
    let mut s = Sweep::new(create_graph, true, site);
    let _quiet = (!create_graph).then(tape::no_grad);
    let start = || -> Result<(Edge, Tensor, SmallVec<[Edge; 4]>)> {
        let x = x.iter().map(|x| edge_of(x).cloned()).collect::<Result<_>>()?;
        Ok((edge_of(y)?.clone(), seed(y, dy, create_graph)?, x))
    };
    let (root, seed, edges) = start().in_op_at("grad", site)?;
    let wanted: FxHashSet<NodeId> = edges.iter().map(|e| Arc::as_ptr(&e.node)).collect();
    s.way = Some(way_to(&root.node, &wanted));
    s.add(&root, seed)?;
    let mut found: FxHashMap<NodeId, SmallVec<[Option<Tensor>; 2]>> = FxHashMap::default();
    s.run(&wanted, |node, mut g| {
        if let (NodeKind::Leaf(leaf), [Some(g)]) = (&node.kind, &mut g[..]) {
            let hooked = hooked(leaf, g.clone(), |h| h.is_of_value)?;
            *g = if create_graph { hooked } else { hooked.detach() };
        }
        found.insert(Arc::as_ptr(node), g);
        Ok(())
    })?;
    Ok(edges.iter().map(|e| found.get(&Arc::as_ptr(&e.node))?[e.output].clone()).collect())
}

/// A function with a gradient of the caller's own: `y` was computed from `x` (its own history is ignored), and
/// `backward` gives one gradient per input from those of the outputs.
///
/// What `backward` captures is freed with the graph. Errors: Arity without inputs or outputs; in the backward pass
/// Arity for another number of gradients than there are inputs, Shape or Device for one that does not fit its input.
#[track_caller]
pub fn custom(
    name: &'static str,
    x: &[&Tensor],
    y: Vec<Tensor>,
    backward: impl Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    custom_with_kept(name, x, y, &[], move |dy, _| backward(dy))
}

/// As [`custom`] with tensors that `backward` gets beside the gradients: those of `kept`, with their history where gradients of
/// gradients are wanted.
///
/// Errors: as there; Arity for a kept output that is not there; in a pass through a gradient NotDifferentiable where it comes
/// to a [`Kept::Intermediate`].
#[track_caller]
pub fn custom_with_kept(
    name: &'static str,
    x: &[&Tensor],
    y: Vec<Tensor>,
    kept: &[Kept],
    backward: impl Fn(&[Option<Tensor>], &[Tensor]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    if let Some(j) =
        kept.iter().find_map(|k| if let Kept::Output(j) = k { Some(*j).filter(|j| *j >= y.len()) } else { None })
    {
        let text = format!("output {j} is to be kept of {}", y.len());
        return Err(Error::new(ErrorKind::Arity, text).with_op(name));
    }
    if x.is_empty() || y.is_empty() {
        return Err(Error::new(ErrorKind::Arity, "a custom function needs inputs and outputs").with_op(name));
    }
    if !tape::is_recording() || x.iter().all(|t| t.edge.is_none()) {
        return Ok(y.iter().map(Tensor::detach).collect());
    }
    let edges: SmallVec<[Option<Edge>; 4]> = x.iter().map(|t| t.edge.clone()).collect();
    let seq = y.iter().map(|t| t.handle.id().order()).max().unwrap_or(0).max(tape::after(&edges));
    let keeps = |j: usize| kept.iter().any(|k| matches!(k, Kept::Output(of) if *of == j));
    let handles = y.iter().enumerate().map(|(j, t)| keeps(j).then(|| t.handle.clone())).collect();
    let rule = CustomBackward { f: Arc::new(backward), kept: kept.iter().cloned().collect(), y: handles };
    let (backward, x) = (Mutex::new(Some(rule)), x.iter().map(|t| TensorSpec::of(t)).collect());
    let node = Arc::new(Node {
        kind: NodeKind::Custom { backward, x, name },
        seq,
        inputs: Mutex::new(edges),
        outputs: y.len(),
        site: CallSite::here(),
        scope: Scope::current(),
    });
    Ok(y.into_iter()
        .enumerate()
        .map(|(output, t)| {
            let edge = t.dtype().is_float().then(|| Edge { node: node.clone(), output });
            Tensor { handle: t.handle, edge }
        })
        .collect())
}
