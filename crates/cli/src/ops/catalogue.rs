//! All that a program can call: operators as they describe themselves, and methods, layers, losses, optimisers and schedules as
//! the catalogue has them, each with what tests it.

use std::collections::BTreeMap;

use remat::ops::{Entry, Registry};
use remat::types::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// Something to call that is no operator of its own.
#[derive(Deserialize)]
pub(super) struct Callable {
    pub(super) name: String,
    /// Its kind: a method, a layer.
    pub(super) kind: String,
    /// The file that it is in.
    pub(super) family: String,
    pub(super) signature: String,
    pub(super) text: String,
    /// Examples in its documentation.
    examples: usize,
}

/// How many fixtures there are of a name.
#[derive(Clone, Copy, Default, Deserialize)]
struct Fixtures {
    cases: usize,
    gradients: usize,
}

/// The catalogue and the counts of fixtures.
pub(super) struct Catalogue {
    pub(super) callables: Vec<Callable>,
    fixtures: BTreeMap<String, Fixtures>,
}

/// The error for broken data of the facade, which its tests wrote.
fn broken(what: &str, e: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("{what} does not read: {e}"))
}

impl Catalogue {
    pub(super) fn new() -> Result<Catalogue> {
        let callables = serde_json::from_str(remat::catalogue::CALLABLES).map_err(|e| broken("the catalogue", &e))?;
        let families: BTreeMap<String, BTreeMap<String, Fixtures>> =
            serde_json::from_str(remat::catalogue::FIXTURES).map_err(|e| broken("the index of fixtures", &e))?;
        let mut fixtures: BTreeMap<String, Fixtures> = BTreeMap::new();
        for (name, count) in families.into_values().flatten() {
            let sum = fixtures.entry(name).or_default();
            sum.cases += count.cases;
            sum.gradients += count.gradients;
        }
        Ok(Catalogue { callables, fixtures })
    }

    fn fixtures(&self, name: &str) -> Fixtures {
        self.fixtures.get(name).copied().unwrap_or_default()
    }

    /// The kinds of callables that are no operators, in the order of the catalogue.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for c in &self.callables {
            if !kinds.contains(&c.kind.as_str()) {
                kinds.push(&c.kind);
            }
        }
        kinds
    }

    /// The fixtures of an operator: those of its own name, and of the functions that it serves.
    fn of_operator(&self, entry: &Entry) -> Fixtures {
        let mut names: Vec<&str> = entry.samples().iter().map(|s| s.op.label()).collect();
        names.push(entry.name);
        names.sort_unstable();
        names.dedup();
        names.iter().map(|n| self.fixtures(n)).fold(Fixtures::default(), |a, b| Fixtures {
            cases: a.cases + b.cases,
            gradients: a.gradients + b.gradients,
        })
    }

    /// The description of an operator.
    pub(super) fn operator_json(&self, family: &str, entry: &Entry) -> Value {
        let schema = entry.schema();
        let mut v = serde_json::to_value(&schema).unwrap_or(Value::Null);
        v["kind"] = "operator".into();
        v["family"] = family.into();
        v["signature"] = super::signature(&schema).into();
        v["gradient"] = schema.inputs.iter().any(|i| i.gradient).into();
        v["samples"] = entry.samples().len().into();
        v["fixtures"] = self.of_operator(entry).cases.into();
        v
    }

    /// The description of any other callable. It has a gradient if fixtures compare one, or if an operator of that name has one.
    pub(super) fn callable_json(&self, c: &Callable, registry: &Registry) -> Value {
        let fixtures = self.fixtures(&c.name);
        let of_operator = || {
            let same = |e: &&Entry| e.name == c.name || e.samples().iter().any(|s| s.op.label() == c.name);
            registry.entries().iter().filter(same).any(|e| e.schema().inputs.iter().any(|i| i.gradient))
        };
        let differentiable = match c.kind.as_str() {
            "layer" | "loss" | "model" => true,
            "method" => fixtures.gradients > 0 || of_operator(),
            _ => false,
        };
        json!({
            "name": c.name, "kind": c.kind, "family": c.family, "signature": c.signature, "text": c.text,
            "gradient": differentiable, "samples": c.examples, "fixtures": fixtures.cases,
        })
    }

    /// `operators`, and `fixtures_total`.
    pub(super) fn json(&self, registry: &Registry) -> Value {
        let operators = registry.families().iter().flat_map(|f| f.ops.iter().map(|e| self.operator_json(f.name, e)));
        let callables = self.callables.iter().map(|c| self.callable_json(c, registry));
        let total: usize = self.fixtures.values().map(|f| f.cases).sum();
        json!({ "operators": operators.chain(callables).collect::<Vec<_>>(), "fixtures_total": total })
    }
}

/// One line for each thing of a kind.
pub(super) fn listed(catalogue: &Catalogue, kind: &str) -> String {
    let of_kind = catalogue.callables.iter().filter(|c| c.kind == kind);
    format!("{}\n{}", plural(kind), of_kind.map(|c| format!("  {}\n", c.signature)).collect::<String>())
}

/// As a heading has it.
pub(super) fn plural(kind: &str) -> &str {
    match kind {
        "method" => "methods of a tensor",
        "layer" => "layers",
        "loss" => "losses",
        "optimizer" => "optimizers",
        "schedule" => "learning-rate schedules",
        "initializer" => "initializers",
        "model" => "models",
        "sampling" => "sampling",
        other => other,
    }
}
