//! Making a graph, one application at a time.

use std::cell::RefCell;
use std::sync::Arc;

use remat_ops::{Apply, OpRef, fold};
use remat_types::{CallSite, Error, ErrorKind, Fact, HostTensor, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::{Graph, GraphPrefix, Node, NodeId, Origin, Output, Parts, State, Value, ValueId, bad};

/// Builds a graph: each application is inferred at once, and one that was made before, of an op that may be repeated, is
/// the earlier one.
#[derive(Default)]
pub struct Builder(RefCell<Inner>);

#[derive(Default)]
struct Inner {
    parts: Parts,
    /// Applications by op and inputs; compared by equality.
    made: FxHashMap<(OpRef, SmallVec<[ValueId; 4]>), NodeId>,
    constants: FxHashMap<HostTensor, ValueId>,
    scope: Option<Arc<str>>,
    keep_all: bool,
    /// The last application of an op that runs exactly once.
    last_once: Option<NodeId>,
}

impl Inner {
    fn value(&mut self, origin: Origin, fact: Fact, name: Option<&str>) -> ValueId {
        let id = ValueId(self.parts.values.len() as u32);
        self.parts.values.push(Value { origin, fact, name: name.map(Arc::from) });
        id
    }

    fn check(&self, v: ValueId) -> Result<()> {
        if v.index() < self.parts.values.len() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Value, format!("value %{} is of another graph", v.0)))
    }
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// A builder that merges and folds nothing: the graph has one node for each application.
    pub fn raw() -> Builder {
        Builder(RefCell::new(Inner { keep_all: true, ..Inner::default() }))
    }

    /// A value that the caller of a run gives.
    pub fn input(&self, fact: Fact, name: Option<&str>) -> ValueId {
        let mut b = self.0.borrow_mut();
        let v = b.value(Origin::Input(0), Fact { value: None, ..fact }, name);
        let at = b.parts.inputs.len();
        b.parts.values[v.index()].origin = Origin::Input(at);
        b.parts.inputs.push(v);
        v
    }

    /// A tensor that outlives a run; the value is the version with which a run begins.
    pub fn state(&self, fact: Fact, name: Option<&str>) -> ValueId {
        let mut b = self.0.borrow_mut();
        let at = b.parts.states.len();
        let value = b.value(Origin::State(at), Fact { value: None, ..fact }, name);
        b.parts.states.push(State { value, next: None });
        value
    }

    /// A value that the graph holds; equal ones are one.
    pub fn constant(&self, data: &HostTensor) -> ValueId {
        let mut b = self.0.borrow_mut();
        if let Some(v) = b.constants.get(data) {
            return *v;
        }
        let v = b.value(Origin::Constant(Arc::new(data.clone())), Fact::of(data), None);
        b.constants.insert(data.clone(), v);
        v
    }

    /// Applies `op`. Errors: what inference finds; Value for a value of another graph.
    pub fn node(&self, op: OpRef, x: &[ValueId], site: Option<CallSite>) -> Result<SmallVec<[ValueId; 2]>> {
        let located = |e: Error| match site {
            Some(s) => e.with_call_site(s),
            None => e,
        };
        let (facts, folded, keep_all) = {
            let b = self.0.borrow();
            x.iter().try_for_each(|v| b.check(*v)).map_err(|e| located(e.with_op(op.label())))?;
            let refs: SmallVec<[&Fact; 4]> = x.iter().map(|v| &b.parts.values[v.index()].fact).collect();
            let facts = op.infer(&refs).map_err(located)?;
            let folded = if b.keep_all { None } else { fold(&*op, &refs, &facts) };
            (facts, folded, b.keep_all)
        };
        if let Some(values) = folded {
            return Ok(values.map_err(located)?.iter().map(|v| self.constant(v)).collect());
        }
        let key = (op, SmallVec::from_slice(x));
        let merge = key.0.repeatable() && !keep_all;
        let mut b = self.0.borrow_mut();
        if merge && let Some(n) = b.made.get(&key) {
            return Ok(b.parts.nodes[n.index()].y.clone());
        }
        let node = NodeId(b.parts.nodes.len() as u32);
        let of = |output| Origin::Node { node, output };
        let y: SmallVec<[ValueId; 2]> = facts.into_iter().enumerate().map(|(j, f)| b.value(of(j), f, None)).collect();
        if merge {
            b.made.insert(key.clone(), node);
        }
        let scope = b.scope.clone();
        // what runs exactly once stays in the order of the program
        let mut after = SmallVec::new();
        if !key.0.repeatable() {
            after.extend(b.last_once.replace(node));
        }
        b.parts.nodes.push(Node { op: key.0, x: key.1, y: y.clone(), after, site, scope });
        Ok(y)
    }

    /// The value is the next version of the state whose present version is `state`.
    ///
    /// Errors: Value if `state` is no state, or already has a next version; Shape for another dtype or shape.
    pub fn set_state(&self, state: ValueId, next: ValueId) -> Result<()> {
        let mut b = self.0.borrow_mut();
        b.check(state)?;
        b.check(next)?;
        let Origin::State(at) = b.parts.values[state.index()].origin else {
            return Err(Error::new(ErrorKind::Value, "only a state has a next version"));
        };
        let (old, new) = (&b.parts.values[state.index()].fact, &b.parts.values[next.index()].fact);
        if !old.same_type(new) {
            let text = format!("a state {}{} cannot become {}{}", old.dtype, old.shape, new.dtype, new.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        if b.parts.states[at].next.replace(next).is_some() {
            return Err(Error::new(ErrorKind::Value, "two updates of one state: the second must read the first"));
        }
        Ok(())
    }

    /// Names what a run gives back. Errors at the end if the name is taken.
    pub fn output(&self, value: ValueId, name: &str) {
        self.0.borrow_mut().parts.outputs.push(Output { name: name.into(), value });
    }

    /// Names a value. Errors at the end if the name is taken.
    pub fn name(&self, value: ValueId, name: &str) {
        if let Some(v) = self.0.borrow_mut().parts.values.get_mut(value.index()) {
            v.name = Some(name.into());
        }
    }

    /// The part of the program that the next applications belong to.
    pub fn set_scope(&self, scope: Option<Arc<str>>) {
        self.0.borrow_mut().scope = scope;
    }

    /// `node` runs after the node that gives `on`. Errors: Value unless both come from nodes, `on` from an earlier one.
    pub fn run_after(&self, value: ValueId, on: ValueId) -> Result<()> {
        let mut b = self.0.borrow_mut();
        let node = |v: ValueId| match b.parts.values.get(v.index()).map(|v| &v.origin) {
            Some(Origin::Node { node, .. }) => Some(*node),
            _ => None,
        };
        match (node(value), node(on)) {
            (Some(n), Some(on)) if on < n => {
                b.parts.nodes[n.index()].after.push(on);
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Value, "only an op runs after an earlier op")),
        }
    }

    /// The graph. Errors (Format): a name or a next version that two values share.
    pub fn finish(self) -> Result<Graph> {
        Graph::assemble(self.0.into_inner().parts)
    }

    pub(crate) fn from_parts(parts: Parts) -> Result<Graph> {
        Graph::assemble(parts)
    }

    /// The number of applications so far.
    pub fn len(&self) -> usize {
        self.0.borrow().parts.nodes.len()
    }

    /// How far the graph has grown.
    pub fn prefix(&self) -> GraphPrefix {
        let p = &self.0.borrow().parts;
        let (values, nodes) = (p.values.len(), p.nodes.len());
        GraphPrefix { values, nodes, states: p.states.len(), inputs: p.inputs.len() }
    }

    /// True if nothing was applied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fact of a value. Errors (Format) for a value of another graph.
    pub fn fact_of(&self, v: ValueId) -> Result<Fact> {
        let b = self.0.borrow();
        b.parts.values.get(v.index()).map(|v| v.fact.clone()).ok_or_else(|| bad(format!("no value %{}", v.0)))
    }
}

impl Apply for Builder {
    type Value = ValueId;

    #[track_caller]
    fn apply(&self, op: OpRef, x: SmallVec<[ValueId; 4]>) -> Result<SmallVec<[ValueId; 2]>> {
        self.node(op, &x, Some(CallSite::here()))
    }

    fn fact(&self, v: &ValueId) -> Fact {
        self.fact_of(*v).unwrap_or_else(|_| Fact::new(remat_types::DType::F32, [0]))
    }
}
