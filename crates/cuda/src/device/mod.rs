//! A GPU as a device of Remat's: one arena, one stream, kernels that are compiled at their first use.
//!
//! None of the kernels can fail: an op that may refuse an element has none yet and runs on the host, which tells its error at
//! once. So gates always pass. A failure of the driver's is one of the whole context, and every later call gives it.

mod open;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

pub use open::FOLDERS;
use remat_device::{Backend, Buffer, Event, KernelSet, Launch, LaunchTime, ProgramLaunch, Progress, StreamId};
use remat_types::{Error, ErrorKind, HostTensor, Result, SmallVec};
use rustc_hash::FxHashMap;

use crate::driver::{self, Arena, Compiler, Context, Driver, Kernel, Lane, Module, State};
use crate::kernels::plan::{Addresses, Call, Input, Operands};
use crate::kernels::{CudaKernels, plan};
use crate::source::PRELUDE;

/// Pieces of work whose events are kept.
const KEPT: usize = 1024;

/// A device on a driver. Without a budget its arena grows by mapping memory.
pub struct Cuda {
    name: String,
    context: Context,
    lane: Lane,
    arena: Arena,
    compiler: Compiler,
    kernels: Arc<CudaKernels>,
    /// By source.
    compiled: FxHashMap<String, Kernel>,
    /// The number of the last piece of work.
    last: u64,
    /// The last pieces of work.
    queued: VecDeque<Work>,
    /// Events that can be recorded anew.
    free: Vec<driver::Event>,
    start: Instant,
}

/// A piece of work.
struct Work {
    seq: u64,
    /// The beginning of a launch.
    begin: Option<driver::Event>,
    end: driver::Event,
}

impl Cuda {
    /// The device of an ordinal. Errors (Device): those of [`Driver::context`]; the driver cannot map memory.
    pub fn open(driver: &Driver, compiler: Compiler, ordinal: usize) -> Result<Cuda> {
        let context = driver.context(ordinal)?;
        let name = format!("cuda:{ordinal}");
        Ok(Cuda {
            kernels: Arc::new(CudaKernels { device: name.clone() }),
            lane: Lane::new(&context)?,
            arena: Arena::growing(&context)?,
            name,
            context,
            compiler,
            compiled: FxHashMap::default(),
            last: 0,
            queued: VecDeque::new(),
            free: Vec::new(),
            start: Instant::now(),
        })
    }

    /// Gives the device another name for reports and errors.
    fn rename(&mut self, name: String) {
        self.kernels = Arc::new(CudaKernels { device: name.clone() });
        self.name = name;
    }

    fn event(&mut self) -> Result<driver::Event> {
        self.free.pop().map_or_else(|| driver::Event::new(&self.context, true), Ok)
    }

    /// Ends a piece of work.
    fn queued(&mut self, begin: Option<driver::Event>) -> Result<Event> {
        let end = self.event()?;
        end.record(self.lane.stream())?;
        self.last += 1;
        self.queued.push_back(Work { seq: self.last, begin, end });
        if self.queued.len() > KEPT
            && let Some(oldest) = self.queued.pop_front()
        {
            oldest.end.synchronize()?;
            self.free.extend(oldest.begin.into_iter().chain([oldest.end]));
        }
        Ok(Event { stream: StreamId(0), seq: self.last })
    }

    fn work(&self, event: Event) -> Option<&Work> {
        let first = self.queued.front()?.seq;
        self.queued.get(usize::try_from(event.seq.checked_sub(first)?).ok()?)
    }

