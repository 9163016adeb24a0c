//! Remat's computing graph: the static form of a program, and the planner of its memory.
#![forbid(unsafe_code)]

pub mod ir;
