//! An operator of a format: its rule, and the schema that its nodes are compared with.

use std::fmt::Debug;

use remat_types::Result;

use super::Cx;
use crate::value::Value;

/// A rule that computes a node from its inputs and attributes.
pub type Rule = fn(&Cx<'_>) -> Result<Vec<Value>>;

/// A row of a format's table: an operator, from a version on.
#[derive(Debug)]
pub struct Row {
    /// The domain of the operator; empty in a format without domains, and for the main domain of others.
    pub domain: &'static str,
    /// The operator.
    pub op: &'static str,
    /// The first version of the operator that the rule is for.
    pub since: i64,
    /// The rule.
    pub rule: Rule,
    /// Inputs that are known give a result that is known. Not so of what draws random numbers or runs inner graphs.
    pub folds: bool,
}

/// The signature of an operator in one of its versions, beside its rule: a rule does not look at what it does not know, and the
/// result would be wrong.
pub trait Schema: Debug + Sync {
    /// Compares a node while it is read: its operator's version, and the names of its attributes, inputs and outputs. Errors: Format.
    fn check(&self, version: Option<i64>, attributes: &[&str], inputs: &[String], outputs: &[String]) -> Result<()>;

    /// Compares the types of a node's inputs when it runs. Errors: DType.
    fn check_types(&self, inputs: &[Option<Value>]) -> Result<()>;
}
