//! A network for one set of input shapes, in memory of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use remat_onnx::{Port, Value};
use remat_runtime::{PlanTimes, RunResult, SessionOptions, ValueView};
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, Storage};

use crate::affinity::Affinity;
use crate::eager;
use crate::form::{Form, Program};
use crate::plan::{Memory, Plan, lock, memory_of, settle};
use crate::shapes::unknown;

enum Machine {
    Compiled { run: remat_runtime::Session, plan: Plan },
    Eager(eager::Machine),
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
    affinity: Affinity,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("inputs", &self.form.facts).field("outputs", &self.form.outputs).finish()
    }
}

impl Session {
    pub(crate) fn new(form: Form, options: &SessionOptions, affinity: Affinity) -> Result<Session> {
        let machine = match &form.program {
            Program::Compiled(plan) => {
                let run = remat_runtime::Session::with(lock(&plan.compiled).executable().clone(), options)?;
                Machine::Compiled { run, plan: plan.clone() }
            }
            Program::Eager(f) => Machine::Eager(eager::Machine::new(f.clone(), options)?),
        };
        Ok(Session { form, machine, affinity })
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
            Machine::Eager(m) => m.input_as_mut(i).map_err(of_type),
        }
    }

    /// Copies a tensor to an input. Errors (Value): no such input, another type or shape, running.
    pub fn set_input(&mut self, name: &str, data: &HostTensor) -> Result<()> {
        let i = self.input_index(name)?;
        let named = |e: Error| e.context(format!("input `{name}`"));
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.set_input(i, data).map_err(named),
            Machine::Eager(m) => m.set_input(i, data).map_err(named),
        }
    }

    /// Sets an input that is no tensor: strings, a sequence. Errors (Value): no such input; of a model that takes tensors only.
    pub fn set_value(&mut self, name: &str, value: Value) -> Result<()> {
        let i = self.input_index(name)?;
        match &mut self.machine {
            Machine::Compiled { .. } => {
                Err(Error::new(ErrorKind::Value, format!("input `{name}` is a tensor: `Session::set_input` sets it")))
            }
            Machine::Eager(m) => {
                m.set_value(i, value);
                Ok(())
            }
        }
    }

    /// Runs the network. Errors: those of its operators, which name node and operator; Budget; Value: running.
    pub fn run(&mut self) -> Result<()> {
        let _here = self.affinity.enter()?;
        self.settle()?;
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.run(),
            Machine::Eager(m) => m.run(),
        }
    }

    /// Takes over a better plan that was made from measured times.
    fn settle(&mut self) -> Result<()> {
        match &mut self.machine {
            Machine::Compiled { run, plan } => settle(run, &plan.compiled),
            Machine::Eager(_) => Ok(()),
        }
    }

    /// [`Session::run`] with outputs in the caller's memory, in order: the run writes there, and nothing is copied. `None` leaves one
    /// in the session's. Errors: also Value for memory of another size than the output's, or not aligned to its dtype, and for a
    /// model that is no single graph.
    pub fn run_into(&mut self, outputs: &mut [Option<&mut [u8]>]) -> Result<()> {
        let _here = self.affinity.enter()?;
        self.settle()?;
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.run_into(outputs),
            Machine::Eager(_) => {
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
        let here = self.affinity.enter()?;
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
        drop(here);
        let result = if is_compiled { None } else { Some(self.run()) };
        Ok(Run { session: self, state, result })
    }

    /// Calls `f` at the start of every run from now on, on the thread that runs: before inputs are read. A call that is refused before
    /// a run starts does not call it. If `f` panics nothing runs. Errors (Value): running.
    ///
    /// ```
    /// # fn f(session: &mut remat_lite::Session) -> remat_lite::Result<()> {
    /// use std::time::Instant;
    /// let (tell, started) = std::sync::mpsc::channel();
    /// session.on_start(move || _ = tell.send(Instant::now()))?;
    /// session.on_finish(move |result| {
    ///     let took = started.recv().map(|t| t.elapsed());
    ///     println!("{took:?}, {result:?}");
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_start(&mut self, f: impl FnMut() + Send + 'static) -> Result<()> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.on_start(f),
            Machine::Eager(m) => {
                m.hooks.on_start(f);
                Ok(())
            }
        }
    }

    /// Calls `f` once for every run that started, on the thread that runs, when its outputs are there or with the error that ended it,
    /// and before the run is seen to have ended: before [`Session::run`] returns, or the future of [`Session::run_async`] is ready. If
    /// `f` panics, outputs are there all the same. A panic in a hook is one of [`Session::run`], and an error of kind Internal of a
    /// run on the session's thread; the session stays usable. Errors (Value): running.
    pub fn on_finish(&mut self, f: impl FnMut(RunResult<'_>) + Send + 'static) -> Result<()> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.on_finish(f),
            Machine::Eager(m) => {
                m.hooks.on_finish(f);
                Ok(())
            }
        }
    }

    /// An output of the last run. Errors (Value): there is no such output, it is no tensor, or a model that is no single graph
    /// has not run yet. Also errors of the device.
    pub fn output(&mut self, name: &str) -> Result<ValueView<'_>> {
        let j = self.output_index(name)?;
        match &mut self.machine {
            Machine::Compiled { plan, .. } if plan.is_text(j) => {
                let text = format!("output `{name}` is of strings, which `Session::output_value` gives");
                Err(Error::new(ErrorKind::Value, text))
            }
            Machine::Compiled { run, .. } => run.output(j),
            Machine::Eager(m) => {
                let host = m.output(j).map_err(|e| e.context(format!("output `{name}`")))?;
                Ok(ValueView { dtype: host.dtype(), shape: host.shape(), bytes: host.bytes() })
            }
        }
    }

    /// An output of the last run that is no tensor: strings, a sequence. Errors (Value): no such output; a model whose outputs are
    /// tensors ([`Session::output`]); no run yet.
    pub fn output_value(&mut self, name: &str) -> Result<Value> {
        let j = self.output_index(name)?;
        let found = match &mut self.machine {
            Machine::Compiled { run, plan } => plan.text(run, j).and_then(|text| {
                text.ok_or_else(|| Error::new(ErrorKind::Value, "a tensor, which `Session::output` gives"))
            }),
            Machine::Eager(m) => m.output_value(j),
        };
        found.map_err(|e| e.context(format!("output `{name}`")))
    }

    /// True if one graph runs under one plan; false if sizes follow from values, so that operators run one by one on a device
    /// with the same budget. If a few integers among the inputs decide whether there is one graph, the answer is for the last
    /// run. There is a plan for each value of these integers. The session keeps the four plans that were used last, and under a
    /// budget only one.
    pub fn is_planned(&self) -> bool {
        match &self.machine {
            Machine::Compiled { .. } => true,
            Machine::Eager(m) => m.is_planned(),
        }
    }

    /// True once it runs under its last plan: under a budget a second one is made from measured times, beside the runs.
    pub fn is_settled(&self) -> bool {
        match &self.machine {
            Machine::Compiled { plan, .. } => lock(&plan.compiled).is_settled(),
            Machine::Eager(_) => true,
        }
    }

    /// The planner's times for the runs, in nanoseconds; `None` if the runs fit the budget without a plan.
    pub fn plan_times(&self) -> Option<PlanTimes> {
        match &self.machine {
            Machine::Compiled { plan, .. } => lock(&plan.compiled).plan_times(),
            Machine::Eager(_) => None,
        }
    }

    /// The memory of the session. Errors: Value: running; those of the device.
    pub fn memory(&mut self) -> Result<Memory> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => Ok(memory_of(run.executable()?)),
            Machine::Eager(m) => m.memory(),
        }
    }

    fn wait(&mut self) -> Result<()> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.wait(),
            Machine::Eager(_) => Ok(()),
        }
    }

    /// Gives the workspace's memory back until the next run. Errors (Value): running.
    pub fn release_workspace(&mut self) -> Result<()> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => run.release_workspace(),
            Machine::Eager(_) => Ok(()),
        }
    }

    /// The session of the runtime beneath, for features that are not here: values within the graph, parts. `None` if the model is
    /// no single graph.
    pub fn runtime(&mut self) -> Option<&mut remat_runtime::Session> {
        match &mut self.machine {
            Machine::Compiled { run, .. } => Some(run),
            Machine::Eager(_) => None,
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
        // nobody waits for this run, so nobody reads its error
        let _ = self.session.wait();
    }
}
