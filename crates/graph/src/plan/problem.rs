//! The abstract problem: operators in their order, storages with sizes, values that live in them.
//!
//! A [`Spec`] is the problem as it is written, with names. [`Problem::new`] checks it and resolves names to indices; a
//! `Problem` is therefore always well-formed and its own order is a valid schedule without a budget.
//!
//! The rules where the format leaves room:
//!
//! * `alias_of` and `writes` name an input of the operator that has the output.
//! * A view is readable from the step that computes it until the bytes under it are freed, made again or overwritten;
//!   after that its operator has to run again, as any other.
//! * `may_take` names inputs of the operator, of the output's size, whose storage the output may have if the input is not
//!   read again before it is made again.
//! * A write makes every other value of that storage unreadable. Two writers of one version cannot both be valid.
//! * Sizes are counted in whole multiples of `align`.

mod build;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::sync::OnceLock;

use remat_types::Result;
use rustc_hash::FxHashMap;

use super::floor::Floor;
use super::json::LARGEST;

/// A problem as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Every offset is a multiple of this.
    pub align: u64,
    /// The values that exist before the first operator: name and bytes.
    pub values: Vec<(String, u64)>,
    /// In the order in which a run without a budget executes them.
    pub ops: Vec<OpSpec>,
    /// Names of values that must be resident at the end.
    pub outputs: Vec<String>,
    /// Zero for no spilling.
    pub spill: SpillRates,
}

/// Bytes per second to and from the place where storages are spilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillRates {
    /// Out of the arena.
    pub write_bytes_per_s: u64,
    /// Back into it.
    pub read_bytes_per_s: u64,
}

impl SpillRates {
    /// True if both ways work.
    pub fn is_possible(&self) -> bool {
        self.write_bytes_per_s > 0 && self.read_bytes_per_s > 0
    }

    /// Nanoseconds to write `bytes`, rounded up; both rates must be positive.
    pub fn write_ns(&self, bytes: u64) -> u64 {
        transfer_ns(bytes, self.write_bytes_per_s)
    }

    /// Nanoseconds to read `bytes`, rounded up; both rates must be positive.
    pub fn read_ns(&self, bytes: u64) -> u64 {
        transfer_ns(bytes, self.read_bytes_per_s)
    }
}

fn transfer_ns(bytes: u64, rate: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    u64::try_from(ns).unwrap_or(LARGEST).min(LARGEST)
}

/// An operator as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpSpec {
    /// Unique among operators.
    pub name: String,
    /// One execution.
    pub time_ns: u64,
    /// Values it reads.
    pub inputs: Vec<String>,
    /// Values it makes.
    pub outputs: Vec<OutputSpec>,
    /// Bytes needed only while it runs.
    pub workspace: u64,
    /// False if it may run once only.
    pub repeatable: bool,
}

/// An output as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// Unique among values.
    pub name: String,
    /// Where its bytes are.
    pub bytes: Bytes,
}

/// Where the bytes of an output are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// In a storage of its own of this size.
    Own(u64),
    /// In a storage of its own of this size, or in that of one of these inputs where the input dies.
    OwnOr(u64, Vec<String>),
    /// In the storage of that input, which stays readable.
    AliasOf(String),
    /// In the storage of that input, whose values become unreadable.
    Writes(String),
}

/// How an output of an operator gets its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// A new storage.
    Own,
    /// A view of an input.
    Alias,
    /// Over an input.
    Writes,
}

/// A value: a storage in one of its versions, or a view of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Unique.
    pub name: String,
    /// Index into [`Problem::storages`].
    pub storage: usize,
    /// Index into [`Problem::ops`]; `None` for a given value.
    pub producer: Option<usize>,
}

/// Bytes that values share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Index of the value that it was made for.
    pub root: usize,
    /// As written.
    pub bytes: u64,
    /// `bytes` in whole multiples of `align`.
    pub padded: u64,
    /// The operator that makes it; `None` for a given value's.
    pub producer: Option<usize>,
    /// All values in it, in the order in which they are made.
    pub values: Vec<usize>,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Unique.
    pub name: String,
    /// One execution.
    pub time_ns: u64,
    /// Values it reads, without repetition.
    pub inputs: Vec<usize>,
    /// Values it makes.
    pub outputs: Vec<(usize, OutputKind)>,
    /// Storages: one that it makes, and one of an input whose bytes that may have.
    pub takes: Vec<(usize, usize)>,
    /// In whole multiples of `align`.
    pub workspace: u64,
    /// False if it may run once only.
    pub repeatable: bool,
}

/// A checked problem.
#[derive(Clone, Debug)]
pub struct Problem {
    spec: Spec,
    values: Vec<Value>,
    storages: Vec<Storage>,
    ops: Vec<Op>,
    outputs: Vec<usize>,
    by_name: FxHashMap<String, usize>,
    op_by_name: FxHashMap<String, usize>,
    /// The floor of its memory, without spilling and with it.
    floors: [OnceLock<Floor>; 2],
}

impl Problem {
    /// Checks `spec` and resolves its names.
    ///
    /// # Errors
    /// [`remat_types::ErrorKind::Format`], with the place: a name that is unknown, used before it is made, or given
    /// twice; a read of an overwritten version; sizes or times whose sum is beyond 2^60.
    pub fn new(spec: Spec) -> Result<Problem> {
        build::Builder::default().build(spec)
    }

    /// As written.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Every offset is a multiple of this.
    pub fn align(&self) -> u64 {
        self.spec.align
    }

    /// Rates of spilling.
    pub fn spill(&self) -> SpillRates {
        self.spec.spill
    }

    /// Given values first, then outputs of operators in order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Those of given values first.
    pub fn storages(&self) -> &[Storage] {
        &self.storages
    }

    /// In the order of a run without a budget.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Values that must be resident at the end, without repetition.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// The index of a value.
    pub fn value_named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The index of an operator.
    pub fn op_named(&self, name: &str) -> Option<usize> {
        self.op_by_name.get(name).copied()
    }

    /// The name of the value that a storage was made for.
    pub fn storage_name(&self, storage: usize) -> &str {
        &self.values[self.storages[storage].root].name
    }

    /// Time of a run without a budget.
    pub fn base_time_ns(&self) -> u64 {
        self.ops.iter().map(|o| o.time_ns).sum()
    }

    /// Bytes of given values, padded.
    pub fn given_bytes(&self) -> u64 {
        self.storages.iter().filter(|s| s.producer.is_none()).map(|s| s.padded).sum()
    }

    /// The planner's cache of the problem's memory floor, which costs more than a plan.
    pub(crate) fn floor(&self, may_spill: bool) -> &OnceLock<Floor> {
        &self.floors[usize::from(may_spill)]
    }

    /// `bytes` in whole multiples of `align`.
    pub fn pad(&self, bytes: u64) -> u64 {
        pad(bytes, self.spec.align)
    }
}

fn pad(bytes: u64, align: u64) -> u64 {
    bytes.div_ceil(align) * align
}
