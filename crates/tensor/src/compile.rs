//! Compiled functions: traced once for each set of input types, then run as one op.

mod closure;
mod session;

use std::sync::Arc;

use remat_graph::ir::{Graph, ShapeDepends};
use remat_runtime::compile::{Forms, SegmentRun};
use remat_runtime::tracing;
use remat_runtime::{Device, Executable, Handle, MemoryFigures, Observer, PlanTimes};
use remat_types::{CallSite, Error, ErrorKind, Result, SmallVec};

use crate::Tensor;
use closure::{CellRef, Closure, with_edges};
pub use remat_runtime::compile::{CompileOptions, Symbols};
pub use session::Session;

pub use crate::tape::{StateCell, capture_state, captured_version};

/// A function of tensors, compiled; see [`compile`].
pub struct Compiled<F> {
    f: Closure<F>,
    forms: Forms<CellRef>,
}

/// The handles of the inputs.
type Handles<'x> = SmallVec<[&'x Handle; 4]>;

fn handles<'x>(x: &[&'x Tensor]) -> Handles<'x> {
    x.iter().map(|t| &t.handle).collect()
}

/// Compiles a function on tensors of `device`.
///
/// The first [`Compiled::call`] with inputs of some dtypes and shapes runs `f` and records its operations as a graph.
/// This and later calls run the graph: nothing is inferred, recorded or allocated op by op. Results are bit for bit those
/// of `f` itself. Parameters and optimiser state are read and updated by every run, random keys and learning rates are
/// drawn anew; when a module changes between training and evaluation, or a parameter is frozen, the function is compiled
/// once more. Anything else that `f` does besides computing on tensors happens only while it is compiled.
///
/// ```
/// use remat_runtime::{Device, DeviceOptions};
/// use remat_tensor::{Tensor, compile};
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::cpu(DeviceOptions::default())?;
/// let mut f = compile(&device, |x: &[Tensor]| Ok(vec![(&x[0] + &x[1])?.relu()?]));
/// let x = Tensor::new(&device, &[1f32, -2.0], [2])?;
/// let y = f.call(&[&x, &x])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [2.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub fn compile<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>>(device: &Device, f: F) -> Compiled<F> {
    compile_with(device, CompileOptions::default(), f)
}

