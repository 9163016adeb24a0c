//! Foresight: what a training step did is what the next one will do.
//!
//! ```text
//! tape     a step as data: its commands, tensors numbered in the order in which they appear
//!   |
//! stated   the tape as the offline planner's problem
//!   |
//! script   the planner's schedule by command: what to free and to make again before each, and where results go
//!   |
//! book     the steps that were seen, the plans for some of them, and the planner's thread
//! ```
//!
//! All of this is data and pure functions; the worker records and follows (`eager/foresight.rs`, `eager/follow.rs`). A
//! script says what to evict and to make again, never what a value is: a wrong one costs time and no bit.

mod book;
mod script;
mod stated;
mod tape;
#[cfg(test)]
mod tests;

pub(crate) use book::Book;
pub(crate) use script::{Action, Remake, Script};
pub(crate) use tape::{Done, Event, Local, LocalBytes, NO_LOCAL, Name, Tape, What};
