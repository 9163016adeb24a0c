//! Models that are no single graph: sizes follow from values, or an output is no tensor.
//!
//! Often a few integers decide everything: a rate, a flag. For each value of such inputs that a session meets it is tried whether the
//! model with that constant is one graph, which then runs under a plan. The operators of other models run one by one, on a device with
//! the same budget. After four values without a plan, and none with one, no more are tried.
//!
//! A budget is for all of that together. Under one there is a single plan at a time, or the device, and the model is read again for the
//! next. Whether a value has a plan is the same with a budget and without: a plan and the operators may differ in the last digits.

use std::sync::{Arc, Mutex};

use remat_onnx::{Port, Value};
use remat_runtime::{Device, RunHooks, SessionOptions};
use remat_tensor::{Tensor, no_grad};
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, Storage};

use crate::Options;
use crate::model::{Model, Source};
use crate::plan::{Memory, Plan, lock, memory_of, settle};

/// The most elements of an input whose values are tried.
const MOST_DECIDING_ELEMS: usize = 4;

/// The most plans that are kept, those that were used last, and the most values that are known to have none.
const MOST_PLANS: usize = 4;

/// The data that sessions share.
#[derive(Debug)]
pub(crate) struct Eager {
    source: Source,
    options: Options,
    names: Vec<String>,
    facts: Arc<[Option<Fact>]>,
    /// Inputs whose values may decide branches and sizes, by index.
    deciding: Vec<usize>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Under a budget it is gone once it has been used: its weights are not counted.
    model: Option<remat_onnx::Model>,
    /// By the values of the deciding inputs, the one that was used last at the end.
    plans: Vec<(Vec<HostTensor>, Plan)>,
    /// Values for which the model is no single graph either, the newest at the end.
    refused: Vec<Vec<HostTensor>>,
    /// Once some value had a plan, every value is tried: whether one has must not follow from which plans are kept.
    has_planned: bool,
    /// The model on a device, once a run needs it.
    network: Option<remat_onnx::Network>,
}

impl Eager {
    pub(crate) fn new(
        model: remat_onnx::Model,
        source: Source,
        inputs: &[Port],
        facts: Arc<[Option<Fact>]>,
        options: &Options,
    ) -> Eager {
        let decides = |f: &Option<Fact>| {
            let is_small = |f: &Fact| f.rank() <= 1 && (1..=MOST_DECIDING_ELEMS).contains(&f.elems());
            f.as_ref().is_some_and(|f| !f.dtype.is_float() && is_small(f))
        };
        let deciding = (0..facts.len()).filter(|i| decides(&facts[*i])).collect();
        let names = inputs.iter().map(|p| p.name.clone()).collect();
        let state =
            State { model: Some(model), plans: Vec::new(), refused: Vec::new(), has_planned: false, network: None };
        Eager { source, options: options.clone(), names, facts, deciding, state: Mutex::new(state) }
    }

    /// The most plans that are there at once, whose sum a budget holds for.
    fn most_plans(&self) -> usize {
        if self.has_budget() { 1 } else { MOST_PLANS }
    }

    fn has_budget(&self) -> bool {
        self.options.memory_budget.is_some()
    }

    /// The model, for one use. Errors: those of reading it again.
    fn model(&self, state: &mut State) -> Result<remat_onnx::Model> {
        let found = if self.has_budget() { state.model.take() } else { state.model.clone() };
        match found {
            Some(model) => Ok(model),
            None => match Model::read(&self.source, &self.options)? {
                Model::Onnx(model) => Ok(model),
                Model::Graph(_) => Err(Error::new(ErrorKind::Value, "the file has changed since it was read first")),
            },
        }
    }

    /// The plan for these values. Errors: Budget; those of the passes.
    fn plan(&self, values: &[HostTensor]) -> Result<Option<Plan>> {
        let state = &mut *lock(&self.state);
        if let Some(k) = state.plans.iter().position(|(of, _)| of == values) {
            let found = state.plans.remove(k);
            let plan = found.1.clone();
            state.plans.push(found);
            return Ok(Some(plan));
        }
        let gave_up = !state.has_planned && state.refused.len() == MOST_PLANS;
        if gave_up || state.refused.iter().any(|of| of == values) {
            return Ok(None);
        }
        if self.has_budget() {
            state.network = None;
        }
        let kept = self.most_plans() - 1;
        state.plans.drain(..state.plans.len().saturating_sub(kept));
        let mut model = self.model(state)?;
        for (i, v) in self.deciding.iter().zip(values) {
            model = model.with_input(&self.names[*i], v)?;
        }
        let others = (0..self.facts.len()).filter(|i| !self.deciding.contains(i));
        let others: Option<Vec<Fact>> = others.map(|i| self.facts[i].clone()).collect();
        // what fails here fails when it runs, with the same error
        let trace = others.and_then(|facts| model.trace(&facts).ok().flatten());
        // what passes make others of is freed, if nothing else keeps it
        drop(model);
        let Some(trace) = trace else {
            if state.refused.len() == MOST_PLANS {
                state.refused.remove(0);
            }
            state.refused.push(values.to_vec());
            return Ok(None);
        };
        state.has_planned = true;
        let plan = Plan::new(trace, &self.options, None)?;
        state.plans.push((values.to_vec(), plan.clone()));
        Ok(Some(plan))
    }

