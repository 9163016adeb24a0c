//! Loops, choices and calls of tensor functions: closures that are traced once and become one op.
//!
//! What a closure takes from outside, parameters included, becomes an input of the op, so gradients reach it. Within a
//! compiled function the op is a node of that function's graph; in an eager program it is a command like any other, under
//! the same budget. The closures themselves run once, when the op is made: what else they do happens once.

mod scan;

use remat_graph::ir::{Builder, Graph, ValueId};
use remat_graph::passes::cpu::Cpu;
use remat_graph::passes::{PassCx, PassOptions, optimize};
use remat_kernels::pool::Pool;
use remat_ops::OpRef;
use remat_runtime::control_flow::{Body, Call, Switch};
use remat_runtime::{Device, tracing};
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, Result, SmallVec};

pub use scan::{Collect, ScanOptions, fori_loop, scan, while_loop};

use crate::Tensor;
use crate::site::InOp;
use crate::tape::{self, Frame, Restores, no_grad};

/// A traced closure.
struct Traced {
    graph: Graph,
    /// The captured tensors: the graph's inputs after the given ones.
    captured: Vec<Tensor>,
}

/// Traces `f` for inputs of these facts; with `in_steps` the first is the number of the step.
fn traced(
    device: &Device,
    x: &[Fact],
    in_steps: bool,
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Traced> {
    // made where it is kept: dropping one puts the gradients of the outer trace back
    let restores = if tracing::is_tracing() { None } else { Some(Restores) };
    let (frame, quiet) = (Frame::begin(), no_grad());
    let found = tracing::trace_body(device, x, in_steps, |x| {
        let x: Vec<Tensor> = x.iter().map(|h| Tensor::from_handle(h.clone())).collect();
        Ok(f(&x)?.into_iter().map(|t| t.handle).collect())
    })?;
    drop(quiet);
    let used = frame.used();
    drop(frame);
    if let Some(found) = restores.map(|r| r.restore())
        && (!found.updates.is_empty() || found.gradient_left)
    {
        let text = "a parameter is updated, or given a gradient, within a loop or a branch; do it outside";
        return Err(Error::new(ErrorKind::Value, text));
    }
    if tracing::is_tracing() {
        found.guards.into_iter().for_each(tracing::guard);
    }
    let known = |h: &remat_runtime::Handle| used.iter().find(|t| t.handle.id() == h.id()).cloned();
    let captured = found.captured.into_iter().map(|h| known(&h).unwrap_or_else(|| Tensor::from_handle(h))).collect();
    // no pass of this level changes a bit, nor does the number of threads
    let (graph, _) =
        optimize(found.graph.clone(), &PassCx { options: &PassOptions::default(), target: &Cpu, pool: &Pool::new(1) })?;
    Ok(Traced { graph, captured })
}

fn fact(t: &Tensor) -> Fact {
    Fact::new(t.dtype(), t.shape().clone())
}

fn device_of(x: &[&Tensor]) -> Result<Device> {
    let first = x.first().ok_or_else(|| Error::new(ErrorKind::Arity, "no tensor says on which device to run"))?;
    Ok(first.device())
}

fn apply(device: &Device, op: impl Into<OpRef>, x: SmallVec<[Tensor; 4]>, site: CallSite) -> Result<Vec<Tensor>> {
    Ok(tape::apply_on(&device.channel(), op.into(), x, site)?.into_iter().collect())
}

/// `f(x)` as one op: a part of a program that graphs, reports and pictures show as one call.
///
/// Errors: those of `f`; Arity without inputs; Value for updates and learning rates, which a body cannot have.
///
/// ```
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::{Tensor, call};
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::cpu(DeviceOptions::default())?;
/// let x = Tensor::new(&device, &[3f32], [1])?;
/// assert_eq!(call(&[&x], |x| Ok(vec![(&x[0] * &x[0])?]))?[0].to_vec::<f32>()?, [9.0]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn call(x: &[&Tensor], f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    let site = CallSite::here();
    let run = || {
        let device = device_of(x)?;
        let facts: Vec<Fact> = x.iter().map(|t| fact(t)).collect();
        let Traced { graph, captured } = traced(&device, &facts, false, f)?;
        let all = x.iter().map(|t| (*t).clone()).chain(captured).collect();
        apply(&device, Call { body: Body::new(graph)? }, all, site)
    };
    run().in_op_at("call", site)
}

