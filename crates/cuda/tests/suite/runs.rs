//! Failures within runs of programs: which states stay, and that every step is looked at.

use std::sync::Arc;

use remat_device::program::{Flow, LoopProgram, Operand, OutputSlot, Place, Program, ProgramParts, Step, StepTimes};
use remat_device::{
    Alignment, Buffer, Event, Launch, OutBuffer, ProgramBody, ProgramLaunch, ProgramOwner, ValueView, host::CommThread,
};
use remat_ops::index::Take;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_ops::{EvalCx, OpRef};
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, Layout, Result, Shape, SmallVec};

use crate::stories::{BAD, GOOD, N, ONES, ROOM, STREAM, Story, ZEROS, on_both};

/// Bytes of a tensor.
const BYTES: usize = 8 * N;
/// Offset of the workspace of runs in the arena, and its bytes.
const WORKSPACE: (usize, usize) = (16 * ROOM, 32 * ROOM);
/// More steps than there are words for launches that may fail.
const MANY: usize = 5000;

fn four() -> Fact {
    Fact::new(DType::I64, [N])
}

fn take() -> OpRef {
    Take { axis: 0 }.into()
}

fn add() -> OpRef {
    Binary { f: BinaryFn::Add }.into()
}

fn operand(place: Place) -> Operand {
    Operand { place, bytes: BYTES, dtype: DType::I64, layout: four().layout() }
}

fn slot(place: Place, donated_from: Option<usize>) -> OutputSlot {
    OutputSlot { place, bytes: BYTES, dtype: DType::I64, shape: [N].into(), donated_from }
}

/// `y = op(x)`, in the place of the first `x` if that is `y`.
fn step(op: OpRef, x: &[Place], y: Place) -> Step {
    Step {
        op,
        flow: None,
        x: x.iter().map(|p| operand(*p)).collect(),
        y: SmallVec::from_iter([slot(y, (x[0] == y).then_some(0))]),
        workspace: (0, 0),
        node: None,
        site: None,
        scope: None,
    }
}

/// A step that runs programs in the workspace from `at` on.
fn flow(flow: Flow, x: &[Place], y: Place, at: usize) -> Step {
    let workspace = (at, flow.workspace_bytes());
    Step { flow: Some(flow), workspace, ..step(add(), x, y) }
}

fn parts(x: usize, steps: Vec<Step>, workspace_bytes: usize) -> ProgramParts {
    ProgramParts {
        alignment: Alignment::new(ROOM).expect("a power of two"),
        threads: 1,
        ends: vec![steps.len()],
        steps,
        x: vec![four(); x],
        y: SmallVec::from_iter([four()]),
        workspace_bytes,
        ..ProgramParts::default()
    }
}

/// A program of four inputs. The first is a state that its output replaces.
fn program(steps: Vec<Step>) -> Arc<Program> {
    let parts = ProgramParts { updates: vec![(0, 0)], ..parts(4, steps, WORKSPACE.1) };
    Arc::new(Program::new(parts).expect("a program"))
}

/// A loop that takes a carried value by an index again and again.
fn takes(trips: usize) -> Flow {
    let again = step(take(), &[Place::Input(1), Place::Input(2)], Place::Output(0));
    let mut body = parts(3, vec![again], 0);
    body.x[0] = Fact::new(DType::I64, []);
    let body = Arc::new(Program::new(body).expect("a program"));
    let (carried, sliced, reverse, counted, conditional) = (1, 0, false, false, false);
    Flow::Loop(LoopProgram { body, trips, carried, sliced, reverse, counted, conditional })
}

struct Owner {
    program: Arc<Program>,
    times: Arc<StepTimes>,
}

impl Owner {
    fn of(program: Arc<Program>) -> Owner {
        Owner { times: Arc::new(StepTimes::new(program.steps.len())), program }
    }
}

impl ProgramOwner for Owner {
    fn program(&self) -> &Program {
        &self.program
    }

    fn times(&self) -> &Arc<StepTimes> {
        &self.times
    }

    fn run_on_host(&self, _cx: &mut EvalCx<'_>, _comm: &CommThread) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "a device runs it"))
    }

    fn is_observed(&self) -> bool {
        false
    }

    fn show(&self, _step: &Step, _j: usize, _view: ValueView<'_>, _ns: u64) -> Result<()> {
        Ok(())
    }
}

