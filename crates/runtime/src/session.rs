//! An executable bound to memory of its own: a run is a list of kernel calls and nothing else.
//!
//! On a device an executable is one command: its operands are tensors with handles, recipes and a queue. A [`Session`]
//! has none of these. It takes memory for inputs, states, outputs and workspace once, from the system or from the
//! user's allocator. Its runs take nothing from the heap.
//!
//! Each run forms every address anew from the present addresses of the blocks. So an allocator may move its memory
//! between runs.

mod body;
mod device;
mod hooks;
mod memory;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use remat_graph::ir::ValueId;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, Storage};

pub use hooks::{RunHooks, RunResult};
pub use memory::{Allocate, SessionMemory, Workspace};

use crate::eager::Device;
use crate::executable::Executable;
use body::{Body, Ended, Runner};
use remat_device::program::ValueView;

/// How a session takes its memory.
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// The source of the memory. Unless set, anonymous mappings, with huge pages where the system grants them.
    pub allocate: Option<Allocate>,
    /// A workspace shared with other sessions. The sessions wait for each other, and it takes the bytes of the largest
    /// one. It does not serve runs in parts: their values stay in the workspace between parts.
    pub workspace: Option<Workspace>,
    /// Takes the workspace when the session is made, and writes to every page of its memory, so that no run pays for
    /// page faults. Otherwise the first run takes the workspace.
    pub prefault: bool,
    /// The device that executes the runs. Each run copies the session's inputs and states there, and its results back.
    /// The workspace lies in the device's arena and within its budget; constants stay on the device. Unless set, the
    /// calling thread computes.
    pub device: Option<Device>,
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allocate, workspace, prefault, device } = self;
        let allocate = if allocate.is_some() { "the user's" } else { "the system's" };
        f.debug_struct("SessionOptions")
            .field("allocate", &allocate)
            .field("workspace", workspace)
            .field("prefault", prefault)
            .field("device", device)
            .finish()
    }
}

/// See the module's note. States are zero until [`Session::set_state`] says otherwise.
pub struct Session {
    /// `None` while the session's thread owns it.
    body: Option<Box<Body>>,
    thread: Option<Runner>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Some(b) => f.debug_tuple("Session").field(b).finish(),
            None => f.write_str("Session (running)"),
        }
    }
}

impl Session {
    /// A session of `exe` with memory from the system. Errors: Io.
    pub fn new(exe: Arc<Executable>) -> Result<Session> {
        Session::with(exe, &SessionOptions::default())
    }

    /// [`Session::new`] with options. Errors: Io without memory; those of the user's allocator. Value for an executable
    /// in parts with a shared workspace or on a device, and for an executable that was compiled for another device.
    pub fn with(exe: Arc<Executable>, options: &SessionOptions) -> Result<Session> {
        Ok(Session { body: Some(Box::new(Body::new(exe, options)?)), thread: None })
    }

    fn body(&mut self) -> Result<&mut Body> {
        let running = || Error::new(ErrorKind::Value, "the session is running: `wait` for it first");
        self.body.as_deref_mut().ok_or_else(running)
    }

    /// The executable that it runs. Errors (Value): running.
    pub fn executable(&mut self) -> Result<&Arc<Executable>> {
        Ok(&self.body()?.exe)
    }

    /// Runs another plan from now on, such as a new one of a [`CompiledGraph`](crate::compile::CompiledGraph). Inputs,
    /// states, outputs and callbacks stay. Errors (Value), after which nothing has changed: the executable is of
    /// another graph or number of threads, or one of the two is in parts; running.
    pub fn replan(&mut self, exe: Arc<Executable>) -> Result<()> {
        self.body()?.replan(exe)
    }

    /// Bytes of inputs, states and outputs, and of the workspace at this moment. Errors (Value): running.
    pub fn bytes(&mut self) -> Result<(usize, usize)> {
        Ok(self.body()?.bytes())
    }