/// `yes(x)` if the one element of `pred` is true and `no(x)` if not: only that one is computed, and which is known when
/// the op runs. Gradients are those of the branch that ran.
///
/// Errors: DType for a `pred` that is not Bool; Shape for one of several elements, and for branches that give different
/// types; those of the branches and of [`call`].
///
/// ```
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::{Tensor, cond};
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::cpu(DeviceOptions::default())?;
/// let x = Tensor::new(&device, &[3f32], [])?;
/// let y = cond(&x.gt(2.0)?, &[&x], |x| Ok(vec![x[0].sqrt()?]), |x| Ok(vec![x[0].neg()?]))?;
/// assert_eq!(y[0].item::<f32>()?, 3f32.sqrt());
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn cond(
    pred: &Tensor,
    x: &[&Tensor],
    yes: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    no: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    let site = CallSite::here();
    if pred.dtype() != DType::Bool {
        let text = format!("the condition is {}, not bool", pred.dtype());
        return Err(Error::new(ErrorKind::DType, text)).in_op_at("cond", site);
    }
    let (mut yes, mut no) = (Some(yes), Some(no));
    let mut yes = |x: &[Tensor]| yes.take().map_or_else(|| Err(twice()), |f| f(x));
    let mut no = |x: &[Tensor]| no.take().map_or_else(|| Err(twice()), |f| f(x));
    branches(pred, x, &mut [&mut no, &mut yes], site).in_op_at("cond", site)
}

fn twice() -> Error {
    Error::new(ErrorKind::Internal, "a branch was traced twice")
}

/// A branch of [`switch`].
pub type Branch<'a> = dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 'a;

/// As [`cond`], for any number of branches: `index`, an integer, counts them from 0. Errors: also Index, when it runs, for
/// a branch that is not there.
#[track_caller]
pub fn switch(index: &Tensor, x: &[&Tensor], all: &mut [&mut Branch<'_>]) -> Result<Vec<Tensor>> {
    let site = CallSite::here();
    if !index.dtype().is_int() {
        let text = format!("the index is {}, not an integer", index.dtype());
        return Err(Error::new(ErrorKind::DType, text)).in_op_at("switch", site);
    }
    let index = index.cast(DType::I64)?;
    branches(&index, x, all, site).in_op_at("switch", site)
}

fn branches(choice: &Tensor, x: &[&Tensor], all: &mut [&mut Branch<'_>], site: CallSite) -> Result<Vec<Tensor>> {
    let device = choice.device();
    let choice = choice.reshape(&[])?;
    let facts: Vec<Fact> = x.iter().map(|t| fact(t)).collect();
    let parts = all.iter_mut().map(|f| traced(&device, &facts, false, f)).collect::<Result<Vec<Traced>>>()?;
    // every branch takes what any of them uses
    let mut union: Vec<Tensor> = Vec::new();
    let place = |union: &[Tensor], t: &Tensor| union.iter().position(|u| u.handle.id() == t.handle.id());
    for t in parts.iter().flat_map(|p| &p.captured) {
        if place(&union, t).is_none() {
            union.push(t.clone());
        }
    }
    let mut bodies = Vec::with_capacity(parts.len());
    for p in &parts {
        let b = Builder::new();
        let own: Vec<ValueId> = facts.iter().cloned().chain(union.iter().map(fact)).map(|f| b.input(f, None)).collect();
        let used = p.captured.iter().filter_map(|t| place(&union, t)).map(|i| own[facts.len() + i]);
        let given: Vec<ValueId> = own[..facts.len()].iter().copied().chain(used).collect();
        bodies.push(rebuilt(b, &p.graph, &given)?);
    }
    let x = std::iter::once(choice).chain(x.iter().map(|t| (*t).clone())).chain(union).collect();
    apply(&device, Switch { branches: bodies }, x, site)
}

fn rebuilt(b: Builder, g: &Graph, x: &[ValueId]) -> Result<Body> {
    for (i, y) in g.inline(&b, x)?.into_iter().enumerate() {
        b.output(y, &format!("y{i}"));
    }
    Body::new(b.finish()?)
}