    /// Compiles the kernels of calls that are not known yet, in one go. Errors: those of the compiler and of the driver.
    pub fn prepare<'c>(&mut self, calls: impl IntoIterator<Item = &'c Call>) -> Result<()> {
        let mut missing: Vec<&Call> = calls.into_iter().filter(|c| !self.compiled.contains_key(&c.source)).collect();
        missing.sort_unstable_by(|a, b| a.source.cmp(&b.source));
        missing.dedup_by(|a, b| a.source == b.source);
        let Some(first) = missing.first() else { return Ok(()) };
        let source: String = std::iter::once(PRELUDE).chain(missing.iter().map(|c| c.source.as_str())).collect();
        let code = self.compiler.ptx(&format!("{}.cu", first.name), &source, self.context.architecture())?;
        let module = Module::load(&self.context, &code)?;
        for call in missing {
            self.compiled.insert(call.source.clone(), module.kernel(&call.name)?);
        }
        Ok(())
    }

    fn kernel(&mut self, call: &Call) -> Result<Kernel> {
        self.prepare([call])?;
        let lacking = || Error::new(ErrorKind::Internal, format!("kernel `{}` was not compiled", call.name));
        self.compiled.get(&call.source).cloned().ok_or_else(lacking)
    }

    fn queue_launch(&mut self, l: &Launch<'_>) -> Result<()> {
        let operands = Operands {
            x: l.x.iter().map(|x| Input { dtype: x.dtype, layout: x.layout }).collect(),
            y: l.y.iter().map(|y| (y.dtype, y.shape)).collect(),
        };
        let lacking = || Error::new(ErrorKind::Device, format!("device {} has no kernel for it", self.name));
        let found = plan(&**l.op, &operands)?.ok_or_else(lacking)?;
        let base = self.arena.base();
        let y: SmallVec<[u64; 4]> = l.y.iter().map(|y| base + y.at as u64).collect();
        let first = |x: &Buffer<'_>| base + (x.at + x.layout.offset() * x.dtype.size_bytes()) as u64;
        let x: SmallVec<[u64; 8]> = l.x.iter().map(first).collect();
        let at = Addresses { x: &x, y: &y, workspace: base + l.workspace.0 as u64, ..Addresses::default() };
        for call in &found.calls {
            let kernel = self.kernel(call)?;
            self.lane.launch(&kernel, call.grid, &call.arguments(&at))?;
        }
        Ok(())
    }
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn shares_host_memory(&self) -> bool {
        false
    }

    fn threads(&self) -> usize {
        1
    }

    fn kernels(&self) -> Arc<dyn KernelSet> {
        self.kernels.clone()
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.arena.grow_to(bytes)
    }

    fn release(&mut self, _from: usize, _to: usize) {}

    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event> {
        let located = |e: Error| e.with_op(launch.op.label()).with_call_site(launch.site);
        let begin = self.event()?;
        begin.record(self.lane.stream())?;
        self.queue_launch(launch).map_err(located)?;
        self.queued(Some(begin))
    }

    fn run(&mut self, program: &ProgramLaunch<'_, '_>) -> Result<Event> {
        self.launch(program.launch)
    }

    fn launch_time(&mut self, event: Event) -> LaunchTime {
        let Some(Work { begin: Some(begin), end, .. }) = self.work(event) else { return LaunchTime::Unknown };
        match end.state() {
            Ok(State::Ahead) => LaunchTime::Pending,
            Ok(State::Reached) => begin.nanoseconds_to(end).map_or(LaunchTime::Unknown, LaunchTime::Measured),
            Err(_) => LaunchTime::Unknown,
        }
    }

    fn upload(&mut self, _stream: StreamId, at: usize, data: &HostTensor) -> Result<Event> {
        self.lane.upload(&self.arena, at, data.bytes())?;
        self.queued(None)
    }

    fn download(&mut self, x: &Buffer<'_>, _after: &[Event]) -> Result<HostTensor> {
        let bytes = self.lane.download(&self.arena, x.at, x.bytes)?;
        HostTensor::gather(x.dtype, x.layout, &bytes)
    }

    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<Event> {
        self.lane.shift(&self.arena, from, to, bytes)?;
        self.queued(None)
    }

    /// There is one stream.
    fn wait(&mut self, _stream: StreamId, _event: Event) {}

    /// Passes, as the module's note says.
    fn gate(&mut self, _stream: StreamId, _after: &[Event], _marks: &[Event]) -> Result<Event> {
        self.queued(None)
    }

    /// Every launch that has a gate was made, so nothing comes back.
    fn restore(&mut self, _stream: StreamId, _event: Event, _from: usize, _to: usize, _bytes: usize) -> Result<Event> {
        self.queued(None)
    }

    fn poll(&mut self, event: Event) -> Progress {
        match self.work(event).map(|w| w.end.state()) {
            None | Some(Ok(State::Reached)) => Progress::Reached,
            Some(Ok(State::Ahead)) => Progress::Pending,
            Some(Err(_)) => Progress::Failed,
        }
    }

    fn synchronize(&mut self, event: Event) -> Result<()> {
        self.work(event).map_or(Ok(()), |w| w.end.synchronize())
    }

    fn synchronize_all(&mut self) -> Result<()> {
        self.lane.stream().synchronize()
    }

    fn failed_after(&mut self, _marks: &[Event]) -> Option<Error> {
        self.lane.stream().synchronize().err()
    }

    fn wait_idle(&mut self) {
        // the failure stays, and the next call tells it
        let _ = self.lane.stream().synchronize();
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