    fn network(&self) -> Result<remat_onnx::Network> {
        let state = &mut *lock(&self.state);
        if let Some(network) = &state.network {
            return Ok(network.clone());
        }
        if self.has_budget() {
            state.plans.clear();
        }
        let device = match &self.options.session.device {
            Some(device) => device.clone(),
            None => Device::cpu(self.options.on_device()?)?,
        };
        let network = self.model(state)?.on(&device)?;
        state.network = Some(network.clone());
        Ok(network)
    }
}

/// A plan with memory of this session's.
struct Planned {
    values: Vec<HostTensor>,
    plan: Plan,
    run: remat_runtime::Session,
}

/// A session's part.
pub(crate) struct Machine {
    shared: Arc<Eager>,
    options: SessionOptions,
    inputs: Vec<Option<Value>>,
    /// The arrays that `input_as_mut` lent, by input. Every run reads them again.
    lent: Vec<Option<HostTensor>>,
    planned: Vec<Planned>,
    /// Of the last run; of one under a plan those that are of strings.
    outputs: Vec<Option<Value>>,
    /// Outputs of the last run as host tensors: all of those under a plan, those that were asked for of others.
    read: Vec<Option<HostTensor>>,
    is_planned: bool,
    pub(crate) hooks: RunHooks,
}

impl Machine {
    pub(crate) fn new(shared: Arc<Eager>, options: &SessionOptions) -> Result<Machine> {
        let zeros = |f: &Option<Fact>| f.as_ref().map(|f| HostTensor::zeros(f.dtype, f.shape.clone())).transpose();
        Ok(Machine {
            inputs: vec![None; shared.facts.len()],
            lent: shared.facts.iter().map(zeros).collect::<Result<_>>()?,
            shared,
            options: options.clone(),
            planned: Vec::new(),
            outputs: Vec::new(),
            read: Vec::new(),
            is_planned: false,
            hooks: RunHooks::default(),
        })
    }

    /// Errors (Value): another element type, an input that is no tensor.
    pub(crate) fn input_as_mut<T: Storage>(&mut self, i: usize) -> Result<&mut [T]> {
        self.inputs[i] = None;
        let host = self.lent[i].as_mut().ok_or_else(|| Error::new(ErrorKind::Value, "no tensor"))?;
        if !T::stores(host.dtype()) {
            let text = format!("is of {}, not of the type asked for", host.dtype());
            return Err(Error::new(ErrorKind::Value, text));
        }
        Ok(bytemuck::cast_slice_mut(host.try_bytes_mut()?))
    }

    /// Errors (Value): another type or shape, an input that is no tensor.
    pub(crate) fn set_input(&mut self, i: usize, data: &HostTensor) -> Result<()> {
        let fact = self.shared.facts[i].as_ref();
        let fact = fact.ok_or_else(|| Error::new(ErrorKind::Value, "no tensor: `Session::set_value` sets it"))?;
        if !fact.same_type(&Fact::of(data)) {
            let text = format!("is {}{}, not {}{}", fact.dtype, fact.shape, data.dtype(), data.shape());
            return Err(Error::new(ErrorKind::Value, text));
        }
        (self.inputs[i], self.lent[i]) = (None, Some(data.clone()));
        Ok(())
    }

    pub(crate) fn set_value(&mut self, i: usize, value: Value) {
        self.inputs[i] = Some(value);
    }

    /// Errors: those of operators; Budget; Value for an input that is no tensor and was not set.
    pub(crate) fn run(&mut self) -> Result<()> {
        RunHooks::around(self, |m| &mut m.hooks, Machine::run_now)
    }

    fn run_now(&mut self) -> Result<()> {
        (self.is_planned, self.outputs) = (false, Vec::new());
        self.read.clear();
        match self.planned()? {
            Some(k) => self.run_planned(k),
            None => self.run_eagerly(),
        }
    }

