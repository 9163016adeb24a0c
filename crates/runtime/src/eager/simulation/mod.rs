//! The behaviour of a policy with a recorded program under a budget.
//!
//! The simulator is the runtime itself: the worker steps through the commands on the caller's thread, over the dry
//! device. That device's clock advances by the recorded times. No memory is touched and no thread started, and no
//! second model of the runtime exists that could disagree with it.

mod stream;
mod worker;

pub use stream::{CommandStream, StreamCommand};

use std::sync::Arc;

use remat_ops::schema::Params;
use remat_ops::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Layout, Result, SmallVec};
use serde::{Deserialize, Serialize};

pub(in crate::eager) use self::worker::Simulated;
use crate::PlanTimes;
use crate::options::{DeviceOptions, Foresight, PolicyKind};
use Simulated as Worker;
use remat_device::{Dry, KernelSet};

/// The costs of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Simulation {
    /// Time of all ops, including recomputation and moves of blocks, on the virtual clock.
    pub time_ns: u64,
    /// Time of ops that were recomputed.
    pub recomputed_ns: u64,
    /// The number of those ops.
    pub recomputed_ops: u64,
    /// Storages that were evicted.
    pub evictions: u64,
    /// Bytes that compactions moved.
    pub compacted_bytes: u64,
    /// The most bytes that were allocated at once.
    pub peak_bytes: usize,
    /// The most bytes that any one op pinned and needed at once.
    pub least_budget_bytes: usize,
    /// Steps that ran to their end as planned.
    pub steps_followed: u64,
    /// Steps that began as planned and went on without their plan.
    pub steps_abandoned: u64,
    /// Time of each step up to its mark.
    pub step_ns: Vec<u64>,
    /// The times that the plan of the last followed step promised.
    pub plan: Option<PlanTimes>,
}

/// Replays a stream with a policy under a budget. Errors: Budget if it is infeasible; Format if the stream names a
/// tensor that does not exist.
pub fn simulate(stream: &CommandStream, policy: PolicyKind, budget_bytes: Option<usize>) -> Result<Simulation> {
    replay(stream, policy, budget_bytes, Foresight::Off)
}

/// As [`simulate`], with plans for steps that repeat. The plans are made at the step marks. Errors: as [`simulate`].
pub fn simulate_planned(stream: &CommandStream, policy: PolicyKind, budget_bytes: Option<usize>) -> Result<Simulation> {
    replay(stream, policy, budget_bytes, Foresight::AtOnce)
}

fn replay(
    stream: &CommandStream,
    policy: PolicyKind,
    budget_bytes: Option<usize>,
    foresight: Foresight,
) -> Result<Simulation> {
    let options = DeviceOptions {
        budget_bytes,
        policy,
        foresight,
        threads: 1,
        always_record: true,
        host_compute: false,
        ..DeviceOptions::default()
    };
    let ahead = options.queue_capacity;
    let mut worker = Worker::new(Box::new(Dry::with_kernels(1, Arc::new(RecordedKernels))), options)?;
    let (mut foreseen, mut is_waiting, mut marks) = (0, false, Vec::new());
    for (at, c) in stream.commands.iter().enumerate() {
        // The caller runs as far ahead as the queue lets it, and waits for values that it reads.
        is_waiting &= foreseen > at;
        while !is_waiting && foreseen < stream.commands.len().min(at + ahead) {
            worker.foresee(&stream.commands[foreseen]);
            is_waiting = matches!(stream.commands[foreseen], StreamCommand::Fetch { .. });
            foreseen += 1;
        }
        worker.advance(|w| step(w, c)).map_err(|e| e.context(format!("command {at}")))?;
        if *c == StreamCommand::StepMark {
            marks.push(worker.figures().1);
        }
    }
    let (stats, time_ns) = worker.figures();
    let begins = std::iter::once(&0).chain(&marks);
    let times = || PlanTimes {
        planned_ns: stats.planned_step_ns,
        base_ns: stats.planned_base_ns,
        bound_ns: stats.planned_bound_ns,
        stall_ns: 0, // nothing is spilled in a step of an eager program
    };
    Ok(Simulation {
        time_ns,
        recomputed_ns: stats.recomputed_ns,
        recomputed_ops: stats.recomputed_ops,
        evictions: stats.evictions,
        compacted_bytes: stats.compacted_bytes,
        peak_bytes: stats.peak_bytes,
        least_budget_bytes: stats.least_budget_bytes,
        steps_followed: stats.steps_followed,
        steps_abandoned: stats.steps_abandoned,
        step_ns: begins.zip(&marks).map(|(begin, end)| end - begin).collect(),
        plan: (stats.steps_followed > 0).then(times),
    })
}

