use std::sync::Arc;

use remat_ops::{OpRef, Registry};
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, Shape, SmallVec};
use serde_json::Value as Json;

use super::{Polynomial, wrong};
use crate::ir::{Builder, Graph, Origin, Parts, Value, ValueId};

/// A graph in which numbers are polynomials.
#[derive(Clone)]
pub(super) struct Template {
    base: Graph,
    /// The ops whose parameters have polynomials.
    ops: Vec<Option<Params>>,
    /// The numbers that constants of one element are, where they follow from sizes.
    constants: Vec<(ValueId, Params)>,
    /// Extents of each value.
    extents: Vec<Vec<Polynomial>>,
    registry: Registry,
}

/// Parameters of an op in their serial form.
#[derive(Clone, Debug)]
enum Params {
    Same(Json),
    Whole(Polynomial),
    /// A whole number that is written as a fraction: `3.0`.
    Float(Polynomial),
    /// One over the polynomial.
    Reciprocal(Polynomial),
    List(Vec<Params>),
    Map(Vec<(String, Params)>),
    /// Parts of a text, such as a line of a graph that an op owns.
    Text(Vec<Params>),
}

impl Template {
    /// The common template of the graphs at the corners. Errors (Value): if they differ in more than numbers.
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
        let constants = constants(corners, low)?;
        Ok(Template { base, ops, constants, extents, registry: registry.clone() })
    }

    pub(super) fn base(&self) -> &Graph {
        &self.base
    }

    pub(super) fn extents(&self, v: ValueId) -> &[Polynomial] {
        &self.extents[v.index()]
    }

    /// The graph at these sizes, with the ids of the base.
    pub(super) fn fill(&self, sizes: &[usize]) -> Result<Graph> {
        let g = &self.base;
        let mut values = g.values().to_vec();
        for v in g.inputs().iter().copied().chain(g.states().iter().map(|s| s.value)) {
            values[v.index()].fact = self.fact(v, sizes)?;
        }
        for (v, number) in &self.constants {
            let Origin::Constant(like) = &g.value(*v).origin else { continue };
            let data = constant(like, number, sizes)?;
            let fact = Fact::of(&data);
            values[v.index()] = Value { origin: Origin::Constant(Arc::new(data)), fact, ..values[v.index()].clone() };
        }
        let mut nodes = g.nodes().to_vec();
        for (n, params) in nodes.iter_mut().zip(&self.ops) {
            if let Some(p) = params {
                let beyond = || wrong(format!("`{}` beyond the range of numbers", n.op.label()));
                n.op = self.registry.load(&p.at(sizes).ok_or_else(beyond)?)?;
            }
            let x: SmallVec<[&Fact; 4]> = n.x.iter().map(|v| &values[v.index()].fact).collect();
            let located = |e: Error| n.site.map_or(e.clone(), |s| e.with_call_site(s));
            let y = n.op.infer(&x).map_err(located)?;
            drop(x);
            n.y.iter().zip(y).for_each(|(v, fact)| values[v.index()].fact = fact);
        }
        let (inputs, states, outputs) = (g.inputs().to_vec(), g.states().to_vec(), g.outputs().to_vec());
        Builder::from_parts(Parts { values, nodes, inputs, states, outputs })
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
    /// The common template of serial forms; `None` if they differ in more than numbers that follow from sizes.
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
            Json::String(_) => {
                let texts = forms.iter().map(|f| f.as_str().map(parts)).collect::<Option<Vec<Vec<Json>>>>()?;
                let alike = texts.iter().all(|t| t.len() == texts[0].len());
                let of = |i: usize| Params::of(&texts.iter().map(|t| &t[i]).collect::<Vec<_>>(), low);
                let is_word = |i: usize| texts[0][i].is_string() && texts.iter().any(|t| t[i] != texts[0][i]);
                if !alike || (0..texts[0].len()).any(is_word) {
                    return None;
                }
                (0..texts[0].len()).map(of).collect::<Option<_>>().map(Params::Text)
            }
            _ => None,
        }
    }

    fn number(forms: &[&Json], low: &[usize]) -> Option<Params> {
        if let Some(whole) = forms.iter().map(|f| f.as_i64()).collect::<Option<Vec<i64>>>() {
            return Polynomial::through(&whole, low).map(Params::Whole);
        }
        let values = forms.iter().map(|f| f.as_f64()).collect::<Option<Vec<f64>>>()?;
        Params::float(&values, low, |v| v)
    }

    /// For fractions, which `round` rounds to the stored type.
    fn float(values: &[f64], low: &[usize], round: impl Fn(f64) -> f64) -> Option<Params> {
        let exact = |n: f64| n.fract() == 0.0 && n.abs() < (1u64 << f64::MANTISSA_DIGITS) as f64;
        if let Some(whole) = values.iter().map(|v| exact(*v).then_some(*v as i64)).collect::<Option<Vec<i64>>>() {
            return Polynomial::through(&whole, low).map(Params::Float);
        }
        // what a division of one by a count gives, to the bit
        let over = |v: &f64| Some((1.0 / v).round()).filter(|n| exact(*n) && round(1.0 / n) == *v).map(|n| n as i64);
        let counts = values.iter().map(over).collect::<Option<Vec<i64>>>()?;
        Polynomial::through(&counts, low).map(Params::Reciprocal)
    }

    /// The serial form at these sizes; `None` beyond the range of numbers.
    fn at(&self, sizes: &[usize]) -> Option<Json> {
        Some(match self {
            Params::Same(v) => v.clone(),
            Params::Whole(p) => Json::from(p.at(sizes)?),
            Params::Float(p) => Json::from(p.at(sizes)? as f64),
            Params::Reciprocal(p) => Json::from(1.0 / p.at(sizes)? as f64),
            Params::Text(parts) => {
                let text = |p: &Params| match p.at(sizes)? {
                    Json::String(s) => Some(s),
                    number => Some(number.to_string()),
                };
                Json::String(parts.iter().map(text).collect::<Option<_>>()?)
            }
            Params::List(items) => Json::Array(items.iter().map(|p| p.at(sizes)).collect::<Option<_>>()?),
            Params::Map(fields) => {
                Json::Object(fields.iter().map(|(k, p)| Some((k.clone(), p.at(sizes)?))).collect::<Option<_>>()?)
            }
        })
    }
}

