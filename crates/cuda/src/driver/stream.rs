//! Streams, in which work runs in order, and events, which order work of several.

use std::sync::Arc;

use remat_types::Result;

use super::context::Context;
use super::table::{Address, Raw};
use super::{NOT_READY, SUCCESS};

/// `CU_STREAM_NON_BLOCKING`: the stream does not wait for the default stream, which this program does not use.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: u32 = 2;

/// A stream. Clones are the same one. Its work is done before it ends.
#[derive(Clone)]
pub struct Stream(Arc<OwnedStream>);

struct OwnedStream {
    context: Context,
    raw: Raw,
}

// SAFETY: the driver allows calls on a stream from every thread; the pointer is a handle.
unsafe impl Send for OwnedStream {}
// SAFETY: as above.
unsafe impl Sync for OwnedStream {}

impl Stream {
    /// A stream of a context.
    pub fn new(context: &Context) -> Result<Stream> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is that of a variable of the right type.
        context.call("cuStreamCreate", |t| unsafe { (t.create_stream)(&mut raw, NON_BLOCKING) })?;
        Ok(Stream(Arc::new(OwnedStream { context: context.clone(), raw })))
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(super) fn raw(&self) -> Raw {
        self.0.raw
    }

    /// Later work of this stream waits for an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: stream and event are open.
        self.context().call("cuStreamWaitEvent", |t| unsafe { (t.wait_event)(self.raw(), event.0.raw, 0) })
    }

    /// Waits for all work of the stream. Errors: that of the first work that failed.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is open.
        self.context().call("cuStreamSynchronize", |t| unsafe { (t.synchronize_stream)(self.raw()) })
    }

    /// Queues a fill of `bytes` bytes at `to` with one byte.
    ///
    /// # Safety
    ///
    /// The memory must stay allocated until the work is done, and other work on it must be ordered.
    pub unsafe fn fill(&self, to: Address, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        self.context().call("cuMemsetD8Async", |t| unsafe { (t.fill)(to, byte, bytes, self.raw()) })
    }

    /// Queues a copy within the device.
    ///
    /// # Safety
    ///
    /// As [`Stream::fill`], for both places. They may not overlap.
    pub unsafe fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        self.context().call("cuMemcpyDtoDAsync", |t| unsafe { (t.copy)(to, from, bytes, self.raw()) })
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        // An error is one of work that was told before, or of a driver that is gone.
        // SAFETY: nothing else has the handle.
        let _ = self.context.call("cuStreamDestroy", |t| unsafe { (t.destroy_stream)(self.raw) });
    }
}

/// A place in a stream. Clones are the same one.
#[derive(Clone)]
pub struct Event(Arc<OwnedEvent>);

struct OwnedEvent {
    context: Context,
    raw: Raw,
}

// SAFETY: the driver allows calls on an event from every thread; the pointer is a handle.
unsafe impl Send for OwnedEvent {}
// SAFETY: as above.
unsafe impl Sync for OwnedEvent {}

/// The state of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The work before it is done.
    Reached,
    /// It is not.
    Ahead,
}

impl Event {
    /// An event that was not recorded yet, with or without a time.
    pub fn new(context: &Context, is_timed: bool) -> Result<Event> {
        let (mut raw, flags) = (std::ptr::null_mut(), if is_timed { 0 } else { WITHOUT_TIME });
        // SAFETY: the pointer is that of a variable of the right type.
        context.call("cuEventCreate", |t| unsafe { (t.create_event)(&mut raw, flags) })?;
        Ok(Event(Arc::new(OwnedEvent { context: context.clone(), raw })))
    }

    /// Marks the present end of a stream's work. A recording before it is forgotten.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are open.
        self.0.context.call("cuEventRecord", |t| unsafe { (t.record_event)(self.0.raw, stream.raw()) })
    }

    /// Whether the work before it is done. Errors: that of work that failed.
    pub fn state(&self) -> Result<State> {
        // SAFETY: the event is open.
        match self.0.context.status(|t| unsafe { (t.query_event)(self.0.raw) })? {
            SUCCESS => Ok(State::Reached),
            NOT_READY => Ok(State::Ahead),
            status => self.0.context.check("cuEventQuery", status).map(|()| State::Reached),
        }
    }

    /// Waits for the work before it. Errors: that of work that failed.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is open.
        self.0.context.call("cuEventSynchronize", |t| unsafe { (t.synchronize_event)(self.0.raw) })
    }

    /// Nanoseconds from this event to a later one; both have times and were reached.
    pub fn nanoseconds_to(&self, later: &Event) -> Result<u64> {
        let mut milliseconds = 0f32;
        self.0.context.call("cuEventElapsedTime", |t| {
            // SAFETY: both events are open, and the pointer is that of a variable of the right type.
            unsafe { (t.elapsed)(&mut milliseconds, self.0.raw, later.0.raw) }
        })?;
        Ok((f64::from(milliseconds.max(0.0)) * 1e6) as u64)
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: nothing else has the handle. The driver keeps what work of a stream still needs.
        let _ = self.context.call("cuEventDestroy", |t| unsafe { (t.destroy_event)(self.raw) });
    }
}
