//! What is true of all operators, and what some of them are held to beside their samples.

mod compare;
mod earlier_forms;
mod expressions;
mod math;
mod pointwise;
mod registry;
mod schema;
