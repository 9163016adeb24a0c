//! A network for one set of input shapes, in memory of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use remat_graph::ir::{Origin, ValueId};
use remat_onnx::{Port, Value};
use remat_runtime::compile::CompiledGraph;
use remat_runtime::{PlanTimes, SessionOptions, ValueView, padded};
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, Storage};

use crate::form::{Eager, Form, Program, lock};
use crate::shapes::unknown;

/// Bytes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Weights and other constants, which all sessions of these shapes share.
    pub constant_bytes: usize,
    /// Inputs and outputs.
    pub io_bytes: usize,
    /// What lives only within a run. Of a model that is no single graph: the most that the device held.
    pub workspace_bytes: usize,
    /// Calls that a run makes again to keep to the budget. Of a model that is no single graph: those of all runs so far, of all
    /// sessions.
    pub recomputed_calls: usize,
}

impl Memory {
    /// All of them: what the budget is compared with.
    pub fn total_bytes(&self) -> usize {
        self.constant_bytes + self.io_bytes + self.workspace_bytes
    }
}

enum Machine {
    Compiled {
        run: remat_runtime::Session,
        plan: Arc<Mutex<CompiledGraph>>,
    },
    Eager {
        f: Arc<Eager>,
        inputs: Vec<Option<Value>>,
        /// What `input_as_mut` gave out, by input: read again by every run.
        lent: Vec<Option<HostTensor>>,
        outputs: Vec<Value>,
        read: Vec<Option<HostTensor>>,
    },
}

/// A network for one set of input shapes, with inputs, outputs and workspace of its own.
///
/// A session is moved between threads and used by one at a time;
/// what it lends ends with the borrow:
///
/// ```compile_fail,E0499
/// # fn f(mut session: remat_lite::Session) -> remat_lite::Result<()> {
/// let y = session.output("y")?;
/// session.run()?;
/// println!("{:?}", y.as_slice::<f32>()?);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    form: Form,
    machine: Machine,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("inputs", &self.form.facts).field("outputs", &self.form.outputs).finish()
    }
}

impl Session {
    pub(crate) fn new(form: Form, options: &SessionOptions) -> Result<Session> {
        let machine = match &form.program {
            Program::Compiled(plan) => {
                let run = remat_runtime::Session::with(lock(plan).executable().clone(), options)?;
                Machine::Compiled { run, plan: plan.clone() }
            }
            Program::Eager(f) => {
                let n = form.inputs.len();
                let zeros =
                    |f: &Option<Fact>| f.as_ref().map(|f| HostTensor::zeros(f.dtype, f.shape.clone())).transpose();
                let lent = form.facts.iter().map(zeros).collect::<Result<_>>()?;
                Machine::Eager { f: f.clone(), inputs: vec![None; n], lent, outputs: Vec::new(), read: Vec::new() }
            }
        };
        Ok(Session { form, machine })
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[Port] {
        &self.form.inputs
    }

    /// Type and shape of input `i`; `None` if it is no tensor.
    pub fn fact(&self, i: usize) -> Option<Fact> {
        self.form.facts.get(i).cloned().flatten()
    }

    /// The names of the outputs, in order.
    pub fn outputs(&self) -> &[String] {
        &self.form.outputs
    }

    fn input_index(&self, name: &str) -> Result<usize> {
        let all = &self.form.inputs;
        let found = all.iter().position(|p| p.name == name);
        found.ok_or_else(|| unknown("input", name, all.iter().map(|p| &*p.name)))
    }

    fn output_index(&self, name: &str) -> Result<usize> {
        let all = &self.form.outputs;
        all.iter().position(|n| n == name).ok_or_else(|| unknown("output", name, all.iter().map(|n| &**n)))
    }

    /// The elements of an input, zeros at first, to be written before a run: the memory that the run reads.
    /// Errors (Value): no such input, another element type, an input that is no tensor, running.
    pub fn input_as_mut<T: Storage>(&mut self, name: &str) -> Result<&mut [T]> {
        let i = self.input_index(name)?;
        let of_type = |e: Error| e.context(format!("input `{name}`"));
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.input_as_mut(i).map_err(of_type),
            Machine::Eager { inputs, lent, .. } => {
                inputs[i] = None;
                let host = lent[i].as_mut().ok_or_else(|| of_type(Error::new(ErrorKind::Value, "no tensor")))?;
                if !T::stores(host.dtype()) {
                    let text = format!("is of {}, not of the type asked for", host.dtype());
                    return Err(of_type(Error::new(ErrorKind::Value, text)));
                }
                Ok(bytemuck::cast_slice_mut(host.try_bytes_mut()?))
            }
        }
    }

