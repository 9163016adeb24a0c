//! Ops that own graphs: calls, choices and loops.
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
mod choice;
mod repeat;
mod reverse;
mod samples;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use call::Call;
pub use choice::Switch;
pub use repeat::Loop;

use remat_ops::{Entry, Family, Registry};

/// The ops that own graphs.
pub static FAMILY: Family = Family {
    name: "structure",
    text: "Graphs as ops: a call, one of several, one again and again.",
    ops: &[Entry::of::<Call>(), Entry::of::<Loop>(), Entry::of::<Switch>()],
};

/// The built-in ops and those that own graphs: what graph files of this crate are read with.
pub fn registry() -> Registry {
    Registry::builtin().with_family(&FAMILY).expect("no built-in op has these names")
}