/// [`compile`] with options.
pub fn compile_with<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>>(
    device: &Device,
    options: CompileOptions,
    f: F,
) -> Compiled<F> {
    let f = Closure { device: device.clone(), f, calls: 0, is_checked: options.check_trace };
    Compiled { f, forms: Forms::new(device, options) }
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Compiled<F> {
    /// Runs the function. No gradient passes it: a backward pass that comes by a result which would have one is an error
    /// (NotDifferentiable). Errors: those of `f` when it is compiled; NoValue if `f` reads a value; Value for what happens
    /// only while it is compiled; Device for tensors of another device. An op that fails while the graph runs is
    /// reported as in eager programs, and every state keeps its old version then.
    #[track_caller]
    pub fn call(&mut self, x: &[&Tensor]) -> Result<Vec<Tensor>> {
        let site = CallSite::here();
        if let Some(t) = x.iter().find(|t| t.device() != self.f.device) {
            let text = format!("{t:?} is on another device than the compiled function");
            return Err(Error::new(ErrorKind::Device, text).with_call_site(site));
        }
        if tracing::is_tracing() {
            // Within another compiled function it is part of that one.
            let x: Vec<Tensor> = x.iter().map(|t| (*t).clone()).collect();
            return (self.f.f)(&x);
        }
        let (mut run, inputs) = (SegmentRun::default(), handles(x));
        let reached = self.forms.reach(&mut self.f, &inputs, &mut run, site).map_err(|e| e.with_call_site(site));
        let results = reached.and_then(|()| {
            let form = self.forms.last_mut()?;
            form.before_run();
            let y = self.f.run_form(form, &inputs, &mut run, site)?;
            form.after().iter().for_each(|f| f());
            Ok(with_edges(form, x, y, site))
        });
        self.forms.trim();
        results
    }

    /// The executable for inputs of these types; compiles it if need be. Of a function whose shapes follow from values it is
    /// the last piece for these values: those before it run. Errors: as [`Compiled::call`].
    #[track_caller]
    pub fn executable(&mut self, x: &[&Tensor]) -> Result<Arc<Executable>> {
        let site = CallSite::here();
        let reached = self.forms.reach(&mut self.f, &handles(x), &mut SegmentRun::default(), site);
        let executable = reached.and_then(|()| Ok(self.forms.last()?.executable().clone()));
        self.forms.trim();
        executable.map_err(|e| e.with_call_site(site))
    }

    /// The graph for inputs of these types; compiles it if need be. Errors: as [`Compiled::executable`].
    #[track_caller]
    pub fn graph(&mut self, x: &[&Tensor]) -> Result<Arc<Graph>> {
        Ok(self.executable(x)?.graph().clone())
    }

    /// The graphs that a call with these inputs runs one after another: one, or where shapes follow from values, the pieces,
    /// those before the last with a size as their first output. Runs those to find the sizes. Errors: as
    /// [`Compiled::executable`].
    #[track_caller]
    pub fn pieces(&mut self, x: &[&Tensor]) -> Result<Vec<Arc<Graph>>> {
        let (mut run, inputs) = (SegmentRun::default(), handles(x));
        let site = CallSite::here();
        let reached = self.forms.reach(&mut self.f, &inputs, &mut run, site).map_err(|e| e.with_call_site(site));
        let graphs = self.forms.segments(&inputs, &run);
        self.forms.trim();
        reached.and(graphs)
    }

    /// The inputs that decide the shape of output `j`, for arguments like `x`. They include sizes that only a run knows:
    /// any number in the function after [`Tensor::as_size`] may follow from such a size. See [`Graph::shape_depends`].
    ///
    /// Errors: Value for an output that there is not; as [`Compiled::executable`].
    #[track_caller]
    pub fn shape_depends(&mut self, x: &[&Tensor], j: usize) -> Result<ShapeDepends> {
        let site = CallSite::here();
        let reached = self.forms.reach(&mut self.f, &handles(x), &mut SegmentRun::default(), site);
        let found = reached.and_then(|()| self.forms.last()?.shape_depends(j));
        self.forms.trim();
        found.map_err(|e| e.with_call_site(site))
    }

    /// The memory of the forms compiled so far, the one used last at the end.
    pub fn figures(&self) -> Vec<MemoryFigures> {
        self.forms.all().iter().map(|e| e.compiled().figures()).collect()
    }

    /// True once every compiled form has its last plan. Under a budget that makes calls run again, a form begins with a
    /// plan for estimated times and goes over, within some runs, to one for the times it measured; results are the same.
    pub fn is_settled(&self) -> bool {
        self.forms.all().iter().all(|e| e.compiled().is_settled())
    }

    /// Shows every value that runs compute to `observer`, until the next call of this; `None` ends it. What it refuses
    /// fails the run. Views take no call and are not shown.
    pub fn observe(&mut self, observer: Option<Arc<dyn Observer>>) {
        self.forms.observe(observer);
    }

    /// The planned time of the form used last. The planner uses estimated times until the calls have been timed, and
    /// measured times after that. `None` if the form needs no plan to fit its budget.
    pub fn plan_times(&self) -> Option<PlanTimes> {
        self.forms.last().ok().and_then(|e| e.compiled().plan_times())
    }

    /// [`Compiled::plan_times`] of every form, in the order of [`Compiled::figures`].
    pub fn all_plan_times(&self) -> Vec<Option<PlanTimes>> {
        self.forms.all().iter().map(|e| e.compiled().plan_times()).collect()
    }

    /// Nanoseconds that the calls of the last run took.
    pub fn ops_ns(&self) -> u64 {
        self.forms.last().map_or(0, |e| e.executable().node_times().iter().map(|t| t.1).sum())
    }

    /// How often the function was traced: once a shape and a size that a run found, or a few times in all where
    /// [`symbols`](CompileOptions::symbols) are given.
    pub fn traces(&self) -> usize {
        self.forms.traces()
    }

    /// The number of the call that traced the form used last, counted from 1. A trace calls the function once, or
    /// twice with [`check_trace`](CompileOptions::check_trace); then the second call counts. 0 before the first call.
    pub fn last_trace(&self) -> usize {
        self.forms.last().map_or(0, |e| e.number())
    }

    /// [`Compiled::last_trace`] of every form that is kept.
    pub fn kept_traces(&self) -> Vec<usize> {
        self.forms.all().iter().map(|e| e.number()).collect()
    }

    /// How many graphs were planned for a run, those that are not kept any more included.
    pub fn plans(&self) -> usize {
        self.forms.plans()
    }
}
