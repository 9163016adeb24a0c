//! Properties of all operators, and checks of some operators beside their samples.

mod compare;
mod earlier_forms;
mod expressions;
mod math;
mod pointwise;
mod registry;
mod schema;
