//! Commands that run as a whole or not at all: an optimiser's updates.
//!
//! While a thread has a group open, its commands for that device are collected, not queued. They reach the worker as
//! one command. The worker checks the whole group before it runs any part of it (`group/run.rs`). A read that has to
//! wait first sends the collected commands as a group of their own.

mod order;
mod rehearse;
mod run;

use std::sync::Arc;

use remat_types::context::{Mode, Part};
use remat_types::{Result, SmallVec};

use super::channel::Channel;
use super::command::{Apply, Command, Until};
use super::eviction::Use;
use super::failure::Caller;
use super::handle::{Handle, TensorId};
use super::queue::{Queue, Reply};
use crate::options::AsyncLevel;
use crate::report::Kind;

/// A command of a group.
#[allow(clippy::large_enum_variant, reason = "most are applications, and a box each costs more than the room")]
pub(crate) enum Item {
    Apply(Apply),
    Command(Command),
}

/// See the module's note.
pub(crate) struct CommandGroup {
    pub(super) items: Vec<Item>,
    /// The tensors that the whole group needs, gradients, each with its kind. They become state before the first
    /// update.
    needs: SmallVec<[(TensorId, Kind); 8]>,
    caller: Caller,
    /// The caller's function failed: every update falls back to the old version.
    is_cancelled: bool,
    pub(super) done: Option<(Reply<()>, Until)>,
}

impl CommandGroup {
    /// The tensors that its commands use.
    pub(super) fn uses(&self) -> Vec<(TensorId, Use)> {
        let of = |dies| if dies { Use::Last } else { Use::Read };
        let mut uses = Vec::new();
        for item in &self.items {
            match item {
                Item::Apply(a) => uses.extend(a.x.iter().map(|&(id, dies)| (id, of(dies)))),
                Item::Command(Command::Delete { id }) => uses.push((*id, Use::End)),
                Item::Command(_) => {}
            }
        }
        uses
    }
}

/// The commands that a thread collects.
struct Open {
    queue: Arc<Queue>,
    items: Vec<Item>,
    needs: SmallVec<[(TensorId, Kind); 8]>,
    /// Handles of inputs that others own too. Their deletes must follow the group.
    living: Vec<Handle>,
}

/// The group that a thread has open. [`Mode::Collecting`] is on while there is one.
static OPEN: Part<Option<Open>> = Part::new();

fn replace_open(open: Option<Open>) -> Option<Open> {
    Mode::Collecting.replace(u32::from(open.is_some()));
    OPEN.replace(open)
}

/// Calls `f` with the commands that this thread collects for a queue. `None` if it collects none for it.
fn with_open<R>(queue: &Arc<Queue>, f: impl FnOnce(&mut Open) -> R) -> Option<R> {
    if !Mode::Collecting.is_on() {
        return None;
    }
    OPEN.with(|open| open.as_mut().filter(|open| Arc::ptr_eq(&open.queue, queue)).map(f))
}

/// True if this thread collects commands for a queue.
pub(super) fn is_open(queue: &Arc<Queue>) -> bool {
    with_open(queue, |_| ()).is_some()
}

/// Collects a command, or gives it back if this thread collects no commands for that queue.
pub(super) fn collect(queue: &Arc<Queue>, command: Command) -> std::result::Result<(), Command> {
    let mut command = Some(command);
    with_open(queue, |open| open.items.extend(command.take().map(Item::Command)));
    command.map_or(Ok(()), Err)
}

/// As [`collect`], for an application, with handles that must live as long as the group.
#[allow(clippy::result_large_err, reason = "what is given back is queued at once")]
pub(super) fn collect_apply(
    queue: &Arc<Queue>,
    a: Apply,
    living: SmallVec<[Handle; 4]>,
) -> std::result::Result<(), (Apply, SmallVec<[Handle; 4]>)> {
    let mut both = Some((a, living));
    with_open(queue, |open| {
        if let Some((a, living)) = both.take() {
            open.items.push(Item::Apply(a));
            open.living.extend(living);
        }
    });
    both.map_or(Ok(()), Err)
}

/// Ends the collecting also when the caller's function panics.
struct Ends<'c>(&'c Channel, bool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.1 {
            // The panic goes on. If the device was closed meanwhile, nothing is lost.
            let _ = self.0.send_group(true, true);
        }
    }
}

impl Channel {
    /// Calls `f`. The updates ([`Channel::update`]) that it makes on this device run as a whole or not at all, although
    /// they go in place: before the first one the worker makes sure that all can run. `needs` lists the gradients that
    /// the updates read; they become state of that kind. Within a group of this thread, or a trace, this only calls
    /// `f`.
    ///
    /// `needs` and everything else may not fit the budget at once. The updates then run in another order, each as soon
    /// as its gradients are recomputed, if all of that fits. This too is decided before the first update.
    ///
    /// Errors: those of `f`, after which every update fell back to the old version; Closed; with less than full
    /// asynchrony also the failures of the updates.
    pub fn group<T>(&self, needs: &[(TensorId, Kind)], f: impl FnOnce() -> Result<T>) -> Result<T> {
        let queue = &self.shared.queue;
        if super::trace::is_tracing() || is_open(queue) {
            return f();
        }
        let needs = SmallVec::from_slice(needs);
        let open = Open { queue: queue.clone(), items: Vec::new(), needs, living: Vec::new() };
        // A group of this thread for another device goes on afterwards.
        let outer = replace_open(Some(open));
        let mut ends = Ends(self, true);
        let result = f();
        ends.1 = false;
        let sent = self.send_group(result.is_err(), true);
        drop(ends);
        replace_open(outer);
        let y = result?;
        sent.map(|()| y)
    }

    /// Sends the collected commands. The group stays open for more unless this call `ends` it.
    pub(super) fn send_group(&self, is_cancelled: bool, ends: bool) -> Result<()> {
        let collected = with_open(&self.shared.queue, |open| {
            let taken = (std::mem::take(&mut open.items), std::mem::take(&mut open.needs));
            (taken, std::mem::take(&mut open.living))
        });
        if ends {
            replace_open(None);
        }
        let Some(((items, needs), living)) = collected else { return Ok(()) };
        if items.is_empty() {
            return Ok(());
        }
        let until = match self.shared.options.async_level {
            AsyncLevel::Sync => Some(Until::Finished),
            AsyncLevel::Launched => Some(Until::Launched),
            AsyncLevel::Full => None,
        };
        let (done, answer) = until.map_or((None, None), |until| {
            let (reply, answer) = Reply::new();
            (Some((reply, until)), Some(answer))
        });
        let group = CommandGroup { items, needs, caller: Caller::current(), is_cancelled, done };
        self.shared.queue.push(Command::Group(Box::new(group)))?;
        drop(living);
        answer.map_or(Ok(()), |answer| answer.wait())
    }
}
