//! The worker thread: owns all state and runs commands in order.

use std::sync::Arc;

use remat_types::{Error, ErrorKind, Fact, Result};

use super::command::Command;
use super::eviction::Eviction;
use super::failure::{Failures, OpFailure};
use super::feasibility::Feasibility;
use super::figures::Figures;
use super::intake::Intake;
use super::launcher::Launcher;
use super::launcher::op_costs::OpCosts;
use super::memory::Memory;
use super::memory::table::{StorageId, Table};
use super::pending::PendingUpdates;
use super::queue::{Batch, Next, Queue, Reply};
use super::schedule::Schedule;
use super::spill::Spills;
use super::step_planner::{CommandKind, StepPlanner};
use super::steps::Steps;
use super::work::Work;
use crate::options::{DeviceOptions, Foresight as Planning};
use crate::report::{Kind, MemoryUse};
use crate::slab::Key;
use remat_device::{Alignment, Backend};

pub(super) struct Worker {
    // the device, and its memory
    pub(super) launcher: Launcher,
    pub(super) options: DeviceOptions,
    pub(super) budget: Option<usize>,
    pub(super) table: Table,
    pub(super) memory: Memory,
    pub(super) spills: Spills,
    /// Scratch memory of the collectives of this step.
    pub(super) comm_scratch: Option<StorageId>,
    // the choice of evictions and recomputations
    pub(super) op_costs: OpCosts,
    pub(super) eviction: Eviction,
    pub(super) feasibility: Feasibility,
    pub(super) step_planner: StepPlanner,
    pub(super) schedule: Schedule,
    pub(super) work: Work,
    // the program
    intake: Intake,
    pub(super) steps: Steps,
    pub(super) pending: PendingUpdates,
    pub(super) running: Running,
    pub(super) figures: Figures,
    pub(super) now_ns: u64,
    /// This is a copy that finds out what would fit.
    pub(super) is_rehearsal: bool,
    /// The device is asynchronous, and its updates make leaves. A rehearsal does as the worker does.
    pub(super) are_updates_leaves: bool,
}

/// The command that runs.
#[derive(Default)]
pub(super) struct Running {
    /// Its op, for errors.
    pub(super) label: &'static str,
    /// Bytes that it needs besides those that are placed, for errors.
    pub(super) still_needed: usize,
    /// The time of the last op that ran for the first time.
    pub(super) last_ns: u64,
    /// It belongs to a group, which was found to fit as a whole.
    pub(super) is_in_group: bool,
    /// Its op must run exactly once, and was launched.
    pub(super) is_launched: bool,
}

impl Worker {
    pub(super) fn new(mut backend: Box<dyn Backend>, options: DeviceOptions, failures: Arc<Failures>) -> Result<Self> {
        let capacity = options.budget_bytes.unwrap_or(0);
        backend.reserve(capacity)?;
        // The run of a dry device must not depend on when a thread is ready.
        let planning = match options.foresight {
            Planning::Beside if backend.is_dry() => Planning::Off,
            planning => planning,
        };
        let alignment = backend.kernels().alignment();
        let host_budget = options.host_budget_bytes.map(|b| b as u64);
        let pinned_host = (!backend.shares_host_memory()).then(|| MemoryUse::new(host_budget));
        let mut w = Worker {
            launcher: Launcher::new(backend),
            budget: options.budget_bytes,
            options,
            table: Table::new(),
            memory: Memory::new(capacity, alignment),
            spills: Spills::default(),
            comm_scratch: None,
            op_costs: OpCosts::default(),
            eviction: Eviction::default(),
            feasibility: Feasibility::default(),
            step_planner: StepPlanner::new(planning),
            schedule: Schedule::default(),
            work: Work::default(),
            intake: Intake::default(),
            steps: Steps::new(failures),
            pending: PendingUpdates::default(),
            running: Running::default(),
            figures: Figures { pinned_host, ..Figures::default() },
            now_ns: 0,
            is_rehearsal: false,
            are_updates_leaves: false,
        };
        w.are_updates_leaves = w.launcher.is_asynchronous();
        if w.budget.is_some() {
            w.open_spill()?;
        }
        Ok(w)
    }

    /// The multiple at which storages lie.
    pub(super) fn alignment(&self) -> Alignment {
        self.memory.arena().alignment()
    }

    /// Runs commands until the queue is closed.
    pub(super) fn serve(mut self, queue: &Arc<Queue>) {
        self.intake.open(queue);
        let mut batch = Batch::default();
        loop {
            queue.take(&mut batch);
            self.note(&batch);
            while !batch.is_empty() {
                if let Some(reply) = self.run_batch(&mut batch) {
                    let closed = || Error::new(ErrorKind::Closed, "the device was closed");
                    queue.close("the device was closed").refuse(closed);
                    batch.refuse(closed);
                    self.intake.take_ahead().refuse(closed);
                    let result = self.sync_all();
                    drop(self);
                    reply.send(result);
                    return;
                }
                std::mem::swap(&mut batch, self.intake.ahead());
            }
        }
    }

    /// Runs a batch and leaves it empty. A command to close ends it early; then it returns the reply to send.
    fn run_batch(&mut self, batch: &mut Batch) -> Option<Reply<()>> {
        self.intake.begin(batch.len());
        while let Some(next) = batch.next() {
            let before = self.now_ns;
            self.intake.advance();
            match next {
                Next::Command(Command::Close { reply }) => return Some(reply),
                Next::Command(c) => self.step(c),
                Next::Apply(a) => self.apply(a),
            }
            self.eviction.advance(self.now_ns.saturating_sub(before));
        }
        None
    }