    /// Gives the workspace's memory back. The next run takes it again. A run in parts loses its values, so its next
    /// part is the first. Errors (Value): running.
    pub fn release_workspace(&mut self) -> Result<()> {
        self.body()?.release_workspace();
        Ok(())
    }

    /// The bytes of input `i`, for writing before a run. Errors (Value): no such input; running.
    pub fn input_mut(&mut self, i: usize) -> Result<&mut [u8]> {
        let b = self.body()?;
        check_index("input", i, b.exe.graph().inputs().len())?;
        b.x_bytes(i)
    }

    /// The elements of input `i`, for writing before a run. Errors (Value): no such input; another type; running.
    pub fn input_as_mut<T: Storage>(&mut self, i: usize) -> Result<&mut [T]> {
        let b = self.body()?;
        check_index("input", i, b.exe.graph().inputs().len())?;
        let dtype = b.exe.program.x[i].dtype;
        if !T::stores(dtype) {
            return Err(Error::new(ErrorKind::Value, format!("input {i} is of {dtype}, not of the type asked for")));
        }
        Ok(bytemuck::cast_slice_mut(b.x_bytes(i)?))
    }

    /// Copies `data` to input `i`. Errors (Value): no such input, another type or shape, running.
    pub fn set_input(&mut self, i: usize, data: &HostTensor) -> Result<()> {
        let b = self.body()?;
        check_index("input", i, b.exe.graph().inputs().len())?;
        check_type("input", i, &b.exe.program.x[i], data)?;
        b.x_bytes(i)?.copy_from_slice(data.bytes());
        Ok(())
    }

    /// The bytes of state `i`: its version before the first run, or after the last run that succeeded. Errors (Value):
    /// no such state; running.
    pub fn state_mut(&mut self, i: usize) -> Result<&mut [u8]> {
        let b = self.body()?;
        check_index("state", i, b.exe.graph().states().len())?;
        b.state_bytes(i)
    }

    /// A copy of state `i`. Errors (Value): no such state; running.
    pub fn state(&mut self, i: usize) -> Result<HostTensor> {
        let b = self.body()?;
        check_index("state", i, b.exe.graph().states().len())?;
        let fact = b.state_fact(i).clone();
        HostTensor::from_bytes(fact.dtype, fact.shape, b.state_bytes(i)?)
    }

    /// Copies `data` to state `i`. Errors (Value): no such state, another type or shape, running.
    pub fn set_state(&mut self, i: usize, data: &HostTensor) -> Result<()> {
        let b = self.body()?;
        check_index("state", i, b.exe.graph().states().len())?;
        check_type("state", i, b.state_fact(i), data)?;
        b.state_bytes(i)?.copy_from_slice(data.bytes());
        Ok(())
    }

