use remat_ops::{OpRef, Registry};
use remat_types::{Error, ErrorKind, Fact, Result, Shape, SmallVec};
use serde_json::Value as Json;

use super::{Polynomial, wrong};
use crate::ir::{Builder, Graph, Node, Origin, ValueId};

/// A graph in which numbers are polynomials.
#[derive(Clone)]
pub(super) struct Template {
    base: Graph,
    /// The ops whose parameters have polynomials.
    ops: Vec<Option<Params>>,
    /// Extents of each value.
    extents: Vec<Vec<Polynomial>>,
    registry: Registry,
}

/// Parameters of an op in their serial form.
#[derive(Clone, Debug)]
enum Params {
    Same(Json),
    Whole(Polynomial),
    /// One over the polynomial.
    Reciprocal(Polynomial),
    List(Vec<Params>),
    Map(Vec<(String, Params)>),
}

impl Template {
    /// What the graphs at the corners have in common. Errors (Value): where they differ in more than numbers.
    pub(super) fn of(corners: &[Graph], low: &[usize], registry: &Registry) -> Result<Template> {
        let base = corners[0].clone();
        corners[1..].iter().try_for_each(|g| same_structure(&base, g))?;
        let mut extents = Vec::with_capacity(base.values().len());
        for v in base.value_ids() {
            let rank = base.fact(v).rank();
            if corners.iter().any(|g| g.fact(v).rank() != rank || g.fact(v).dtype != base.fact(v).dtype) {
                return Err(wrong(format!("{} has another rank or dtype at another size", base.label(v))));
            }
            let of = |a: usize| -> Result<Polynomial> {
                let sizes: Vec<i64> = corners.iter().map(|g| g.fact(v).shape[a] as i64).collect();
                Polynomial::through(&sizes, low).ok_or_else(|| wrong("an extent beyond the range of numbers"))
            };
            extents.push((0..rank).map(of).collect::<Result<Vec<_>>>()?);
        }
        let mut ops = Vec::with_capacity(base.nodes().len());
        for (i, n) in base.nodes().iter().enumerate() {
            let all: Vec<&OpRef> = corners.iter().map(|g| &g.nodes()[i].op).collect();
            if all.iter().all(|op| **op == n.op) {
                ops.push(None);
                continue;
            }
            let forms = all.iter().map(|op| op.to_json()).collect::<Result<Vec<Json>>>()?;
            let params = Params::of(&forms.iter().collect::<Vec<_>>(), low);
            let differs = || wrong(format!("node {i} ({}) has parameters that do not follow from sizes", n.op.label()));
            ops.push(Some(params.ok_or_else(differs)?));
        }
        Ok(Template { base, ops, extents, registry: registry.clone() })
    }

    pub(super) fn base(&self) -> &Graph {
        &self.base
    }

    pub(super) fn extents(&self, v: ValueId) -> &[Polynomial] {
        &self.extents[v.index()]
    }

    pub(super) fn fill(&self, sizes: &[usize]) -> Result<Graph> {
        let (g, b) = (&self.base, Builder::raw());
        let mut at = vec![ValueId(0); g.values().len()];
        let name = |v: ValueId| g.value(v).name.as_deref();
        for v in g.inputs() {
            at[v.index()] = b.input(self.fact(*v, sizes)?, name(*v));
        }
        for s in g.states() {
            at[s.value.index()] = b.state(self.fact(s.value, sizes)?, name(s.value));
        }
        for v in g.value_ids() {
            if let Origin::Constant(data) = &g.value(v).origin {
                at[v.index()] = b.constant(data);
            }
        }
        for (n, params) in g.nodes().iter().zip(&self.ops) {
            self.node(&b, n, params.as_ref(), sizes, &mut at)?;
        }
        for v in g.value_ids() {
            if let Some(name) = name(v) {
                b.name(at[v.index()], name);
            }
        }
        for s in g.states() {
            if let Some(next) = s.next {
                b.set_state(at[s.value.index()], at[next.index()])?;
            }
        }
        g.outputs().iter().for_each(|o| b.output(at[o.value.index()], &o.name));
        b.finish()
    }

    fn node(&self, b: &Builder, n: &Node, params: Option<&Params>, sizes: &[usize], at: &mut [ValueId]) -> Result<()> {
        let op = match params {
            None => n.op.clone(),
            Some(p) => {
                let beyond = || wrong(format!("`{}` beyond the range of numbers", n.op.label()));
                self.registry.load(&p.at(sizes).ok_or_else(beyond)?)?
            }
        };
        let x: SmallVec<[ValueId; 4]> = n.x.iter().map(|v| at[v.index()]).collect();
        b.set_scope(n.scope.clone());
        let y = b.node(op, &x, n.site)?;
        n.y.iter().zip(&y).for_each(|(v, y)| at[v.index()] = *y);
        let first = |a: &super::super::NodeId| self.base.node(*a).y.first().map(|v| at[v.index()]);
        for on in n.after.iter().filter_map(first) {
            if let Some(y) = y.first() {
                b.run_after(*y, on)?;
            }
        }
        Ok(())
    }

