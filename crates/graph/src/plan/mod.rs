//! Planning under a memory budget, as pure functions of an abstract problem.
//!
//! ```text
//! problem  what there is to compute: operators with times, storages with sizes, versions
//!    |
//!  remat   an order of executions, recomputations included, whose live bytes fit the budget
//!    |
//! lifetime from which step to which every instance of a storage lives
//!    |
//!  arena   an offset for every instance
//!    |
//! schedule steps as data, JSON out and in
//!    |
//!  check   replays a schedule and believes nothing that it claims
//! ```
//!
//! Between `remat` and `lifetime` a solution is a plain *sequence* of operators. Frees are not part of it: an instance
//! of a storage ends with the last step that reads it before its producer runs again. So every sequence whose inputs
//! were made before is a schedule, and a search only ever inserts, removes and moves executions.

pub mod arena;
pub mod baseline;
pub mod check;
pub(crate) mod clock;
mod floor;
pub mod generate;
mod json;
pub mod lifetime;
pub mod problem;
pub mod remat;
pub(crate) mod rng;
pub mod schedule;