    /// Output `j` of the last run. It is zero before the first run. A run that wrote the output into the caller's
    /// memory leaves the earlier value here. Errors (Value): no such output; running.
    pub fn output(&mut self, j: usize) -> Result<ValueView<'_>> {
        let b = self.body()?;
        check_index("output", j, b.exe.graph().outputs().len())?;
        b.output(j)
    }

    /// Runs all parts. Errors: those of the ops, after which every state has its old version; Value: running.
    pub fn run(&mut self) -> Result<()> {
        self.body()?.run_all()
    }

    /// [`Session::run`] with outputs in the caller's memory: kernels write there, and nothing is copied. `None` leaves
    /// an output in the session's memory.
    ///
    /// Errors: also Value for memory of another size than the output's, or not aligned to its dtype.
    pub fn run_into(&mut self, outputs: &mut [Option<&mut [u8]>]) -> Result<()> {
        self.body()?.run_into(outputs)
    }

    /// Runs part `k`; see [`ExecutableOptions::parts`](super::ExecutableOptions::parts). The inputs of part `k` must be
    /// set by then; those of later parts need not be.
    ///
    /// Errors: Value if `k` is not the next part; those of the ops. After an error the first part is next.
    pub fn run_part(&mut self, k: usize) -> Result<()> {
        self.body()?.run_part(k)
    }

    /// Begins [`Session::run`] on a thread of the session; [`Session::wait`] ends it. Errors: Value: running; Io without
    /// a thread.
    pub fn start(&mut self) -> Result<()> {
        self.begin(None)
    }

    /// [`Session::start`] that calls `ended` on the session's thread once [`Session::wait`] would no longer block,
    /// whether the run succeeded or not. An asynchronous caller is woken by it.
    pub fn start_with(&mut self, ended: impl FnOnce() + Send + 'static) -> Result<()> {
        self.begin(Some(Box::new(ended)))
    }

    fn begin(&mut self, ended: Option<Ended>) -> Result<()> {
        self.body()?;
        if self.thread.is_none() {
            self.thread = Some(Runner::new()?);
        }
        let (Some(thread), Some(body)) = (&self.thread, self.body.take()) else { return Ok(()) };
        thread.start(body, ended).map_err(|body| {
            self.body = Some(body);
            Error::new(ErrorKind::Closed, "the session's thread has ended")
        })
    }

    /// True while a run that [`Session::start`] began has not been waited for.
    pub fn is_running(&self) -> bool {
        self.body.is_none()
    }

    /// Waits for the run that [`Session::start`] began, and gives its error once. Does nothing if no run was begun.
    pub fn wait(&mut self) -> Result<()> {
        let (Some(thread), None) = (&self.thread, &self.body) else { return Ok(()) };
        let (body, result) =
            thread.wait().ok_or_else(|| Error::new(ErrorKind::Closed, "the session's thread has ended"))?;
        self.body = Some(body);
        result
    }

    /// Calls `f` at the start of every run from now on, on the thread that runs. `f` may write the inputs by means of
    /// its own: the run reads them afterwards. A call that is refused before a run starts (memory of another size, a
    /// part out of turn) does not call `f`. A run in parts starts with its first part. If `f` panics, nothing runs.
    /// Errors (Value): running.
    pub fn on_start(&mut self, f: impl FnMut() + Send + 'static) -> Result<()> {
        self.body()?.hooks.on_start(f);
        Ok(())
    }

    /// Calls `f` once for every run that started, on the thread that runs and before [`Session::wait`] returns: when
    /// the outputs are ready, or with the error that ended the run. A run in parts finishes with its last part, with an
    /// error, or when it is given up. If `f` panics, the outputs are ready all the same. Errors (Value): running.
    pub fn on_finish(&mut self, f: impl FnMut(RunResult<'_>) + Send + 'static) -> Result<()> {
        self.body()?.hooks.on_finish(f);
        Ok(())
    }

    /// Calls `f` with output `j` in every run as soon as it is computed, on the thread that runs. Errors (Value): no
    /// such output; running.
    pub fn on_output(&mut self, j: usize, f: impl FnMut(ValueView<'_>) + Send + 'static) -> Result<()> {
        let b = self.body()?;
        check_index("output", j, b.exe.graph().outputs().len())?;
        b.watch_output(j, Box::new(f))
    }

    /// Calls `f` with a value of the executable's graph in every run as soon as it is computed. Errors (Value): a value
    /// that no call gives (an input, a constant, a view); a session on a device, whose memory the host does not read;
    /// running.
    pub fn on_value(&mut self, v: ValueId, f: impl FnMut(ValueView<'_>) + Send + 'static) -> Result<()> {
        self.body()?.watch_value(v, Box::new(f))
    }
}

fn check_index(what: &str, i: usize, n: usize) -> Result<()> {
    if i < n {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Value, format!("{what} {i} of a session that has {n}")))
}

fn check_type(what: &str, i: usize, fact: &Fact, data: &HostTensor) -> Result<()> {
    if fact.same_type(&Fact::new(data.dtype(), data.shape().clone())) {
        return Ok(());
    }
    let (d, s) = (data.dtype(), data.shape());
    Err(Error::new(ErrorKind::Value, format!("{what} {i} is {}{}, not {d}{s}", fact.dtype, fact.shape)))
}
