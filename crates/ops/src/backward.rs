//! Gradients as small graphs.
//!
//! The gradient rule of an op runs once per (op, facts of its inputs, which inputs need one, which outputs have a
//! cotangent). It is written with ops on symbolic values ([`GradCx`]); the ops that it applies are recorded in a
//! [`Fragment`], and dead nodes are dropped. The result lists the forward inputs and outputs that it reads. The tape
//! keeps only those. Because a fragment is made of ops, running it through a recording [`Apply`] gives gradients of
//! gradients.

use std::cell::RefCell;
use std::sync::Arc;

use remat_types::{Error, ErrorKind, Fact, Result, SmallVec};
use rustc_hash::FxHashMap;

use crate::compose::Arith;
use crate::{Apply, OpRef};

/// A value of a [`Fragment`]: an input, or an output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Var(u32);

impl Var {
    /// Position in the fragment's list of values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One application within a fragment.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op to apply.
    pub op: OpRef,
    /// To what.
    pub inputs: SmallVec<[Var; 4]>,
    /// The values it makes, one per output.
    pub outputs: SmallVec<[Var; 2]>,
}

/// A small straight-line graph: its first values are the inputs, then come the nodes in order.
#[derive(Clone, Debug, Default)]
pub struct Fragment {
    /// Number of inputs.
    pub input_count: usize,
    /// The fact of every value.
    pub facts: Vec<Fact>,
    /// In an order in which every input precedes its use.
    pub nodes: Vec<Node>,
}

impl Fragment {
    /// Drops nodes that no value of `roots` needs.
    fn prune(&mut self, roots: impl Iterator<Item = Var>) {
        let mut live = vec![false; self.facts.len()];
        roots.for_each(|v| live[v.index()] = true);
        let keep: Vec<bool> = self
            .nodes
            .iter()
            .rev()
            .map(|n| {
                let needed = n.outputs.iter().any(|v| live[v.index()]);
                if needed {
                    n.inputs.iter().for_each(|v| live[v.index()] = true);
                }
                needed
            })
            .collect();
        let mut keep = keep.into_iter().rev();
        self.nodes.retain(|_| keep.next().expect("one flag per node"));
    }

    /// Runs the fragment through `to`. `inputs[i]` may be `None` where the fragment does not read it. Values are
    /// dropped after their last use, so that a budget sees their true lifetimes.
    pub fn run<A: Apply>(
        &self,
        to: &A,
        inputs: Vec<Option<A::Value>>,
        roots: &[Option<Var>],
    ) -> Result<Vec<Option<A::Value>>> {
        let mut last = vec![usize::MAX; self.facts.len()];
        for (at, n) in self.nodes.iter().enumerate() {
            n.inputs.iter().for_each(|v| last[v.index()] = at);
        }
        roots.iter().flatten().for_each(|v| last[v.index()] = usize::MAX);
        let mut values: Vec<Option<A::Value>> = inputs;
        values.resize_with(self.facts.len(), || None);
        let is_root = |v: Var| roots.contains(&Some(v));
        for i in 0..self.input_count {
            if last[i] == usize::MAX && !is_root(Var(i as u32)) {
                values[i] = None;
            }
        }
        for (at, n) in self.nodes.iter().enumerate() {
            let dies = |v: Var, k: usize| last[v.index()] == at && !is_root(v) && !n.inputs[k + 1..].contains(&v);
            let x: SmallVec<[A::Value; 4]> = (n.inputs.iter().enumerate())
                .map(|(k, &v)| if dies(v, k) { values[v.index()].take() } else { values[v.index()].clone() })
                .collect::<Option<_>>()
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a fragment reads a value that was not given"))?;
            let y = to.apply(n.op.clone(), x)?;
            for (v, y) in n.outputs.iter().zip(y) {
                if last[v.index()] != usize::MAX || is_root(*v) {
                    values[v.index()] = Some(y);
                }
            }
        }
        Ok(roots.iter().map(|r| r.and_then(|v| values[v.index()].clone())).collect())
    }
}

/// The implementer of [`Apply`] that records a fragment.
#[derive(Default)]
struct Recorder(RefCell<Fragment>);