    /// The place of the plan for the values that are set.
    fn planned(&mut self) -> Result<Option<usize>> {
        let deciding = &self.shared.deciding;
        if deciding.is_empty() || self.inputs.iter().any(Option::is_some) {
            return Ok(None);
        }
        let same = |p: &Planned| deciding.iter().zip(&p.values).all(|(i, v)| self.lent[*i].as_ref() == Some(v));
        if let Some(k) = self.planned.iter().position(same) {
            // the one that was used last at the end
            self.planned[k..].rotate_left(1);
            return Ok(Some(self.planned.len() - 1));
        }
        let values: Vec<HostTensor> = deciding.iter().filter_map(|i| self.lent[*i].clone()).collect();
        let kept = self.shared.most_plans() - 1;
        self.planned.drain(..self.planned.len().saturating_sub(kept));
        let Some(plan) = self.shared.plan(&values)? else { return Ok(None) };
        let run = remat_runtime::Session::with(lock(&plan.compiled).executable().clone(), &self.options)?;
        self.planned.push(Planned { values, plan, run });
        Ok(Some(self.planned.len() - 1))
    }

    fn run_planned(&mut self, k: usize) -> Result<()> {
        let Planned { plan, run, .. } = &mut self.planned[k];
        settle(run, &plan.compiled)?;
        let others = (0..self.lent.len()).filter(|i| !self.shared.deciding.contains(i));
        for (place, i) in others.enumerate() {
            if let Some(x) = &self.lent[i] {
                run.set_input(place, x)?;
            }
        }
        run.run()?;
        for j in 0..run.executable()?.graph().outputs().len() {
            let text = plan.text(run, j)?;
            self.read.push(match text {
                Some(_) => None,
                None => {
                    let y = run.output(j)?;
                    Some(HostTensor::from_bytes(y.dtype, y.shape.clone(), y.bytes)?)
                }
            });
            self.outputs.push(text);
        }
        self.is_planned = true;
        Ok(())
    }

    fn run_eagerly(&mut self) -> Result<()> {
        if self.shared.has_budget() {
            self.planned.clear();
        }
        let network = self.shared.network()?;
        let device = network.device();
        let value = |(v, host): (&Option<Value>, &Option<HostTensor>)| match (v, host) {
            (Some(v), _) => on_device(v, device),
            (None, Some(host)) => Ok(Value::Tensor(Tensor::from_host(device, host)?)),
            (None, None) => Err(Error::new(ErrorKind::Value, "an input that is no tensor was not set")),
        };
        let x = self.inputs.iter().zip(&self.lent).map(value).collect::<Result<Vec<Value>>>()?;
        let _quiet = no_grad();
        let y = network.run(&x)?;
        // an error of an operator belongs to this run, and not to a later reader of a value
        device.channel().sync()?;
        self.read.resize(y.len(), None);
        self.outputs = y.into_iter().map(Some).collect();
        Ok(())
    }

    /// Errors (Value): no tensor, no run yet; those of the device.
    pub(crate) fn output(&mut self, j: usize) -> Result<&HostTensor> {
        let read = self.read.get_mut(j).ok_or_else(no_run)?;
        if read.is_none() {
            let value = self.outputs.get(j).and_then(Option::as_ref).ok_or_else(no_run)?;
            *read = Some(value.tensor()?.to_host()?);
        }
        read.as_ref().ok_or_else(no_run)
    }

    /// Errors (Value): a tensor of a run under a plan, no run yet.
    pub(crate) fn output_value(&self, j: usize) -> Result<Value> {
        let value = self.outputs.get(j).ok_or_else(no_run)?;
        value.clone().ok_or_else(|| Error::new(ErrorKind::Value, "a tensor, which `Session::output` gives"))
    }

    pub(crate) fn is_planned(&self) -> bool {
        self.is_planned
    }

    /// Of all plans together, and the most that the device held.
    pub(crate) fn memory(&mut self) -> Result<Memory> {
        let mut all = Memory::default();
        for p in &mut self.planned {
            let m = memory_of(p.run.executable()?);
            all.constant_bytes += m.constant_bytes;
            all.io_bytes += m.io_bytes;
            all.workspace_bytes += m.workspace_bytes;
            all.stored_bytes += m.stored_bytes;
            all.recomputed_calls += m.recomputed_calls;
        }
        if let Some(network) = &lock(&self.shared.state).network {
            let stats = network.device().channel().stats()?;
            // the device holds weights, inputs and outputs too, and tells the most of all together
            all.workspace_bytes += stats.peak_bytes;
            all.recomputed_calls += usize::try_from(stats.recomputed_ops).unwrap_or(usize::MAX);
        }
        Ok(all)
    }
}

/// The value with its tensors on this device: a program makes them on any.
fn on_device(v: &Value, device: &Device) -> Result<Value> {
    Ok(match v {
        Value::Tensor(t) | Value::Constant(t, _) => Value::Tensor(t.to_device(device)?),
        Value::Sequence(all) => Value::Sequence(all.iter().map(|v| on_device(v, device)).collect::<Result<_>>()?),
        Value::Optional(Some(v)) => Value::Optional(Some(Box::new(on_device(v, device)?))),
        other => other.clone(),
    })
}

fn no_run() -> Error {
    Error::new(ErrorKind::Value, "there was no run yet")
}