fn step(w: &mut Worker, c: &StreamCommand) -> Result<()> {
    match c {
        StreamCommand::Put { id, bytes, kind } => w.put(*id, *bytes, *kind),
        StreamCommand::Apply { op, x, y, overwrite, scratch_bytes, repeatable, cost_ns } => {
            let facts: Facts = y.iter().map(|(_, bytes)| Fact::new(DType::U8, [*bytes])).collect();
            let op = Recorded {
                op: op.clone(),
                y_bytes: y.iter().map(|y| y.1).collect(),
                overwrite: overwrite.clone(),
                scratch_bytes: *scratch_bytes,
                repeatable: *repeatable,
                cost_ns: *cost_ns,
                is_view: false,
            };
            w.apply(op.into(), x, y.iter().map(|y| y.0).collect(), facts)
        }
        StreamCommand::View { x, y } => {
            let bytes = w.bytes(x.0)?;
            let op = Recorded { y_bytes: vec![bytes], is_view: true, ..Recorded::default() };
            w.apply(op.into(), &[*x], SmallVec::from_iter([*y]), Facts::from_iter([Fact::new(DType::U8, [bytes])]))
        }
        StreamCommand::Delete { id } => w.delete(*id),
        StreamCommand::DropValue { id } => w.drop_value(*id),
        StreamCommand::NoteLeaf { id } => w.note_leaf(*id),
        StreamCommand::Commit { id, kind } => w.commit(*id, *kind),
        StreamCommand::Fetch { id } => w.wait(*id),
        StreamCommand::StepMark => {
            w.mark();
            Ok(())
        }
    }
}

/// The kernels of a recording, with the recorded times.
#[derive(Debug)]
struct RecordedKernels;

impl KernelSet for RecordedKernels {
    fn device(&self) -> &str {
        "recorded"
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn supports(&self, _op: &dyn Op, _x: &[&Fact]) -> bool {
        true
    }

    fn workspace(&self, op: &dyn Op, x: &[&Fact]) -> usize {
        op.workspace(x, 1)
    }

    fn layout(&self, op: &dyn Op, input: usize) -> LayoutReq {
        op.layout(input)
    }

    fn overwrite<'o>(&self, op: &'o dyn Op) -> &'o [(usize, usize)] {
        op.overwrite()
    }

    fn cost_ns(&self, op: &dyn Op, x: &[&Fact], y: &[Fact]) -> u64 {
        match op.as_any().downcast_ref::<Recorded>() {
            Some(recorded) => recorded.cost_ns,
            None => op.cost(x, y).prior_ns(),
        }
    }
}

/// An op of a recording. It has bytes and a time, and computes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Recorded {
    op: String,
    y_bytes: Vec<usize>,
    overwrite: Vec<(usize, usize)>,
    scratch_bytes: usize,
    repeatable: bool,
    cost_ns: u64,
    is_view: bool,
}

/// Overwriting pairs of ops come as static slices; these are the patterns that ops have. A recording with another
/// pattern replays without sharing, which costs memory and never correctness.
const OVERWRITES: [&[(usize, usize)]; 8] = [
    &[(0, 0)],
    &[(1, 0)],
    &[(2, 0)],
    &[(0, 0), (1, 0)],
    &[(1, 0), (2, 0)],
    &[(0, 0), (2, 1)],
    &[(0, 0), (2, 1), (3, 2)],
    &[(0, 0), (2, 1), (3, 2), (4, 3)],
];

impl Op for Recorded {
    fn infer(&self, _x: &[&Fact]) -> Result<Facts> {
        Ok(self.y_bytes.iter().map(|bytes| Fact::new(DType::U8, [*bytes])).collect())
    }

    fn eval(&self, _cx: &mut EvalCx<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "a recorded op computes nothing"))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok((0..cx.x_count()).map(|_| None).collect())
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        OVERWRITES.into_iter().find(|o| *o == self.overwrite).unwrap_or(&[])
    }

    fn view(&self, x: &Layout) -> Option<Layout> {
        self.is_view.then(|| x.clone())
    }

    fn workspace(&self, _x: &[&Fact], _threads: usize) -> usize {
        self.scratch_bytes
    }

    fn repeatable(&self) -> bool {
        self.repeatable
    }
}

impl Params for Recorded {}

impl OpDef for Recorded {
    const NAME: &'static str = "recorded";

    fn samples() -> Vec<Sample<Self>> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
