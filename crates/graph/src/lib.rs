//! Remat's computing graph and the planner of its memory: graphs of operators, passes that transform them, and plans. A
//! plan says when to compute, recompute and free each value, and at which offset every storage lies.
#![forbid(unsafe_code)]

pub mod ir;
pub mod passes;
pub mod plan;
