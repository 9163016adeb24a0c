//! Networks that run: eager, compiled, or in a session, on a device of any kind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use remat::runtime::{CommandStream, Device, DeviceOptions, Executable, Foresight, MemoryFigures, PlanTimes, Stats};
use remat::tensor::{CompileOptions, Compiled, Session, Tensor, compile_with};
use remat::types::{Error, ErrorKind, Result};

use crate::device::On;

use super::setup::{Function, Network, Setup};

/// Longest wait for the last plan.
const SETTLE: Duration = Duration::from_secs(60);
/// Eager steps under a budget until their plan is a good one: they are planned when seen twice, four and eight times.
const SETTLE_STEPS: usize = 10;
/// Losses that are kept.
const LOSSES: usize = 5;

impl Network {
    /// The compiled form, run so many times without a budget; of 0 runs nothing is computed and no memory taken.
    pub(crate) fn timed(self, batch: Option<usize>, on: On<'_>, runs: usize) -> Result<Arc<Executable>> {
        let device = on.open(DeviceOptions::default(), runs == 0)?;
        let mut running = Running::new(self, batch.unwrap_or(self.batch()), true, &device)?;
        for _ in 0..runs {
            running.run()?;
        }
        running.executable()
    }

    /// Records so many eager steps without a budget. The time of an operator is the least of all steps, or an estimate if
    /// the step is not computed.
    pub(crate) fn recorded(
        self,
        batch: Option<usize>,
        on: On<'_>,
        steps: usize,
        is_estimated: bool,
    ) -> Result<CommandStream> {
        let device = on.open(DeviceOptions { always_record: true, ..DeviceOptions::default() }, is_estimated)?;
        let mut running = Running::new(self, batch.unwrap_or(self.batch()), false, &device)?;
        // The first makes the optimiser's state.
        running.run()?;
        let channel = device.channel();
        channel.start_recording()?;
        (0..steps).try_for_each(|_| running.run())?;
        let mut stream = channel.stop_recording()?;
        stream.settle_times();
        Ok(stream)
    }
}

enum Form {
    Eager(Function),
    Compiled(Compiled<Function>),
    Session(Box<Session>, MemoryFigures),
}

/// A network on its device, in one of its forms.
pub(crate) struct Running {
    device: Device,
    form: Form,
    x: Vec<Tensor>,
    losses: Vec<f32>,
}

impl Running {
    pub(crate) fn new(network: Network, batch: usize, is_compiled: bool, device: &Device) -> Result<Running> {
        let Setup { f, x } = Setup::new(network, device, batch)?;
        let options = match network {
            Network::Infer(_) => CompileOptions::inference(),
            Network::Train(_) => CompileOptions::default(),
        };
        let form = if is_compiled { Form::Compiled(compile_with(device, options, f)) } else { Form::Eager(f) };
        Ok(Running { device: device.clone(), form, x, losses: Vec::new() })
    }

    /// Runs once, to the end of what the device has to do.
    pub(crate) fn run(&mut self) -> Result<()> {
        let y = match &mut self.form {
            Form::Eager(f) => f(&self.x)?,
            Form::Compiled(f) => f.call(&self.x.iter().collect::<Vec<_>>())?,
            Form::Session(s, _) => return s.run(),
        };
        // Read by every run, for a step that reads is another one than a step that does not.
        if let Some(loss) = y.first().filter(|y| y.elems() == 1 && !self.device.is_dry()) {
            let loss: f32 = loss.item()?;
            if self.losses.len() < LOSSES {
                self.losses.push(loss);
            }
        }
        drop(y);
        self.device.channel().sync()
    }

    /// Runs until a compiled function has its last plan, or foresight had time for one.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let end = Instant::now() + SETTLE;
        self.run()?;
        let mut runs = 1;
        let options = self.device.options();
        let foresees = options.budget_bytes.is_some() && options.foresight != Foresight::Off;
        let is_settled = |form: &Form, runs| match form {
            Form::Compiled(f) => f.is_settled(),
            Form::Eager(_) => !foresees || runs >= SETTLE_STEPS,
            Form::Session(..) => true,
        };
        while !is_settled(&self.form, runs) && Instant::now() < end {
            self.run()?;
            runs += 1;
        }
        Ok(())
    }

    /// Binds the compiled form to its own memory, and runs it once.
    pub(crate) fn bind(&mut self) -> Result<()> {
        if let Form::Compiled(f) = &mut self.form {
            let mut session = f.session(&self.x.iter().collect::<Vec<_>>())?;
            let figures = session.executable()?.figures();
            self.form = Form::Session(Box::new(session), figures);
            self.run()?;
        }
        Ok(())
    }

    /// Errors (Internal) if it is not compiled.
    pub(crate) fn executable(&mut self) -> Result<Arc<Executable>> {
        match &mut self.form {
            Form::Compiled(f) => f.executable(&self.x.iter().collect::<Vec<_>>()),
            Form::Session(s, _) => s.executable().cloned(),
            Form::Eager(_) => Err(Error::new(ErrorKind::Internal, "the network is not compiled")),
        }
    }

    /// Of the first runs.
    pub(crate) fn losses(&self) -> &[f32] {
        &self.losses
    }

    pub(crate) fn stats(&self) -> Result<Stats> {
        self.device.channel().stats()
    }

    /// The memory of the compiled form; `None` for eager runs.
    pub(crate) fn figures(&self) -> Option<MemoryFigures> {
        match &self.form {
            Form::Eager(_) => None,
            Form::Session(_, figures) => Some(*figures),
            Form::Compiled(f) => f.figures().last().copied(),
        }
    }

    /// The plan that the last runs followed, and the time of the operators of the last of them.
    pub(crate) fn plan_times(&self) -> (Option<PlanTimes>, u64) {
        let stats = self.stats().unwrap_or_default();
        match &self.form {
            Form::Compiled(f) => (f.plan_times(), f.ops_ns()),
            Form::Eager(_) if stats.steps_followed > 0 => {
                let Stats { planned_step_ns, planned_base_ns, planned_bound_ns, .. } = stats;
                let times = PlanTimes {
                    planned_ns: planned_step_ns,
                    base_ns: planned_base_ns,
                    bound_ns: planned_bound_ns,
                    stall_ns: 0,
                };
                (Some(times), stats.followed_step_ns)
            }
            Form::Eager(_) | Form::Session(..) => (None, 0),
        }
    }
}

/// Operations and bytes of one run, as the network is written: without passes.
pub(crate) fn plain_cost(network: Network, batch: usize, device: &Device) -> Result<remat::ops::Cost> {
    let Setup { f, x } = Setup::new(network, device, batch)?;
    let mut raw = CompileOptions::default();
    raw.passes.level = 0;
    Ok(compile_with(device, raw, f).graph(&x.iter().collect::<Vec<_>>())?.cost())
}
