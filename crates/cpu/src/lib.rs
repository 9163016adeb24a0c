//! The CPU device. Kernels run on the worker's thread and its pool, and have run when a launch returns. Collectives of
//! several ranks run on a thread of their own. Every call that reads or writes their memory waits for them.

use std::sync::Arc;
use std::time::Instant;

use remat_device::host::{self, CommThread, LaunchOperands, Range, Region};
use remat_device::spill::{Slot, SpillFile, SpillTo};
use remat_device::{
    Backend, Buffer, CommSpan, Communication, Event, FileCopy, HostKernels, InFlight, KernelRegistry, KernelSet,
    Launch, StreamId, Uses,
};
use remat_device::{ProgramBody, ProgramLaunch};
use remat_graph::plan::problem::SpillRates;
use remat_kernels::pool::Pool;
use remat_ops::EvalCx;
use remat_types::{Error, ErrorKind, HostTensor, Result};

/// See the module's note.
pub struct Cpu {
    /// The first collective starts it. Declared before the region, so that it is dropped first: collectives use the
    /// region's memory.
    comm: Option<CommThread>,
    /// True while collectives are recorded for a trace.
    is_recording: bool,
    /// Declared before the region, so that it is dropped first: its drop waits for copies in the region.
    spill: Option<SpillFile>,
    /// Copies that nobody has waited for yet.
    in_flight: InFlight<FileCopy>,
    region: Region,
    pool: Pool,
    kernels: Arc<HostKernels>,
    opened: Instant,
}