impl Recorder {
    fn input(&self, fact: Fact) -> Var {
        let mut f = self.0.borrow_mut();
        f.facts.push(fact);
        f.input_count += 1;
        Var(f.facts.len() as u32 - 1)
    }
}

impl Apply for Recorder {
    type Value = Var;

    fn apply(&self, op: OpRef, x: SmallVec<[Var; 4]>) -> Result<SmallVec<[Var; 2]>> {
        let mut f = self.0.borrow_mut();
        let facts = {
            let x: SmallVec<[&Fact; 4]> = x.iter().map(|v| &f.facts[v.index()]).collect();
            op.infer(&x)?
        };
        let first = f.facts.len() as u32;
        let outputs: SmallVec<[Var; 2]> = (0..facts.len() as u32).map(|i| Var(first + i)).collect();
        f.facts.extend(facts);
        f.nodes.push(Node { op, inputs: x, outputs: outputs.clone() });
        Ok(outputs)
    }

    fn fact(&self, v: &Var) -> Fact {
        self.0.borrow().facts[v.index()].clone()
    }
}

/// One gradient per input.
pub type Grads = SmallVec<[Option<Var>; 4]>;

/// The context of a gradient rule: the forward inputs `x`, outputs `y`, cotangents `dy`, and ops to apply to them.
pub struct GradCx<'a> {
    recorder: &'a Recorder,
    x: SmallVec<[Var; 4]>,
    y: SmallVec<[Var; 2]>,
    dy: SmallVec<[Option<Var>; 2]>,
    needs: SmallVec<[bool; 4]>,
}

impl GradCx<'_> {
    /// Forward input `i`. Reading it makes the tape keep it.
    pub fn x(&self, i: usize) -> Var {
        self.x[i]
    }

    /// Number of forward inputs.
    pub fn x_count(&self) -> usize {
        self.x.len()
    }

    /// Forward output `j`. Reading it makes the tape keep it.
    pub fn y(&self, j: usize) -> Var {
        self.y[j]
    }

    /// The cotangent of output `j`; `None` if nothing depends on that output.
    pub fn dy(&self, j: usize) -> Option<Var> {
        self.dy[j]
    }

    /// True if input `i` needs a gradient.
    pub fn needs(&self, i: usize) -> bool {
        self.needs[i]
    }

    /// Dtype and shape of a value.
    pub fn fact(&self, v: Var) -> Fact {
        self.recorder.fact(&v)
    }

    /// Applies an op and gives all its outputs.
    pub fn apply_all(&self, op: impl Into<OpRef>, x: &[Var]) -> Result<SmallVec<[Var; 2]>> {
        self.recorder.apply(op.into(), SmallVec::from_slice(x))
    }

    /// Applies an op and gives its first output.
    pub fn apply(&self, op: impl Into<OpRef>, x: &[Var]) -> Result<Var> {
        Ok(self.apply_all(op, x)?[0])
    }

    /// Arithmetic under short names.
    pub fn build(&self) -> Arith<'_, Self> {
        Arith(self)
    }

    /// The gradients of a composite: `build` writes the forward value of this op with other ops, and their own rules
    /// give the gradient. For ops whose second derivative is not worth a kernel.
    ///
    /// `build` gets the inputs and returns one value per output of this op.
    pub fn grad_via_composite(&self, build: impl FnOnce(&Self, &[Var]) -> Result<SmallVec<[Var; 2]>>) -> Result<Grads> {
        let first = self.recorder.0.borrow().nodes.len();
        let y = build(self, &self.x)?;
        let nodes: Vec<Node> = self.recorder.0.borrow().nodes[first..].to_vec();
        let mut dvalues: FxHashMap<Var, Var> = FxHashMap::default();
        for (y, dy) in y.iter().zip(&self.dy) {
            if let Some(dy) = dy {
                self.accumulate(&mut dvalues, *y, *dy)?;
            }
        }
        let mut active: rustc_hash::FxHashSet<Var> =
            self.x.iter().zip(&self.needs).filter(|(_, n)| **n).map(|(x, _)| *x).collect();
        for n in &nodes {
            if n.inputs.iter().any(|v| active.contains(v)) {
                active.extend(n.outputs.iter().copied());
            }
        }
        for n in nodes.iter().rev() {
            let dy: SmallVec<[Option<Var>; 2]> = n.outputs.iter().map(|v| dvalues.get(v).copied()).collect();
            let needs: SmallVec<[bool; 4]> = n.inputs.iter().map(|v| active.contains(v)).collect();
            if dy.iter().all(Option::is_none) || !needs.contains(&true) {
                continue;
            }
            let mut cx = GradCx { recorder: self.recorder, x: n.inputs.clone(), y: n.outputs.clone(), dy, needs };
            let grads = n.op.grad(&mut cx)?;
            for ((v, g), need) in n.inputs.iter().zip(grads).zip(&cx.needs) {
                if let (Some(g), true) = (g, need) {
                    self.accumulate(&mut dvalues, *v, g)?;
                }
            }
        }
        Ok(self.x.iter().map(|x| dvalues.get(x).copied()).collect())
    }

    fn accumulate(&self, into: &mut FxHashMap<Var, Var>, v: Var, g: Var) -> Result<()> {
        let sum = match into.get(&v) {
            Some(&have) => self.apply(crate::pointwise::Binary { f: crate::pointwise::BinaryFn::Add }, &[have, g])?,
            None => g,
        };
        into.insert(v, sum);
        Ok(())
    }
}