/// The constants of one element that differ, as numbers that follow from sizes.
fn constants(corners: &[Graph], low: &[usize]) -> Result<Vec<(ValueId, Params)>> {
    let mut all = Vec::new();
    for v in corners[0].value_ids() {
        let data = |g: &Graph| match &g.value(v).origin {
            Origin::Constant(data) => Some(data.clone()),
            _ => None,
        };
        let Some(given) = corners.iter().map(data).collect::<Option<Vec<_>>>() else { continue };
        if given.iter().all(|d| *d == given[0]) {
            continue;
        }
        let dtype = given[0].dtype();
        let values: Vec<f64> = given.iter().flat_map(|d| d.to_f64_vec()).collect();
        let round = |v: f64| HostTensor::from_f64_slice(&[v], dtype, [1]).map_or(f64::NAN, |t| t.to_f64_vec()[0]);
        let number = Params::float(&values, low, round);
        let differs = || {
            let text = format!("the constant {} has values that do not follow from sizes", corners[0].label(v));
            wrong(format!("{text}: {values:?}"))
        };
        all.push((v, number.ok_or_else(differs)?));
    }
    Ok(all)
}

/// The constant at these sizes.
fn constant(like: &HostTensor, number: &Params, sizes: &[usize]) -> Result<HostTensor> {
    let v = number.at(sizes).and_then(|v| v.as_f64()).ok_or_else(|| wrong("a constant beyond the range of numbers"))?;
    HostTensor::from_f64_slice(&[v], like.dtype(), like.shape().clone())
}

/// A text cut into numbers and the texts between them. A numeral that is no JSON number (`007`) stays text.
fn parts(text: &str) -> Vec<Json> {
    let mut all: Vec<Json> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit();
        let end = rest.find(|c: char| (c.is_ascii_digit() || is_number && c == '.') != is_number);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        // only what is printed as it was read can be another number at another size
        let as_read = |n: &Json| {
            let printed = n.to_string();
            is_number && printed == part
        };
        let number = serde_json::from_str::<Json>(part).ok().filter(as_read);
        all.push(number.unwrap_or_else(|| part.into()));
        rest = after;
    }
    all
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
            (Origin::Constant(p), Origin::Constant(q)) => p == q || p.elems() == 1 && q.elems() == 1,
            (p, q) => std::mem::discriminant(p) == std::mem::discriminant(q),
        };
        if !alike {
            return Err(wrong(format!("the constant {} follows from a size, and is no single number", a.label(v))));
        }
    }
    Ok(())
}