/// Queues a run on tensors `x`, which writes tensor `y`, in the place of the first `x` if that is `y`.
fn run(s: &mut Story, body: ProgramBody<'_>, x: &[usize], y: usize, after: &[Event]) -> Event {
    let (layout, shape, op) = (Layout::contiguous(Shape::from(&[N][..])), Shape::from(&[N][..]), add());
    let buffer = |t: &usize| Buffer { dtype: DType::I64, layout: &layout, at: t * ROOM, bytes: BYTES };
    let donated_from = (x[0] == y).then_some(0);
    let out = OutBuffer { dtype: DType::I64, shape: &shape, at: y * ROOM, bytes: BYTES, donated_from };
    let launch = Launch {
        op: &op,
        stream: STREAM,
        x: x.iter().map(buffer).collect(),
        y: SmallVec::from_iter([out]),
        workspace: WORKSPACE,
        after: after.into(),
        site: CallSite::here(),
    };
    s.device.run(&ProgramLaunch { launch: &launch, constants_at: None, body }).expect("is queued")
}

/// Runs a program of [state, ones, index, zeros] with an index that is good or bad, the first time and once more, and expects the
/// state to become `want` of good ones.
fn stays_unless_good(program: &Arc<Program>, want: impl Fn(i64) -> i64) {
    on_both(|s| {
        let owner = Owner::of(program.clone());
        let mut state = 5;
        for index in [BAD, GOOD, BAD, GOOD] {
            let event = run(s, ProgramBody::Whole(&owner), &[5, ONES, index, ZEROS], 5, &[]);
            if index == GOOD {
                state = want(state);
                s.passes(event);
            }
            s.holds(5, [state; N]);
            if index == BAD {
                s.fails(event, ErrorKind::Index);
            }
            s.is_all_told();
        }
    });
}

const STATE: Place = Place::Output(0);

#[test]
fn a_failure_before_a_step_that_reads_a_number_leaves_the_state() {
    let branch = parts(1, vec![step(add(), &[Place::Input(0), Place::Input(0)], STATE)], 0);
    let branch = Arc::new(Program::new(branch).expect("a program"));
    let mut choose = flow(Flow::Switch(vec![branch]), &[Place::Input(3), Place::Input(1)], Place::Arena(ROOM), 0);
    // the choice is one number
    choose.x[0] = Operand { bytes: 8, layout: Layout::contiguous(Shape::scalar()), ..operand(Place::Input(3)) };
    let steps = vec![
        step(take(), &[Place::Input(1), Place::Input(2)], Place::Arena(0)),
        choose,
        step(add(), &[STATE, Place::Arena(ROOM)], STATE),
    ];
    stays_unless_good(&program(steps), |v| v + 2);
}

#[test]
fn a_loop_writes_a_state_only_if_all_before_it_succeeded() {
    let steps = vec![
        step(take(), &[Place::Input(1), Place::Input(2)], Place::Arena(0)),
        flow(takes(3), &[Place::Input(1), Place::Input(3)], STATE, ROOM),
    ];
    stays_unless_good(&program(steps), |_| 1);
}

#[test]
fn a_failure_many_steps_before_an_update_leaves_the_state() {
    let steps = vec![
        step(take(), &[Place::Input(1), Place::Input(2)], Place::Arena(0)),
        flow(takes(MANY), &[Place::Input(1), Place::Input(3)], Place::Arena(ROOM), 2 * ROOM),
        step(add(), &[STATE, Place::Arena(ROOM)], STATE),
    ];
    stays_unless_good(&program(steps), |v| v + 1);
}

#[test]
fn a_loop_has_more_steps_that_may_fail_than_there_are_words_for() {
    for index in [GOOD, BAD] {
        on_both(|s| {
            let looped = takes(MANY);
            let event = run(s, ProgramBody::Flow(&looped), &[ONES, index], 6, &[]);
            let heir = s.add(6, ONES, 7, &[event]);
            if index == GOOD {
                s.passes(event);
                s.holds(7, [2; N]);
            } else {
                s.fails(heir, ErrorKind::Index);
                s.fails(event, ErrorKind::Poisoned);
            }
            s.is_all_told();
        });
    }
}

#[test]
fn a_run_after_a_failure_is_not_made_whether_that_is_known_or_not() {
    let steps = vec![step(add(), &[STATE, Place::Input(1)], STATE)];
    let program = program(steps);
    for is_known in [false, true] {
        on_both(|s| {
            let owner = Owner::of(program.clone());
            let bad = s.take(ONES, BAD, 4, &[]);
            if is_known {
                s.device.wait_idle();
                s.device.poll(bad);
            }
            let event = run(s, ProgramBody::Whole(&owner), &[5, 4, GOOD, ZEROS], 5, &[bad]);
            s.holds(5, [5; N]);
            s.fails(event, ErrorKind::Index);
            s.is_all_told();
        });
    }
}
