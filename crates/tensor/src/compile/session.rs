//! A compiled function bound to memory of its own.

use std::fmt;
use std::sync::{Arc, MutexGuard};

use remat_graph::ir::ValueId;
use remat_runtime::compile::{Form, State};
use remat_runtime::tracing::{Guard, HostInput};
use remat_runtime::{Channel, Executable, ExecutableOptions, HostReservation, SessionOptions, TensorId, ValueView};
use remat_types::{CallSite, Error, ErrorKind, HostTensor, Result, Storage};

use super::closure::CellRef;
use super::{Compiled, handles};
use crate::Tensor;
use crate::tape::lock;

/// A compiled function for one set of input types, in memory of its own: the form in which a model is deployed, and the
/// cheapest step of training.
///
/// A run is a list of kernel calls on bound addresses, on the caller's thread or, with [`Session::start`], on one of the
/// session: no handle, no queue, nothing from the heap. Bits are those of [`Compiled::call`].
///
/// Parameters and optimiser state are copied when the session is made. Its runs update the copies;
/// [`Session::store`] makes them the parameters' next versions. Random keys and learning rates are drawn in every run.
/// All its bytes count against the device's budget.
///
/// ```
/// use remat_runtime::{Device, DeviceOptions};
/// use remat_tensor::{Tensor, compile};
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::cpu(DeviceOptions::default())?;
/// let mut f = compile(&device, |x: &[Tensor]| Ok(vec![(&x[0] + &x[1])?.relu()?]));
/// let x = Tensor::new(&device, &[1f32, -2.0], [2])?;
/// let mut session = f.session(&[&x, &x])?;
/// session.input_as_mut::<f32>(0)?.copy_from_slice(&[1.0, 2.0]);
/// session.input_as_mut::<f32>(1)?.copy_from_slice(&[0.5, -3.0]);
/// session.run()?;
/// assert_eq!(session.output(0)?.as_slice::<f32>()?, [1.5, 0.0]);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    run: remat_runtime::Session,
    channel: Channel,
    /// Inputs that the caller gives; the host inputs come after them.
    inputs: usize,
    host_inputs: Vec<HostInput>,
    states: Vec<State<CellRef>>,
    /// The versions of updated states that the session's runs go on from.
    taken: Vec<Option<TensorId>>,
    /// The updated cells by address, as indices into the states.
    order: Vec<usize>,
    guards: Arc<Vec<Guard>>,
    _charge: HostReservation,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.fmt(f)
    }
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Compiled<F> {
    /// A session for inputs of these types, whose values are the first to run with; compiles the function if need be.
    /// Errors: as [`Compiled::call`]; Budget if the device's budget has no room for it; Io without memory.
    #[track_caller]
    pub fn session(&mut self, x: &[&Tensor]) -> Result<Session> {
        self.session_with(x, &SessionOptions::default(), &[])
    }

    /// [`Compiled::session`] with options, and cut into consecutive parts: the outputs that each gives, by index; see
    /// [`Session::run_part`]. No parts for runs in one piece. Errors: also Value for wrong parts.
    #[track_caller]
    pub fn session_with(&mut self, x: &[&Tensor], options: &SessionOptions, parts: &[Vec<usize>]) -> Result<Session> {
        let site = CallSite::here();
        self.forms.ready(&mut self.f, &handles(x)).map_err(|e| e.with_call_site(site))?;
        self.forms.trim();
        let form = self.forms.last()?;
        let session = form.check_session();
        let session = session.and_then(|()| Session::new(form, &self.f.device.channel(), x, options, parts));
        session.map_err(|e| e.with_call_site(site))
    }
}

impl Session {
    fn new(
        e: &Form<CellRef>,
        channel: &Channel,
        x: &[&Tensor],
        options: &SessionOptions,
        parts: &[Vec<usize>],
    ) -> Result<Self> {
        let exe = match parts {
            [] => e.executable().clone(),
            _ => {
                let (graph, threads) = (e.executable().graph().clone(), e.executable().threads());
                let options = ExecutableOptions { parts: parts.to_vec(), ..Default::default() };
                Arc::new(Executable::with(graph, threads, &options)?)
            }
        };
        let f = exe.figures();
        let bytes =
            [f.arena_bytes, f.state_bytes, f.input_bytes, f.output_bytes].into_iter().fold(0, usize::saturating_add);
        let charge = channel.charge(bytes, "session")?;
        let mut run = remat_runtime::Session::with(exe, options)?;
        for (i, x) in x.iter().enumerate() {
            run.set_input(i, &x.to_host()?)?;
        }
        let mut taken = Vec::with_capacity(e.states().len());
        for (i, s) in e.states().iter().enumerate() {
            let handle = s.version()?;
            run.set_state(i, &channel.value(&handle)?)?;
            taken.push(matches!(s, State::Updated(_)).then(|| handle.id()));
        }
        Ok(Session {
            run,
            channel: channel.clone(),
            inputs: x.len(),
            host_inputs: e.host_inputs().to_vec(),
            states: e.states().to_vec(),
            taken,
            order: e.order().to_vec(),
            guards: e.guards().clone(),
            _charge: charge,
        })
    }

