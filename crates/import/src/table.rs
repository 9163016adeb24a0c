//! The table in which a format's rules are found.

use std::collections::HashMap;

use crate::graph::{Row, Schema};

/// The longest name for which the nearest one is looked for: a name of any length would make any work.
const MOST_NAME_BYTES: usize = 64;

/// Finds the schema of an operator: domain, name, and the version that the model imports.
pub type FindSchema = fn(&str, &str, Option<i64>) -> Option<&'static dyn Schema>;

/// The rules of a format.
pub struct Rules {
    /// The rows of an operator, the newest first.
    rows: HashMap<(&'static str, &'static str), Vec<&'static Row>>,
    schema: FindSchema,
}

impl Rules {
    /// The rows of families of operators. Nodes are compared with no schema.
    pub fn new(families: &[&'static [Row]]) -> Rules {
        let mut rows: HashMap<_, Vec<&'static Row>> = HashMap::new();
        for row in families.iter().copied().flatten() {
            rows.entry((row.domain, row.op)).or_default().push(row);
        }
        rows.values_mut().for_each(|rows| rows.sort_by_key(|r| -r.since));
        Rules { rows, schema: |_, _, _| None }
    }

    /// With schemas for the operators that have rules.
    pub fn with_schemas(self, schema: FindSchema) -> Rules {
        Rules { schema, ..self }
    }

    /// The newest row that is no newer than the imported version; without versions, the newest.
    pub fn find(&self, domain: &str, op: &str, version: Option<i64>) -> Option<&'static Row> {
        let rows = self.rows.get(&(domain, op))?;
        rows.iter().copied().find(|r| version.is_none_or(|v| r.since <= v))
    }

    /// The schema of an operator, if the format has schemas.
    pub fn schema(&self, domain: &str, op: &str, version: Option<i64>) -> Option<&'static dyn Schema> {
        (self.schema)(domain, op, version)
    }

    /// The supported operator of the domain, or of the main one, whose name is most like another one, if it is like it at all.
    pub fn nearest(&self, domain: &str, op: &str) -> Option<&'static str> {
        if op.len() > MOST_NAME_BYTES {
            return None;
        }
        let names = self.rows.keys().filter(|k| k.0 == domain || k.0.is_empty());
        let (distance, name) = names.map(|k| (distance(k.1, op), k.1)).min()?;
        (distance <= op.len().div_ceil(2)).then_some(name)
    }
}

/// How many characters have to be changed (Levenshtein, 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = cost.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Cx;
    use crate::value::Value;

    fn rule(_: &Cx<'_>) -> remat_types::Result<Vec<Value>> {
        Ok(Vec::new())
    }

    const fn row(domain: &'static str, op: &'static str, since: i64) -> Row {
        Row { domain, op, since, rule, folds: true }
    }

    const OLD: &[Row] = &[row("", "sum", 1), row("own", "mean", 1)];
    const NEW: &[Row] = &[row("", "sum", 7)];

    #[test]
    fn the_rule_is_the_newest_that_the_version_has() {
        let rules = Rules::new(&[OLD, NEW]);
        let since = |version| rules.find("", "sum", version).map(|r| r.since);
        assert_eq!([since(Some(0)), since(Some(6)), since(Some(7)), since(None)], [None, Some(1), Some(7), Some(7)]);
        assert!(rules.find("own", "sum", None).is_none() && rules.find("", "mean", None).is_none());
    }

    #[test]
    fn the_nearest_name_is_of_the_domain_or_the_main_one() {
        let rules = Rules::new(&[OLD, NEW]);
        assert_eq!(rules.nearest("", "som"), Some("sum"));
        assert_eq!((rules.nearest("own", "meen"), rules.nearest("", "meen")), (Some("mean"), None));
        assert_eq!(rules.nearest("own", &"m".repeat(MOST_NAME_BYTES + 1)), None);
    }
}
