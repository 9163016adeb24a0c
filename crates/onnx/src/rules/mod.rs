//! The operators: one row each, and more where a later version of the standard means something else.

mod activation;
mod arithmetic;
mod attention;
mod cast;
mod contrib;
mod control;
mod conv;
mod index;
mod linalg;
mod loss;
mod ml;
mod norm;
mod order;
mod pool;
mod quantise;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod sequence;
mod shape;
mod signal;
mod text;
mod trees;
mod vision;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use crate::graph::Row;
use crate::graph::Rule;

/// A row of the standard's own domain.
const fn row(op: &'static str, since: i64, rule: Rule) -> Row {
    Row { domain: "", op, since, rule, folds: true }
}

/// A row whose result does not follow from its inputs alone.
const fn free(op: &'static str, since: i64, rule: Rule) -> Row {
    Row { domain: "", op, since, rule, folds: false }
}

/// A row of another domain.
const fn of(domain: &'static str, op: &'static str, since: i64, rule: Rule) -> Row {
    Row { domain, op, since, rule, folds: true }
}

const FAMILIES: &[&[Row]] = &[
    activation::ROWS,
    arithmetic::ROWS,
    attention::ROWS,
    cast::ROWS,
    contrib::ROWS,
    control::ROWS,
    conv::ROWS,
    index::ROWS,
    linalg::ROWS,
    loss::ROWS,
    ml::ROWS,
    norm::ROWS,
    order::ROWS,
    pool::ROWS,
    quantise::ROWS,
    random::ROWS,
    recurrent::ROWS,
    reduce::ROWS,
    resize::ROWS,
    sequence::ROWS,
    shape::ROWS,
    signal::ROWS,
    text::ROWS,
    vision::ROWS,
];

/// The rows of an operator, the newest first.
type Table = HashMap<(&'static str, &'static str), Vec<&'static Row>>;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::new();
    for row in FAMILIES.iter().copied().flatten() {
        table.entry((row.domain, row.op)).or_default().push(row);
    }
    table.values_mut().for_each(|rows| rows.sort_by_key(|r| -r.since));
    table
});

/// The newest row that is no newer than the imported version.
pub(crate) fn find(domain: &str, op: &str, version: i64) -> Option<&'static Row> {
    let rows = TABLE.get(&(domain, op))?;
    rows.iter().copied().find(|r| r.since <= version)
}

/// All rows.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().copied().flatten()
}

/// The supported operator whose name is most like another one, if it is like it at all.
pub(crate) fn nearest(domain: &str, op: &str) -> Option<&'static str> {
    // a name of any length would make any work
    if op.len() > 64 {
        return None;
    }
    let rows = TABLE.keys().filter(|k| k.0 == domain || k.0.is_empty());
    let (distance, name) = rows.map(|k| (distance(k.1, op), k.1)).min()?;
    (distance <= op.len().div_ceil(2)).then_some(name)
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
