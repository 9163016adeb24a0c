//! Ops that own graphs: calls, switches and loops.
//!
//! The rest of the framework treats them as ops like any other: they are inferred, evaluated, differentiated, saved and
//! loaded in the same way. Inside, a program runs (`program/flow.rs`). The workspace of such an op is the plan of its
//! graph, and a run allocates nothing. In a compiled graph the program is part of that graph's program. The gradient of
//! such an op is again such an op, over the gradient graphs of its bodies
//! ([`Graph::gradient`](remat_graph::ir::Graph::gradient)).
//!
//! A [`Body`] is its graph's text: the text is its identity and its serial form. So a graph that contains graphs has
//! the same text and file forms as any other.

mod body;
mod call;
mod r#loop;
mod reverse;
mod samples;
mod switch;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use call::Call;
pub use r#loop::Loop;
pub use switch::Switch;

use std::sync::Arc;

use remat_device::program::Flow;
use remat_device::{HostKernels, KernelSet};
use remat_ops::{Entry, EvalCx, Family, OpRef, Registry};
use remat_types::Result;

use super::HOST;

/// The ops that own graphs.
pub static FAMILY: Family = Family {
    name: "control_flow",
    text: "Graphs as ops: a call, one of several, one again and again.",
    ops: &[Entry::for_op::<Call>(), Entry::for_op::<Loop>(), Entry::for_op::<Switch>()],
};

/// The built-in ops and those that own graphs. This crate reads graph files with it.
pub fn registry() -> Registry {
    Registry::builtin().with_family(&FAMILY).expect("no built-in op has these names")
}

/// Computes a flow's op with the kernels of the ops within. Errors: theirs.
fn eval_on_host(flow: &Flow, cx: &mut EvalCx<'_>) -> Result<()> {
    flow.eval(cx, &HostKernels::new(HOST, cx.pool.threads()))
}

/// The programs that an op runs on these kernels. `None` for an op of one kernel, and for an op whose graphs cannot
/// run: its error comes when it should run.
pub(crate) fn flow(op: &OpRef, kernels: &Arc<dyn KernelSet>) -> Option<Flow> {
    let any = op.as_any();
    if let Some(call) = any.downcast_ref::<Call>() {
        return call.body.program_for(kernels).ok().map(Flow::Call);
    }
    if let Some(switch) = any.downcast_ref::<Switch>() {
        let branches = switch.branches.iter().map(|b| b.program_for(kernels));
        return branches.collect::<remat_types::Result<_>>().ok().map(Flow::Switch);
    }
    let l = any.downcast_ref::<Loop>()?;
    l.body.program_for(kernels).ok().map(|body| Flow::Loop(l.runs(body)))
}