impl Apply for GradCx<'_> {
    type Value = Var;

    fn apply(&self, op: OpRef, x: SmallVec<[Var; 4]>) -> Result<SmallVec<[Var; 2]>> {
        self.recorder.apply(op, x)
    }

    fn fact(&self, v: &Var) -> Fact {
        self.recorder.fact(v)
    }
}

/// The builder for gradient rules: a [`GradCx`] with arithmetic.
pub type GradBuilder<'a, 'b> = Arith<'a, GradCx<'b>>;

/// The backward graph of one op for given facts.
#[derive(Clone, Debug)]
pub struct Backward {
    /// Inputs are: every forward input, every forward output, then the cotangents that exist.
    pub fragment: Fragment,
    /// The gradient of each forward input.
    pub grads: Grads,
    /// Forward inputs that the fragment reads.
    pub saves_x: SmallVec<[bool; 4]>,
    /// Forward outputs that the fragment reads.
    pub saves_y: SmallVec<[bool; 2]>,
}

impl Backward {
    /// Runs the gradient rule of `op`. Errors: those of the rule, with the op's label.
    pub fn build(key: &BackwardKey, y: &[Fact]) -> Result<Backward> {
        let recorder = Recorder::default();
        let x_vars: SmallVec<[Var; 4]> = key.x.iter().map(|f| recorder.input(f.clone())).collect();
        let y_vars: SmallVec<[Var; 2]> = y.iter().map(|f| recorder.input(f.clone())).collect();
        let dy: SmallVec<[Option<Var>; 2]> = y
            .iter()
            .zip(&key.has_dy)
            .map(|(f, h)| h.then(|| recorder.input(Fact::new(f.dtype, f.shape.clone()))))
            .collect();
        let mut cx = GradCx { recorder: &recorder, x: x_vars.clone(), y: y_vars.clone(), dy, needs: key.needs.clone() };
        let mut grads = key.op.grad(&mut cx).map_err(|e| e.with_op(key.op.label()))?;
        if grads.len() != key.x.len() {
            let text = format!("the gradient rule gives {} gradients for {} inputs", grads.len(), key.x.len());
            return Err(Error::new(ErrorKind::Internal, text).with_op(key.op.label()));
        }
        let mut fragment = recorder.0.into_inner();
        for ((g, need), x) in grads.iter_mut().zip(&key.needs).zip(&key.x) {
            *g = g.filter(|_| *need);
            if let Some(v) = g
                && !fragment.facts[v.index()].same_type(x)
            {
                let f = &fragment.facts[v.index()];
                let text = format!("the gradient of {} {} is {} {}", x.dtype, x.shape, f.dtype, f.shape);
                return Err(Error::new(ErrorKind::Internal, text).with_op(key.op.label()));
            }
        }
        fragment.prune(grads.iter().flatten().copied());
        let reads = |v: &Var| grads.contains(&Some(*v)) || fragment.nodes.iter().any(|n| n.inputs.contains(v));
        let (saves_x, saves_y) = (x_vars.iter().map(reads).collect(), y_vars.iter().map(reads).collect());
        Ok(Backward { fragment, grads, saves_x, saves_y })
    }
}

