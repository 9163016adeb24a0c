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

use std::sync::LazyLock;

use remat_import::{Cx, Row, Rule, Rules};
use remat_types::{DType, Result};

use crate::schema;
use crate::tensor::dtype_of;

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

/// The table of the rules.
pub(crate) static RULES: LazyLock<Rules> =
    LazyLock::new(|| Rules::new(FAMILIES).with_schemas(|domain, op, version| schema::find(domain, op, version?)));

/// An attribute that is an element type. Errors: Format; DType for those that Remat has not.
fn dtype(c: &Cx<'_>, name: &str) -> Result<Option<DType>> {
    let known = |n: i64| dtype_of(i32::try_from(n).unwrap_or(-1)).map_err(|e| e.context(format!("attribute `{name}`")));
    c.opt_int(name)?.map(known).transpose()
}

/// All rows.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().copied().flatten()
}
