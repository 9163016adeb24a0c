//! Compilation: from a graph and options to an executable with its plan.
//!
//! ```text
//! Graph --freeze--> Graph --passes by level--> Graph --plan within the budget--> Executable --runs--> a second plan
//! ```
//!
//! A program that has a graph from a file needs nothing above this crate:
//!
//! * [`CompileOptions`]: the passes, the budget, freezing, symbols, and the number of forms that are kept;
//! * [`freeze`]: makes constants of states that a graph only reads;
//! * [`RunBudget`]: the part of a budget that is left for a run's workspace, and the figures of a refusal;
//! * [`CompiledGraph`]: passes, the executable under its first plan, and its second plan. The first plan uses estimated
//!   times. The second uses measured times and is made beside the runs (`planner.rs`). A plan changes times and never a
//!   bit of a result.
//!
//! A function that is traced has a graph for each set of input types:
//!
//! * [`Forms`]: the compiled forms of a function, selected by facts, sizes and guards;
//! * [`Symbols`]: graphs over symbols, from which the forms of new sizes are filled in;
//! * `segments.rs`: functions whose shapes follow from values, which run as several forms one after another.
//!
//! The owner of a function traces it and holds its states ([`Function`], [`VersionedCell`]). Closures over tensors and
//! their gradients belong to the crate `tensor`.

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

pub use budget::{Beside, Held, RunBudget};
pub use forms::{Form, Forms, Launched};
pub use freeze::freeze;
pub use function::{AfterRun, Function, FunctionTrace, State, VersionedCell};
pub use graph::{CompileCx, CompiledGraph};
pub use options::CompileOptions;
pub use segments::SegmentRun;
pub use shared::SharedConstants;
pub use stored::stored_constant_bytes;
pub use symbols::Symbols;
