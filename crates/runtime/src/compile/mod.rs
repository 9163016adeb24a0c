//! Compilation: from a graph and options to an executable with its plan.
//!
//! ```text
//! Graph --freeze--> Graph --passes by level--> Graph --plan within the budget--> Executable --runs--> a second plan
//! ```
//!
//! A program that has a graph from a file needs nothing above this crate:
//!
//! * [`CompileOptions`]: what passes may do, the budget, freezing, symbols, how many forms are kept;
//! * [`freeze`]: states that a graph only reads become constants;
//! * [`RunBudget`]: what of a budget is left for a run's workspace, and the figures of a refusal;
//! * [`CompiledGraph`]: passes, the executable under its first plan, which is for estimated times, and the second one for
//!   measured times, made beside the runs (`planner.rs`). Plans decide times and never a bit.
//!
//! A function that is traced has a graph for each set of input types:
//!
//! * [`Forms`]: the compiled forms of a function, found by facts, sizes and guards;
//! * [`Symbols`]: graphs over symbols, from which the forms of new sizes are filled in;
//! * `segments.rs`: functions whose shapes follow from values, which run as several forms one after another.
//!
//! Who traces and who holds the states is the function's owner ([`Function`], [`VersionedCell`]): closures over tensors and
//! their gradients are the crate `tensor`'s.

mod budget;
mod forms;
mod freeze;
mod function;
mod graph;
mod options;
mod segments;
mod shared;
mod stored;
mod symbols;
#[cfg(test)]
mod tests;

pub use budget::{Beside, RunBudget};
pub use forms::{Form, Forms, Launched};
pub use freeze::freeze;
pub use function::{AfterRun, Function, FunctionTrace, State, VersionedCell};
pub use graph::{CompileCx, CompiledGraph};
pub use options::CompileOptions;
pub use segments::SegmentRun;
pub use shared::SharedConstants;
pub use stored::stored_constant_bytes;
pub use symbols::Symbols;