    /// Takes more commands from the queue, so that a policy sees further. It never holds more than the queue may.
    pub(super) fn look_ahead(&mut self) {
        if let Some(mut more) = self.intake.take_more(self.options.queue_capacity) {
            self.note(&more);
            self.intake.ahead().append(&mut more);
        }
    }

    /// Notes the uses of commands that came from the queue.
    fn note(&mut self, batch: &Batch) {
        if self.budget.is_none() {
            self.eviction.pass_over(batch.len());
        } else {
            batch.uses(|x| self.note_uses(x));
        }
    }

    /// Runs one command.
    pub(super) fn step(&mut self, command: Command) {
        if self.figures.recording.is_some() {
            self.record_command(&command);
        }
        match command {
            Command::Put(p) => {
                self.steps.begin_command(p.caller);
                self.before_put(&Fact::new(p.data.dtype(), p.data.shape()));
                let result = self.put(&p.data, p.kind, p.stream);
                self.bind_put(p.id, result, &Fact::new(p.data.dtype(), p.data.shape()), p.site);
                self.intake.end_put(p.data.bytes().len());
            }
            Command::PutFrom(p) => {
                self.steps.begin_command(p.caller);
                self.before_put(&p.fact);
                match p.value.wait().map_err(|e| e.context("copy from another device")) {
                    Ok(Err(failure)) => self.bind_copy_of_failed(p.id, failure),
                    Ok(Ok(v)) => {
                        let result = self.put(&v, Kind::Data, p.stream);
                        self.bind_put(p.id, result, &p.fact, p.site);
                    }
                    Err(e) => self.bind_put(p.id, Err(e), &p.fact, p.site),
                }
                self.intake.end_put(p.fact.bytes());
            }
            Command::Delete { id } => self.delete(id),
            Command::DropValue { id } => self.drop_value(id),
            Command::Commit { id, kind, caller } => {
                self.steps.begin_command(caller);
                self.before_use(CommandKind::Commit, id);
                self.commit(id, kind);
            }
            Command::NoteLeaf { id } => self.note_leaf(id),
            Command::FallBack { id, old, caller } => {
                self.steps.begin_command(caller);
                self.fall_back(id, old);
            }
            Command::Tag { id, kind } => {
                if let Some(s) = self.table.kept(&id) {
                    self.set_kind(s.storage, kind);
                }
            }
            Command::Fetch { id, reply } => {
                self.before_use(CommandKind::Fetch, id);
                reply.send(self.fetch(id));
            }
            Command::CopyOut { id, reply } => {
                self.before_use(CommandKind::Fetch, id);
                reply.send(match self.read(id) {
                    Ok(value) => Ok(Ok(value)),
                    Err(OpFailure::Inherited(f)) => Ok(Err(f)),
                    Err(OpFailure::Own(e)) => Err(e),
                });
            }
            Command::Await { id, reply } => {
                self.before_use(CommandKind::Fetch, id);
                reply.send(self.wait_value(id));
            }
            Command::Sync { reply } => reply.send(self.sync()),
            Command::MeetAgain { reply } => reply.send(self.meet_again()),
            Command::StepMark { caller, is_given_up, done } => {
                self.step_mark(caller, is_given_up);
                done.into_iter().for_each(|done| done.send(Ok(())));
            }
            Command::Group(group) => self.run_group(*group),
            Command::SetBudget { bytes, reply } => reply.send(self.set_budget(bytes)),
            Command::Charge { bytes, what, give_way, reply } => reply.send(self.charge(bytes, &what, give_way)),
            Command::Uncharge { charge } => {
                let id = Key::from_raw(charge);
                self.eviction.end_charge(id);
                self.end_charge(id);
                self.destroy(id);
            }
            Command::Stats { reply } => reply.send(Ok(self.stats())),
            Command::Held { ids, reply } => reply.send(Ok(self.held_bytes(&ids))),
            Command::Report { reply } => reply.send(Ok(self.report())),
            Command::Verify { reply } => reply.send(self.verify()),
            Command::ResetPeak => self.reset_peak(),
            Command::EvictAll { reply } => reply.send(Ok(self.evict_all())),
            Command::Pause { until } => {
                // An error means that the other side hung up, which is the signal to go on.
                let _ = until.recv();
            }
            Command::StartTrace { sink } => self.start_trace(sink),
            Command::StopTrace { reply } => reply.send(Ok(self.take_trace())),
            Command::StartRecording => self.start_recording(),
            Command::StopRecording { reply } => reply.send(Ok(self.figures.recording.take().unwrap_or_default())),
            Command::Close { reply } => reply.send(Ok(())),
        }
    }
}

/// Opens a worker on a thread of its own.
pub(super) fn spawn(
    backend: Box<dyn Backend>,
    options: DeviceOptions,
    queue: Arc<Queue>,
    failures: Arc<Failures>,
) -> Result<std::thread::JoinHandle<()>> {
    let name = format!("remat-{}", backend.name());
    let (ready, opened) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || match Worker::new(backend, options, failures) {
            Ok(w) => {
                // The opener waits for this message, so it is there to receive it.
                let _ = ready.send(Ok(()));
                // A panic here is a bug. Callers that wait must not hang on it.
                let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| w.serve(&queue)));
                if served.is_err() {
                    let why = "the device's worker panicked: this is a bug in Remat";
                    queue.close(why).refuse(|| Error::new(ErrorKind::Internal, why));
                }
            }
            Err(e) => {
                let _ = ready.send(Err(e));
            }
        })
        .map_err(|e| Error::from(e).context("cannot start the device's worker thread"))?;
    match opened.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(Error::new(ErrorKind::Internal, "the device's worker ended before it was ready")),
    }
}