    /// Copies a tensor to an input. Errors (Value): no such input, another type or shape, running.
    pub fn set_input(&mut self, name: &str, data: &HostTensor) -> Result<()> {
        let i = self.input_index(name)?;
        let named = |e: Error| e.context(format!("input `{name}`"));
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.set_input(i, data).map_err(named),
            Machine::Eager { inputs, lent, .. } => {
                let fact = self.form.facts[i]
                    .as_ref()
                    .ok_or_else(|| named(Error::new(ErrorKind::Value, "no tensor: `Session::set_value` sets it")))?;
                if !fact.same_type(&Fact::of(data)) {
                    let text = format!("is {}{}, not {}{}", fact.dtype, fact.shape, data.dtype(), data.shape());
                    return Err(named(Error::new(ErrorKind::Value, text)));
                }
                (inputs[i], lent[i]) = (None, Some(data.clone()));
                Ok(())
            }
        }
    }

    /// Sets an input that is no tensor: strings, a sequence. Errors (Value): no such input; of a model that takes tensors only.
    pub fn set_value(&mut self, name: &str, value: Value) -> Result<()> {
        let i = self.input_index(name)?;
        match &mut self.machine {
            Machine::Compiled { .. } => {
                Err(Error::new(ErrorKind::Value, format!("input `{name}` is a tensor: `Session::set_input` sets it")))
            }
            Machine::Eager { inputs, .. } => {
                inputs[i] = Some(value);
                Ok(())
            }
        }
    }

    /// Runs the network. Errors: those of its operators, which name node and operator; Budget; Value: running.
    pub fn run(&mut self) -> Result<()> {
        self.settle()?;
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.run(),
            Machine::Eager { f, inputs, lent, outputs, read } => {
                let device = f.network.device();
                let value = |(v, host): (&Option<Value>, &Option<HostTensor>)| match (v, host) {
                    (Some(v), _) => Ok(v.clone()),
                    (None, Some(host)) => Ok(Value::Tensor(Tensor::from_host(device, host)?)),
                    (None, None) => Err(Error::new(ErrorKind::Value, "an input that is no tensor was not set")),
                };
                let x = inputs.iter().zip(&*lent).map(value).collect::<Result<Vec<Value>>>()?;
                read.clear();
                *outputs = f.run(&x)?;
                read.resize(outputs.len(), None);
                Ok(())
            }
        }
    }

    /// Takes over a better plan that was made from measured times.
    fn settle(&mut self) -> Result<()> {
        if let Machine::Compiled { run, plan } = &mut self.machine {
            let mut plan = lock(plan);
            plan.before_run();
            if !Arc::ptr_eq(run.executable()?, plan.executable()) {
                run.replan(plan.executable().clone())?;
            }
        }
        Ok(())
    }

    /// [`Session::run`] with outputs in the caller's memory, in order: the run writes there, and nothing is copied. `None` leaves one
    /// in the session's. Errors: also Value for memory of another size than the output's, or not aligned to its dtype, and for a
    /// model that is no single graph.
    pub fn run_into(&mut self, outputs: &mut [Option<&mut [u8]>]) -> Result<()> {
        self.settle()?;
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.run_into(outputs),
            Machine::Eager { .. } => {
                let text = "sizes of this model follow from values, so its outputs cannot be in the caller's memory";
                Err(Error::new(ErrorKind::Value, text))
            }
        }
    }

    /// Begins a run on a thread of the session and gives a future that ends with it, for any executor. The session is borrowed until
    /// then; a future that is dropped waits for the run. A model that is no single graph runs before this returns.
    ///
    /// Errors (Value): running; Io without a thread.
    pub fn run_async(&mut self) -> Result<Run<'_>> {
        self.settle()?;
        let state = Arc::new(Mutex::new(Ended::default()));
        let is_compiled = matches!(self.machine, Machine::Compiled { .. });
        if let Machine::Compiled { run, .. } = &mut self.machine {
            let state = state.clone();
            run.start_with(move || {
                let mut state = lock(&state);
                state.is_ended = true;
                state.waker.take().into_iter().for_each(Waker::wake);
            })?;
        }
        let result = if is_compiled { None } else { Some(self.run()) };
        Ok(Run { session: self, state, result })
    }

    /// What the last run gave as an output. Errors (Value): no such output, none that is a tensor, no run yet of a model that is no
    /// single graph; those of the device.
    pub fn output(&mut self, name: &str) -> Result<ValueView<'_>> {
        let j = self.output_index(name)?;
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.output(j),
            Machine::Eager { outputs, read, .. } => {
                let value = outputs.get(j).ok_or_else(|| Error::new(ErrorKind::Value, "there was no run yet"))?;
                let host = match read[j].take() {
                    Some(host) => host,
                    None => value.tensor().map_err(|e| e.context(format!("output `{name}`")))?.to_host()?,
                };
                let host = read[j].insert(host);
                Ok(ValueView { dtype: host.dtype(), shape: host.shape(), bytes: host.bytes() })
            }
        }
    }

    /// An output of the last run that is no tensor: strings, a sequence. Errors (Value): no such output; a model whose outputs are
    /// tensors ([`Session::output`]); no run yet.
    pub fn output_value(&self, name: &str) -> Result<Value> {
        let j = self.output_index(name)?;
        let wrong = |text: &str| Error::new(ErrorKind::Value, format!("output `{name}`: {text}"));
        match &self.machine {
            Machine::Compiled { .. } => Err(wrong("a tensor, which `Session::output` gives")),
            Machine::Eager { outputs, .. } => outputs.get(j).cloned().ok_or_else(|| wrong("there was no run yet")),
        }
    }

    /// True if one graph runs under one plan; false if sizes follow from values, so that operators run one by one on a device with
    /// the same budget.
    pub fn is_planned(&self) -> bool {
        matches!(self.machine, Machine::Compiled { .. })
    }

    /// True once it runs under its last plan: under a budget a second one is made from measured times, beside the runs.
    pub fn is_settled(&self) -> bool {
        match &self.machine {
            Machine::Compiled { plan, .. } => lock(plan).is_settled(),
            Machine::Eager { .. } => true,
        }
    }

    /// What the planner says of the runs, in nanoseconds; `None` if they run without a limit that binds.
    pub fn plan_times(&self) -> Option<PlanTimes> {
        match &self.machine {
            Machine::Compiled { plan, .. } => lock(plan).plan_times(),
            Machine::Eager { .. } => None,
        }
    }

    /// What it holds. Errors: Value: running; those of the device.
    pub fn memory(&mut self) -> Result<Memory> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => {
                let e = run.executable()?;
                let (g, f) = (e.graph(), e.figures());
                // in whole units of the arena, as the budget counts them
                let of = |v: ValueId| padded(g.fact(v).bytes());
                let is_constant = |v: &ValueId| matches!(g.value(*v).origin, Origin::Constant(_));
                Ok(Memory {
                    constant_bytes: g.value_ids().filter(is_constant).map(of).sum(),
                    io_bytes: g.inputs().iter().copied().chain(g.outputs().iter().map(|o| o.value)).map(of).sum(),
                    workspace_bytes: f.arena_bytes,
                    recomputed_calls: f.recomputed_calls,
                })
            }
            Machine::Eager { f, .. } => {
                let stats = f.network.device().channel().stats()?;
                // the device holds weights, inputs and outputs too, and tells the most of all together
                Ok(Memory {
                    constant_bytes: 0,
                    io_bytes: 0,
                    workspace_bytes: stats.peak_bytes,
                    recomputed_calls: usize::try_from(stats.recomputed_ops).unwrap_or(usize::MAX),
                })
            }
        }
    }

    fn wait(&mut self) -> Result<()> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.wait(),
            Machine::Eager { .. } => Ok(()),
        }
    }

    /// Gives the workspace's memory back until the next run. Errors (Value): running.
    pub fn release_workspace(&mut self) -> Result<()> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.release_workspace(),
            Machine::Eager { .. } => Ok(()),
        }
    }

    /// The session of the runtime beneath, for what is not here: values within the graph, parts. `None` if the model is no single
    /// graph.
    pub fn runtime(&mut self) -> Option<&mut remat_runtime::Session> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => Some(run),
            Machine::Eager { .. } => None,
        }
    }
}

#[derive(Default)]
struct Ended {
    is_ended: bool,
    waker: Option<Waker>,
}

/// A run under way: [`Session::run_async`].
#[must_use = "a run that is dropped is waited for"]
pub struct Run<'s> {
    session: &'s mut Session,
    state: Arc<Mutex<Ended>>,
    /// Of a run that has ended already.
    result: Option<Result<()>>,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("is_ended", &lock(&self.state).is_ended).finish_non_exhaustive()
    }
}

impl Run<'_> {
    /// Waits for the run on this thread. Errors: those of the run.
    pub fn wait(mut self) -> Result<()> {
        self.result.take().unwrap_or_else(|| self.session.wait())
    }
}

impl Future for Run<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(result) = self.result.take() {
            return Poll::Ready(result);
        }
        let mut state = lock(&self.state);
        if !state.is_ended {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.session.wait())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // an error that nobody waited for is nobody's
        let _ = self.session.wait();
    }
}
