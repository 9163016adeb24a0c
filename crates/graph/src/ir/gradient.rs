//! The gradient of a graph as a graph, by the rules of its ops.

use remat_ops::pointwise::{Binary, BinaryFn, Fill};
use remat_ops::{Apply, Backward, BackwardKey};
use remat_types::{Error, ErrorKind, Fact, Result, Scalar, SmallVec};
use rustc_hash::FxHashMap;

use super::{Builder, Graph, Node, Origin, Patch, ValueId};

impl Graph {
    /// Applies all nodes to values of `to` and gives what stands for the outputs there.
    ///
    /// Errors: Arity or Shape for values that are not as the inputs are; Value for a graph with states; those of
    /// inference.
    pub fn inline(&self, to: &Builder, x: &[ValueId]) -> Result<Vec<ValueId>> {
        let at = self.replay(to, x)?;
        Ok(self.outputs().iter().map(|o| at[o.value.index()]).collect())
    }

    /// Rebuilds the graph in `to`, and returns the counterpart of each value.
    fn replay(&self, to: &Builder, x: &[ValueId]) -> Result<Vec<ValueId>> {
        let given = x.iter().map(|v| to.fact_of(*v)).collect::<Result<Vec<Fact>>>()?;
        self.check_inputs(&given.iter().collect::<Vec<_>>())?;
        let mut at = vec![ValueId(u32::MAX); self.values().len()];
        for v in self.value_ids() {
            match &self.value(v).origin {
                Origin::Input(i) => at[v.index()] = x[*i],
                Origin::Constant(data) => at[v.index()] = to.constant(data),
                Origin::State(_) | Origin::Node { .. } => {}
            }
        }
        for n in self.nodes() {
            let x: SmallVec<[ValueId; 4]> = n.x.iter().map(|v| at[v.index()]).collect();
            let y = to.node(n.op.clone(), &x, n.site)?;
            n.y.iter().zip(y).for_each(|(v, y)| at[v.index()] = y);
        }
        Ok(at)
    }

    /// Errors (Arity, Shape) unless `x` are what the graph takes; Value if it has states.
    pub fn check_inputs(&self, x: &[&Fact]) -> Result<()> {
        if !self.states().is_empty() {
            return Err(Error::new(ErrorKind::Value, "a graph within a graph has no states of its own"));
        }
        if x.len() != self.inputs().len() {
            let text = format!("{} inputs for a graph that has {}", x.len(), self.inputs().len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        for (i, (v, f)) in self.inputs().iter().zip(x).enumerate() {
            let own = self.fact(*v);
            if !own.same_type(f) {
                let text = format!("input {i} is {}{}, the graph takes {}{}", f.dtype, f.shape, own.dtype, own.shape);
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
        Ok(())
    }

    /// The graph that gives the gradients of the inputs that `needs` names, in order, zeros where nothing depends on one.
    /// Its inputs are those of this graph, then a cotangent for each output that `has_dy` names.
    ///
    /// Errors: Arity for flags of another number; Value for a graph with states; NotDifferentiable and others of the ops'
    /// rules.
    pub fn gradient(&self, needs: &[bool], has_dy: &[bool]) -> Result<Graph> {
        if (needs.len(), has_dy.len()) != (self.inputs().len(), self.outputs().len()) {
            return Err(Error::new(ErrorKind::Arity, "as many flags as inputs and outputs"));
        }
        let b = Builder::new();
        let x: Vec<ValueId> = self.inputs().iter().map(|v| b.input(self.fact(*v).clone(), None)).collect();
        let mut r = Reverse { g: self, b: &b, at: Vec::new(), dy: FxHashMap::default() };
        for o in self.outputs().iter().zip(has_dy).filter(|(_, has)| **has).map(|(o, _)| o.value) {
            let dy = b.input(self.fact(o).clone(), None);
            r.accumulate(o, dy)?;
        }
        r.at = self.replay(&b, &x)?;
        let mut active = vec![false; self.values().len()];
        self.inputs().iter().zip(needs).for_each(|(v, need)| active[v.index()] = *need);
        for n in self.nodes() {
            let any = n.x.iter().any(|v| active[v.index()]);
            n.y.iter().for_each(|v| active[v.index()] = any && self.fact(*v).dtype.is_float());
        }
        for n in self.nodes().iter().rev() {
            r.node(n, &active)?;
        }
        for (i, v) in self.inputs().iter().enumerate().filter(|(i, _)| needs[*i]) {
            let f = self.fact(*v);
            let zeros = Fill { dtype: f.dtype, shape: f.shape.clone(), value: Scalar::Float(0.0) };
            let dx = match r.dy.get(v) {
                Some(dx) => *dx,
                None => b.node(zeros.into(), &[], None)?[0],
            };
            b.output(dx, &format!("d{i}"));
        }
        // without the forward nodes that no rule reads
        b.finish()?.patched(&Patch::new())
    }
}

/// The walk from the outputs back.
struct Reverse<'a> {
    g: &'a Graph,
    b: &'a Builder,
    /// The counterparts of the graph's values in the builder.
    at: Vec<ValueId>,
    /// Cotangents so far.
    dy: FxHashMap<ValueId, ValueId>,
}

impl Reverse<'_> {
    fn node(&mut self, n: &Node, active: &[bool]) -> Result<()> {
        let dy: SmallVec<[Option<ValueId>; 2]> = n.y.iter().map(|v| self.dy.get(v).copied()).collect();
        let needs: SmallVec<[bool; 4]> = n.x.iter().map(|v| active[v.index()]).collect();
        if dy.iter().all(Option::is_none) || !needs.contains(&true) {
            return Ok(());
        }
        let plain = |v: &ValueId| Fact { value: None, ..self.g.fact(*v).clone() };
        let key = BackwardKey {
            op: n.op.clone(),
            x: n.x.iter().map(plain).collect(),
            needs,
            has_dy: dy.iter().map(Option::is_some).collect(),
        };
        let y: Vec<Fact> = n.y.iter().map(plain).collect();
        let located = |e: Error| match n.site {
            Some(site) => e.with_call_site(site),
            None => e,
        };
        let rule = Backward::build(&key, &y).map_err(located)?;
        let forward = n.x.iter().chain(&n.y).map(|v| Some(self.at[v.index()]));
        let given = forward.chain(dy.into_iter().flatten().map(Some)).collect();
        let grads = rule.fragment.run(self.b, given, &rule.grads)?;
        for (v, dx) in n.x.iter().zip(grads) {
            if let Some(dx) = dx {
                self.accumulate(*v, dx)?;
            }
        }
        Ok(())
    }

    fn accumulate(&mut self, v: ValueId, dy: ValueId) -> Result<()> {
        let sum = match self.dy.get(&v) {
            Some(have) => self.b.apply(Binary { f: BinaryFn::Add }.into(), SmallVec::from_slice(&[*have, dy]))?[0],
            None => dy,
        };
        self.dy.insert(v, sum);
        Ok(())
    }
}