    fn fact(&self, v: ValueId, sizes: &[usize]) -> Result<Fact> {
        let extent = |p: &Polynomial| p.at(sizes).and_then(|n| usize::try_from(n).ok());
        let shape: Option<Shape> = self.extents[v.index()].iter().map(extent).collect();
        let shape = shape.ok_or_else(|| Error::new(ErrorKind::Shape, "an extent is negative at these sizes"))?;
        shape.checked_elems()?;
        Ok(Fact::new(self.base.fact(v).dtype, shape))
    }
}

impl Params {
    /// What serial forms have in common; `None` where they differ in more than numbers that follow from sizes.
    fn of(forms: &[&Json], low: &[usize]) -> Option<Params> {
        let first = *forms.first()?;
        if forms.iter().all(|f| *f == first) {
            return Some(Params::Same(first.clone()));
        }
        match first {
            Json::Array(items) => {
                let lists: Vec<&Vec<Json>> = forms.iter().map(|f| f.as_array()).collect::<Option<_>>()?;
                let alike = lists.iter().all(|l| l.len() == items.len());
                let of = |i: usize| Params::of(&lists.iter().map(|l| &l[i]).collect::<Vec<_>>(), low);
                if alike { (0..items.len()).map(of).collect::<Option<_>>().map(Params::List) } else { None }
            }
            Json::Object(fields) => {
                let of = |key: &String| {
                    let all: Vec<&Json> = forms.iter().map(|f| f.get(key)).collect::<Option<_>>()?;
                    Some((key.clone(), Params::of(&all, low)?))
                };
                let alike = forms.iter().all(|f| f.as_object().is_some_and(|o| o.len() == fields.len()));
                if alike { fields.keys().map(of).collect::<Option<_>>().map(Params::Map) } else { None }
            }
            Json::Number(_) => Params::number(forms, low),
            _ => None,
        }
    }

    fn number(forms: &[&Json], low: &[usize]) -> Option<Params> {
        if let Some(whole) = forms.iter().map(|f| f.as_i64()).collect::<Option<Vec<i64>>>() {
            return Polynomial::through(&whole, low).map(Params::Whole);
        }
        let over = |f: &&Json| {
            let v = f.as_f64()?;
            let n = (1.0 / v).round();
            // what a division of one by a count gives, to the bit
            (1.0 / n == v && n.abs() < (1u64 << f64::MANTISSA_DIGITS) as f64).then_some(n as i64)
        };
        let counts = forms.iter().map(over).collect::<Option<Vec<i64>>>()?;
        Polynomial::through(&counts, low).map(Params::Reciprocal)
    }

    /// The serial form at these sizes; `None` beyond the range of numbers.
    fn at(&self, sizes: &[usize]) -> Option<Json> {
        Some(match self {
            Params::Same(v) => v.clone(),
            Params::Whole(p) => Json::from(p.at(sizes)?),
            Params::Reciprocal(p) => Json::from(1.0 / p.at(sizes)? as f64),
            Params::List(items) => Json::Array(items.iter().map(|p| p.at(sizes)).collect::<Option<_>>()?),
            Params::Map(fields) => {
                Json::Object(fields.iter().map(|(k, p)| Some((k.clone(), p.at(sizes)?))).collect::<Option<_>>()?)
            }
        })
    }
}

/// Errors (Value) unless the graphs are the same but for shapes and parameters.
fn same_structure(a: &Graph, b: &Graph) -> Result<()> {
    let sizes = |g: &Graph| (g.values().len(), g.nodes().len(), g.outputs().len());
    if sizes(a) != sizes(b) || a.inputs() != b.inputs() {
        return Err(wrong("the graphs of two sizes have other nodes, inputs or outputs"));
    }
    for (i, (m, n)) in a.nodes().iter().zip(b.nodes()).enumerate() {
        if m.op.name() != n.op.name() || m.x != n.x || m.y != n.y || m.after != n.after {
            return Err(wrong(format!("node {i} is `{}` at one size and `{}` at another", m.op.label(), n.op.label())));
        }
    }
    let outputs = a.outputs().iter().zip(b.outputs()).all(|(p, q)| p.value == q.value && p.name == q.name);
    let states = a.states().len() == b.states().len()
        && a.states().iter().zip(b.states()).all(|(p, q)| p.value == q.value && p.next == q.next);
    if !outputs || !states {
        return Err(wrong("the graphs of two sizes give other values back"));
    }
    for v in a.value_ids() {
        let alike = match (&a.value(v).origin, &b.value(v).origin) {
            (Origin::Constant(p), Origin::Constant(q)) => p == q,
            (p, q) => std::mem::discriminant(p) == std::mem::discriminant(q),
        };
        if !alike {
            return Err(wrong(format!("the constant {} follows from a size", a.label(v))));
        }
    }
    Ok(())
}
