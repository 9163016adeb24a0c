//! Invariants of every graph.

use remat_types::{Fact, Result, SmallVec};

use super::{Graph, Origin, ValueId, bad};

impl Graph {
    /// Checks every invariant: that ids exist; that each value has one definition, which stands before its readers; that
    /// names are unique; that no state has two next versions or one of another type; that the facts are those that the
    /// ops infer. A graph in hand has passed this; it is here for tests of whatever makes graphs.
    ///
    /// Errors (Format): the first invariant that does not hold, with node and value.
    pub fn verify(&self) -> Result<()> {
        self.verify_structure()?;
        self.verify_facts()
    }

    pub(crate) fn verify_structure(&self) -> Result<()> {
        if u32::try_from(self.values().len().max(self.nodes().len())).is_err() {
            return Err(bad("more than 4,294,967,295 values"));
        }
        let exists = |v: ValueId, whose: &dyn std::fmt::Display| {
            if v.index() < self.values().len() { Ok(()) } else { Err(bad(format!("{whose} has no value %{}", v.0))) }
        };
        for (i, v) in self.inputs().iter().enumerate() {
            exists(*v, &format_args!("input {i}"))?;
            if !matches!(self.value(*v).origin, Origin::Input(j) if i == j) {
                return Err(bad(format!("input {i} is {}, which comes from elsewhere", self.label(*v))));
            }
        }
        self.verify_states(&exists)?;
        for (i, o) in self.outputs().iter().enumerate() {
            exists(o.value, &format_args!("output `{}`", o.name))?;
            if self.outputs()[..i].iter().any(|p| p.name == o.name) {
                return Err(bad(format!("two outputs are called `{}`", o.name)));
            }
        }
        self.verify_order(&exists)?;
        self.verify_origins()
    }

    fn verify_states(&self, exists: &dyn Fn(ValueId, &dyn std::fmt::Display) -> Result<()>) -> Result<()> {
        let mut taken = rustc_hash::FxHashSet::default();
        for (i, s) in self.states().iter().enumerate() {
            exists(s.value, &format_args!("state {i}"))?;
            if !matches!(self.value(s.value).origin, Origin::State(j) if i == j) {
                return Err(bad(format!("state {i} is {}, which comes from elsewhere", self.label(s.value))));
            }
            let Some(next) = s.next else { continue };
            exists(next, &format_args!("the next version of state {i}"))?;
            if !self.fact(next).same_type(self.fact(s.value)) {
                let (a, b) = (self.fact(s.value), self.fact(next));
                return Err(bad(format!(
                    "the next version of {} is {}{}, not {}{}",
                    self.label(s.value),
                    b.dtype,
                    b.shape,
                    a.dtype,
                    a.shape
                )));
            }
            if !taken.insert(next) {
                return Err(bad(format!("{} is the next version of two states", self.label(next))));
            }
        }
        Ok(())
    }

    fn verify_order(&self, exists: &dyn Fn(ValueId, &dyn std::fmt::Display) -> Result<()>) -> Result<()> {
        let mut defined = vec![false; self.values().len()];
        for (d, v) in defined.iter_mut().zip(self.values()) {
            *d = !matches!(v.origin, Origin::Node { .. });
        }
        for (i, n) in self.nodes().iter().enumerate() {
            let name = format_args!("node {i} ({})", n.op.label()).to_string();
            for v in n.x.iter().chain(&n.y) {
                exists(*v, &name)?;
            }
            if let Some(v) = n.x.iter().find(|v| !defined[v.index()]) {
                return Err(bad(format!("{name} reads {}, which is defined after it", self.label(*v))));
            }
            if let Some(a) = n.after.iter().find(|a| a.index() >= i) {
                return Err(bad(format!("{name} stands before node {}, after which it runs", a.0)));
            }
            for (j, v) in n.y.iter().enumerate() {
                let own =
                    matches!(self.value(*v).origin, Origin::Node { node, output } if node.index() == i && output == j);
                if !own || std::mem::replace(&mut defined[v.index()], true) {
                    return Err(bad(format!("output {j} of {name} is {}, which comes from elsewhere", self.label(*v))));
                }
            }
        }
        match defined.iter().position(|d| !d) {
            Some(v) => Err(bad(format!("value %{v} has no definition"))),
            None => Ok(()),
        }
    }

    fn verify_origins(&self) -> Result<()> {
        for v in self.value_ids() {
            let stands = match &self.value(v).origin {
                Origin::Input(i) => self.inputs().get(*i) == Some(&v),
                Origin::State(i) => self.states().get(*i).is_some_and(|s| s.value == v),
                Origin::Node { node, output } => {
                    self.nodes().get(node.index()).and_then(|n| n.y.get(*output)) == Some(&v)
                }
                Origin::Constant(c) => *c.shape() == self.fact(v).shape && c.dtype() == self.fact(v).dtype,
            };
            if !stands {
                return Err(bad(format!("{} is not where its origin says", self.label(v))));
            }
        }
        Ok(())
    }

    pub(crate) fn verify_facts(&self) -> Result<()> {
        for (i, n) in self.nodes().iter().enumerate() {
            let x: SmallVec<[&Fact; 4]> = n.x.iter().map(|v| self.fact(*v)).collect();
            let facts = n.op.infer(&x).map_err(|e| e.context(format!("graph: node {i}")))?;
            if facts.len() != n.y.len() {
                return Err(bad(format!("node {i} ({}) has {} outputs, not {}", n.op.label(), facts.len(), n.y.len())));
            }
            for (v, f) in n.y.iter().zip(&facts) {
                if !f.same_type(self.fact(*v)) {
                    let own = self.fact(*v);
                    return Err(bad(format!(
                        "{} is {}{}, and {} (node {i}) gives {}{}",
                        self.label(*v),
                        own.dtype,
                        own.shape,
                        n.op.label(),
                        f.dtype,
                        f.shape
                    )));
                }
            }
        }
        Ok(())
    }
}
