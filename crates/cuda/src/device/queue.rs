//! The events of a device's work.

use std::collections::VecDeque;

use remat_device::{Event, LaunchTime, Progress, StreamId};
use remat_types::Result;

use crate::driver::{self, Context, State, Stream};

/// Pieces of work whose events are kept. When there are twice as many, the older half is waited for.
const KEPT: usize = 1024;

/// A piece of work.
struct Work {
    /// The beginning of a launch.
    begin: Option<driver::Event>,
    end: driver::Event,
}

/// The last pieces of work of a stream, and events that can be recorded anew.
pub(super) struct Queue {
    context: Context,
    /// The number of the last piece.
    last: u64,
    kept: VecDeque<Work>,
    free: Vec<driver::Event>,
}

impl Queue {
    pub(super) fn new(context: &Context) -> Queue {
        Queue { context: context.clone(), last: 0, kept: VecDeque::new(), free: Vec::new() }
    }

    /// The number that the next piece of work will have.
    pub(super) fn next(&self) -> u64 {
        self.last + 1
    }

    /// An event at the present end of a stream.
    pub(super) fn mark(&mut self, stream: &Stream) -> Result<driver::Event> {
        let event = self.free.pop().map_or_else(|| driver::Event::new(&self.context, true), Ok)?;
        event.record(stream)?;
        Ok(event)
    }

    /// Makes sure that the next mark needs no memory of the driver's: work that is queued before it must get its event.
    pub(super) fn hold_one(&mut self) -> Result<()> {
        if self.free.is_empty() {
            self.free.push(driver::Event::new(&self.context, true)?);
        }
        Ok(())
    }

    /// An event that was recorded and is not needed any more.
    pub(super) fn recycle(&mut self, event: driver::Event) {
        self.free.push(event);
    }

    /// Ends a piece of work. Gives the number of the last piece that was waited for, if old ones were.
    pub(super) fn push(&mut self, begin: Option<driver::Event>, stream: &Stream) -> Result<(Event, Option<u64>)> {
        let end = self.mark(stream)?;
        self.last += 1;
        self.kept.push_back(Work { begin, end });
        let event = Event { stream: StreamId(0), seq: self.last };
        if self.kept.len() < 2 * KEPT {
            return Ok((event, None));
        }
        let old: Vec<Work> = self.kept.drain(..KEPT).collect();
        if let Some(newest) = old.last() {
            newest.end.synchronize()?;
        }
        self.free.extend(old.into_iter().flat_map(|w| w.begin.into_iter().chain([w.end])));
        Ok((event, Some(self.last - KEPT as u64)))
    }

    /// `None` for work that is long done.
    fn work(&self, event: Event) -> Option<&Work> {
        let first = self.last + 1 - self.kept.len() as u64;
        self.kept.get(usize::try_from(event.seq.checked_sub(first)?).ok()?)
    }

    /// Waits for a piece of work. Errors: those of the driver.
    pub(super) fn wait(&self, event: Event) -> Result<()> {
        self.work(event).map_or(Ok(()), |w| w.end.synchronize())
    }

    /// Whether a piece of work is done. A failure of the driver's is one of all work.
    pub(super) fn progress(&self, event: Event) -> Progress {
        match self.work(event).map(|w| w.end.state()) {
            None | Some(Ok(State::Reached)) => Progress::Reached,
            Some(Ok(State::Ahead)) => Progress::Pending,
            Some(Err(_)) => Progress::Failed,
        }
    }

    /// The time of a launch.
    pub(super) fn time(&self, event: Event) -> LaunchTime {
        let Some(Work { begin: Some(begin), end }) = self.work(event) else { return LaunchTime::Unknown };
        match end.state() {
            Ok(State::Ahead) => LaunchTime::Pending,
            Ok(State::Reached) => begin.nanoseconds_to(end).map_or(LaunchTime::Unknown, LaunchTime::Measured),
            Err(_) => LaunchTime::Unknown,
        }
    }
}
