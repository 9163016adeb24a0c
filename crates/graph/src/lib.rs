//! Remat's computing graph and the planner of its memory: what is computed from what, what the graph may become, and what
//! to compute, recompute and free when, and at which offset every storage lies.
#![forbid(unsafe_code)]

pub mod ir;
pub mod passes;
pub mod plan;