    /// The elements of input `i`, to be written before a run. Errors (Value): no such input; another type; running.
    pub fn input_as_mut<T: Storage>(&mut self, i: usize) -> Result<&mut [T]> {
        self.check_input(i)?;
        self.run.input_as_mut(i)
    }

    /// Copies `data` to input `i`. Errors (Value): no such input, another type or shape, running.
    pub fn set_input(&mut self, i: usize, data: &HostTensor) -> Result<()> {
        self.check_input(i)?;
        self.run.set_input(i, data)
    }

    fn check_input(&self, i: usize) -> Result<()> {
        if i < self.inputs {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Value, format!("input {i} of a session that has {}", self.inputs)))
    }

    /// Output `j` of the last run. Errors (Value): no such output; running.
    pub fn output(&mut self, j: usize) -> Result<ValueView<'_>> {
        self.run.output(j)
    }

    /// Runs the function. Errors: those of its ops, after which parameters are as before; Value if a module it reads has
    /// changed between training and evaluation, or an option of the optimiser that the compiled form cannot follow.
    pub fn run(&mut self) -> Result<()> {
        self.prepare()?;
        self.run.run()
    }

    /// [`Session::run`] with outputs in the caller's memory, without a copy; `None` for one that stays in the session's.
    /// Errors: also Value for memory of another size than the output's, or not aligned to its dtype.
    pub fn run_into(&mut self, outputs: &mut [Option<&mut [u8]>]) -> Result<()> {
        self.prepare()?;
        self.run.run_into(outputs)
    }

    /// Runs part `k`; the inputs that it and earlier parts read must be there. Errors: as [`Session::run`]; Value if `k`
    /// is not the next part, after which the first is next.
    pub fn run_part(&mut self, k: usize) -> Result<()> {
        if k == 0 {
            self.prepare()?;
        }
        self.run.run_part(k)
    }

    /// Begins a run on a thread of the session. Errors: as [`Session::run`] before the first op.
    pub fn start(&mut self) -> Result<()> {
        self.prepare()?;
        self.run.start()
    }

    /// Waits for the run that [`Session::start`] began, and gives its error, once.
    pub fn wait(&mut self) -> Result<()> {
        self.run.wait()
    }

    /// Calls `f` with output `j` in every run as soon as it is there, on the thread that runs. Errors (Value): no such
    /// output; running.
    pub fn on_output(&mut self, j: usize, f: impl FnMut(ValueView<'_>) + Send + 'static) -> Result<()> {
        self.run.on_output(j, f)
    }

    /// Calls `f` with a value of the graph in every run as soon as it is there; see [`Session::executable`]. Errors
    /// (Value): a value that no call gives (an input, a constant, a view); running.
    pub fn on_value(&mut self, v: ValueId, f: impl FnMut(ValueView<'_>) + Send + 'static) -> Result<()> {
        self.run.on_value(v, f)
    }

    /// The executable that the session runs. Errors (Value): running.
    pub fn executable(&mut self) -> Result<&Arc<Executable>> {
        self.run.executable()
    }

    /// Bytes of inputs, states and outputs, and of the workspace at this moment. Errors (Value): running.
    pub fn bytes(&mut self) -> Result<(usize, usize)> {
        self.run.bytes()
    }

    /// Gives the workspace's memory back until the next run. Errors (Value): running.
    pub fn release_workspace(&mut self) -> Result<()> {
        self.run.release_workspace()
    }

    fn prepare(&mut self) -> Result<()> {
        if !self.guards.iter().all(|g| g()) {
            let text = "what the function read has changed since it was compiled (training or evaluation, frozen \
                        parameters, an option of the optimiser): make another session";
            return Err(Error::new(ErrorKind::Value, text));
        }
        for (i, f) in self.host_inputs.iter().enumerate() {
            f(self.run.input_mut(self.inputs + i)?)?;
        }
        Ok(())
    }

    /// Makes the states as the runs left them the next versions of parameters and optimiser state.
    ///
    /// Errors: Value, and nothing is stored, if one of them has changed since the session took it or last stored it;
    /// Budget; Closed.
    pub fn store(&mut self) -> Result<()> {
        let mut slots: Vec<(usize, MutexGuard<'_, Option<Tensor>>)> = Vec::with_capacity(self.order.len());
        for &i in &self.order {
            if let State::Updated(cell) = &self.states[i] {
                slots.push((i, lock(cell.0.slot())));
            }
        }
        let stale = |(i, slot): &&(usize, MutexGuard<'_, Option<Tensor>>)| {
            slot.as_ref().map(|t| t.handle.id()) != self.taken[*i]
        };
        if slots.iter().any(|s| stale(&s)) {
            let text =
                "a parameter has changed since the session took it; what the session's runs made of it is not stored";
            return Err(Error::new(ErrorKind::Value, text));
        }
        let mut next = Vec::with_capacity(slots.len());
        for (i, _) in &slots {
            let State::Updated(cell) = &self.states[*i] else { continue };
            next.push(self.channel.put_as(&self.run.state(*i)?, cell.0.kind())?);
        }
        for ((i, slot), h) in slots.iter_mut().zip(next) {
            let leaf = slot.as_ref().and_then(|t| t.leaf().cloned());
            self.taken[*i] = Some(h.id());
            **slot = Some(Tensor::of_version(h, leaf)?);
        }
        Ok(())
    }
}
