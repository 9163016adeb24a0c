//! The worker without a thread: a recording drives it one command at a time.

use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, Facts, Layout, Result, SmallVec};

use super::StreamCommand;
use crate::eager::command::{Apply, Command, Until};
use crate::eager::eviction::Use;
use crate::eager::failure::Caller;
use crate::eager::handle::TensorId;
use crate::eager::memory::table::StorageView;
use crate::eager::queue::Reply;
use crate::eager::worker::Worker;
use crate::options::DeviceOptions;
use crate::report::{Kind, Stats};
use remat_device::{Backend, StreamId};

/// See the module's note.
pub(crate) struct Simulated(pub(in crate::eager) Worker);

impl Simulated {
    pub(crate) fn new(backend: Box<dyn Backend>, options: DeviceOptions) -> Result<Self> {
        Worker::new(backend, options, Arc::default()).map(Simulated)
    }

    fn source(&self, id: u64) -> Result<&StorageView> {
        match self.0.table.read(&TensorId(id)) {
            Some(Ok(s)) => Ok(s),
            Some(Err(f)) => Err(self.0.steps.failures().report(f)),
            None => Err(Error::new(ErrorKind::Format, format!("tensor {id} does not exist"))),
        }
    }

    /// A step ends.
    pub(crate) fn mark(&mut self) {
        self.0.step(Command::StepMark { caller: Caller::current(), is_given_up: false, done: None });
    }

    /// Tells the worker of a command to come, by the tensors that it uses.
    pub(crate) fn foresee(&mut self, command: &StreamCommand) {
        let of = |&(id, dies): &(u64, bool)| (TensorId(id), if dies { Use::Last } else { Use::Read });
        let uses: SmallVec<[(TensorId, Use); 4]> = match command {
            StreamCommand::Apply { x, .. } => x.iter().map(of).collect(),
            StreamCommand::View { x, .. } => SmallVec::from_iter([of(x)]),
            StreamCommand::Fetch { id } => SmallVec::from_iter([(TensorId(*id), Use::Read)]),
            StreamCommand::Delete { id } => SmallVec::from_iter([(TensorId(*id), Use::End)]),
            _ => SmallVec::new(),
        };
        self.0.note_uses(&uses);
    }

    /// Runs one foreseen command.
    pub(crate) fn advance<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.0.launcher.now_ns();
        let result = run(self);
        self.0.eviction.advance(self.0.launcher.now_ns() - before);
        result
    }

    fn ask<T: Send>(&mut self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let (reply, answer) = Reply::new();
        self.0.step(command(reply));
        answer.wait()
    }

    /// Bytes of a tensor's storage.
    pub(crate) fn bytes(&self, id: u64) -> Result<usize> {
        Ok(self.0.table[self.source(id)?.storage].bytes)
    }

    pub(crate) fn put(&mut self, id: u64, bytes: usize, kind: Kind) -> Result<()> {
        self.0.before_put(&Fact::new(DType::U8, [bytes]));
        let storage = self.0.put_bytes(bytes, kind, StreamId(0), |_, _, _| Ok(remat_device::Event::REACHED))?;
        let source = StorageView { storage, layout: Layout::contiguous([bytes]), dtype: DType::U8 };
        self.0.bind_new(TensorId(id), source);
        self.0.after_put(TensorId(id));
        Ok(())
    }

    pub(crate) fn apply(&mut self, op: OpRef, x: &[(u64, bool)], y: SmallVec<[u64; 2]>, facts: Facts) -> Result<()> {
        x.iter().try_for_each(|(id, _)| self.source(*id).map(|_| ()))?;
        let (reply, answer) = Reply::new();
        // A recorded op's workspace does not depend on its inputs.
        let workspace_bytes = self.0.launcher.kernels().workspace(&*op, &[]);
        self.0.apply(&mut Apply {
            op,
            workspace_bytes,
            x: x.iter().map(|&(id, dies)| (TensorId(id), dies)).collect(),
            y: y.into_iter().map(TensorId).collect(),
            facts,
            fallback: SmallVec::new(),
            stream: StreamId(0),
            site: CallSite::here(),
            caller: Caller::current(),
            scope: None,
            done: Some((reply, Until::Launched)),
        });
        answer.wait()
    }

    pub(crate) fn delete(&mut self, id: u64) -> Result<()> {
        self.source(id)?;
        self.0.step(Command::Delete { id: TensorId(id) });
        Ok(())
    }

    pub(crate) fn drop_value(&mut self, id: u64) -> Result<()> {
        self.source(id)?;
        self.0.step(Command::DropValue { id: TensorId(id) });
        Ok(())
    }

    pub(crate) fn note_leaf(&mut self, id: u64) -> Result<()> {
        self.source(id)?;
        self.0.step(Command::NoteLeaf { id: TensorId(id) });
        Ok(())
    }

    pub(crate) fn commit(&mut self, id: u64, kind: Kind) -> Result<()> {
        self.source(id)?;
        self.0.step(Command::Commit { id: TensorId(id), kind, caller: Caller::current() });
        self.ask(|reply| Command::Sync { reply })
    }

    pub(crate) fn wait(&mut self, id: u64) -> Result<()> {
        self.source(id)?;
        self.ask(|reply| Command::Await { id: TensorId(id), reply })
    }

    /// The counters, and the virtual clock.
    pub(crate) fn figures(&mut self) -> (Stats, u64) {
        (self.0.stats(), self.0.launcher.now_ns())
    }
}
