//! Work of a stream as a graph that is queued again as a whole.

use remat_types::{Error, Result};

use super::context::Context;
use super::stream::Stream;
use super::table::Raw;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads go on.
const THREAD: i32 = 1;

/// A graph that is ready to run.
pub struct Run {
    context: Context,
    raw: Raw,
}

// SAFETY: the driver allows calls on it from every thread, one at a time; the pointer is a handle.
unsafe impl Send for Run {}

/// A capture that failed.
#[derive(Debug)]
pub enum CaptureError {
    /// The work that was to be captured gave an error.
    Work(Error),
    /// The driver could not capture it, such as a wait on the host.
    Driver(Error),
}

impl Run {
    /// The work that `f` queues on a stream, which does not run now. Errors: see [`CaptureError`].
    pub fn capture(stream: &Stream, f: impl FnOnce() -> Result<()>) -> std::result::Result<Run, CaptureError> {
        let context = stream.context();
        let driver = CaptureError::Driver;
        // SAFETY: the stream is open.
        context.call("cuStreamBeginCapture", |t| unsafe { (t.begin_capture)(stream.raw(), THREAD) }).map_err(driver)?;
        let done = f();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is open, and the pointer is that of a variable of the right type.
        let ended = context.call("cuStreamEndCapture", |t| unsafe { (t.end_capture)(stream.raw(), &mut graph) });
        let graph = Graph { context: context.clone(), raw: graph };
        done.map_err(CaptureError::Work)?;
        ended.map_err(CaptureError::Driver)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph is one that a capture gave, and the pointer is that of a variable of the right type.
        let made = context.call("cuGraphInstantiate", |t| unsafe { (t.instantiate)(&mut raw, graph.raw, 0) });
        made.map_err(CaptureError::Driver)?;
        Ok(Run { context: context.clone(), raw })
    }

    /// Queues the work again.
    ///
    /// # Safety
    ///
    /// The memory of the work must be allocated still, and other work on it must be ordered.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are open; the rest is the caller's.
        self.context.call("cuGraphLaunch", |t| unsafe { (t.launch_graph)(self.raw, stream.raw()) })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // SAFETY: nothing else has the handle. The driver keeps what runs.
        let _ = self.context.call("cuGraphExecDestroy", |t| unsafe { (t.destroy_run)(self.raw) });
    }
}

/// A graph that was captured.
struct Graph {
    context: Context,
    raw: Raw,
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: nothing else has the handle.
            let _ = self.context.call("cuGraphDestroy", |t| unsafe { (t.destroy_graph)(self.raw) });
        }
    }
}
