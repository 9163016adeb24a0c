//! The schema of each version of an operator: its attributes, the numbers of its inputs and outputs, and the inputs that share
//! one type.
//!
//! A node that has more than that was written for another version, or by mistake. Without a check the surplus would stay
//! unread, and the result would be wrong.

mod generated;

use remat_import::Value;
use remat_types::{DType, Error, ErrorKind, Result};

/// The number of inputs or outputs of an operator that takes any.
const ANY: usize = usize::MAX;

/// The schema of an operator from a version on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    /// The standard's own domain is empty.
    pub(crate) domain: &'static str,
    pub(crate) op: &'static str,
    /// The first version of the operator set that this is for.
    pub(crate) since: i64,
    attributes: &'static [&'static str],
    most_inputs: usize,
    most_outputs: usize,
    /// For each formal input a number: inputs of one number are of one type. Those of 0, and those behind the last, are of any.
    types: &'static [u8],
    /// The last formal input stands for any number of inputs.
    repeats: bool,
}

/// The schemas of an operator, the oldest first.
fn versions(domain: &str, op: &str) -> &'static [Schema] {
    let schemas: &'static [Schema] = generated::SCHEMAS;
    let from = schemas.partition_point(|s| (s.domain, s.op) < (domain, op));
    let all = &schemas[from..];
    &all[..all.partition_point(|s| (s.domain, s.op) == (domain, op))]
}

/// The schema of the imported version of an operator. Some exporters write operators that are newer than the imported version;
/// for these it is the schema of their first version.
pub(crate) fn find(domain: &str, op: &str, version: i64) -> Option<&'static dyn remat_import::Schema> {
    Some(in_version(domain, op, version)?)
}

fn in_version(domain: &str, op: &str, version: i64) -> Option<&'static Schema> {
    let all = versions(domain, op);
    all.iter().rfind(|s| s.since <= version).or_else(|| all.first())
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// `a, b and c`, or that there are none.
fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

impl remat_import::Schema for Schema {
    /// Errors (Format): an attribute, an input or an output that the operator of this version has not.
    fn check(&self, version: Option<i64>, attributes: &[&str], inputs: &[String], outputs: &[String]) -> Result<()> {
        let (op, version) = (self.op, version.unwrap_or(0));
        // names that begin so are exporters' own by the standard
        let is_known = |name: &str| name.starts_with("__") || self.attributes.contains(&name);
        if let Some(name) = attributes.iter().find(|name| !is_known(name)) {
            let mut newer = versions(self.domain, op).iter().filter(|s| s.since > version);
            let later = newer.find(|s| s.attributes.contains(name));
            let later = later.map_or_else(String::new, |s| format!(" before version {}", s.since));
            return Err(wrong(format!(
                "{op} of version {version} has no attribute `{name}`{later}; it has {}",
                listed(self.attributes)
            )));
        }
        // absent ones at the end are written by some
        let given = |names: &[String]| names.iter().rposition(|n| !n.is_empty()).map_or(0, |i| i + 1);
        for (what, names, most) in [("inputs", inputs, self.most_inputs), ("outputs", outputs, self.most_outputs)] {
            let n = given(names);
            if n > most {
                return Err(wrong(format!("{n} {what}, and {op} of version {version} has at most {most}")));
            }
        }
        Ok(())
    }

    /// Errors (DType): inputs of several types which the operator has of one.
    fn check_types(&self, inputs: &[Option<Value>]) -> Result<()> {
        let mut first: [Option<(usize, Kind)>; MOST_GROUPS] = [None; MOST_GROUPS];
        for (i, value) in inputs.iter().enumerate() {
            let last = self.types.len().checked_sub(1).filter(|_| self.repeats);
            let group = self.types.get(i).or_else(|| self.types.get(last?)).copied().unwrap_or(0);
            let (Some(kind), 1..) = (value.as_ref().and_then(Kind::of), group) else { continue };
            let Some(place) = first.get_mut(usize::from(group)) else { continue };
            match place {
                None => *place = Some((i, kind)),
                Some((_, same)) if *same == kind => {}
                Some((j, other)) => {
                    let text = format!(
                        "input {j} is {other} and input {i} {kind}, which must be of one type: cast one of them"
                    );
                    return Err(Error::new(ErrorKind::DType, text));
                }
            }
        }
        Ok(())
    }
}

/// More groups of inputs than any operator has: the table's test counts them.
const MOST_GROUPS: usize = 8;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Numbers(DType),
    Text,
}

impl Kind {
    /// `None` for a value that is no tensor.
    fn of(value: &Value) -> Option<Kind> {
        match value {
            Value::Tensor(t) | Value::Constant(t, _) => Some(Kind::Numbers(t.dtype())),
            Value::Text(_) | Value::Labels(_) => Some(Kind::Text),
            Value::Optional(Some(v)) => Kind::of(v),
            _ => None,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Numbers(dtype) => dtype.fmt(f),
            Kind::Text => f.write_str("strings"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_schema() {
        for row in crate::rules::all() {
            let found = find(row.domain, row.op, row.since).is_some();
            assert!(found, "{}.{}: run scripts/onnx_schemas.py", row.domain, row.op);
        }
    }

    #[test]
    fn schemas_are_in_the_order_in_which_they_are_looked_up() {
        let place = |s: &Schema| (s.domain, s.op, s.since);
        assert!(generated::SCHEMAS.is_sorted_by(|a, b| place(a) < place(b)));
    }

    #[test]
    fn groups_fit_the_table_that_checks_them() {
        for s in generated::SCHEMAS {
            assert!(s.types.iter().all(|g| usize::from(*g) < MOST_GROUPS), "{}", s.op);
        }
    }

    #[test]
    fn the_schema_is_that_of_the_version() {
        let of = |op: &str, version| in_version("", op, version).expect("an operator");
        assert!(of("Attention", 25).attributes.contains(&"left_window_size"));
        assert!(!of("Attention", 24).attributes.contains(&"left_window_size"));
        assert_eq!((of("Attention", 23).most_inputs, of("Attention", 24).most_inputs), (6, 7));
        assert_eq!((of("SpaceToDepth", 27).since, of("SpaceToDepth", 28).since), (1, 28));
        assert_eq!(of("Concat", 13).types, [1]);
        assert_eq!(of("Loop", 16).types, [0; 3]);
    }
}
