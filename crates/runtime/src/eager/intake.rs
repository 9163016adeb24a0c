//! The commands that the worker has taken from its queue, and those that wait there.

use std::sync::Arc;

use super::queue::{Batch, Queue};

/// See the module's note.
#[derive(Default)]
pub(super) struct Intake {
    /// Commands of the running batch that have not run yet.
    left: usize,
    /// Commands that were taken from the queue behind the running batch, so that policies see further.
    ahead: Batch,
    /// `None` if a test or the simulator steps the commands.
    queue: Option<Arc<Queue>>,
}

impl Intake {
    /// Commands come from this queue from now on.
    pub(super) fn open(&mut self, queue: &Arc<Queue>) {
        self.queue = Some(queue.clone());
    }

    /// A batch of so many commands begins.
    pub(super) fn begin(&mut self, commands: usize) {
        self.left = commands;
    }

    /// The next command of the batch begins.
    pub(super) fn advance(&mut self) {
        self.left -= 1;
    }

    /// The commands behind the running batch.
    pub(super) fn ahead(&mut self) -> &mut Batch {
        &mut self.ahead
    }

    /// As [`Intake::ahead`], and leaves none.
    pub(super) fn take_ahead(&mut self) -> Batch {
        std::mem::take(&mut self.ahead)
    }

    /// Takes the commands that wait in the queue. `None` if the worker already holds as many as the queue may.
    pub(super) fn take_more(&self, queue_capacity: usize) -> Option<Batch> {
        let queue = self.queue.as_ref().filter(|_| self.left + self.ahead.len() < queue_capacity)?;
        let mut more = Batch::default();
        queue.try_take(&mut more);
        Some(more)
    }

    /// Data of so many bytes has left the queue.
    pub(super) fn end_put(&self, bytes: usize) {
        if let Some(queue) = &self.queue {
            queue.end_put(bytes);
        }
    }
}