/// The key of a cached backward graph: everything that the graph depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct BackwardKey {
    /// The forward op.
    pub op: OpRef,
    /// Facts of its inputs.
    pub x: SmallVec<[Fact; 4]>,
    /// Which inputs need a gradient.
    pub needs: SmallVec<[bool; 4]>,
    /// Which outputs have a cotangent.
    pub has_dy: SmallVec<[bool; 2]>,
}

impl Eq for BackwardKey {}
impl std::hash::Hash for BackwardKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.op.hash(state);
        for f in &self.x {
            f.dtype.hash(state);
            f.shape.hash(state);
        }
        self.needs.hash(state);
        self.has_dy.hash(state);
    }
}

/// The forward values that some backward graph of an op reads, for any set of outputs with a cotangent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveMask {
    /// Forward inputs.
    pub x: SmallVec<[bool; 4]>,
    /// Forward outputs.
    pub y: SmallVec<[bool; 2]>,
}

/// Backward graphs that were built; a value its owner holds, not process-wide.
#[derive(Default)]
pub struct BackwardCache {
    graphs: FxHashMap<BackwardKey, Arc<Backward>>,
}

/// Entries after which the cache is emptied: a bound for programs whose shapes never repeat.
const CACHE_MAX_ENTRIES: usize = 4096;

impl BackwardCache {
    /// The backward graph for `key`, built at first use. `y` are the facts of the forward outputs.
    pub fn get(&mut self, key: BackwardKey, y: &[Fact]) -> Result<Arc<Backward>> {
        if let Some(b) = self.graphs.get(&key) {
            return Ok(b.clone());
        }
        let b = Arc::new(Backward::build(&key, y)?);
        if self.graphs.len() >= CACHE_MAX_ENTRIES {
            self.graphs.clear();
        }
        self.graphs.insert(key, b.clone());
        Ok(b)
    }

    /// The values that the tape keeps for `key`. Its `has_dy` marks the outputs that may have a cotangent. A rule may
    /// read different values for different cotangents, and only the backward pass knows which cotangents exist.
    pub fn saves(&mut self, key: &BackwardKey, y: &[Fact]) -> Result<SaveMask> {
        let mut mask = SaveMask { x: SmallVec::from_elem(false, key.x.len()), y: SmallVec::from_elem(false, y.len()) };
        for has_dy in subsets(&key.has_dy) {
            let b = self.get(BackwardKey { has_dy, ..key.clone() }, y)?;
            mask.x.iter_mut().zip(&b.saves_x).for_each(|(m, s)| *m |= s);
            mask.y.iter_mut().zip(&b.saves_y).for_each(|(m, s)| *m |= s);
        }
        Ok(mask)
    }

    /// Number of graphs held.
    pub fn len(&self) -> usize {
        self.graphs.len()
    }

    /// True if no graph is held.
    pub fn is_empty(&self) -> bool {
        self.graphs.is_empty()
    }
}

/// The non-empty subsets of the outputs that may have a cotangent; for more than four, all of them and each alone.
fn subsets(may: &[bool]) -> Vec<SmallVec<[bool; 2]>> {
    const ALL_SUBSETS_MAX: usize = 4;
    let outputs: Vec<usize> = (0..may.len()).filter(|j| may[*j]).collect();
    let of = |chosen: &dyn Fn(usize) -> bool| -> SmallVec<[bool; 2]> {
        (0..may.len()).map(|j| outputs.iter().position(|o| *o == j).is_some_and(chosen)).collect()
    };
    if outputs.len() <= ALL_SUBSETS_MAX {
        return (1..1usize << outputs.len()).map(|bits| of(&|k| bits >> k & 1 == 1)).collect();
    }
    std::iter::once(of(&|_| true)).chain((0..outputs.len()).map(|one| of(&|k| k == one))).collect()
}
