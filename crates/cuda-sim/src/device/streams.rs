//! Streams and events.

use std::collections::VecDeque;

use super::Device;
use super::error::{CudaError, ErrorCode, Outcome};
use super::order::{Clock, place};
use super::queue::{Queued, Work};

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub u32);

impl Stream {
    /// The legacy default stream, with which blocking streams are in order.
    pub const DEFAULT: Stream = Stream(0);
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u32);

#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) device: usize,
    pub(super) is_blocking: bool,
    pub(super) is_destroyed: bool,
    /// True for streams on which graphs run their branches.
    pub(super) is_internal: bool,
    pub(super) queue: VecDeque<Queued>,
    /// The work before the next piece of work.
    pub(super) clock: Clock,
    /// The number of the next piece of work, from 1.
    pub(super) next: u64,
    /// The number of the last piece of work that ran.
    pub(super) done: u64,
}

impl StreamState {
    pub(super) fn new(device: usize, is_blocking: bool, clock: Clock) -> Self {
        let (is_destroyed, is_internal) = (false, false);
        StreamState { device, is_blocking, is_destroyed, is_internal, queue: VecDeque::new(), clock, next: 1, done: 0 }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct EventState {
    pub(super) device: usize,
    pub(super) is_timed: bool,
    /// How often it was recorded.
    pub(super) recordings: u64,
    /// The stream and the number of the last recording.
    pub(super) at: Option<(usize, u64)>,
    pub(super) clock: Clock,
    /// The time of the last recording, once it ran.
    pub(super) time_ns: Option<u64>,
    /// The capture in which it was recorded last, and the nodes that come before it there.
    pub(super) captured: Option<(usize, Vec<usize>)>,
}

impl Device {
    /// The number of a stream; the first numbers are those of the devices' default streams. Errors: there is no such stream.
    pub(super) fn stream(&self, stream: Stream) -> Outcome<usize> {
        if stream == Stream::DEFAULT {
            return Ok(self.current);
        }
        let number = stream.0 as usize;
        match self.streams.get(number).filter(|_| number >= self.devices()) {
            Some(state) if !state.is_destroyed && !state.is_internal => Ok(number),
            _ => Err(CudaError::new(ErrorCode::InvalidHandle, format!("stream {} does not exist", stream.0))),
        }
    }

    fn event(&self, event: Event) -> Outcome<&EventState> {
        match self.events.get(event.0 as usize) {
            Some(Some(state)) => Ok(state),
            _ => Err(CudaError::new(ErrorCode::InvalidHandle, format!("event {} does not exist", event.0))),
        }
    }

    fn event_mut(&mut self, event: Event) -> Outcome<&mut EventState> {
        match self.events.get_mut(event.0 as usize) {
            Some(Some(state)) => Ok(state),
            _ => Err(CudaError::new(ErrorCode::InvalidHandle, format!("event {} does not exist", event.0))),
        }
    }

    /// `cuStreamCreate`. A blocking stream is in order with the legacy default stream.
    pub fn stream_create(&mut self, is_blocking: bool) -> Outcome<Stream> {
        self.alive()?;
        self.streams.push(StreamState::new(self.current, is_blocking, self.host.clone()));
        Ok(Stream(self.streams.len() as u32 - 1))
    }

    /// `cuStreamDestroy`. Its work still runs.
    pub fn stream_destroy(&mut self, stream: Stream) -> Outcome<()> {
        self.alive()?;
        let number = self.stream(stream)?;
        if stream == Stream::DEFAULT {
            return Err(CudaError::new(ErrorCode::InvalidHandle, "the default stream stays"));
        }
        self.streams[number].is_destroyed = true;
        Ok(())
    }

    /// `cuStreamSynchronize`. Errors: a failure of any work so far.
    pub fn stream_synchronize(&mut self, stream: Stream) -> Outcome<()> {
        self.alive()?;
        let number = self.stream(stream)?;
        self.refuse_in_capture(number, "a wait of the host")?;
        self.order_for_wait(number);
        let clock = self.streams[number].clock.clone();
        self.wait_for(&clock)
    }

    /// `cuStreamQuery`: whether all work has ended. Some work may run at each question, so that asking again ends.
    pub fn stream_query(&mut self, stream: Stream) -> Outcome<bool> {
        self.alive()?;
        let number = self.stream(stream)?;
        self.refuse_in_capture(number, "a question")?;
        self.run_one();
        self.alive()?;
        let is_done = self.streams[number].queue.is_empty();
        if is_done {
            let clock = self.streams[number].clock.clone();
            self.host.join(&clock);
        }
        Ok(is_done)
    }

    /// `cuCtxSynchronize`: waits for all work of the current device.
    pub fn synchronize(&mut self) -> Outcome<()> {
        self.alive()?;
        self.refuse_in_any_capture("a wait for the device")?;
        let mut clock = Clock::default();
        self.streams.iter().filter(|s| s.device == self.current).for_each(|s| clock.join(&s.clock));
        self.wait_for(&clock)
    }

    /// To wait for the default stream is to wait for all blocking streams, too.
    fn order_for_wait(&mut self, stream: usize) {
        if stream < self.devices() {
            let clock = self.blocking_clock(stream);
            self.streams[stream].clock.join(&clock);
        }
    }

    /// The work of all blocking streams of a device.
    pub(super) fn blocking_clock(&self, device: usize) -> Clock {
        let mut clock = Clock::default();
        let blocking = self.streams.iter().filter(|s| s.is_blocking && s.device == device);
        blocking.for_each(|s| clock.join(&s.clock));
        clock
    }

    /// Runs work until all before a clock has ended, and notes that the host saw it.
    pub(super) fn wait_for(&mut self, clock: &Clock) -> Outcome<()> {
        let ended = |d: &Device| clock.counts().all(|(at, count)| at == 0 || d.streams[at - 1].done >= count);
        self.run_until(ended)?;
        self.host.join(clock);
        Ok(())
    }

    /// `cuStreamWaitEvent`: later work of the stream comes after the event's last recording, if there is one.
    pub fn stream_wait_event(&mut self, stream: Stream, event: Event) -> Outcome<()> {
        self.alive()?;
        let number = self.stream(stream)?;
        let state = self.event(event)?.clone();
        if let Some((capture, nodes)) = state.captured {
            return self.join_capture(number, capture, &nodes);
        }
        self.refuse_in_capture(number, "a wait for an event from outside")?;
        self.streams[number].clock.join(&state.clock);
        Ok(())
    }

    /// `cuEventCreate`, with times.
    pub fn event_create(&mut self) -> Outcome<Event> {
        self.event_create_with(true)
    }

    /// `cuEventCreate`, with times or without.
    pub fn event_create_with(&mut self, is_timed: bool) -> Outcome<Event> {
        self.alive()?;
        self.events.push(Some(EventState { device: self.current, is_timed, ..EventState::default() }));
        Ok(Event(self.events.len() as u32 - 1))
    }

    /// `cuEventDestroy`. Waits for it that were queued stay.
    pub fn event_destroy(&mut self, event: Event) -> Outcome<()> {
        self.event(event)?;
        self.events[event.0 as usize] = None;
        Ok(())
    }

    /// `cuEventRecord`: the event now stands for all work of the stream so far.
    pub fn event_record(&mut self, event: Event, stream: Stream) -> Outcome<()> {
        self.alive()?;
        let number = self.stream(stream)?;
        let EventState { device, is_timed, recordings, .. } = *self.event(event)?;
        if device != self.streams[number].device {
            let message = format!("an event of device {device} is recorded on a stream of another");
            return Err(CudaError::new(ErrorCode::InvalidHandle, message));
        }
        let recordings = recordings + 1;
        if let Some((capture, nodes)) = self.captures.at(number) {
            let captured = Some((capture, nodes.to_vec()));
            *self.event_mut(event)? = EventState { device, is_timed, recordings, captured, ..EventState::default() };
            return Ok(());
        }
        self.queue(number, Work::Record { event: event.0 as usize, recording: recordings });
        let clock = self.streams[number].clock.clone();
        let at = Some((number, clock.get(place(number))));
        *self.event_mut(event)? = EventState { device, is_timed, recordings, at, clock, time_ns: None, captured: None };
        Ok(())
    }

    /// `cuEventSynchronize`.
    pub fn event_synchronize(&mut self, event: Event) -> Outcome<()> {
        self.alive()?;
        let state = self.outside_capture(event)?;
        self.wait_for(&state.clock)
    }

    /// `cuEventQuery`: whether the last recording has ended. Some work may run at each question.
    pub fn event_query(&mut self, event: Event) -> Outcome<bool> {
        self.alive()?;
        let state = self.outside_capture(event)?;
        let Some((stream, number)) = state.at else { return Ok(true) };
        if self.streams[stream].done < number {
            self.run_one();
            self.alive()?;
        }
        let is_done = self.streams[stream].done >= number;
        if is_done {
            self.host.join(&state.clock);
        }
        Ok(is_done)
    }

    /// `cuEventElapsedTime`: milliseconds of the virtual clock between two recordings that have ended.
    pub fn event_elapsed_ms(&self, from: Event, to: Event) -> Outcome<f32> {
        self.alive()?;
        let (from, to) = (self.outside_capture(from)?, self.outside_capture(to)?);
        if from.at.is_none() || to.at.is_none() || !from.is_timed || !to.is_timed {
            return Err(CudaError::new(ErrorCode::InvalidHandle, "an event was not recorded, or has no time"));
        }
        match (from.time_ns, to.time_ns) {
            (Some(from), Some(to)) => Ok((to as f64 - from as f64) as f32 / 1e6),
            _ => Err(CudaError::new(ErrorCode::NotReady, "the recording has not ended")),
        }
    }

    fn outside_capture(&self, event: Event) -> Outcome<EventState> {
        let state = self.event(event)?.clone();
        match state.captured {
            None => Ok(state),
            Some(_) => Err(CudaError::new(ErrorCode::CapturedEvent, "the event was recorded in a capture")),
        }
    }
}
