//! Ops that own graphs: calls, switches and loops.
//!
//! To everything above and below they are ops like any other: inferred, evaluated, differentiated, saved and given back
//! through the same doors. What runs inside is an [`Executable`](crate::Executable), so an op's workspace is the plan of
//! its graph, and no byte is taken within a run. Gradients are such ops again, over the gradient graphs of their bodies
//! ([`Graph::gradient`](remat_graph::ir::Graph::gradient)).
//!
//! A [`Body`] is its graph's text: that is its identity and its serial form, so graphs that contain graphs have the same
//! text and file forms as all others.

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

use remat_ops::Registry;

/// The built-in ops and those that own graphs: what graph files of this crate are read with.
pub fn registry() -> Registry {
    let all = Registry::builtin().with::<Call>().and_then(|r| r.with::<Switch>()).and_then(|r| r.with::<Loop>());
    all.expect("no built-in op has these names")
}