impl Cpu {
    /// A device of `address_bytes` of address space and `threads` compute threads, the worker included, with the host's
    /// kernels and those of `own`. If the system gives no range of that size, the device takes one of `least_bytes`.
    /// Errors (Io): the system gives neither range, or fewer threads. Value: `REMAT_MAX_ISA` names no instruction set
    /// of this processor.
    pub fn new(address_bytes: usize, least_bytes: usize, threads: usize, own: KernelRegistry) -> Result<Self> {
        remat_kernels::machine::instruction_set().map_err(|e| Error::new(ErrorKind::Value, e))?;
        let region = Region::new(address_bytes).or_else(|_| Region::new(least_bytes))?;
        let pool = Pool::try_new(threads).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot start {threads} compute threads: {e}; ask for fewer"))
                .with_source(e)
        })?;
        Ok(Cpu {
            comm: None,
            is_recording: false,
            spill: None,
            in_flight: InFlight::default(),
            region,
            pool,
            kernels: Arc::new(HostKernels::new("cpu", threads).with(own)),
            opened: Instant::now(),
        })
    }

    /// Errors (Internal) if a copy is under way that an access to these bytes must wait for. A write must wait for
    /// copies in both directions, a read only for copies to the arena.
    fn check(&self, what: &str, at: usize, bytes: usize, is_written: bool) -> Result<()> {
        match self.in_flight.before(&Uses::of_range((at, at + bytes), is_written)).next() {
            None => Ok(()),
            Some((_, c)) => {
                let text = format!("{what} at {at}..+{bytes} runs into copy {} at {}..+{}", c.number, c.at, c.bytes);
                Err(Error::new(ErrorKind::Internal, text))
            }
        }
    }

    /// Waits for collectives that an access to these bytes must wait for. Errors: a collective that was to write bytes
    /// that are read failed.
    fn before(&self, at: usize, bytes: usize, is_written: bool) -> Result<()> {
        match &self.comm {
            Some(comm) if bytes > 0 => comm.before(Range::new(self.region.first(at, bytes)?, bytes), is_written),
            _ => Ok(()),
        }
    }

    /// Errors (Internal): an operand conflicts with a copy under way.
    fn check_launch(&self, launch: &Launch<'_>) -> Result<()> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let written = launch.y.iter().map(|y| (y.at, y.bytes)).chain([launch.workspace]);
        written.into_iter().try_for_each(|(at, bytes)| self.check("a result", at, bytes, true))?;
        launch.x.iter().try_for_each(|x| self.check("an input", x.at, x.bytes, false))
    }

    fn start_comm_thread(&mut self) -> Result<()> {
        if self.comm.is_none() {
            let comm = self.comm.insert(CommThread::new(self.opened)?);
            if self.is_recording {
                comm.record();
            }
        }
        Ok(())
    }

    /// Starts a collective, which runs beside later work. Errors: those of a collective that was to write its inputs.
    fn start(&mut self, launch: &Launch<'_>) -> Result<()> {
        self.start_comm_thread()?;
        let Some(comm) = &self.comm else { return Ok(()) };
        let operands = LaunchOperands::new(&self.region, launch)?;
        // SAFETY: the region outlives the thread. Outputs and workspace overlap no other operand of the launch. Every
        // other access to the region calls `before` first, and `check_launch` has seen that no copy conflicts with the
        // operands.
        unsafe { comm.start(launch.op, Some(launch.site), &operands) }
    }

    /// Runs a kernel that computes the launch's op. Errors: the kernel's, and those of collectives that were to write
    /// its inputs.
    fn run_kernel(
        &self,
        launch: &Launch<'_>,
        kernel: impl FnOnce(&mut EvalCx<'_>, &dyn KernelSet) -> Result<()>,
    ) -> Result<Event> {
        if let Some(comm) = &self.comm {
            comm.before_kernel(&LaunchOperands::new(&self.region, launch)?)?;
            if !launch.op.repeatable() {
                // the op may run collectives itself, and they come after those that were started
                comm.wait_all();
            }
        }
        // SAFETY: only this thread, copies and collectives reach the region. `check_launch` has seen that no copy
        // conflicts with the operands, and collectives were waited for. No earlier kernel of this thread still runs,
        // and pool threads work for the running call alone.
        unsafe { host::run_launch(&self.region, &self.pool, launch, |cx| kernel(cx, &*self.kernels))? };
        Ok(Event::REACHED)
    }

    fn begin_copy(&mut self, copy: FileCopy, is_out: bool) -> Result<()> {
        self.check("a copy", copy.at, copy.bytes, !is_out)?;
        self.before(copy.at, copy.bytes, !is_out)?;
        let first = self.region.first(copy.at, copy.bytes)?;
        let file = self.spill.as_ref().ok_or_else(|| Error::new(ErrorKind::Internal, "there is no spill file"))?;
        let slot = Slot { at: copy.file_at, bytes: copy.bytes };
        self.in_flight.push(copy, Uses::of_range((copy.at, copy.at + copy.bytes), !is_out));
        if is_out {
            // SAFETY: the region outlives the file. Until `wait_copy` has taken the copy off the list, `check` refuses
            // every write to these bytes.
            unsafe { file.copy_out(copy.number, slot, first) };
        } else {
            // SAFETY: as above, and `check` refuses reads too.
            unsafe { file.copy_in(copy.number, slot, first) };
        }
        Ok(())
    }
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn kernels(&self) -> Arc<dyn KernelSet> {
        self.kernels.clone()
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.region.reserve(bytes)
    }

    fn release(&mut self, from: usize, to: usize) {
        // The bytes are given up, but a copy must not write them after the release.
        if self.check("a release", from, to.saturating_sub(from), true).is_err() {
            self.spill.iter().for_each(|f| self.in_flight.keys().for_each(|c| drop(f.wait(c.number))));
        }
        self.comm.iter().for_each(CommThread::wait_all);
        // SAFETY: as in `launch`.
        unsafe { self.region.release(from, to) };
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event> {
        self.check_launch(launch)?;
        if launch.op.ranks().is_some_and(|ranks| ranks.size() > 1) {
            return self.start(launch).map(|()| Event::REACHED);
        }
        self.run_kernel(launch, |cx, kernels| host::run_kernel(kernels, &**launch.op, cx))
    }

    fn run(&mut self, program: &ProgramLaunch<'_, '_>) -> Result<Event> {
        let launch = program.launch;
        if let ProgramBody::Flow(flow) = program.body {
            self.check_launch(launch)?;
            return self.run_kernel(launch, |cx, kernels| flow.eval(cx, kernels));
        }
        if !program.owner().is_some_and(|owner| owner.program().has_collectives()) {
            return self.launch(launch);
        }
        self.start_comm_thread()?;
        let (Some(comm), Some(owner)) = (&self.comm, program.owner()) else { return self.launch(program.launch) };
        self.check_launch(program.launch)?;
        comm.before_kernel(&LaunchOperands::new(&self.region, program.launch)?)?;
        // SAFETY: as in `launch`; collectives that the program starts have ended when it returns.
        unsafe { host::run_launch(&self.region, &self.pool, program.launch, |cx| owner.run_on_host(cx, comm))? };
        Ok(Event::REACHED)
    }

    fn upload(&mut self, _stream: StreamId, at: usize, data: &HostTensor) -> Result<Event> {
        self.check("an upload", at, data.bytes().len(), true)?;
        self.before(at, data.bytes().len(), true)?;
        // SAFETY: as in `launch`.
        unsafe { host::upload(&self.region, at, data)? };
        Ok(Event::REACHED)
    }

    fn download(&mut self, x: &Buffer<'_>, _after: &[Event]) -> Result<HostTensor> {
        self.check("a download", x.at, x.bytes, false)?;
        self.before(x.at, x.bytes, false)?;
        // SAFETY: as in `launch`.
        unsafe { host::download(&self.region, x) }
    }

    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<Event> {
        self.check("a move", from.min(to), from.abs_diff(to) + bytes, true)?;
        let range = |at| Ok::<_, Error>(Range::new(self.region.first(at, bytes)?, bytes));
        if let Some(comm) = self.comm.as_ref().filter(|_| bytes > 0) {
            comm.wait_all();
            comm.moved(range(from)?, range(to)?);
        }
        // SAFETY: as in `launch`.
        unsafe { host::shift(&self.region, from, to, bytes)? };
        Ok(Event::REACHED)
    }

    fn open_spill(&mut self, to: &SpillTo) -> Result<bool> {
        if self.spill.is_none() {
            self.spill = Some(to.open()?);
        }
        Ok(true)
    }

    fn copy_out(&mut self, copy: FileCopy) -> Result<()> {
        self.begin_copy(copy, true)
    }

    fn copy_in(&mut self, copy: FileCopy) -> Result<()> {
        self.begin_copy(copy, false)
    }

    fn wait_copy(&mut self, number: usize) -> Result<()> {
        let result = self.spill.as_ref().map_or(Ok(()), |f| f.wait(number).1);
        self.in_flight.retain(|c| c.number != number);
        result
    }

    fn spill_rates(&self) -> Option<SpillRates> {
        self.spill.as_ref()?.rates()
    }

    fn wait(&mut self, _stream: StreamId, _event: Event) {}

    fn synchronize(&mut self, _event: Event) -> Result<()> {
        Ok(())
    }

    fn synchronize_all(&mut self) -> Result<()> {
        self.comm.as_ref().and_then(CommThread::take_failure).map_or(Ok(()), Err)
    }

    fn failed_after(&mut self, _marks: &[Event]) -> Option<Error> {
        self.comm.as_ref()?.take_failure()
    }

    fn settle(&mut self, at: usize, bytes: usize) -> Result<()> {
        self.before(at, bytes, false)
    }

    fn communication(&self) -> Communication {
        self.comm.as_ref().map_or_else(Communication::default, CommThread::figures)
    }

    fn record_communication(&mut self) {
        self.is_recording = true;
        self.comm.iter().for_each(CommThread::record);
    }

    fn take_communication(&mut self) -> Vec<CommSpan> {
        self.is_recording = false;
        self.comm.as_ref().map_or_else(Vec::new, CommThread::take_record)
    }

    fn wait_idle(&mut self) {
        self.comm.iter().for_each(CommThread::wait_all);
    }

    fn now_ns(&self) -> u64 {
        self.opened.elapsed().as_nanos() as u64
    }
}
