//! The harness that tests every op from its samples.
//!
//! [`check_entry`] walks the samples of one op and derives from each the checks listed in docs/notes/compiled.md
//! ("Testing operators"); [`each_sample`] hands the same table to upper crates, which run it eagerly, compiled and under
//! budgets. A check never passes for lack of something to compare: a gradient must be alive, an op must have expected
//! values, an error and a gradient sample, or every sample must say why not. The harness is judged by the faults that
//! are planted in it (`xtask/faults`), not by a green run.

mod compare;
mod empty;
mod gradient;
mod identity;
mod layouts;
mod promises;
mod tape;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_kernels::pool::Pool;
use remat_types::{Error, HostTensor, Result};

pub use compare::{bit_differences, difference, differences, float_bound, is_near, ulp_distance};
pub use gradient::{ALIVE, compare_gradient};
pub use tape::{HostApply, HostTape, TapeVar, dot, random_cotangent};

use crate::{Entry, Expect, GradCheck, OpRef, Registry, Sample};

/// A check that an op did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the op.
    pub op: &'static str,
    /// Position in the op's samples; `None` for a check of the op as a whole.
    pub sample: Option<usize>,
    /// Name of the check.
    pub check: &'static str,
    /// The description of the failure.
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.op)?;
        if let Some(i) = self.sample {
            write!(f, " sample {i}")?;
        }
        write!(f, ": {}: {}", self.check, self.message)
    }
}

/// The outcome of one check: nothing, or the description of the failure.
type Check = std::result::Result<(), String>;

/// The data that the checks of a sample share.
struct Harness {
    /// Pools of 1, 2 and 3 threads: results must not depend on which is used.
    pools: [Pool; 3],
}

impl Harness {
    fn new() -> Self {
        Harness { pools: [1, 2, 3].map(Pool::new) }
    }

    fn pool(&self) -> &Pool {
        &self.pools[0]
    }

    fn eval(&self, op: &OpRef, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
        crate::eval_on_host(&**op, x, self.pool())
    }
}

type SampleCheck = (&'static str, fn(&Harness, &Entry, &Sample<OpRef>) -> Check);

/// The checks of one sample, by name.
const SAMPLE_CHECKS: &[SampleCheck] = &[
    ("expected", values::meets_expectation),
    ("facts", values::facts_equal_outputs),
    ("f32 against f64", values::f32_agrees_with_f64),
    ("accepted dtypes", values::accepted_dtypes_evaluate),
    ("number of inputs", values::only_as_many_inputs_as_declared),
    ("arguments", values::odd_arguments_do_not_panic),
    ("empty inputs", empty::empty_inputs_evaluate),
    ("repeatable", values::same_bits_for_threads_and_garbage),
    ("workspace and cost", values::workspace_and_cost_are_pure),
    ("strides", layouts::strided_inputs_give_the_same_bits),
    ("broadcast", layouts::broadcast_inputs_give_the_same_bits),
    ("view", layouts::view_equals_eval),
    ("promises", promises::what_passes_are_told_is_so),
    ("in place", layouts::donation_gives_the_same_bits),
    ("serial form", identity::serial_form_round_trips),
    ("identity", identity::every_parameter_counts),
    ("gradient", gradient::agrees_with_central_differences),
    ("second gradient", gradient::second_order_agrees),
];

/// Runs every check on every sample of `entry`, and those of the op as a whole.
pub fn check_entry(entry: &Entry) -> Vec<Failure> {
    let harness = Harness::new();
    let samples = entry.samples();
    let mut failures = Vec::new();
    for (i, s) in samples.iter().enumerate() {
        for (check, run) in SAMPLE_CHECKS {
            if let Err(message) = caught(|| run(&harness, entry, s)) {
                failures.push(Failure { op: entry.name, sample: Some(i), check, message });
            }
        }
    }
    let whole: [(&'static str, Check); 2] = [
        ("coverage", coverage(entry, &samples)),
        ("distinct samples", identity::equal_means_equal_parameters(&samples)),
    ];
    for (check, outcome) in whole {
        if let Err(message) = outcome {
            failures.push(Failure { op: entry.name, sample: None, check, message });
        }
    }
    failures
}

/// [`check_entry`] for all ops, and the check that no two share a name.
pub fn check_registry(registry: &Registry) -> Vec<Failure> {
    let mut failures: Vec<Failure> = registry.entries().iter().flat_map(check_entry).collect();
    for (i, e) in registry.entries().iter().enumerate() {
        if registry.entries()[..i].iter().any(|o| o.name == e.name) {
            let message = "two ops have this name".to_owned();
            failures.push(Failure { op: e.name, sample: None, check: "unique name", message });
        }
    }
    failures
}

/// Calls `f` with every sample of every op: the table that upper crates run eagerly, compiled and under budgets.
pub fn each_sample(registry: &Registry, mut f: impl FnMut(&Entry, usize, &Sample<OpRef>)) {
    for entry in registry.entries() {
        for (i, s) in entry.samples().iter().enumerate() {
            f(entry, i, s);
        }
    }
}

/// Float inputs with respect to which the harness checks this sample's gradient; empty if it checks none.
pub fn checked_inputs(s: &Sample<OpRef>) -> Vec<usize> {
    let floats = (0..s.x.len()).filter(|&i| s.x[i].dtype().is_float() && s.x[i].elems() > 0);
    match &s.grad {
        GradCheck::Skip(_) => Vec::new(),
        GradCheck::All => floats.collect(),
        GradCheck::Inputs(these) => floats.filter(|i| these.contains(i)).collect(),
    }
}

/// The sample's inputs with every float tensor converted to f64.
pub fn inputs_in_f64(s: &Sample<OpRef>) -> Result<Vec<HostTensor>> {
    use remat_types::DType;
    (s.x.iter())
        .map(|t| match t.dtype().is_float() {
            true => HostTensor::from_f64_slice(&t.to_f64_vec(), DType::F64, t.shape().clone()),
            false => Ok(t.clone()),
        })
        .collect()
}

fn coverage(entry: &Entry, samples: &[Sample<OpRef>]) -> Check {
    if !samples.iter().any(|s| matches!(s.expect, Expect::Values(_))) {
        return Err("no sample has expected values".into());
    }
    if !samples.iter().any(|s| matches!(s.expect, Expect::Error(_))) {
        return Err("no sample expects an error".into());
    }
    let reasoned = samples.iter().all(|s| matches!(s.grad, GradCheck::Skip(_)));
    if !reasoned && !samples.iter().any(|s| !checked_inputs(s).is_empty()) {
        return Err(format!("no sample of {} has its gradient checked, and not all say why", entry.name));
    }
    Ok(())
}

/// Runs a check; a panic in an op is a failure of the check, not of the whole run.
fn caught(f: impl FnOnce() -> Check) -> Check {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(format!("panicked: {text}"))
    })
}

/// An error as a failure message.
fn text(e: Error) -> String {
    format!("{e:?}")
}

/// True for a sample that is expected to compute something.
fn succeeds(s: &Sample<OpRef>) -> bool {
    !matches!(s.expect, Expect::Error(_))
}
